"""Masked statistics over groups and over the batch, robust to constants and to missing values.

`valid` says which values count; None is all of them. Results are 0 where it is False. Dimension 1 holds the
rollouts of a group.
"""

from __future__ import annotations

from math import inf, prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

Dims = int | tuple[int, ...]
GROUP: Dims = 1
BATCH: Dims = (0, 1)


def mean(x: Tensor, valid: Tensor | None, dim: Dims = GROUP) -> Tensor:
    """Mean over the valid values (0 if there are none); exactly the value itself where all are equal."""
    middle = _middle(x, valid, dim)
    return middle + keep(x - middle, valid).sum(dim, keepdim=True) / count(x, valid, dim)


def centre(x: Tensor, valid: Tensor | None, dim: Dims = GROUP) -> Tensor:
    """Subtract the mean; exactly 0 where max == min.

    Subtracting the middle of the range first makes a constant exactly 0, whatever its rounding (0.1 seven
    times), so that values are constant if and only if they are all 0 once centred.
    """
    shifted = keep(x - _middle(x, valid, dim), valid)
    shifted -= shifted.sum(dim, keepdim=True) / count(x, valid, dim)
    return keep(shifted, valid)


def std(centred: Tensor, valid: Tensor | None, dim: Dims = GROUP, ddof: int = 1) -> Tensor:
    """Standard deviation of values that are already centred; 0 where there are not enough of them."""
    freedom = (count(centred, valid, dim) - ddof).clamp(min=1)
    return (centred.square().sum(dim, keepdim=True) / freedom).sqrt()


def unit(centred: Tensor) -> tuple[Tensor, Tensor]:
    """Scale centred values [G, n, K] to norm 1 along the rollouts; dot products are then correlations.

    Returns:
        The columns [G, n, K], 0 where constant, and which are not: bool [G, K].
    """
    largest = centred.amax(1, keepdim=True).maximum(-centred.amin(1, keepdim=True))
    columns = centred / largest.masked_fill(largest == 0, 1)  # squares of tiny values would be 0
    columns /= columns.square().sum(1, keepdim=True).sqrt().clamp(min=1)
    return columns, largest[:, 0] > 0


def correlation_sum(unit_columns: Tensor) -> Tensor:
    """S = sum_jk rho_jk for unit columns [..., n, K], as the squared norm of their sum: never negative."""
    return unit_columns.sum(-1).square().sum(-1)


def whiten_rollouts(x: Tensor, valid: Tensor, eps: float) -> Tensor:
    """(x - mean) / (std + eps) over the valid rollouts of the batch."""
    centred = centre(x, valid, BATCH)
    return centred / (std(centred, valid, BATCH) + eps)


def whiten_tokens(x: Tensor, valid: Tensor, tokens: Tensor, eps: float = 1e-8) -> Tensor:
    """(x - mean) / sqrt(var + eps) over the batch's response tokens: a rollout counts once per token."""
    centred = keep(x - token_mean(x, valid, tokens), valid)
    total = keep(tokens, valid).sum()
    variance = (tokens * centred.square()).sum() / (total - 1).clamp(min=1)
    return centred / (variance + eps).sqrt()


def token_mean(x: Tensor, valid: Tensor, tokens: Tensor) -> Tensor:
    """Mean over the batch with each valid rollout counted once per token."""
    middle = _middle(x, valid, BATCH)
    total = keep(tokens, valid).sum().clamp(min=1)
    return middle + (tokens * keep(x - middle, valid)).sum() / total


def count(x: Tensor, valid: Tensor | None, dim: Dims = GROUP) -> Tensor:
    """Number of valid values of x, at least 1, in float64; broadcasts against x reduced over `dim`."""
    if valid is None or valid.all():
        sizes = [x.shape[d] for d in (dim if isinstance(dim, tuple) else (dim,))]
        return x.new_ones(1).double() * prod(sizes)
    return valid.sum(dim, keepdim=True).clamp(min=1).double()


def keep(x: Tensor, valid: Tensor | None) -> Tensor:
    """Put 0 where x is not valid; x itself comes back where all of it is."""
    if valid is None or valid.all():
        return x
    return x.masked_fill(~valid, 0)


def _middle(x: Tensor, valid: Tensor | None, dim: Dims) -> Tensor:
    if valid is None or valid.all():
        return (x.amin(dim, keepdim=True) + x.amax(dim, keepdim=True)) / 2
    low = x.masked_fill(~valid, inf).amin(dim, keepdim=True)
    high = x.masked_fill(~valid, -inf).amax(dim, keepdim=True)
    return ((low + high) / 2).masked_fill(low > high, 0)
