"""Benchmarks by name, or by module and class; every other name is an environment's."""

import inspect
from importlib import import_module
from pathlib import Path
from typing import Any

from ..envs.loading import accepted, load
from ..errors import GymError, unknown
from .benchmark import Benchmark

_BENCHMARKS = {
    "leetcode": "code.leetcode:LeetCode",
    "humaneval": "code.humaneval:HumanEval",
    "mbpp": "code.mbpp:Mbpp",
    "livecodebench": "code.livecodebench:LiveCodeBench",
    "rlla": "tools.rlla:Rlla",
    "api-bank": "tools.api_bank:ApiBank",
    "bfcl": "tools.bfcl:Bfcl",
    "agentdojo": "agents.agentdojo:AgentDojo",
    "asb": "agents.asb:Asb",
    "injecagent": "agents.injecagent:InjecAgent",
}


def names() -> tuple[str, ...]:
    """The benchmarks that have a name of their own."""
    return tuple(_BENCHMARKS)


def make(name: str, data: str | Path | None = None, **options: Any) -> Benchmark:
    """Make a benchmark.

    Args:
        name: one of `names()`; package.module:thing or file.py:thing, the class of a benchmark; or an environment as
            in `envs.make`.
        data: "auto", "hub", or the path of a file or folder; None for "auto".
        **options: the benchmark's own (an environment's: `split`, and what its `make` takes).

    Raises:
        GymError: unknown name or option, or data that cannot be had.
    """
    kind = _kind(name)
    if kind is None:
        return _environment(name, data, options)
    parameters, anything = accepted(kind)
    for option in options:
        if option not in parameters and not anything:
            raise GymError(f"benchmark {name!r}: {unknown('option', option, set(parameters) - {'data'})}")
        wanted = parameters[option].annotation if option in parameters else None
        for kind_of_value, text in ((bool, "true or false"), (str, "a text")):
            if wanted in (kind_of_value, kind_of_value.__name__) and not isinstance(options[option], kind_of_value):
                raise GymError(f"benchmark {name!r}: option {option} is {options[option]!r}; it takes {text}")
    if "data" in parameters or anything:
        options["data"] = data
    elif data not in (None, "auto"):
        raise GymError(f"benchmark {name!r} takes no data: it brings its own")
    return kind(**options)


def _kind(name: str) -> type[Benchmark] | None:
    """The benchmark's class; None for what is an environment."""
    if name in _BENCHMARKS:
        module, _, attribute = _BENCHMARKS[name].partition(":")
        return getattr(import_module(f".{module}", __package__), attribute)
    thing = load(name, here=True) if ":" in name else None
    return thing if inspect.isclass(thing) and issubclass(thing, Benchmark) else None


def _environment(name: str, data: str | Path | None, options: dict[str, Any]) -> Benchmark:
    from ..envs import list_envs
    from .environment import EnvironmentBenchmark

    if ":" not in name and name not in (known := [info.name for info in list_envs()]):
        raise GymError(
            unknown("benchmark or environment", name, {*_BENCHMARKS, *known})
            + " Your own: 'package.module:thing' or 'file.py:thing'."
        )
    return EnvironmentBenchmark(name, data, **options)


def takes(name: str, option: str) -> bool:
    """Whether a benchmark has an option of this name."""
    kind = _kind(name)
    return kind is not None and option in accepted(kind)[0]
