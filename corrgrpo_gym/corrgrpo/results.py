"""What estimators and losses return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Estimate:
    """Advantages of a batch and what came with them.

    Attributes:
        advantages: [G, n]; 0 for a missing rollout.
        group_weights: [G], weights of the prompts' losses, or None for 1 each.
        info: Figures worth logging, by name (`floored_share` for `corrgrpo`).
    """

    advantages: Tensor
    group_weights: Tensor | None = None
    info: Mapping[str, float] = field(default_factory=dict)

    def weighted(self) -> Tensor:
        """Advantages [G, n] times their group's weight.

        Every policy term is proportional to the size of its advantage, so this weights the prompts' losses.
        """
        if self.group_weights is None:
            return self.advantages
        return self.advantages * self.group_weights[:, None]


@dataclass(frozen=True)
class TokenLoss:
    """A policy loss before its aggregation.

    Attributes:
        loss: [B, T], with gradient.
        ratio: [B, T] or [B, 1], pi / pi_old as the loss uses it.
        shares: Indicators [B, T] or [B, 1] by name; their means over the tokens become metrics.
    """

    loss: Tensor
    ratio: Tensor
    shares: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class PolicyLoss:
    """The loss of a (micro-)batch.

    Attributes:
        loss: Scalar with gradient.
        metrics: Scalars without gradient. Like the loss they are normalised by the batch's totals, so those
            of micro-batches or ranks add up to the batch's.
    """

    loss: Tensor
    metrics: dict[str, Tensor]
