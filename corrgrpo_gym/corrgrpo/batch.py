"""One batch of reward vectors, checked and brought to float64: what every estimator works on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ..errors import GymError
from . import statistics
from .catalogue import MISSING_MODES, choose

# Larger rewards are cut here, so that squares stay finite in float64 and no finite input gives NaN.
LIMIT = 1e60


@dataclass(frozen=True)
class RewardBatch:
    """Rewards of G groups of n rollouts with K components, in float64.

    Build it with `RewardBatch.of`, which checks the input.

    Attributes:
        rewards: [G, n, K], unweighted; a missing value holds its stand-in (see `of`).
        weights: [K].
        scorable: bool [G, n, K], False where a value is missing or its rollout is; None if nothing is
            missing.
        present: bool [G, n], rollouts that take part: there, and with a scorable component.
        tokens: [G, n], response tokens by rollout; 1 each if unknown.
        penalty: [G, n], a term of its own in the total (overlong shaping).
    """

    rewards: Tensor
    weights: Tensor
    scorable: Tensor | None
    present: Tensor
    tokens: Tensor
    penalty: Tensor

    @classmethod
    def of(
        cls,
        rewards: Tensor,
        *,
        weights: Sequence[float] | Tensor | None = None,
        mask: Tensor | None = None,
        token_counts: Tensor | None = None,
        penalty: Tensor | None = None,
        missing: str = "centre",
    ) -> RewardBatch:
        """Check and prepare a batch.

        Args:
            rewards: [G, n, K]; NaN is a component that could not be scored.
            weights: K finite weights; None is 1 each.
            mask: bool [G, n], False for a rollout that is missing (its rewards are not read).
            token_counts: [G, n], response tokens, >= 0.
            penalty: [G, n], finite.
            missing: What a NaN stands for: "centre" (the mean of what is there, so that it counts 0 after
                centring), "nansum" (0 in the total, nothing in the statistics; TRL) or "zero" (the value 0;
                NVIDIA's TRL).

        Raises:
            GymError: A shape does not fit, or a value is infinite or out of range; the message says which.
        """
        choose("missing", missing, MISSING_MODES)
        values = torch.as_tensor(rewards).detach().double()
        if values.ndim != 3 or 0 in values.shape:
            hint = "; for one component write rewards[..., None]" if values.ndim == 2 else ""
            raise GymError(
                "rewards must be [groups, rollouts, components], none of them 0, "
                f"got shape {tuple(values.shape)}{hint}."
            )
        shape, device = values.shape[:2], values.device
        # Rollouts outermost in memory: statistics over a group are then sums of long rows, much faster.
        values = values.transpose(0, 1).contiguous().transpose(0, 1)
        present = _field("mask", mask, shape, device, default=1.0) != 0
        values = statistics.keep(values, present[..., None])
        scorable = None
        if not bool(present.all() & (values.amin(1) >= -LIMIT).all() & (values.amax(1) <= LIMIT).all()):
            values, scorable, present = _with_gaps(values, present, missing)
        tokens = _field("token_counts", token_counts, shape, device, default=1.0)
        if not bool(((tokens >= 0) & tokens.isfinite()).all()):
            raise GymError("token_counts must be finite and >= 0.")
        added = statistics.keep(_field("penalty", penalty, shape, device, default=0.0), present)
        if not bool(added.isfinite().all()):
            raise GymError("penalty must be finite.")
        return cls(
            rewards=values,
            weights=_weights(weights, values),
            scorable=scorable,
            present=present,
            tokens=statistics.keep(tokens, present),
            penalty=added.clamp(-LIMIT, LIMIT),
        )

    @cached_property
    def components(self) -> Tensor:
        """c_k = w_k r_k, [G, n, K]."""
        return self.rewards * self.weights

    @cached_property
    def total(self) -> Tensor:
        """R = sum_k w_k r_k (plus the penalty), [G, n]."""
        return self.components.sum(-1) + self.penalty

    @cached_property
    def centred_total(self) -> Tensor:
        """R - mean R in each group, [G, n]."""
        return statistics.centre(self.total, self.present)

    @cached_property
    def centred_penalty(self) -> Tensor:
        """The penalty minus its mean in each group, [G, n]."""
        return statistics.centre(self.penalty, self.present)

    def z(self, eps: float) -> Tensor:
        """Z_k = (r_k - mean r_k) / (std r_k + eps) in each group, [G, n, K]; 0 where missing."""
        centred = statistics.centre(self.rewards, self.scorable)
        return centred / (statistics.std(centred, self.scorable) + eps)


def _with_gaps(values: Tensor, there: Tensor, missing: str) -> tuple[Tensor, Tensor, Tensor]:
    """Values with their stand-ins, `scorable` and `present` where something is missing, or too large."""
    infinite = values.isinf()
    if infinite.any():
        g, i, k = infinite.nonzero()[0].tolist()
        raise GymError(
            f"rewards[{g}, {i}, {k}] is {values[g, i, k].item()}: rewards must be finite; "
            "use NaN for a component that cannot be scored."
        )
    scorable = there[..., None] & (~values.isnan() | (missing == "zero"))
    values = values.nan_to_num(0.0).clamp(-LIMIT, LIMIT)
    if missing == "centre":
        values = values.where(scorable, statistics.mean(values, scorable))
    return values, scorable, scorable.any(-1)


def _field(name: str, value: Tensor | None, shape: torch.Size, device: torch.device, default: float) -> Tensor:
    if value is None:
        return torch.full(shape, float(default), dtype=torch.float64, device=device)
    tensor = torch.as_tensor(value, device=device).detach()
    if tensor.shape != shape:
        raise GymError(f"{name} must be [groups, rollouts] = {list(shape)} like rewards, got {list(tensor.shape)}.")
    return tensor.double()


def _weights(weights: Sequence[float] | Tensor | None, values: Tensor) -> Tensor:
    components = values.shape[-1]
    if weights is None:
        return values.new_ones(components)
    tensor = torch.as_tensor(weights, dtype=torch.float64, device=values.device).detach()
    if tensor.shape != (components,):
        raise GymError(f"{tensor.numel()} weights for {components} reward components: give one weight per component.")
    if not bool((tensor.abs() <= 1e30).all()):
        raise GymError(f"weights must be finite and at most 1e30 in size, got {tensor.tolist()}.")
    return tensor
