"""The registry: environments by name, from a call to `register`, an entry point, or "package.module:thing".

An installed package offers environments by entry points of the group `corrgrpo_gym.envs`:

    [project.entry-points."corrgrpo_gym.envs"]
    sums = "my_package.sums:SumsEnv"

The name is the environment's, the value its class, a function that makes it, or an environment.
"""

import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

import gymnasium

from ..errors import GymError, unknown
from .base import MultiRewardEnv
from .loading import build, load

ENTRY_POINT_GROUP = "corrgrpo_gym.envs"


@dataclass(frozen=True, slots=True)
class EnvInfo:
    """What `list_envs` says of an environment.

    Attributes:
        name: what `make` takes.
        description: one line.
        reward_names: names of the components; None where they are known only once it is made.
        source: "built in", "registered by MODULE", or "plug-in DISTRIBUTION VERSION".
        gymnasium_id: what `gymnasium.make` takes, if anything.
    """

    name: str
    description: str
    reward_names: tuple[str, ...] | None
    source: str
    gymnasium_id: str | None


@dataclass(slots=True)
class _Entry:
    thing: Any
    source: str
    description: str = ""
    reward_names: tuple[str, ...] | None = None
    gymnasium_id: str | None = None
    defaults: dict[str, Any] = field(default_factory=dict)


_entries: dict[str, _Entry] = {}
_plugins: dict[str, _Entry] | None = None


def register(
    name: str,
    entry: Any,
    *,
    description: str = "",
    reward_names: Sequence[str] | None = None,
    gymnasium_id: str | None = None,
    replace: bool = False,
    **defaults: Any,
) -> None:
    """Give an environment a name.

    Args:
        name: what `make` and `--env` will take; no ":" in it.
        entry: a class, a function that makes an environment, an environment, or "package.module:thing", which
            is imported only when it is made.
        description: one line for lists; the first line of the docstring where none is given.
        reward_names: names of the components for lists; taken from the class where it has them.
        gymnasium_id: register it with Gymnasium too, under this id ("my_package/Sums-v0").
        replace: take the place of an environment of this name.
        **defaults: options that `make` passes on, unless it is given others.

    Raises:
        GymError: the name is taken or not usable, or the entry can't be called.
    """
    if not isinstance(name, str) or not name or ":" in name:
        raise GymError(f"an environment's name is a non-empty str without ':', not {name!r}")
    if not (isinstance(entry, str | MultiRewardEnv) or callable(entry)):
        raise GymError(f"environment {name!r}: {entry!r} is no class, function, environment or 'module:thing'")
    if isinstance(entry, str) and ":" not in entry:
        raise GymError(f"environment {name!r}: {entry!r} should be 'package.module:thing'")
    old = _entries.get(name)
    if old is not None and not replace and _label(old.thing) != _label(entry):
        raise GymError(
            f"environment {name!r} is registered already ({_label(old.thing)}); choose another name or pass "
            "replace=True"
        )
    module = _label(entry).partition(":")[0]
    source = "built in" if module.startswith(__package__ + ".") else f"registered by {module}"
    names = tuple(reward_names) if reward_names else None
    _entries[name] = _Entry(entry, source, description, names, gymnasium_id, dict(defaults))
    if gymnasium_id is not None:
        _register_with_gymnasium(name, gymnasium_id)


def make(name: str, split: str = "train", data: Any = None, **options: Any) -> MultiRewardEnv:
    """Make an environment.

    Args:
        name: a registered name, or "package.module:thing" where thing is a class, a function that makes an
            environment, or an environment; modules in the current directory are found.
        split: which tasks ("train", "test", ...: `env.splits`).
        data: where the data come from, for environments that offer it ("auto", "embedded", "hub", a path).
        **options: the environment's own options.

    Raises:
        GymError: unknown name, split or option, or an import that failed.
    """
    if not isinstance(name, str):
        raise GymError(f"make takes an environment's name or 'package.module:thing', not {name!r}")
    entry = _entries.get(name)
    if entry is None and ":" in name:
        return build(load(name, here=True), name, split, data, {}, options)
    entry = entry or _discovered().get(name)
    if entry is None:
        known = [*_entries, *_discovered()]
        raise GymError(unknown("environment", name, known) + " Your own: 'package.module:thing' or 'file.py:thing'.")
    label = f"environment {name!r}"
    try:
        thing = _resolved(entry)
    except GymError as error:
        raise GymError(f"{label} ({entry.source}): {error}") from error
    return build(thing, label, split, data, entry.defaults, options)


def list_envs() -> list[EnvInfo]:
    """List the environments that have a name: built in, registered, from installed plug-ins, in that order.

    Plug-ins are imported; one that fails is left out with a warning that names it.
    """
    infos = []
    for name, entry in {**_discovered(), **_entries}.items():
        thing: Any = entry.thing
        if isinstance(thing, metadata.EntryPoint):
            try:
                thing = _resolved(entry)
            except GymError as error:
                warnings.warn(f"environment {name!r} of {entry.source} is left out: {error}", stacklevel=2)
                continue
        names = entry.reward_names
        if names is None and (isinstance(thing, MultiRewardEnv) or _is_env_class(thing)):
            names = tuple(thing.reward_names) or None
        description = entry.description
        if not description and not isinstance(thing, str):
            # An instance without a docstring of its own shows its class's.
            description = (inspect.getdoc(thing) or "").strip().partition("\n")[0]
        infos.append(EnvInfo(name, description, names, entry.source, entry.gymnasium_id))
    rank = {"built": 0, "registered": 1}
    return sorted(infos, key=lambda info: (rank.get(info.source.split()[0], 2), info.name))


def register_gymnasium() -> None:
    """Register what has a Gymnasium id with Gymnasium (importing `corrgrpo_gym.envs` does so too)."""
    for name, entry in _entries.items():
        if entry.gymnasium_id is not None:
            _register_with_gymnasium(name, entry.gymnasium_id)


def make_for_gymnasium(name: str, **options: Any) -> MultiRewardEnv:
    """Make an environment for `gymnasium.make`, whose keyword arguments are those of `make`."""
    return make(name, **options)


def _register_with_gymnasium(name: str, gymnasium_id: str) -> None:
    gymnasium.registry.pop(gymnasium_id, None)
    gymnasium.register(
        gymnasium_id,
        entry_point=f"{__name__}:make_for_gymnasium",
        # The checker would ask for a number as reward; the order of calls is checked by step itself.
        disable_env_checker=True,
        order_enforce=False,
        kwargs={"name": name},
    )


def _discovered() -> Mapping[str, _Entry]:
    global _plugins
    if _plugins is None:
        found: dict[str, _Entry] = {}
        for point in metadata.entry_points(group=ENTRY_POINT_GROUP):
            source = f"plug-in {point.dist.name} {point.dist.version}" if point.dist else f"plug-in {point.value}"
            taken = found.get(point.name) or _entries.get(point.name)
            if taken is not None or ":" in point.name:
                why = f"that name is taken ({taken.source})" if taken else "the name has a ':'"
                warnings.warn(f"environment {point.name!r} of {source} is left out: {why}", stacklevel=3)
            else:
                found[point.name] = _Entry(point, source)
        _plugins = found
    return _plugins


def _resolved(entry: _Entry) -> Any:
    if isinstance(entry.thing, metadata.EntryPoint):
        return load(entry.thing.value.partition("[")[0].strip(), here=False)
    return load(entry.thing, here=False) if isinstance(entry.thing, str) else entry.thing


def _is_env_class(thing: Any) -> bool:
    return inspect.isclass(thing) and issubclass(thing, MultiRewardEnv)


def _label(thing: Any) -> str:
    if isinstance(thing, str):
        return thing
    described = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{getattr(described, '__module__', '?')}:{getattr(described, '__qualname__', '?')}"
