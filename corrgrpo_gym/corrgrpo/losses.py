"""Policy losses per token, before aggregation.

Each is one function, beside its formula and paper. ratio = pi / pi_old = exp(logp - old_logp) and A is the
advantage. Masked tokens have log-ratio 0 and A = 0; the aggregation leaves them out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import GymError
from .catalogue import SamplingRules, register_loss
from .results import TokenLoss

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class TokenTerms:
    """What a loss works on, [B, T] each.

    Attributes:
        logp: log-probability of each sampled token under the policy, with gradient.
        log_ratio: logp - old_logp, clamped to [-20, 20].
        advantages: A, one per token.
        mask: bool, the response tokens.
    """

    logp: Tensor
    log_ratio: Tensor
    advantages: Tensor
    mask: Tensor


@register_loss(
    "ppo_clip",
    paper="PPO, arXiv 1707.06347; dual clip, arXiv 1912.09729",
    description="max(-A ratio, -A clip(ratio, 1 - clip_low, 1 + clip_high)); for A < 0 at most -A dual_clip",
    aggregation="seq-mean-token-mean",
)
def ppo_clip(
    terms: TokenTerms, *, clip_low: float = 0.2, clip_high: float = 0.2, dual_clip: float | None = 3.0
) -> TokenLoss:
    """PPO's clipped loss as in GRPO. `dual_clip=None`: no second bound."""
    return _clipped(terms.log_ratio.exp(), terms.advantages, clip_low, clip_high, dual_clip)


@register_loss(
    "dapo",
    paper="DAPO, arXiv 2503.14476",
    description="ppo_clip with a higher upper bound, dynamic sampling and overlong shaping",
    aggregation="token-mean",
    sampling=SamplingRules(dynamic=True, overlong=True),
)
def dapo(
    terms: TokenTerms, *, clip_low: float = 0.2, clip_high: float = 0.28, dual_clip: float | None = 10.0
) -> TokenLoss:
    """DAPO's "clip higher"."""
    return _clipped(terms.log_ratio.exp(), terms.advantages, clip_low, clip_high, dual_clip)


@register_loss(
    "cispo",
    paper="MiniMax-M1, arXiv 2506.13585",
    description="-stopgrad(clip(ratio, 1 - clip_low, 1 + clip_high)) A logp; or ratio_cap for 1 + clip_high",
    aggregation="token-mean",
    exclusive=(("clip_high", "ratio_cap"),),
)
def cispo(
    terms: TokenTerms, *, clip_low: float = 10.0, clip_high: float = 0.2, ratio_cap: float | None = None
) -> TokenLoss:
    """CISPO: a bounded weight on every token's gradient, no token is dropped.

    `clip_high` is relative (verl), `ratio_cap` the upper bound itself (TRL, which advises 5.0). The default
    `clip_low` sets no lower bound.
    """
    ratio = terms.log_ratio.exp()
    lower, upper = 1 - clip_low, 1 + clip_high if ratio_cap is None else ratio_cap
    loss = -ratio.clamp(lower, upper).detach() * terms.advantages * terms.logp
    return TokenLoss(loss, ratio, {"clip_fraction": (ratio < lower) | (ratio > upper)})


@register_loss(
    "gspo",
    paper="GSPO, arXiv 2507.18071",
    description="ppo_clip of the sequence ratio s = exp(mean_t (logp - old_logp))",
    aggregation="seq-mean-token-mean",
)
def gspo(
    terms: TokenTerms, *, clip_low: float = 3e-4, clip_high: float = 4e-4, dual_clip: float | None = None
) -> TokenLoss:
    """GSPO: one ratio per sequence."""
    lengths = terms.mask.sum(1, keepdim=True).clamp(min=1)
    ratio = (terms.log_ratio.sum(1, keepdim=True) / lengths).exp()
    return _clipped(ratio, terms.advantages, clip_low, clip_high, dual_clip)


@register_loss(
    "dr_grpo",
    paper="Understanding R1-Zero-Like Training, arXiv 2503.20783",
    description="ppo_clip, summed over tokens and divided by a constant length",
    aggregation="seq-mean-token-sum-norm",
)
def dr_grpo(
    terms: TokenTerms, *, clip_low: float = 0.2, clip_high: float = 0.2, dual_clip: float | None = 3.0
) -> TokenLoss:
    """Dr. GRPO: no bias towards short or long answers."""
    return _clipped(terms.log_ratio.exp(), terms.advantages, clip_low, clip_high, dual_clip)


def _clipped(ratio: Tensor, a: Tensor, low: float, high: float, dual_clip: float | None) -> TokenLoss:
    if not (0 <= low <= 1 and high >= 0 and (dual_clip is None or dual_clip > 1)):
        raise GymError(
            f"clip_low={low}, clip_high={high}, dual_clip={dual_clip}: clip_low must be in [0, 1], "
            "clip_high >= 0, dual_clip > 1 or none."
        )
    plain = -a * ratio
    bounded = -a * ratio.clamp(1 - low, 1 + high)
    loss = plain.maximum(bounded)
    shares = {"clip_fraction": bounded > plain}
    if dual_clip is not None:
        ceiling = -a * dual_clip
        above = (a < 0) & (loss > ceiling)
        loss = ceiling.where(above, loss)
        shares["dual_clip_fraction"] = above
    return TokenLoss(loss, ratio, shares)
