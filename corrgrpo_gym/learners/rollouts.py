"""Groups of rollouts: prompts out of an environment, answers out of an engine, rewards while others are sampled."""

import itertools
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..envs import MultiRewardEnv
from ..errors import GymError, NotScored
from .chat import decode, render
from .engines.base import Completion, Interrupted, Sampling, TokenEngine


@dataclass(slots=True)
class Rollout:
    """One answer to one task, as sampled and as scored.

    Attributes:
        messages: The chat that was shown.
        answer: Decoded text of the answer, without its end token.
        completion: Sampled ids with their log-probabilities.
        reward: float32 [K]; NaN where a component cannot be scored.
        info: What the environment said about the step.
    """

    messages: tuple[dict[str, Any], ...]
    answer: str
    completion: Completion
    reward: np.ndarray
    info: dict[str, Any]


@dataclass(slots=True)
class Group:
    """The rollouts of one task."""

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
    interrupted: Callable[[], bool] = lambda: False,
    progress: Callable[[str, int], None] = lambda phase, done: None,
) -> list[Group]:
    """Sample and score n rollouts of each task. Answers are scored while others are still being sampled.

    Args:
        prompts: The rendered split.
        tasks: Task numbers; one group each.
        n: Rollouts per task.
        engine: Samples tokens.
        ends: Token ids that end an answer.
        sampling: How to draw.
        scorers: Threads that step environments.
        interrupted: Asked at every token.
        progress: Called with ("sampled" or "scored", how many so far).

    Answers that the environment cannot score (NotScored) have NaN in every component, and "not_scored" in their info.

    Raises:
        GymError: If the environment wants more than one turn, or no answer at all could be scored.
        Interrupted: If asked to stop.
    """
    pending: dict[tuple[int, int], Future[Rollout]] = {}
    count = itertools.count(1)

    def score(task: int, completion: Completion) -> Rollout:
        env = prompts.env.clone()
        messages, _ = env.reset(options={"task": task})
        answer = decode(prompts.tokenizer, completion.ids, ends)
        try:
            _, reward, terminated, truncated, info = env.step(answer)
        except NotScored as lost:
            # No component is scorable: the estimators leave such a rollout out.
            reward, terminated, truncated = np.full(len(env.reward_names), np.nan, np.float32), True, False
            info = {"not_scored": str(lost)}
        if not (terminated or truncated):
            raise GymError(
                f"environment {type(env).__name__} wants another turn: training takes single-turn environments"
            )
        progress("scored", next(count))
        return Rollout(tuple(messages), answer, completion, np.asarray(reward, np.float32), info)

    def finished(group: int, sample: int, completion: Completion) -> None:
        pending[group, sample] = scorers.submit(score, tasks[group], completion)
        progress("sampled", len(pending))

    try:
        engine.generate([prompts.ids(t) for t in tasks], n, sampling, on_finish=finished, interrupted=interrupted)
        _wait(pending.values(), interrupted)
        lost = [note for f in pending.values() if (note := f.result().info.get("not_scored"))]
        if lost and len(lost) == len(pending):
            raise GymError(f"not one answer of this batch could be scored; the first: {lost[0]}")
        return [
            Group(task, prompts.env.task_id(task), prompts.ids(task), [pending[g, j].result() for j in range(n)])
            for g, task in enumerate(tasks)
        ]
    finally:
        for future in pending.values():
            future.cancel()


def _wait(futures: Collection[Future[Rollout]], interrupted: Callable[[], bool]) -> None:
    """Wait for all, or until one has failed or the user wants to stop."""
    left: Collection[Future[Rollout]] = futures
    while left:
        done, left = wait(left, timeout=0.2, return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()
        if left and interrupted():
            raise Interrupted
