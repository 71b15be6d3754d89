"""What samples tokens: the interface that rollouts and evaluations use."""

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np


class Interrupted(Exception):
    """Sampling was asked to stop (Ctrl-C, SIGTERM)."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn.

    Attributes:
        max_new_tokens: Length limit of an answer, its end token included.
        temperature: 0 is greedy.
        top_p: Nucleus size in (0, 1].
        top_k: Number of candidates; 0 for all.
        seed: Two calls with the same prompts, weights and seed give the same tokens.
    """

    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled answer.

    Attributes:
        ids: Sampled token ids, the end token included where there is one.
        logps: Log-probability of each under softmax(logits / temperature), before top-p and top-k cut
            (greedy: at temperature 1).
        finish: `stop` at an end token, `length` at the limit.
    """

    ids: list[int]
    logps: list[float]
    finish: Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class More:
    """How a sequence goes on after an answer.

    Attributes:
        ids: Appended to what the engine has seen and sampled of it; at least one.
        max_new_tokens: Length limit of the next answer.
    """

    ids: Sequence[int]
    max_new_tokens: int


OnFinish: TypeAlias = Callable[[int, int, Completion], "Future[More | None] | None"]


def seed(*parts: int) -> int:
    """A seed in [0, 2^63) from several numbers."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> 1)


def settle(futures: Collection["Future[Any]"], interrupted: Callable[[], bool]) -> None:
    """Wait for all, or until one has failed or the user wants to stop.

    Raises:
        Interrupted: Asked to stop.
        Exception: What the first one that failed raised.
    """
    left: Collection[Future[Any]] = futures
    while left:
        done, left = wait(left, timeout=0.2, return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()
        if left and interrupted():
            raise Interrupted


class TokenEngine(Protocol):
    """Token ids in, token ids and log-probabilities out."""

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        n: int,
        sampling: Sampling,
        *,
        seeds: Sequence[int] | None = None,
        on_finish: OnFinish | None = None,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> list[list[Completion]]:
        """Sample n completions of each prompt, and whatever `on_finish` wants after them.

        Args:
            prompts: Token ids, not padded.
            n: Completions per prompt.
            sampling: How to draw.
            seeds: One for each prompt in the place of `sampling.seed`: what it draws depends on no other prompt.
            on_finish: Called with (prompt index, sample index, completion) as soon as each is done. It may return a
                future: of `More`, by which the same sequence goes on to another answer, or of None.
            interrupted: Asked at every token, or several times a second; raises Interrupted when it returns true.

        Returns:
            For each prompt its n completions in order, the last one of each where there were several; all futures
            are settled by then.

        Raises:
            Interrupted: Asked to stop.
            Exception: What a future raised.
        """
        ...


class Engine(TokenEngine, Protocol):
    """What a trainer samples with: a token engine that follows the learner's weights.

    Attributes:
        name: `transformers` or `vllm`.
        version: Updates behind the weights that it has; -1: none were given yet.
    """

    name: Literal["transformers", "vllm"]
    version: int

    def push(self, policy: Any, version: int) -> None:
        """Take the policy's weights, awake or asleep; it is awake afterwards.

        Args:
            policy: A `learners.policy.Policy`.
            version: Updates behind its weights.

        Raises:
            GymError: They can't be taken.
        """
        ...

    def sleep(self) -> None:
        """Give memory back until the next push."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...
