"""What samples tokens: the interface that rollouts and evaluations use."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol


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


class TokenEngine(Protocol):
    """Token ids in, token ids and log-probabilities out."""

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        n: int,
        sampling: Sampling,
        *,
        on_finish: Callable[[int, int, Completion], None] | None = None,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> list[list[Completion]]:
        """Sample n completions of each prompt.

        Args:
            prompts: Token ids, not padded.
            n: Completions per prompt.
            sampling: How to draw.
            on_finish: Called with (prompt index, sample index, completion) as soon as each is done.
            interrupted: Asked at every token; raises Interrupted when it returns true.

        Returns:
            For each prompt its n completions in order.
        """
        ...
