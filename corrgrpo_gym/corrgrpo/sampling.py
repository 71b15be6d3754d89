"""DAPO's sampling rules: which groups to keep, and the penalty for long completions (arXiv 2503.14476)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..errors import GymError, unknown
from .batch import RewardBatch
from .statistics import centre

# A component with one of these names is the raw accuracy; the first that exists counts.
ACCURACY_NAMES = ("accuracy", "correctness", "correct", "passed", "pass")


def keep_groups(
    rewards: Tensor, reward_names: Sequence[str], *, mask: Tensor | None = None, accuracy: str | None = None
) -> Tensor:
    """Dynamic sampling: which groups have a learning signal.

    A group is kept if the raw accuracy component differs between its rollouts; without such a component, if
    any component does. The weighted sum plays no part: it can vary by format alone, or cancel.

    Args:
        rewards: [G, n, K], NaN for what could not be scored.
        reward_names: K names.
        mask: bool [G, n], False for a missing rollout.
        accuracy: Name of the accuracy component; None: the first of `ACCURACY_NAMES` that is there, if any.

    Returns:
        bool [G].

    Raises:
        GymError: `accuracy` is not among the names, or a shape does not fit.
    """
    batch = RewardBatch.of(rewards, mask=mask)
    names = list(reward_names)
    if len(names) != batch.rewards.shape[-1]:
        raise GymError(f"{len(names)} reward names for {batch.rewards.shape[-1]} components.")
    if accuracy is not None and accuracy not in names:
        raise GymError(unknown("accuracy component", accuracy, names))
    accuracy = accuracy or next((name for name in ACCURACY_NAMES if name in names), None)
    varies = (centre(batch.rewards, batch.scorable) != 0).any(1)
    return varies.any(-1) if accuracy is None else varies[:, names.index(accuracy)]


def overlong_penalty(lengths: Tensor, max_length: int, cache: int | None = None) -> Tensor:
    """Soft overlong punishment: 0 up to max_length - cache, then linear to -1 at max_length, never below.

    Args:
        lengths: Completion lengths in tokens, of any shape.
        max_length: The longest completion allowed, in tokens.
        cache: Width of the slope, 1 to max_length; None is a fifth of max_length, as in the paper.

    Returns:
        float64, in [-1, 0], in the shape of `lengths`: the `penalty` of `advantages`.
    """
    cache = max(1, max_length // 5) if cache is None else cache
    if not 1 <= cache <= max_length:
        raise GymError(f"cache must be from 1 to max_length = {max_length}, got {cache}.")
    beyond = torch.as_tensor(lengths).double() - (max_length - cache)
    return -(beyond / cache).clamp(0, 1)
