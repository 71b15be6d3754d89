"""LeetCodeDataset's test split (Xia et al. 2025): 228 problems, and how fast the right programs are.

The prompt is the row's `query`. A program is prelude + candidate + test + check(entry_point), within 15 s of CPU time
or 3 times the reference's, where that is more (the environment's default; the paper's recipe has 5 s by wall clock).

Columns, in the order of the paper's table:

- efficiency, the paper's: over the programs that pass and whose reference does, the mean share of eight paired timing
  rounds in which the program was faster than the reference;
- executable: it ran to a verdict without an exception or a timeout;
- pass@1;
- speedup, ours: over the same programs as efficiency, the median of reference time / program time, each the median of
  paired ratios. 2 is twice as fast.

Their count is the number of eligible tasks. Times are CPU seconds, measured as `Sandbox.compare` says.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from threading import Lock

from ...envs.leetcode.data import load_problems
from ...envs.leetcode.noise import fenced
from ...envs.leetcode.problem import Problem
from ...envs.sandbox import CodeJob, Sandbox, Timing
from ...errors import GymError
from ..benchmark import Case, Caveat, Score
from ..data import digest_of
from ..metrics import Column, Sample, mean, median
from ..models.base import Reply
from .base import (
    MEMORY_BYTES,
    CodeBenchmark,
    checked_ks,
    executable_column,
    pass_columns,
    score_of,
    several_answers,
    wall_seconds,
)

FOLDER = "leetcodedataset"  # in a directory of data sets
ROUNDS = 8
GROWTH = 3.0
_SHOWN_SECONDS = 2.0
_RAN_OTHERWISE = ("failed", "runtime_error", "timeout")  # where the data may be to blame
FAULTY = {"word-ladder-ii": "the test has the order that the reference's hash seed gave"}


class LeetCode(CodeBenchmark):
    """See the module."""

    name = "leetcode"
    passing = "passed"

    def __init__(
        self,
        data: str | Path | None = None,
        *,
        timing: bool = True,
        timing_seconds: float = 60.0,
        k: int | str | Sequence[int] = 1,
        cpu_seconds: float | None = None,
        sandbox: str | Sandbox = "bubblewrap",
        workers: int | None = None,
    ) -> None:
        """Load the test split.

        Args:
            data: None, "auto" or "hub" (its cache, then the hub), "embedded" (the package's own problems), or a path.
            timing: time right programs against the reference, for efficiency and speedup.
            timing_seconds: CPU time for one program's timing, after which three rounds are enough.
            k: of pass@k, as in "1,5,10".
            cpu_seconds: CPU limit of one program; default 15, for embedded problems 0.5; 3 times the reference's, if
                that is more.
            sandbox: name of the back end that runs programs, or a sandbox.
            workers: its processes; None for one per CPU.

        Raises:
            GymError: bad options or data.
        """
        super().__init__(sandbox, workers)
        if not timing_seconds > 0:
            raise GymError(f"leetcode: timing_seconds is {timing_seconds}; it must be a positive number")
        data = "hub" if data in (None, "auto") else data
        inside = Path(str(data)).expanduser() / FOLDER
        loaded = load_problems(inside if inside.is_dir() else data, "test")
        self.note = loaded.note
        self._timing, self._timing_seconds = timing, float(timing_seconds)
        self._timed: dict[object, tuple[str, float]] = {}  # cases, and since when
        self._timing_lock = Lock()
        self._cpu_seconds = float(cpu_seconds or (0.5 if loaded.embedded else 15.0))
        self.cases = [_case(problem) for problem in loaded.problems]
        self.settings = {
            "data": digest_of([(p.task_id, p.query, p.prelude, p.test, p.baseline) for p in loaded.problems]),
            "timing": timing,
            "timing_seconds": self._timing_seconds,
            "cpu_seconds": self._cpu_seconds,
        }
        several = [p.task_id for p in loaded.problems if several_answers(p.query)]
        faulty = {**dict.fromkeys(several, ""), **{p.task_id: "" for p in loaded.problems if p.task_id in FAULTY}}
        passes = pass_columns(checked_ks(k), faulty)
        self.columns = [executable_column(), *passes]
        if timing:
            faster = Column(
                "efficiency",
                f"of right programs: mean share of {ROUNDS} paired timings in which they beat the reference",
                mean("efficiency"),
            )
            meaning = "of right programs: median of reference time / program time"
            self.columns = [faster, *self.columns, Column("speedup", meaning, median("speedup"), percent=False)]
        if not loaded.embedded:
            self.paper = {name: f"leetcode_{name}" for name in ("efficiency", "executable", "pass@1")}
        self.caveats = [
            "limits and timings are CPU time; the paper's are wall-clock time",
            *(
                [f"programs that take over {timing_seconds / 2 / ROUNDS:.3g} s have fewer than {ROUNDS} rounds"]
                * timing
            ),
            *(Caveat(f"{name}: {why}", [name]) for name, why in FAULTY.items() if name in faulty),
            *(
                [Caveat("statements that admit several answers, one accepted: ", several, listed=True)]
                if several
                else []
            ),
        ]

    def score(self, case: Case, replies: Sequence[Reply]) -> Score:
        """Judge the program: `executable`, `passed`, and of a right one `efficiency` and `speedup`.

        `reference_passes` says whether the row's reference does, where that was looked at: where the program fails or
        is timed.
        """
        problem: Problem = case.row
        job = CodeJob(
            name=problem.task_id,
            answer=replies[-1].text,
            prelude=problem.prelude,
            test=problem.test,
            entry_point=problem.entry_point,
            cpu_seconds=self._cpu_seconds,
            wall_seconds=wall_seconds(self._cpu_seconds),
            memory_bytes=MEMORY_BYTES,
        )
        reference = fenced(problem.baseline)
        verdict = self.judge(job, reference, GROWTH)
        if verdict.status in _RAN_OTHERWISE:
            sound = float(self.reference_seconds(job, reference) > 0)
            return score_of(verdict, efficiency=None, speedup=None, reference_passes=sound)
        score = score_of(verdict, efficiency=None, speedup=None, reference_passes=None)
        if not self._timing or verdict.status != "passed":
            return score
        # It may have passed within a longer limit than the usual one.
        job = replace(job, cpu_seconds=max(job.cpu_seconds, 2 * verdict.cpu_seconds))
        own = object()
        with self._timing_lock:
            self._timed[own] = case.id, time.monotonic()
        try:
            return _timed(score, self.sandbox.compare(job, reference, spend=self._timing_seconds))
        finally:
            with self._timing_lock:
                del self._timed[own]

    def remarks(self, samples: Sequence[Sample]) -> Sequence[str]:
        """Which references were seen to fail their own tests."""
        broken = list(dict.fromkeys(s.case for s in samples if s.values.get("reference_passes") == 0))
        if not broken:
            return ()
        return [
            f"references that fail their own tests, so that a right answer may fail as well, and that no efficiency "
            f"counts: {', '.join(broken)}"
        ]

    def status(self) -> str:
        """Which program is being timed for longest."""
        with self._timing_lock:
            name, began = next(iter(self._timed.values()), ("", 0.0))
        seconds = time.monotonic() - began
        return f"timing {name} for {seconds:.0f} s" if name and seconds > _SHOWN_SECONDS else ""


def _timed(score: Score, timing: Timing) -> Score:
    facts = {k: None if isinstance(v, float) and math.isinf(v) else v for k, v in asdict(timing).items()}
    values = dict(score.values)
    if timing.ratio:
        values |= {"efficiency": timing.faster_share, "speedup": 1 / timing.ratio, "reference_passes": 1.0}
    elif timing.problem.startswith("the reference does not pass"):
        values["reference_passes"] = 0.0
    return Score(values, {**score.detail, "timing": facts})


def _case(problem: Problem) -> Case:
    messages = ({"role": "user", "content": problem.query},)
    return Case(problem.task_id, messages, reference=fenced(problem.completion), group=problem.difficulty, row=problem)
