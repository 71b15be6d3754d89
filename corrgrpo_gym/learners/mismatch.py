"""How far the engine that sampled is from the learner that is trained on its samples."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .engines.base import Completion
from .kv import right_pad_floats
from .policy import Piece, Policy


class Mismatch(Exception):
    """The sampler's log-probabilities are too far from the learner's.

    Attributes:
        mean: Mean |difference| per token, in nats.
        largest: The largest of them.
    """

    def __init__(self, mean: float, largest: float):
        super().__init__(f"mean |difference| {mean:.3g} nats per token, largest {largest:.3g}")
        self.mean, self.largest = mean, largest


@dataclass(slots=True)
class Gaps:
    """Differences of log-probabilities over the tokens that were sampled.

    With d = log p of the learner - log p of the sampler, w = exp(d) is a token's importance weight. The estimate of
    KL(sampler || learner) is the mean of w - 1 - d (k3); the effective sample size, as a share of the tokens, is
    (sum w)^2 / (count * sum w^2).
    """

    count: int = 0
    absolute: float = 0.0
    largest: float = 0.0
    kl: float = 0.0
    weight: float = 0.0
    square: float = 0.0

    def add(self, difference: torch.Tensor) -> None:
        """Count tokens in: d of each, any shape."""
        if difference.numel() == 0:
            return
        d = difference.detach().double()
        w = d.clamp(max=50).exp()
        self.count += d.numel()
        sums = torch.stack([d.abs().sum(), d.abs().max(), (w - 1 - d).sum(), w.sum(), w.square().sum()]).tolist()
        self.absolute += sums[0]
        self.largest = max(self.largest, sums[1])
        self.kl += sums[2]
        self.weight += sums[3]
        self.square += sums[4]

    @property
    def mean(self) -> float:
        """Mean |d|; 0 where there was no token."""
        return self.absolute / self.count if self.count else 0.0

    def check(self, limit: float) -> None:
        """Raise Mismatch if the mean is beyond a limit; 0 is none."""
        if limit and self.mean > limit:
            raise Mismatch(self.mean, self.largest)

    def metrics(self) -> dict[str, float]:
        """By the names that they have in metrics.jsonl; nothing where there was no token."""
        if not self.count:
            return {}
        return {
            "sampler_gap_mean": self.mean,
            "sampler_gap_max": self.largest,
            "sampler_kl": self.kl / self.count,
            "sampler_ess": self.weight**2 / (self.count * self.square),
        }


@torch.no_grad()
def measure(
    policy: Policy, prompts: Sequence[Sequence[int]], groups: Sequence[Sequence[Completion]], temperature: float = 1.0
) -> Gaps:
    """Gaps between a policy and what an engine sampled for these prompts at this temperature."""
    pieces = [Piece(prompt, [c.ids for c in group]) for prompt, group in zip(prompts, groups, strict=True)]
    logps, mask = policy.logps(pieces, temperature)
    gaps = Gaps()
    gaps.add((logps - right_pad_floats([c.logps for group in groups for c in group], policy.device))[mask])
    return gaps


def likely_cause(gap: Mismatch, engine: str, staleness: int, before: float) -> str:
    """What a mismatch most likely comes from, and what to do.

    Args:
        gap: What was found.
        engine: Name of the engine.
        staleness: Updates between the weights that sampled and those that are trained.
        before: Mean |difference| of the step before; 0: there was none.
    """
    if staleness:
        return (
            f"The batch was sampled with weights {staleness} update older: lower update.lr, or set "
            "engine.off_policy_steps=0"
        )
    if engine == "transformers":
        return (
            "The learner sampled itself, so its arithmetic differs between one token and many: set policy.dtype=float32"
        )
    if before and before < 0.5 * gap.mean:
        return (
            f"Before the last update it was {before:.3g}, so the new weights did not all reach vLLM (an output head "
            "that is tied to the embedding is the usual one). --engine transformers does without"
        )
    return (
        "The weights are the same, so it is the arithmetic or the model's code: try engine.dtype=float32 with "
        "policy.dtype=float32, else --engine transformers. A higher engine.max_mismatch accepts it"
    )
