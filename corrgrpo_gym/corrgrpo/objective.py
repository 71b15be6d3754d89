"""The policy loss: a token loss by name, a KL term, and their aggregation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import GymError
from .aggregation import BatchTotals, aggregate
from .catalogue import KL_ESTIMATORS, choose, find
from .losses import TokenTerms
from .results import PolicyLoss, TokenLoss

# exp(20) is 5e8: beyond it a ratio is noise, and exp(89) overflows float32.
MAX_LOG_RATIO = 20.0


def policy_loss(
    name: str,
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    ref_logp: Tensor | None = None,
    kl_coef: float = 0.0,
    kl: str = "k3",
    kl_unbiased: bool = False,
    aggregation: str | None = None,
    norm_length: float | None = None,
    totals: BatchTotals | None = None,
    sampler_weights: Tensor | None = None,
    **options: Any,
) -> PolicyLoss:
    """The loss of a (micro-)batch of B responses, padded to T tokens.

    Args:
        name: A registered loss (`corrgrpo-gym algos` lists them).
        logp: [B, T], log-probabilities of the sampled tokens under the policy, with gradient. What stands at
            masked tokens has no effect, here and below, be it NaN.
        old_logp: [B, T], the same under the policy that starts the update.
        advantages: [B], or [B, T] for one per token.
        mask: [B, T], not 0 for response tokens.
        ref_logp: [B, T], under the reference policy; needed where `kl_coef` is not 0.
        kl_coef: Weight of the KL term (>= 0).
        kl: Its estimator: "k1", "k2" or "k3", see `kl_divergence`.
        kl_unbiased: Multiply the KL term by the ratio, so that it is unbiased off-policy (DeepSeek-V3.2).
        aggregation: One of `AGGREGATIONS`; None is the loss's own.
        norm_length: The constant of "seq-mean-token-sum-norm".
        totals: Normalisers of the whole batch, so that losses, gradients and metrics of its parts add up to
            its own; None: this is all of it.
        sampler_weights: [B, T], importance weights for the sampler's mismatch, multiplied to the policy term
            (`truncated_importance_weights`).
        **options: The loss's own, such as `clip_high`.

    Raises:
        GymError: Unknown name, option or value, a shape that does not fit, or something missing that an
            option needs.
    """
    entry = find("loss", name)
    entry.check(options, common=False)
    mask = _checked("mask", mask, logp) != 0
    totals = totals or BatchTotals.from_mask(mask)
    mode = aggregation or entry.aggregation
    if advantages.ndim == 1:
        advantages = advantages[:, None].expand(-1, logp.shape[1])
    advantages = _response("advantages", advantages, logp, mask)
    logp, old_logp = _response("logp", logp, logp, mask), _response("old_logp", old_logp, logp, mask).detach()
    log_ratio = (logp - old_logp).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)

    result = entry.function(TokenTerms(logp, log_ratio, advantages.detach(), mask), **options)
    if not isinstance(result, TokenLoss):
        result = TokenLoss(result, log_ratio.exp())
    token_loss = result.loss
    if sampler_weights is not None:
        token_loss = token_loss * _response("sampler_weights", sampler_weights, logp, mask).detach()
    token_loss = _checked(f"the result of loss {name!r}", token_loss, logp)
    loss = aggregate(token_loss, mask, mode, totals=totals, norm_length=norm_length)

    def token_mean(values: Tensor) -> Tensor:
        return aggregate(values.detach().to(logp.dtype).expand_as(logp), mask, "token-mean", totals=totals)

    metrics = {
        "policy_loss": loss.detach(),
        "ratio_mean": token_mean(result.ratio),
        "old_kl": token_mean(-log_ratio),
    }
    metrics |= {share: token_mean(values) for share, values in result.shares.items()}
    if not kl_coef >= 0:
        raise GymError(f"kl_coef must be >= 0, got {kl_coef}.")
    if ref_logp is None and kl_coef != 0:
        raise GymError(f"kl_coef is {kl_coef} but there is no ref_logp: give the reference's, or set kl_coef=0.")
    if ref_logp is not None:
        token_kl = kl_divergence(logp, _response("ref_logp", ref_logp, logp, mask).detach(), kl)
        if kl_unbiased:
            token_kl = token_kl * result.ratio
        metrics["kl"] = token_mean(token_kl)
        if kl_coef != 0:
            loss = loss + kl_coef * aggregate(token_kl, mask, mode, totals=totals, norm_length=norm_length)
    return PolicyLoss(loss, metrics)


def kl_divergence(logp: Tensor, ref_logp: Tensor, kind: str = "k3") -> Tensor:
    """Estimate KL(policy || reference) per token, of any shape.

    With d = ref_logp - logp: k1 is -d, k2 is d^2 / 2, k3 is exp(d) - d - 1, d clamped to [-20, 20] and the
    result to [-10, 10] (J. Schulman, "Approximating KL Divergence").
    """
    choose("kl", kind, KL_ESTIMATORS)
    if kind == "k1":
        return logp - ref_logp
    if kind == "k2":
        return (logp - ref_logp).square() / 2
    difference = (ref_logp - logp).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return (difference.exp() - difference - 1).clamp(-10, 10)


def truncated_importance_weights(old_logp: Tensor, sampler_logp: Tensor, mask: Tensor, cap: float = 2.0) -> Tensor:
    """min(exp(old_logp - sampler_logp), cap) per token, 1 at masked tokens, without gradient.

    They correct for a sampler (another engine, another precision) that drew from a slightly different policy.

    Args:
        old_logp: [B, T], log-probabilities of the sampled tokens under the trained policy before the update.
        sampler_logp: [B, T], what the sampler said.
        mask: [B, T], not 0 for response tokens.
        cap: Upper bound (> 0).
    """
    if not cap > 0:
        raise GymError(f"cap must be > 0, got {cap}.")
    mask = _checked("mask", mask, old_logp) != 0
    old, sampler = (_response("logp", x, old_logp, mask).detach() for x in (old_logp, sampler_logp))
    return (old - sampler).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp().clamp(max=cap)


def _response(name: str, values: Tensor, like: Tensor, mask: Tensor) -> Tensor:
    """Values at response tokens in at least float32, 0 elsewhere so that no padding reaches a gradient."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    return _checked(name, values, like).to(dtype).masked_fill(~mask, 0)


def _checked(name: str, values: Tensor, like: Tensor) -> Tensor:
    if like.ndim != 2 or values.shape != like.shape:
        raise GymError(
            f"{name} has shape {tuple(values.shape)}; logp has {tuple(like.shape)}: both must be [sequences, tokens]."
        )
    return values
