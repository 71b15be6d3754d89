"""What all clones of an environment share: the sandbox, reference times, and outcomes of known answers."""

import hashlib
import logging
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import Progress

from ..once import Once
from ..sandbox import CodeJob, LazySandbox, Measured, Sandbox, SandboxError, Verdict, VerdictLost
from .ast_shape import Shape, shape_of
from .noise import fenced
from .problem import Problem
from .reference_times import is_known_sound, keep_sound, keep_time, kept_time
from .rewards import rewards

_log = logging.getLogger(__name__)
_REFERENCE_CPU = 60.0
_RUNS, _FEW_RUNS = 6, 2  # besides the judged one
_COARSE = 0.5


@dataclass(frozen=True, slots=True)
class Limits:
    """What one program may use.

    Attributes:
        cpu_seconds: CPU time; where three times the reference's is more, that.
        wall_seconds: wall-clock time; None for a loose cap, so that a busy machine fails no right program.
        memory_bytes: memory.
        grows: whether a slow reference raises the CPU limit.
    """

    cpu_seconds: float = 15.0
    wall_seconds: float | None = None
    memory_bytes: int = 1 << 30
    grows: bool = True

    def wall(self, cpu_seconds: float) -> float:
        """Return the wall-clock limit that goes with a CPU limit."""
        return 30.0 + 6.0 * cpu_seconds if self.wall_seconds is None else self.wall_seconds


@dataclass(frozen=True, slots=True)
class Outcome:
    """The rewards of one answer, and what step's info says of it."""

    rewards: tuple[float, ...]
    info: dict[str, Any]


class Judging:
    """Judges answers to problems; safe to use from many threads.

    Args:
        sandbox: a back end's name, made at first use and closed by `close`; or one that its owner closes.
        workers: processes of a sandbox made here; None for one per CPU.
        limits: of one program.
        efficiency_resolution: see `rewards.efficiency`.
        cache: how many answers to remember; 0 for none.
    """

    def __init__(
        self,
        sandbox: str | Sandbox,
        workers: int | None,
        limits: Limits,
        efficiency_resolution: float,
        cache: int,
    ) -> None:
        self._limits = limits
        self._resolution = efficiency_resolution
        self._sandbox = LazySandbox(sandbox, workers)
        self._times: Once[Measured | None] = Once(1 << 20)
        self._shapes: Once[Shape | None] = Once(1 << 20)
        self._outcomes: Once[Outcome] | None = Once(cache) if cache else None

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox, made at the first use.

        Raises:
            GymError: the back end isn't there, or not usable on this machine.
        """
        return self._sandbox.get()

    def close(self) -> None:
        """Close the sandbox if it was made here; a later answer makes a new one."""
        self._sandbox.close()

    def outcome(self, problem: Problem, answer: str) -> Outcome:
        """Judge an answer; the same answer to the same problem is judged once."""
        if self._outcomes is None:
            return self._judge(problem, answer)
        digest = hashlib.blake2b(answer.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        return self._outcomes.get((problem.task_id, digest), lambda: self._judge(problem, answer))

    def reference_time(self, problem: Problem) -> Measured | None:
        """Return how long the baseline takes on its tests, measured once on a machine (see `reference_times`).

        Returns:
            None where the baseline doesn't pass its own tests (there are such rows); a warning names it.
        """
        return self._times.get(problem.task_id, lambda: self._time(problem))

    def broken(self, problems: Sequence[Problem]) -> dict[str, str]:
        """Judge the baselines of problems, each once on a machine; tell which fail, and why.

        Takes a few milliseconds of most rows, and shows how far it is where standard error is a terminal.
        """
        found: dict[str, str] = {}
        backend = self.sandbox.backend

        def check(problem: Problem) -> None:
            if is_known_sound(problem, backend):
                return
            try:
                verdict = self.sandbox.judge(self._reference_job(problem))
            except VerdictLost:
                raise
            except SandboxError as error:
                found[problem.task_id] = str(error).removeprefix(f"task {problem.task_id!r}: ")
                return
            if verdict.status == "passed":
                keep_sound(problem, backend)
            else:
                found[problem.task_id] = f"{verdict.status}: {verdict.detail}"

        console = Console(stderr=True)
        with ThreadPoolExecutor(self.sandbox.workers, "leetcode reference") as pool:
            done = pool.map(check, problems)
            with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
                deque(bar.track(done, len(problems), description="checking references"), maxlen=0)
        return {p.task_id: found[p.task_id] for p in problems if p.task_id in found}

    def _judge(self, problem: Problem, answer: str) -> Outcome:
        verdict = self._run(problem, answer, self._limits.cpu_seconds)
        if verdict.status == "timeout" and self._limits.grows:
            # Only a program that runs out of time makes it worth knowing whether the reference is as slow.
            reference = self.reference_time(problem)
            longer = 3.0 * reference.seconds if reference is not None else 0.0
            if longer > self._limits.cpu_seconds:
                verdict = self._run(problem, answer, longer)
        reference = self.reference_time(problem) if verdict.status == "passed" else None
        shape = self._shapes.get(problem.task_id, lambda: shape_of(problem.completion))
        values = rewards(verdict, shape, reference, self._resolution)
        info = {
            "status": verdict.status,
            "detail": verdict.detail,
            "code": verdict.code,
            "cpu_seconds": verdict.cpu_seconds,
            "reference_cpu_seconds": None if reference is None else reference.seconds,
            "harness_cpu_seconds": None if reference is None else reference.harness_seconds,
        }
        return Outcome(values, info)

    def _time(self, problem: Problem) -> Measured | None:
        measured = self._measure(problem)
        if measured.problem:
            _log.warning(
                "leetcode: the reference of %r fails its own tests (%s); efficiency is 0 there",
                *(problem.task_id, measured.problem),
            )
            return None
        return measured

    def _measure(self, problem: Problem) -> Measured:
        backend = self.sandbox.backend
        measured = kept_time(problem, backend)
        if measured is None:
            runs = _RUNS if self._resolution < _COARSE else _FEW_RUNS
            measured = self.sandbox.measure(self._reference_job(problem), runs)
            if not measured.problem:
                keep_time(problem, backend, measured)
        return measured

    def _reference_job(self, problem: Problem) -> CodeJob:
        return self._job(problem, fenced(problem.baseline), max(_REFERENCE_CPU, self._limits.cpu_seconds))

    def _run(self, problem: Problem, answer: str, cpu_seconds: float) -> Verdict:
        return self.sandbox.judge(self._job(problem, answer, cpu_seconds))

    def _job(self, problem: Problem, answer: str, cpu_seconds: float) -> CodeJob:
        return CodeJob(
            name=problem.task_id,
            answer=answer,
            prelude=problem.prelude,
            test=problem.test,
            entry_point=problem.entry_point,
            cpu_seconds=cpu_seconds,
            wall_seconds=self._limits.wall(cpu_seconds),
            memory_bytes=self._limits.memory_bytes,
        )
