"""What the code benchmarks share: the sandbox, scores and columns."""

import logging
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from ...envs.once import Once
from ...envs.sandbox import CodeJob, LazySandbox, Sandbox, Verdict
from ...errors import GymError
from ..benchmark import Benchmark, Score
from ..metrics import Column, mean, pass_at

MEMORY_BYTES = 1 << 30
# A busy machine must fail no right program: the wall clock is only for programs that sleep or wait.
WALL_PER_CPU, WALL_EXTRA = 6.0, 30.0
LONGEST = 120.0  # CPU seconds that a reference may take to be timed
_log = logging.getLogger(__name__)
_SEVERAL = re.compile(
    r"\b(?:return|print|output|report|find|give)\b[^.\n]{0,80}\bany (?:one )?(?:of|order|such|valid (?:answer|one))\b"
    r"|\bany of them (?:will be|is|are) (?:accepted|considered|correct)"
    r"|\b(?:multiple|several|more than one)(?: \w+)? (?:answers|solutions)\b",
    re.IGNORECASE,
)
_RAN = ("passed", "failed")


class CodeBenchmark(Benchmark):
    """A benchmark of programs; subclasses set name, cases and the rest, and score by `judge`.

    Args:
        sandbox: name of the back end that runs programs, or a sandbox (which stays yours to close).
        workers: its processes; None for one per CPU.
    """

    def __init__(self, sandbox: str | Sandbox, workers: int | None) -> None:
        self._sandbox = LazySandbox(sandbox, workers)
        self._seconds: Once[float] = Once(1 << 16)

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox, made at the first use.

        Raises:
            GymError: the back end isn't there, or not usable on this machine.
        """
        return self._sandbox.get()

    def judge(self, job: CodeJob, reference: str | None = None, growth: float = 4.0) -> Verdict:
        """Take the verdict on a program.

        Args:
            job: the program and its tests.
            reference: a right answer. Where the program runs out of time, its limit becomes a multiple of what this
                one takes, if that is more.
            growth: the multiple.
        """
        verdict = self.sandbox.judge(job)
        if verdict.status == "timeout" and reference is not None:
            longer = growth * self.reference_seconds(job, reference)
            if longer > job.cpu_seconds:
                verdict = self.sandbox.judge(_within(job, longer))
        return verdict

    def reference_seconds(self, job: CodeJob, reference: str) -> float:
        """Return the CPU seconds of a job's reference, judged once; 0 where it fails its own tests."""
        return self._seconds.get(job.name, lambda: self._time(job, reference))

    def _time(self, job: CodeJob, reference: str) -> float:
        verdict = self.sandbox.judge(replace(_within(job, LONGEST), answer=reference))
        if verdict.status != "passed":
            _log.warning("%s: the reference of %s doesn't pass (%s)", self.name, job.name, verdict.detail)
            return 0.0
        return verdict.cpu_seconds

    def close(self) -> None:
        """Close the sandbox if it was made here."""
        self._sandbox.close()


def _within(job: CodeJob, cpu_seconds: float) -> CodeJob:
    return replace(job, cpu_seconds=cpu_seconds, wall_seconds=wall_seconds(cpu_seconds))


def several_answers(statement: str) -> bool:
    """Whether a statement says that several answers are right: its tests may accept one of them only."""
    return _SEVERAL.search(statement) is not None


def wall_seconds(cpu_seconds: float) -> float:
    """The loose limit by the wall clock that goes with a limit on CPU time."""
    return WALL_EXTRA + WALL_PER_CPU * cpu_seconds


def score_of(verdict: Verdict, **more: float | None) -> Score:
    """The score of a verdict: `passed`, `executable` (it ran to a verdict without an exception), and more."""
    values = {
        "passed": float(verdict.status == "passed"),
        "executable": float(verdict.status in _RAN),
        **more,
    }
    detail = {
        "status": verdict.status,
        "detail": verdict.detail,
        "cpu_seconds": round(verdict.cpu_seconds, 6),
        "code": verdict.code,
    }
    return Score(values, detail)


def pass_columns(
    ks: Sequence[int], faulty: Collection[str], metric: str = "passed", name: str = "pass"
) -> list[Column]:
    """Columns of pass@k, and of pass@1 without the tasks whose data have known faults.

    Args:
        ks: the k's.
        faulty: ids of those tasks; no such column where there are none.
        metric: which metric says that a sample passed.
        name: begins the columns' names.
    """
    columns = [
        Column(f"{name}@{k}", f"share of tasks solved{'' if k == 1 else f' by one of {k} samples'}", pass_at(k, metric))
        for k in ks
    ]
    if faulty:
        apart = frozenset(faulty)
        meaning = f"the same without {len(apart)} tasks of known faults"
        columns.append(
            Column(
                f"{name}@{ks[0]}_sound", meaning, pass_at(ks[0], metric, where=lambda sample: sample.case not in apart)
            )
        )
    return columns


def executable_column() -> Column:
    """Share of programs that ran to a verdict without an exception or a timeout."""
    return Column("executable", "ran to a verdict without an exception", mean("executable"))


def checked_ks(k: int | str | Iterable[int]) -> tuple[int, ...]:
    """The k's of pass@k from an option: 1, "1,5,10" or a list.

    Raises:
        GymError: they are none.
    """
    parts: list[Any] = k.split(",") if isinstance(k, str) else [k] if isinstance(k, int) else list(k)
    try:
        ks = tuple(sorted({int(part) for part in parts}))
    except (TypeError, ValueError):
        ks = ()
    if not ks or ks[0] < 1:
        raise GymError(f"k is {k!r}; it should be a number of samples, or several, as in k='1,5,10'")
    return ks
