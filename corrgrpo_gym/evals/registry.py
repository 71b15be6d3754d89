"""Benchmarks by name; every other name is an environment's."""

from importlib import import_module
from pathlib import Path
from typing import Any

from ..envs.loading import accepted
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
    "asb": "agents.asb:Asb",
    "injecagent": "agents.injecagent:InjecAgent",
}


def names() -> tuple[str, ...]:
    """The benchmarks that have a name of their own."""
    return tuple(_BENCHMARKS)


def make(name: str, data: str | Path | None = None, **options: Any) -> Benchmark:
    """Make a benchmark.

    Args:
        name: one of `names()`, or an environment as in `envs.make`.
        data: "auto", "hub", or the path of a file or folder; None for "auto".
        **options: the benchmark's own (an environment's: `split`, and what its `make` takes).

    Raises:
        GymError: unknown name or option, or data that cannot be had.
    """
    if name not in _BENCHMARKS:
        from .environment import EnvironmentBenchmark

        return EnvironmentBenchmark(name, data, **options)
    module, _, attribute = _BENCHMARKS[name].partition(":")
    kind = getattr(import_module(f".{module}", __package__), attribute)
    parameters, anything = accepted(kind)
    for option in options:
        if option not in parameters and not anything:
            raise GymError(f"benchmark {name!r}: {unknown('option', option, set(parameters) - {'data'})}")
    return kind(data=data, **options)


def takes(name: str, option: str) -> bool:
    """Whether a benchmark has an option of this name."""
    if name not in _BENCHMARKS:
        return False
    module, _, attribute = _BENCHMARKS[name].partition(":")
    parameters, _ = accepted(getattr(import_module(f".{module}", __package__), attribute))
    return option in parameters
