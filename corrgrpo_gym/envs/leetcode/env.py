"""The LeetCode environment: one user message with a problem, one answer with a program, seven rewards."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Self

from ...errors import GymError, unknown
from ..base import MultiRewardEnv
from ..chat import Message
from ..sandbox import Sandbox
from .data import Loaded, load_problems
from .judging import Judging, Limits
from .noise import fenced, noisy_answers
from .problem import Problem
from .rewards import REWARD_NAMES, REWARD_WEIGHTS

RECIPES = ("default", "paper")
BROKEN = ("keep", "drop", "error")
_NAMES = 20  # that an error lists
_log = logging.getLogger(__name__)


class LeetCodeEnv(MultiRewardEnv):
    """LeetCode problems with the rewards of the CorrGRPO paper (see `rewards`).

    Step's info has `status` ("passed", "failed", "timeout", ...), `detail`, the extracted `code`, and
    `cpu_seconds` with `reference_cpu_seconds` and `harness_cpu_seconds`, the sandbox's own share in both (None unless
    the answer passed and the reference does).

    Where an answer passes but the reference doesn't (the data have such rows), efficiency is 0 for all
    answers to that task, and a warning in the log names it; `broken_references` finds such rows beforehand.
    """

    reward_names = REWARD_NAMES
    reward_weights = REWARD_WEIGHTS["default"]
    splits = ("train", "test")

    def __init__(
        self,
        split: str = "train",
        data: str | Path | None = None,
        *,
        sandbox: str | Sandbox = "bubblewrap",
        workers: int | None = None,
        recipe: str = "default",
        cpu_seconds: float | None = None,
        wall_seconds: float | None = None,
        memory_bytes: int = 1 << 30,
        reward_weights: str | Mapping[str, float] | Iterable[float] | None = None,
        efficiency_resolution: float | None = None,
        cache_verdicts: int = 4096,
        warm_start_answers: int = 8,
        broken_references: str = "keep",
    ) -> None:
        """Load a split.

        Args:
            split: "train" or "test".
            data: None or "auto" (the hub's cache, the hub, else the embedded problems), "embedded", "hub", or
                the path of a folder or file of LeetCodeDataset.
            sandbox: name of the back end that runs programs, or a sandbox (which stays yours to close).
            workers: its processes; None for one per CPU.
            recipe: "default", or "paper": 5 s of wall clock per program, as published.
            cpu_seconds: CPU limit of one program. Default: 15 s, or 0.5 s for embedded problems; three times
                the reference's time where that is more.
            wall_seconds: wall-clock limit of one program; a loose one by default.
            memory_bytes: memory limit of one program.
            reward_weights: "default" (the paper's), "paper-vector" (1 each, what the paper's implementation
                gives to corrgrpo and gdpo), or seven numbers, in order or by name.
            efficiency_resolution: rounds efficiency to multiples of this, as an estimator that standardises
                would turn the clock's noise into a signal. Default: 0 (exact, as published), or 1 for
                embedded problems, whose slow solutions then get exactly 0 and the fast ones exactly 1: on a
                busy machine a program's CPU time was seen to vary between 0.6 and 1.9 times its median.
            cache_verdicts: how many answers to remember, so that equal ones are judged once; 0 for none.
            warm_start_answers: how many imperfect answers `reference_answers` gives for an embedded problem.
            broken_references: what becomes of rows whose reference fails its own tests: "keep"; "drop", or "error",
                which judge every reference now (once on a machine) and leave such rows out, or refuse them.

        Raises:
            GymError: bad options or data; with "error", references that fail.
        """
        if isinstance(reward_weights, str):
            if reward_weights not in REWARD_WEIGHTS:
                raise GymError(f"leetcode: {unknown('reward_weights', reward_weights, REWARD_WEIGHTS)}")
            reward_weights = REWARD_WEIGHTS[reward_weights]
        if recipe not in RECIPES:
            raise GymError(f"leetcode: {unknown('recipe', recipe, RECIPES)}")
        if split not in self.splits:
            raise GymError(f"leetcode: {unknown('split', split, self.splits)}")
        if broken_references not in BROKEN:
            raise GymError(f"leetcode: {unknown('broken_references', broken_references, BROKEN)}")
        loaded = load_problems(data, split)
        if efficiency_resolution is None:
            efficiency_resolution = 1.0 if loaded.embedded else 0.0
        if not 0.0 <= efficiency_resolution <= 1.0:
            raise GymError(f"leetcode: efficiency_resolution is {efficiency_resolution}, not between 0 and 1")
        if cache_verdicts < 0 or warm_start_answers < 1:
            raise GymError("leetcode: cache_verdicts must be at least 0, and warm_start_answers at least 1")
        if recipe == "paper":
            limits = Limits(cpu_seconds or 5.0, wall_seconds or 5.0, memory_bytes, grows=False)
        else:
            limits = Limits(cpu_seconds or (0.5 if loaded.embedded else 15.0), wall_seconds, memory_bytes)
        if limits.cpu_seconds <= 0 or limits.wall(1.0) <= 0 or memory_bytes <= 0:
            raise GymError("leetcode: cpu_seconds, wall_seconds and memory_bytes must be positive")
        self._warm_start_answers = warm_start_answers
        self._judging = Judging(sandbox, workers, limits, efficiency_resolution, cache_verdicts)
        self._owner = True
        problems, note = loaded.problems, loaded.note
        if broken_references != "keep":
            try:
                problems, note = self._sound(loaded, split, refuse=broken_references == "error")
            except BaseException:
                self._judging.close()
                raise
        super().__init__(problems, split=split, reward_weights=reward_weights, data_note=note)

    def _sound(self, loaded: Loaded, split: str, refuse: bool) -> tuple[list[Problem], str]:
        """The problems whose references pass, and a note of the others."""
        broken = self._judging.broken(loaded.problems)
        sound = [problem for problem in loaded.problems if problem.task_id not in broken]
        if not broken:
            return sound, loaded.note
        count = f"{len(broken)} of {len(loaded.problems)} references of the {split} split fail their own tests"
        if refuse or not sound:
            listed = "".join(f"\n- {name}: {why}" for name, why in islice(broken.items(), _NAMES))
            more = f"\n- and {len(broken) - _NAMES} more" if len(broken) > _NAMES else ""
            raise GymError(
                f"leetcode: {count}:{listed}{more}\nRemove these rows, or give broken_references='drop', or 'keep' "
                "(efficiency is 0 there)"
            )
        _log.warning("leetcode: %s and are left out: %s", count, ", ".join(broken))
        return sound, f"{loaded.note}, {len(broken)} with broken references left out"

    def prompt(self, task: int) -> Sequence[Message]:
        """Return the problem's query as one user message."""
        return [{"role": "user", "content": self.tasks[task].query}]

    def score(self, task: int, reply: Message) -> tuple[Sequence[float], dict[str, Any]]:
        """Judge the program in the answer."""
        outcome = self._judging.outcome(self.tasks[task], reply["content"] or "")
        return outcome.rewards, dict(outcome.info)

    def reference_answers(self, task: int) -> Sequence[str]:
        """Return answers for a warm start.

        Returns:
            The reference solution in a ```python block; for an embedded problem `warm_start_answers`
            imperfect ones (see `noise`), most of them slow, always the same.
        """
        problem: Problem = self.tasks[task]
        if not problem.slow_baseline:
            return (fenced(problem.completion),)
        row = {"completion": problem.completion, "baseline": problem.baseline}
        return tuple(islice(noisy_answers(row, Random(problem.task_id)), self._warm_start_answers))

    def reference_seconds(self, task: int) -> float | None:
        """Return the CPU seconds of the solution that answers are measured by; None where that fails its tests."""
        time = self._judging.reference_time(self.tasks[task])
        return None if time is None else time.seconds

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox in use, for another environment to share (a validation split's, for instance)."""
        return self._judging.sandbox

    def shared_options(self) -> dict[str, Any]:
        """Return the sandbox: one pool of workers serves all splits."""
        return {"sandbox": self.sandbox}

    def clone(self) -> Self:
        """Return an environment with an episode of its own on the same data, sandbox and known answers."""
        other = super().clone()
        other._owner = False
        return other

    def close(self) -> None:
        """Close the sandbox if this environment made it; closing a clone does nothing."""
        if self._owner:
            self._judging.close()
