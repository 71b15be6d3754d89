"""Checks of what an environment declares about its reward, and of each vector that it returns."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import gymnasium
import numpy as np

from ..errors import GymError, unknown

Rewards: TypeAlias = Mapping[str, float] | Sequence[float] | np.ndarray


def checked_names(label: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the names as a tuple; GymError where they aren't distinct non-empty strings, at least one."""
    if isinstance(names, str) or not (checked := tuple(names)):
        raise GymError(f"{label}.reward_names must be a tuple of at least one name, not {names!r}")
    if len(set(checked)) != len(checked) or not all(isinstance(n, str) and n for n in checked):
        raise GymError(f"{label}.reward_names must be distinct non-empty strings, not {checked!r}")
    return checked


def checked_weights(
    label: str,
    names: tuple[str, ...],
    default: Sequence[float],
    given: Mapping[str, float] | Iterable[float] | None,
) -> tuple[float, ...]:
    """Return one finite weight per name.

    Args:
        label: how messages call the environment.
        names: the K reward names.
        default: K weights, or none for 1 each.
        given: K weights, or some by name, in the place of the default ones; None for none.

    Raises:
        GymError: a name that isn't there, another number of weights, or one that isn't a finite number.
    """
    weights = tuple(default) or (1.0,) * len(names)
    if isinstance(given, Mapping):
        for name in given:
            if name not in names:
                raise GymError(f"{label}.reward_weights: {unknown('reward', name, names)}")
        weights = tuple(given.get(name, weight) for name, weight in zip(names, weights, strict=True))
    elif given is not None:
        weights = tuple(given)
    if len(weights) != len(names):
        raise GymError(f"{label}: {len(weights)} reward_weights, but {len(names)} rewards: {', '.join(names)}")
    try:
        weights = tuple(float(w) for w in weights)
    except (TypeError, ValueError) as error:
        raise GymError(f"{label}: reward_weights must be numbers: {error}") from error
    if not all(np.isfinite(weights)):
        raise GymError(f"{label}: reward_weights must be finite, not {weights}")
    return weights


def reward_box(label: str, names: tuple[str, ...], ranges: Mapping[str, tuple[float, float]]) -> gymnasium.spaces.Box:
    """Return the space of the vectors: float32, one (low, high) per name, (0, 1) where none is given."""
    bounds = [ranges.get(name, (0.0, 1.0)) for name in names]
    for name, (low, high) in zip(names, bounds, strict=True):
        if not low < high:
            raise GymError(f"{label}: range of reward {name!r} is ({low}, {high}); low must be under high")
    lows, highs = np.asarray(bounds, dtype=np.float32).T
    return gymnasium.spaces.Box(lows, highs, dtype=np.float32)


def reward_vector(
    where: str,
    rewards: Rewards,
    names: tuple[str, ...],
    space: gymnasium.spaces.Box,
    nan_rewards: frozenset[str],
) -> np.ndarray:
    """Return rewards, in order or by name, as a new float32 vector.

    Args:
        where: how messages call environment and task.
        rewards: what the environment returned.
        names: its reward names.
        space: its reward space.
        nan_rewards: the names that may be NaN.

    Raises:
        GymError: other names, another length, a value outside its range, or NaN where none is declared.
    """
    if isinstance(rewards, Mapping):
        if set(rewards) != set(names):
            raise GymError(f"{where}: rewards are named {sorted(rewards)}, but reward_names is {list(names)}")
        rewards = [rewards[name] for name in names]
    try:
        vector = np.array(rewards, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise GymError(f"{where}: rewards must be numbers, not {rewards!r}: {error}") from error
    if vector.shape != (len(names),):
        raise GymError(f"{where}: reward of shape {vector.shape}, but there are {len(names)} reward_names")
    for name, value, low, high in zip(names, vector, space.low, space.high, strict=True):
        if np.isnan(value):
            if name not in nan_rewards:
                raise GymError(f"{where}: reward {name!r} is NaN, but nan_rewards does not name it")
        elif not low <= value <= high:
            raise GymError(f"{where}: reward {name!r} is {value}, outside its range {low}..{high}")
    return vector
