"""From a name to an environment: imports, calls with options, and errors that say whose fault it is."""

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..errors import GymError, unknown
from .base import MultiRewardEnv


def load(path: str, *, here: bool) -> Any:
    """Import what "package.module:thing" names.

    Args:
        path: module and attribute (which may be dotted); the module may also be a file ("envs/mine.py:env").
        here: put the current directory (or the file's) in front of `sys.path`, as `python -m` does.

    Raises:
        GymError: there is no such module, its own code raised, or it has no such attribute.
    """
    module_name, _, attribute = path.rpartition(":")
    if not module_name or not attribute:
        raise GymError(f"{path!r} should be 'package.module:thing' or 'file.py:thing'")
    if module_name.endswith(".py"):
        file = Path(module_name)
        if not file.is_file():
            raise GymError(f"{path!r}: there is no file {module_name} (current directory: {os.getcwd()})")
        folder, module_name = str(file.resolve().parent), file.stem
    else:
        folder = os.getcwd()
    if here and folder not in sys.path:
        sys.path.insert(0, folder)
        importlib.invalidate_caches()
    thing = _import(module_name, path, folder)
    for name in attribute.split("."):
        try:
            thing = getattr(thing, name)
        except AttributeError:
            known = [n for n in vars(thing) if not n.startswith("_")] if hasattr(thing, "__dict__") else []
            where = f"module {module_name}" if inspect.ismodule(thing) else repr(thing)
            raise GymError(f"{path!r}: {where}: {unknown('name', name, known)}") from None
    return thing


def _import(module_name: str, path: str, folder: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and (module_name + ".").startswith(missing + "."):
            files = [f.stem for f in Path(folder).glob("*.py")]
            hint = f" {unknown('module', missing, files)}" if files and "." not in module_name else ""
            raise GymError(
                f"{path!r}: no module {missing!r} in {folder} or among the installed packages.{hint}"
            ) from error
        frame = traceback.extract_tb(error.__traceback__)[-1]
        at = f" at {frame.filename}:{frame.lineno}" if "importlib" not in frame.filename else ""
        if isinstance(error, SyntaxError) and error.filename:
            at = f" at {error.filename}:{error.lineno}"
        raise GymError(
            f"{path!r}: module {module_name} was found, but importing it raised {type(error).__name__}: {error}{at}"
        ) from error


def build(
    thing: Any, label: str, split: str, data: Any, defaults: Mapping[str, Any], options: Mapping[str, Any]
) -> MultiRewardEnv:
    """Make an environment out of a class, a factory function or an environment.

    Args:
        thing: what was registered or imported.
        label: how messages call it.
        split: the split wanted.
        data: passed on as `data` where it is not None.
        defaults: options given at registration.
        options: options given now; they go before the defaults.

    Raises:
        GymError: an option that `thing` doesn't take, or misses, or a split that it doesn't have.
    """
    if isinstance(thing, MultiRewardEnv):
        for name in options:
            raise GymError(f"{label} is an environment already: it takes no option {name!r}")
        if data not in (None, "auto"):
            raise GymError(f"{label} is an environment already: it takes no data; name a class or a function")
        return _in_split(thing.clone(), label, split)
    if not callable(thing):
        raise GymError(
            f"{label} is a {type(thing).__name__}, not an environment, its class, or a function that makes it"
        )
    parameters, anything = accepted(thing)
    for name in options:
        if name not in parameters and not anything:
            raise GymError(f"{label}: {unknown('option', name, set(parameters) - {'split', 'data'})}")
    arguments = {**defaults, **options}
    if "split" in parameters or anything:
        arguments["split"] = split
    if "data" in parameters or (anything and data is not None):
        arguments["data"] = data
    elif data not in (None, "auto"):
        raise GymError(f"{label} takes no data: it brings its own")
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in arguments:
            raise GymError(f"{label} needs the option {name!r}")
    env = thing(**arguments)
    if not isinstance(env, MultiRewardEnv):
        raise GymError(f"{label} made a {type(env).__name__}, not a MultiRewardEnv")
    return _in_split(env, label, split)


def _in_split(env: MultiRewardEnv, label: str, split: str) -> MultiRewardEnv:
    if env.split == split:
        return env
    switch = getattr(env, "with_split", None)
    if switch is None:
        raise GymError(
            f"{label} is an environment of split {env.split!r}, not {split!r}; to offer several, name a "
            "class or a function that takes 'split'"
        )
    return switch(split)


def accepted(thing: Callable[..., Any]) -> tuple[dict[str, inspect.Parameter], bool]:
    """Return the parameters that `thing` takes by name, and whether it takes any name at all.

    A class whose `__init__` passes **kwargs on takes what its base class takes.
    """
    layers: list[Any] = [thing]
    if inspect.isclass(thing):
        layers = [vars(c)["__init__"] for c in thing.__mro__ if "__init__" in vars(c) and c is not object]
    found: dict[str, inspect.Parameter] = {}
    for depth, layer in enumerate(layers):
        try:
            parameters = list(inspect.signature(layer).parameters.values())
        except (TypeError, ValueError):
            return found, True
        if inspect.isclass(thing):
            parameters = parameters[1:]
        for p in parameters:
            if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name not in found:
                # What a base class needs is for the subclass to give.
                found[p.name] = p if depth == 0 else p.replace(default=None)
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            return found, False
    return found, not inspect.isclass(thing)
