"""From a matrix of token losses to one number, the same for any split into micro-batches or ranks."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..errors import GymError
from .catalogue import AGGREGATIONS, choose


@dataclass(frozen=True)
class BatchTotals:
    """Normalisers of a whole (mini-)batch.

    Attributes:
        tokens: Response tokens in the batch.
        sequences: Sequences that have at least one.
    """

    tokens: float | Tensor
    sequences: float | Tensor

    @classmethod
    def from_mask(cls, mask: Tensor) -> BatchTotals:
        """Totals of a mask [B, T]."""
        return cls.from_lengths((mask != 0).sum(1))

    @classmethod
    def from_lengths(cls, lengths: Tensor) -> BatchTotals:
        """Totals of sequences with these numbers of response tokens [B]."""
        return cls(lengths.sum().double(), (lengths > 0).sum().double())

    def __add__(self, other: BatchTotals) -> BatchTotals:
        """Totals of both parts: of micro-batches, or ranks."""
        return BatchTotals(self.tokens + other.tokens, self.sequences + other.sequences)


def aggregate(
    values: Tensor,
    mask: Tensor,
    mode: str,
    *,
    totals: BatchTotals | None = None,
    norm_length: float | None = None,
) -> Tensor:
    """Aggregate token values [B, T] to a scalar.

    Args:
        values: [B, T].
        mask: [B, T], not 0 for response tokens.
        mode: One of `AGGREGATIONS`: "token-mean", "token-sum", "seq-mean-token-mean" (the mean over sequences
            of their token means), "seq-mean-token-sum", "seq-mean-token-sum-norm" (that, divided by
            `norm_length`).
        totals: Normalisers of the whole batch of which this is a part; None: this is all of it.
        norm_length: A constant > 0 for "seq-mean-token-sum-norm", such as the longest response allowed; never
            the padded length, which depends on the split.

    Raises:
        GymError: Unknown mode, or no `norm_length` where it is needed.
    """
    choose("aggregation", mode, AGGREGATIONS)
    mask = mask != 0
    totals = totals or BatchTotals.from_mask(mask)
    values = values.masked_fill(~mask, 0)
    if mode == "token-sum":
        return values.sum()
    if mode == "token-mean":
        return values.sum() / _divisor(totals.tokens, values)
    if mode == "seq-mean-token-mean":
        per_sequence = values.sum(1) / mask.sum(1).clamp(min=1)
    elif mode == "seq-mean-token-sum":
        per_sequence = values.sum(1)
    else:
        if norm_length is None or not norm_length > 0:
            raise GymError(
                f"aggregation {mode!r} divides by a constant length: give norm_length > 0, such as the "
                f"longest response allowed, got {norm_length!r}."
            )
        per_sequence = values.sum(1) / norm_length
    return per_sequence.sum() / _divisor(totals.sequences, values)


def _divisor(total: float | Tensor, values: Tensor) -> float | Tensor:
    return total.to(values).clamp(min=1) if isinstance(total, Tensor) else max(total, 1)
