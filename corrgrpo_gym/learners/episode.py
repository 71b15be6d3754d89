"""One episode, in text for the environment and in tokens for the model."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from ..envs import MultiRewardEnv
from ..errors import NotScored
from .chat import continuation, decode
from .engines.base import Completion, More

Finish = Literal["stop", "length", "turns"]


@dataclass(frozen=True, slots=True)
class Limits:
    """How far an episode may go.

    Attributes:
        tokens: All tokens after the first prompt: answers, and what the environment says between them.
        turn_tokens: Tokens of one answer; 0: only `tokens` limits it.
        turns: Answers; 0: only the environment limits them.
    """

    tokens: int
    turn_tokens: int = 0
    turns: int = 0

    @property
    def first(self) -> int:
        """Tokens of the first answer."""
        return self.turn(self.tokens)

    def turn(self, room: int) -> int:
        """Tokens of an answer where `room` are left for all."""
        return min(room, self.turn_tokens) if self.turn_tokens else room


@dataclass(slots=True)
class Rollout:
    """What was said in an episode, in text and in tokens, and what it earned.

    Attributes:
        messages: The chat that was shown first.
        said: All messages after it: answers, and what the environment said to them.
        ids: Token ids of all that, as the engine saw and sampled them.
        sampled: Which of the ids the model sampled; only these carry loss.
        logps: Their log-probabilities; 0 where the id was not sampled.
        reward: float32 [K], the sum over the turns; NaN where a component cannot be scored.
        finish: None while it runs. `stop`: the environment ended it, and the last answer had ended by itself;
            `length`: an answer or the whole met a limit on tokens; `turns`: it was truncated by its turns.
        turns: Answers so far.
        version: Updates behind the weights that it was sampled with.
        info: What the environment said of the last step.
    """

    messages: Sequence[dict[str, Any]] = ()
    said: list[dict[str, Any]] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    reward: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    finish: Finish | None = None
    turns: int = 0
    version: int = 0
    info: dict[str, Any] = field(default_factory=dict)

    def append(self, ids: Sequence[int], logps: Sequence[float] | None = None) -> None:
        """Add tokens: sampled ones with their log-probabilities, or what was said to the model."""
        self.ids += ids
        self.logps += [0.0] * len(ids) if logps is None else logps
        self.sampled += [logps is not None] * len(ids)


class Episode:
    """A running episode of one task. What the model sampled is kept as it was sampled and never tokenised again.

    Args:
        env: An environment of its own.
        task: Number of the task.
        tokenizer: Reads answers and renders what the environment says.
        ends: Token ids that end an answer.
        limits: How far it may go.

    Attributes:
        rollout: What there is of it so far.
    """

    def __init__(self, env: MultiRewardEnv, task: int, tokenizer: Any, ends: Sequence[int], limits: Limits):
        self._env, self._tokenizer, self._ends, self._limits = env, tokenizer, tuple(ends), limits
        messages, info = env.reset(options={"task": task})
        self._tools = info.get("tools", ())
        self.rollout = Rollout(messages, reward=np.zeros(len(env.reward_names), np.float32))

    def advance(self, answer: Completion) -> More | None:
        """Give the environment an answer.

        Returns:
            What the next answer follows on; None where the episode is over.

        Raises:
            GymError: From the environment or the chat template.
        """
        rollout, limits = self.rollout, self._limits
        rollout.turns += 1
        rollout.append(answer.ids, answer.logps)
        text = decode(self._tokenizer, answer.ids, self._ends)
        rollout.said.append({"role": "assistant", "content": text})
        cut = answer.finish == "length"
        try:
            new, reward, terminated, truncated, rollout.info = self._env.step(text)
        except NotScored as lost:
            # No component is scorable: the estimators leave such a rollout out.
            rollout.reward[:] = np.nan
            rollout.info = {"not_scored": str(lost)}
            rollout.finish = "length" if cut else "stop"
            return None
        rollout.reward += reward
        if terminated or truncated:
            rollout.said += new
            rollout.finish = "length" if cut else "turns" if truncated else "stop"
            return None
        if limits.turns and rollout.turns >= limits.turns:
            self._truncate("turns")
            return None
        ids = continuation(self._tokenizer, rollout.messages, self._tools, new, None if cut else answer.ids[-1])
        room = limits.tokens - len(rollout.ids) - len(ids)
        if room < 1:
            self._truncate("length")
            return None
        rollout.said += new
        rollout.append(ids)
        return More(ids, limits.turn(room))

    def _truncate(self, finish: Finish) -> None:
        _, reward, _, _, self.rollout.info = self._env.truncate()
        self.rollout.reward += reward
        self.rollout.finish = finish
