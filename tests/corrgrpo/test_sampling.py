"""DAPO's dynamic sampling and overlong shaping."""

import math

import pytest
import torch

from corrgrpo_gym.corrgrpo import Algorithm, keep_groups, overlong_penalty
from corrgrpo_gym.errors import GymError

NAMES = ["format", "accuracy"]
REWARDS = torch.tensor(
    [
        [[0.0, 1], [1, 1], [1, 1]],  # solved by all, format varies
        [[1.0, 0], [1, 1], [1, 0]],  # some solve it
        [[1.0, 0], [0, 1], [1, 0]],  # the sum is constant, the accuracy is not
        [[1.0, 0], [1, 0], [1, 0]],  # nothing varies
    ]
)


def test_raw_accuracy_decides_where_there_is_one():
    assert keep_groups(REWARDS, NAMES).tolist() == [False, True, True, False]
    assert keep_groups(REWARDS, NAMES, accuracy="format").tolist() == [True, False, True, False]


def test_else_any_component():
    assert keep_groups(REWARDS, ["format", "style"]).tolist() == [True, True, True, False]


def test_missing_rollouts_and_values_decide_nothing():
    mask = torch.ones(4, 3, dtype=torch.bool)
    mask[1, 1] = False
    assert keep_groups(REWARDS, NAMES, mask=mask).tolist() == [False, False, True, False]
    rewards = REWARDS.clone()
    rewards[2, 1, 1] = math.nan
    rewards[3, :, 1] = math.nan
    assert keep_groups(rewards, NAMES).tolist() == [False, True, False, False]


def test_rules_belong_to_dapo():
    lengths = torch.tensor([[90, 100, 10]])
    for name in ("dapo", "dapo+corrgrpo"):
        algorithm = Algorithm.from_name(name)
        assert algorithm.keep_groups(REWARDS, NAMES).tolist() == [False, True, True, False]
        torch.testing.assert_close(algorithm.overlong_penalty(lengths, 100), torch.tensor([[-0.5, -1, 0]]).double())
    plain = Algorithm.from_name("corrgrpo")
    assert plain.keep_groups(REWARDS, NAMES).all()
    assert plain.overlong_penalty(lengths, 100) is None


def test_overlong_penalty_is_linear_in_the_cache_and_bounded():
    lengths = torch.tensor([0, 80, 85, 90, 99, 100, 101, 10_000])
    expected = [0, 0, -0.25, -0.5, -0.95, -1, -1, -1]
    assert overlong_penalty(lengths, 100, 20).tolist() == pytest.approx(expected)
    assert overlong_penalty(lengths, 100).tolist() == pytest.approx(expected)


def test_mistakes_are_named():
    with pytest.raises(GymError, match="Did you mean 'accuracy'"):
        keep_groups(REWARDS, NAMES, accuracy="acuracy")
    with pytest.raises(GymError, match="1 reward names for 2 components"):
        keep_groups(REWARDS, ["accuracy"])
    with pytest.raises(GymError, match="cache must be from 1 to max_length = 100, got 0"):
        overlong_penalty(torch.tensor([3]), 100, 0)
