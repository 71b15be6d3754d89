"""Masked statistics over groups and over the batch, robust to constants and to missing values.

Everything is 0 where `valid` is False. Dimension 1 holds the rollouts of a group.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

Dims = int | tuple[int, ...]
GROUP: Dims = 1
BATCH: Dims = (0, 1)


def mean(x: Tensor, valid: Tensor, dim: Dims = GROUP) -> Tensor:
    """Mean over the valid values (0 if there are none); exactly the value itself where all are equal."""
    middle = _middle(x, valid, dim)
    shifted = (x - middle).masked_fill(~valid, 0)
    return middle + shifted.sum(dim, keepdim=True) / count(valid, dim)


def centre(x: Tensor, valid: Tensor, dim: Dims = GROUP) -> Tensor:
    """Subtract the mean; exactly 0 where max == min.

    Subtracting the middle of the range first makes a constant exactly 0, whatever its rounding (0.1 seven times), so that
    values are constant if and only if they are all 0 once centred.
    """
    shifted = (x - _middle(x, valid, dim)).masked_fill(~valid, 0)
    return (shifted - shifted.sum(dim, keepdim=True) / count(valid, dim)).masked_fill(~valid, 0)


def std(centred: Tensor, valid: Tensor, dim: Dims = GROUP, ddof: int = 1) -> Tensor:
    """Standard deviation of values that are already centred; 0 where there are not enough of them."""
    return (centred.square().sum(dim, keepdim=True) / (count(valid, dim) - ddof).clamp(min=1)).sqrt()


def unit(centred: Tensor, dim: int = GROUP) -> Tensor:
    """Scale centred values to norm 1 along `dim`; a constant stays 0. Dot products are then correlations."""
    largest = centred.abs().amax(dim, keepdim=True)
    scaled = centred / largest.masked_fill(largest == 0, 1)  # squares of tiny values would be 0
    return scaled / scaled.square().sum(dim, keepdim=True).sqrt().clamp(min=1)


def correlation_sum(unit_columns: Tensor) -> Tensor:
    """S = sum_jk rho_jk for unit columns [..., n, K], as the squared norm of their sum: never negative."""
    return unit_columns.sum(-1).square().sum(-1)


def count(valid: Tensor, dim: Dims = GROUP) -> Tensor:
    """Number of valid values, at least 1."""
    return valid.sum(dim, keepdim=True).clamp(min=1)


def whiten_rollouts(x: Tensor, valid: Tensor, eps: float) -> Tensor:
    """(x - mean) / (std + eps) over the valid rollouts of the batch."""
    centred = centre(x, valid, BATCH)
    return centred / (std(centred, valid, BATCH) + eps)


def whiten_tokens(x: Tensor, valid: Tensor, tokens: Tensor, eps: float = 1e-8) -> Tensor:
    """(x - mean) / sqrt(var + eps) over the batch's response tokens: a rollout counts once per token."""
    centred = (x - token_mean(x, valid, tokens)).masked_fill(~valid, 0)
    total = (tokens * valid).sum()
    variance = (tokens * centred.square()).sum() / (total - 1).clamp(min=1)
    return centred / (variance + eps).sqrt()


def token_mean(x: Tensor, valid: Tensor, tokens: Tensor) -> Tensor:
    """Mean over the batch with each valid rollout counted once per token."""
    middle = _middle(x, valid, BATCH)
    tokens = tokens * valid
    return middle + (tokens * (x - middle).masked_fill(~valid, 0)).sum() / tokens.sum().clamp(min=1)


def _middle(x: Tensor, valid: Tensor, dim: Dims) -> Tensor:
    low = x.masked_fill(~valid, inf).amin(dim, keepdim=True)
    high = x.masked_fill(~valid, -inf).amax(dim, keepdim=True)
    return ((low + high) / 2).masked_fill(low > high, 0)
