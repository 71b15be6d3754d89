"""Groups of rollouts: prompts out of an environment, answers out of an engine, rewards while others are sampled."""

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..envs import MultiRewardEnv
from ..errors import GymError
from .chat import render
from .engines.base import Completion, More, Sampling, TokenEngine
from .episode import Episode, Limits, Rollout


@dataclass(slots=True)
class Group:
    """The rollouts of one task.

    Attributes:
        task: Its number.
        task_id: Its name.
        prompt: Token ids of the chat that all rollouts were shown first.
        rollouts: One of each episode.
    """

    task: int
    task_id: str
    prompt: list[int]
    rollouts: list[Rollout]


class Prompts:
    """The tasks of one split, rendered, without those whose prompt is too long.

    Args:
        env: The environment.
        tokenizer: Renders its chats.
        max_tokens: Longest prompt that is kept.

    Raises:
        GymError: If no task is left.
    """

    def __init__(self, env: MultiRewardEnv, tokenizer: Any, max_tokens: int):
        self.env = env
        self.tokenizer = tokenizer
        self.max_tokens = max_tokens
        self._ids: dict[int, list[int]] = {}
        self.too_long: list[str] = []
        self.tasks: list[int] = []
        for task in range(len(env.tasks)):
            if len(self.ids(task)) <= max_tokens:
                self.tasks.append(task)
            else:
                self.too_long.append(env.task_id(task))
        if not self.tasks:
            raise GymError(
                f"split {env.split!r}: all {len(env.tasks)} prompts are longer than "
                f"rollout.max_prompt_tokens = {max_tokens}"
            )

    def ids(self, task: int) -> list[int]:
        """Token ids of a task's first prompt."""
        if task not in self._ids:
            messages, info = self.env.clone().reset(options={"task": task})
            self._ids[task] = render(self.tokenizer, messages, info.get("tools", ()))
        return self._ids[task]

    def order(self, seed: int, start: int, count: int) -> list[int]:
        """Tasks number start to start + count - 1 of the endless, shuffled sequence that the seed gives."""
        out: list[int] = []
        size = len(self.tasks)
        while len(out) < count:
            epoch, offset = divmod(start + len(out), size)
            permutation = np.random.default_rng([seed, 0x0DE5, epoch]).permutation(size)
            out += [self.tasks[i] for i in permutation[offset : offset + count - len(out)]]
        return out


def collect(
    prompts: Prompts,
    tasks: Sequence[int],
    n: int,
    engine: TokenEngine,
    ends: Sequence[int],
    sampling: Sampling,
    scorers: ThreadPoolExecutor,
    *,
    limits: Limits | None = None,
    interrupted: Callable[[], bool] = lambda: False,
    progress: Callable[[str, int], None] = lambda phase, done: None,
) -> list[Group]:
    """Sample and score n rollouts of each task. Environments are stepped while other answers are being sampled.

    Args:
        prompts: The rendered split.
        tasks: Task numbers; one group each.
        n: Rollouts per task.
        engine: Samples tokens.
        ends: Token ids that end an answer.
        sampling: How to draw.
        scorers: Threads that step environments.
        limits: Of an episode; None: `sampling.max_new_tokens` in all.
        interrupted: Asked at every token.
        progress: Called with ("sampled" or "scored", how many answers, or episodes, so far).

    Answers that the environment cannot score (NotScored) have NaN in every component, and "not_scored" in their info.

    Raises:
        GymError: If no answer at all could be scored, or an environment or chat template is at fault.
        Interrupted: If asked to stop.
    """
    limits = limits or Limits(sampling.max_new_tokens)
    episodes: dict[tuple[int, int], Episode] = {}
    pending: dict[tuple[int, int], Future[More | None]] = {}
    sampled, scored = itertools.count(1), itertools.count(1)

    def advance(group: int, sample: int, answer: Completion) -> More | None:
        episode = episodes.get((group, sample))
        if episode is None:
            episode = Episode(prompts.env.clone(), tasks[group], prompts.tokenizer, ends, limits)
            episodes[group, sample] = episode
        more = episode.advance(answer)
        if more is None:
            progress("scored", next(scored))
        return more

    def finished(group: int, sample: int, answer: Completion) -> Future[More | None]:
        if (group, sample) not in pending:
            progress("sampled", next(sampled))
        future = pending[group, sample] = scorers.submit(advance, group, sample, answer)
        return future

    try:
        sampling = replace(sampling, max_new_tokens=limits.first)
        engine.generate([prompts.ids(t) for t in tasks], n, sampling, on_finish=finished, interrupted=interrupted)
        lost = [note for e in episodes.values() if (note := e.rollout.info.get("not_scored"))]
        if lost and len(lost) == len(episodes):
            raise GymError(f"not one answer of this batch could be scored; the first: {lost[0]}")
        return [
            Group(task, prompts.env.task_id(task), prompts.ids(task), [episodes[g, j].rollout for j in range(n)])
            for g, task in enumerate(tasks)
        ]
    finally:
        for future in pending.values():
            future.cancel()
