"""Names, papers, formulas and options of every estimator, loss and algorithm. Needs no torch.

The built-in ones register themselves in `estimators.py` and `losses.py` with the same decorators that a user
has.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from ..errors import GymError, unknown

Kind = Literal["estimator", "loss"]
Function = TypeVar("Function", bound=Callable[..., Any])

AGGREGATIONS = (
    "token-mean",
    "token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum",
    "seq-mean-token-sum-norm",
)
KL_ESTIMATORS = ("k1", "k2", "k3")
MISSING_MODES = ("centre", "nansum", "zero")

# Options that every estimator or loss takes beside its own; `None` stands for the loss's own aggregation.
COMMON_OPTIONS: dict[str, dict[str, Any]] = {
    "estimator": {"missing": "centre"},
    "loss": {"aggregation": None, "norm_length": None, "kl_coef": 0.0, "kl": "k3", "kl_unbiased": False},
}


@dataclass(frozen=True)
class SamplingRules:
    """What an algorithm asks of the sampler.

    Attributes:
        dynamic: Leave out groups without a learning signal (`keep_groups`).
        overlong: Add the soft penalty for long completions to the total (`overlong_penalty`).
    """

    dynamic: bool = False
    overlong: bool = False


@dataclass(frozen=True)
class Entry:
    """One registered estimator or loss.

    Attributes:
        kind: "estimator" or "loss".
        name: Its name in configurations and on the command line.
        paper: Title or short name and arXiv id.
        description: The formula, in one line.
        function: The implementation.
        defaults: Its own options and their defaults, read from the function's keyword-only arguments.
        optional: Those that may be None, by their annotations.
        aggregation: A loss's default aggregation.
        sampling: A loss's sampling rules.
        exclusive: Pairs of options of which a call may give only one.
    """

    kind: Kind
    name: str
    paper: str
    description: str
    function: Callable[..., Any] = field(repr=False)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()
    aggregation: str = "token-mean"
    sampling: SamplingRules = SamplingRules()
    exclusive: tuple[tuple[str, str], ...] = ()

    def check(self, options: Mapping[str, Any], *, common: bool = True) -> None:
        """Raise `GymError` for an option that does not exist, has the wrong type, or excludes another one.

        Args:
            options: Options by name.
            common: Also allow the options that all entries of this kind share (`COMMON_OPTIONS`).
        """
        known = dict(self.defaults) | (COMMON_OPTIONS[self.kind] if common else {})
        for name, value in options.items():
            if name not in known:
                raise GymError(unknown(f"option of {self.kind} {self.name!r}:", name, known))
            if value is None and name in self.optional:
                continue
            what = f"option {name!r} of {self.kind} {self.name!r}"
            _check_type(what, value, known[name])
            if name.startswith("eps") and not value > 0:
                raise GymError(f"{what} must be > 0, got {value!r}: it keeps a constant group from dividing by 0.")
        for one, other in self.exclusive:
            if options.get(one) is not None and options.get(other) is not None:
                raise GymError(f"{self.kind} {self.name!r} takes {one!r} or {other!r}, not both: remove one.")


@dataclass(frozen=True)
class Listing:
    """One line of `corrgrpo-gym algos`: a name that `--algo` takes and what stands behind it."""

    name: str
    loss: str
    estimator: str
    paper: str
    description: str
    defaults: Mapping[str, Any]
    sampling: SamplingRules


_REGISTRY: dict[Kind, dict[str, Entry]] = {"estimator": {}, "loss": {}}


def register_estimator(
    name: str, *, paper: str = "", description: str = "", replace: bool = False
) -> Callable[[Function], Function]:
    """Register an advantage estimator under a name that `advantages`, `Algorithm` and `--algo` then take.

    The decorated callable gets a `RewardBatch` and its options as keyword arguments, each with a default. It
    returns advantages [G, n] in float64, or an `Estimate`.

    Args:
        name: Lower case, without spaces; "+" is allowed.
        paper: Where it comes from.
        description: The formula in one line.
        replace: Replace an estimator of this name instead of raising.

    Raises:
        GymError: The name is taken or malformed, or an argument has no default.
    """
    return _register("estimator", name, paper, description, replace)


def register_loss(
    name: str,
    *,
    paper: str = "",
    description: str = "",
    aggregation: str = "token-mean",
    sampling: SamplingRules | None = None,
    exclusive: tuple[tuple[str, str], ...] = (),
    replace: bool = False,
) -> Callable[[Function], Function]:
    """Register a policy loss under a name that `policy_loss`, `Algorithm` and `--algo` then take.

    The decorated callable gets `TokenTerms` and its options as keyword arguments, each with a default. It
    returns the loss per token [B, T], or a `TokenLoss`.

    Args:
        name: Lower case, without spaces.
        paper: Where it comes from.
        description: The formula in one line.
        aggregation: Its default aggregation, one of `AGGREGATIONS`.
        sampling: Its sampling rules, if any.
        exclusive: Pairs of options of which a call may give only one.
        replace: Replace a loss of this name instead of raising.

    Raises:
        GymError: The name is taken or malformed, the aggregation unknown, or an argument has no default.
    """
    choose("aggregation", aggregation, AGGREGATIONS)
    return _register(
        "loss",
        name,
        paper,
        description,
        replace,
        aggregation=aggregation,
        sampling=sampling or SamplingRules(),
        exclusive=exclusive,
    )


def estimators() -> dict[str, Entry]:
    """All registered estimators by name, built-in ones first."""
    return dict(_loaded("estimator"))


def losses() -> dict[str, Entry]:
    """All registered losses by name, built-in ones first."""
    return dict(_loaded("loss"))


def find(kind: Kind, name: str) -> Entry:
    """Return the estimator or loss of a name; `GymError` with the nearest names if there is none."""
    entries = _loaded(kind)
    if name not in entries:
        raise GymError(unknown(kind, name, entries))
    return entries[name]


def resolve(name: str) -> tuple[str, str]:
    """Return (loss, estimator) of an algorithm's name.

    A name is an estimator's (with `ppo_clip`), a loss's (with `grpo`), `dr_grpo` (both), or
    `<loss>+<estimator>`. A whole registered name comes before a composition, and a longer loss before a
    shorter one.

    Raises:
        GymError: Nothing of that name, with the nearest ones.
    """
    name = name.strip().lower()
    known_losses, known_estimators = _loaded("loss"), _loaded("estimator")
    if name in known_losses:
        return name, name if name in known_estimators else "grpo"
    if name in known_estimators:
        return "ppo_clip", name
    for loss in sorted(known_losses, key=len, reverse=True):
        if name.startswith(loss + "+") and name[len(loss) + 1 :] in known_estimators:
            return loss, name[len(loss) + 1 :]
    raise GymError(_unresolved(name))


def algorithms() -> list[Listing]:
    """Every algorithm with a name of its own; `<loss>+<estimator>` gives the other combinations."""
    names = list(_loaded("estimator")) + [n for n in _loaded("loss") if n not in _loaded("estimator")]
    rows = []
    for name in names:
        loss, estimator = (find("loss", resolve(name)[0]), find("estimator", resolve(name)[1]))
        main = loss if loss.name == name else estimator
        text = main.description if loss.name != estimator.name else f"{estimator.description}; {loss.description}"
        options = dict(loss.defaults) | {"aggregation": loss.aggregation} | dict(estimator.defaults)
        rows.append(Listing(name, loss.name, estimator.name, main.paper, text, options, loss.sampling))
    return rows


def choose(option: str, value: object, allowed: tuple[str, ...]) -> None:
    """Raise `GymError` with the nearest value unless `value` is one of `allowed`."""
    if value not in allowed:
        raise GymError(unknown(f"value of {option}:", str(value), allowed))


def _register(
    kind: Kind, name: str, paper: str, description: str, replace: bool, **more: Any
) -> Callable[[Function], Function]:
    def decorate(function: Function) -> Function:
        if not name or name != name.lower() or any(c.isspace() for c in name):
            raise GymError(f"{kind} name {name!r}: use lower case without spaces.")
        entries = _loaded(kind)
        if name in entries and not replace:
            raise GymError(f"{kind} {name!r} is already registered: choose another name, or pass replace=True.")
        defaults, optional = _options(kind, name, function)
        entries[name] = Entry(kind, name, paper, description, function, defaults, optional, **more)
        return function

    return decorate


def _options(kind: Kind, name: str, function: Callable[..., Any]) -> tuple[dict[str, Any], frozenset[str]]:
    defaults, optional = {}, set()
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        if parameter.kind is not parameter.KEYWORD_ONLY or parameter.default is parameter.empty:
            raise GymError(
                f"{kind} {name!r}: argument {parameter.name!r} must be keyword-only with a default; "
                f"write def {getattr(function, '__name__', name)}(first, *, {parameter.name}=...)."
            )
        defaults[parameter.name] = parameter.default
        if parameter.default is None or "None" in str(parameter.annotation):
            optional.add(parameter.name)
    return defaults, frozenset(optional)


def _loaded(kind: Kind) -> dict[str, Entry]:
    from . import estimators, losses  # noqa: F401  they register themselves, and import this module

    return _REGISTRY[kind]


def _check_type(what: str, value: object, default: object) -> None:
    if isinstance(default, bool):
        right, needed = isinstance(value, bool), "true or false"
    elif isinstance(default, int | float):
        right, needed = isinstance(value, int | float) and not isinstance(value, bool), "a number"
        right = right and value == value
    elif isinstance(default, str):
        right, needed = isinstance(value, str), "a string"
    else:
        return
    if not right:
        raise GymError(f"{what} must be {needed}, got {value!r}.")


def _unresolved(name: str) -> str:
    known_losses, known_estimators = _loaded("loss"), _loaded("estimator")
    head, plus, tail = name.partition("+")
    if plus and head in known_estimators and tail in known_losses:
        return f"unknown algorithm {name!r}: the loss comes first. Did you mean {tail + '+' + head!r}?"
    if plus and head in known_losses:
        return f"unknown algorithm {name!r}: " + unknown("estimator", tail, known_estimators)
    if plus and tail in known_estimators:
        return f"unknown algorithm {name!r}: " + unknown("loss", head, known_losses)
    return unknown("algorithm", name, {*known_losses, *known_estimators}) + " Or <loss>+<estimator>."
