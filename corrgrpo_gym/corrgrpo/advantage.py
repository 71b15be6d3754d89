"""Advantages by an estimator's name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import GymError
from .batch import RewardBatch
from .catalogue import find
from .results import Estimate


def advantages(
    name: str,
    rewards: Tensor,
    *,
    weights: Sequence[float] | Tensor | None = None,
    mask: Tensor | None = None,
    token_counts: Tensor | None = None,
    penalty: Tensor | None = None,
    missing: str = "centre",
    **options: Any,
) -> Tensor:
    """Advantages [G, n] of a batch of reward vectors: `estimate` without what comes beside them."""
    return estimate(
        name,
        rewards,
        weights=weights,
        mask=mask,
        token_counts=token_counts,
        penalty=penalty,
        missing=missing,
        **options,
    ).advantages


def estimate(
    name: str,
    rewards: Tensor,
    *,
    weights: Sequence[float] | Tensor | None = None,
    mask: Tensor | None = None,
    token_counts: Tensor | None = None,
    penalty: Tensor | None = None,
    missing: str = "centre",
    **options: Any,
) -> Estimate:
    """Advantages of a batch by the estimator of a name.

    Statistics are in float64. Any finite or missing input gives finite advantages.

    Args:
        name: A registered estimator (`corrgrpo-gym algos` lists them).
        rewards: [G, n, K]: G prompts, n rollouts each, K components. NaN: this component could not be scored.
        weights: One per component; None is 1 each.
        mask: bool [G, n], False for a missing rollout. Its advantage is 0 and it is in no statistic.
        token_counts: [G, n], response tokens by rollout, for estimators that whiten over tokens; None is 1
            each.
        penalty: [G, n], added to the total as a term of its own (overlong shaping), outside every
            correlation.
        missing: "centre", "nansum" or "zero", see `RewardBatch.of`.
        **options: The estimator's own, such as `eps` or `guard`.

    Returns:
        Advantages in float32, or float64 where `rewards` is, on its device.

    Raises:
        GymError: Unknown name, option or value, a shape that does not fit, or an infinite reward.
    """
    entry = find("estimator", name)
    entry.check(options, common=False)
    rewards = torch.as_tensor(rewards)
    batch = RewardBatch.of(
        rewards, weights=weights, mask=mask, token_counts=token_counts, penalty=penalty, missing=missing
    )
    result = entry.function(batch, **options)
    if not isinstance(result, Estimate):
        result = Estimate(result)
    if result.advantages.shape != batch.present.shape:
        raise GymError(
            f"estimator {name!r} returned shape {tuple(result.advantages.shape)}, "
            f"expected [groups, rollouts] = {tuple(batch.present.shape)}."
        )
    dtype = torch.float64 if rewards.dtype == torch.float64 else torch.float32
    largest = torch.finfo(dtype).max
    values = result.advantages.masked_fill(~batch.present, 0).clamp(-largest, largest).to(dtype)
    weights_out = None if result.group_weights is None else result.group_weights.to(dtype)
    return Estimate(values, weights_out, result.info)
