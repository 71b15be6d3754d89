"""Any environment as a benchmark: its columns are the means of its reward components and their weighted total."""

import hashlib
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from .. import envs
from ..envs import MultiRewardEnv
from ..envs.chat import Message
from ..errors import GymError
from .benchmark import Benchmark, Case, Episode, Score, replay
from .metrics import Column, mean
from .models.base import Reply

TOTAL = "total"
# Tasks whose prompts go into the digest of the data.
DIGESTED = 2000


class EnvironmentBenchmark(Benchmark):
    """The tasks of a split, each rolled out once per sample; rewards of several turns add up, as in training.

    Args:
        name: an environment's name, package.module:thing, or file.py:thing.
        data: where its data come from.
        split: which tasks; "test" where there is such a split, else the first one.
        max_turns: answers after which an episode is cut; 0 for no limit but the environment's.
        **options: the environment's own.

    Raises:
        GymError: as `envs.make`.
    """

    def __init__(
        self, name: str, data: str | Path | None = None, *, split: str = "", max_turns: int = 64, **options: Any
    ) -> None:
        data = None if data is None else str(data)
        self.env = _make(name, split, data, options)
        self.max_turns = max_turns
        self.name = name
        self.note = f"split {self.env.split!r}" + (f", {self.env.data_note}" if self.env.data_note else "")
        self.cases = EnvironmentCases(self.env)
        self.settings = {
            "environment": name,
            "split": self.env.split,
            "max_turns": max_turns,
            "options": json.loads(json.dumps(options, default=str)),
            "reward_weights": dict(zip(self.env.reward_names, self.env.reward_weights, strict=True)),
            "data": self.cases.digest(),
        }
        ranges = zip(self.env.reward_names, self.env.reward_space.low, self.env.reward_space.high, strict=True)
        self.columns = [
            Column(
                reward,
                f"mean of the reward {reward!r}, {low:g} to {high:g}",
                mean(reward, bounds=(float(low), float(high)) if np.isfinite([low, high]).all() else None),
                percent=False,
            )
            for reward, low, high in ranges
        ]
        weights = " + ".join(f"{w:g} {n}" for n, w in zip(self.env.reward_names, self.env.reward_weights, strict=True))
        self.columns.append(Column(TOTAL, f"mean of {weights}", mean(TOTAL, bounds=None), percent=False))
        self.passing = "-"

    def episode(self, case: Case) -> "EnvironmentEpisode":
        """Begin an episode on a clone of the environment."""
        return EnvironmentEpisode(case, self.env.clone(), self.max_turns)

    def score(self, case: Case, replies: Sequence[Reply]) -> Score:
        """Roll the episode out again with these answers."""
        episode = self.episode(case)
        try:
            return replay(episode, replies)
        finally:
            episode.close()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


class EnvironmentEpisode(Episode):
    """An episode of an environment."""

    def __init__(self, case: Case, env: MultiRewardEnv, max_turns: int):
        super().__init__(case)
        self._env, self._max_turns = env, max_turns
        self._reward: np.ndarray | None = None
        self._turns = 0
        self._info: dict[str, Any] = {}

    def advance(self, reply: Reply) -> Sequence[Message] | None:
        """Step the environment."""
        if self._reward is None:
            _reset(self._env, self.case.row)
            self._reward = np.zeros(self._env.reward_dim)
        self._turns += 1
        new, reward, terminated, truncated, self._info = self._env.step(reply.message)
        self._reward += reward
        if not (terminated or truncated) and self._turns == self._max_turns:
            _, reward, terminated, truncated, self._info = self._env.truncate()
            self._reward += reward
        return None if terminated or truncated else new

    def score(self) -> Score:
        """The rewards, added up; NaN ones are not eligible and count nothing in the total."""
        reward = self._reward if self._reward is not None else np.full(self._env.reward_dim, np.nan)
        named = zip(self._env.reward_names, reward.tolist(), strict=True)
        values: dict[str, float | None] = {name: None if np.isnan(value) else value for name, value in named}
        total = float(np.nan_to_num(reward) @ np.asarray(self._env.reward_weights))
        values[TOTAL] = None if np.isnan(reward).all() else total
        info = {k: v for k, v in self._info.items() if k not in ("task", "task_id")}
        return Score(values, {"turns": self._turns, **json.loads(json.dumps(info, default=str))})


class EnvironmentCases(Sequence[Case]):
    """The tasks of an environment as cases, made when they are asked for (by one thread at a time).

    Attributes:
        ids: names of the tasks; made distinct by their numbers where they are not.
    """

    def __init__(self, env: MultiRewardEnv):
        self._env = env.clone()
        names = [env.task_id(i) for i in range(len(env.tasks))]
        distinct = len(set(names)) == len(names)
        self.ids = names if distinct else [f"{i}:{name}" for i, name in enumerate(names)]

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, i: int) -> Case: ...
    @overload
    def __getitem__(self, i: slice) -> list[Case]: ...
    def __getitem__(self, i: int | slice) -> Case | list[Case]:
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        i = range(len(self))[i]
        messages, info = _reset(self._env, i)
        answers = self._env.reference_answers(i)
        reference = answers[0] if answers else None
        return Case(self.ids[i], messages, tuple(info["tools"]), reference, row=i)

    def __iter__(self) -> Iterator[Case]:
        return (self[i] for i in range(len(self)))

    def digest(self) -> str:
        """A digest of names, prompts and tools of the first tasks, and of how many there are."""
        seen = hashlib.sha256(str(len(self)).encode())
        for i in range(min(len(self), DIGESTED)):
            case = self[i]
            seen.update(json.dumps([case.id, case.messages, case.tools], default=str).encode())
        return seen.hexdigest()[:16]


def _reset(env: MultiRewardEnv, task: int) -> tuple[Any, dict[str, Any]]:
    # Seeded: an environment that draws its prompt draws the same one whenever the task comes up.
    return env.reset(seed=zlib.crc32(str(task).encode()), options={"task": task})


def _make(name: str, split: str, data: str | None, options: dict[str, Any]) -> MultiRewardEnv:
    if split:
        return envs.make(name, split=split, data=data, **options)
    try:
        return envs.make(name, split="test", data=data, **options)
    except GymError as first:
        try:
            env = envs.make(name, split="train", data=data, **options)
        except GymError:
            raise first from None
        if "test" in env.splits:
            env.close()
            raise
        return env
