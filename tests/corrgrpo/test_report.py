"""Reward diagnostics."""

import json
import math

import pytest
import torch
from hypothesis import given, settings

from corrgrpo_gym.corrgrpo import advantages, estimate, reward_report
from corrgrpo_gym.errors import GymError

from .test_robustness import wild_batches


def random_rewards(groups=5, n=6, k=3):
    return torch.rand(groups, n, k, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_matrices_are_the_usual_ones_of_the_weighted_components():
    rewards, weights = random_rewards(), [1.0, -2.0, 0.5]
    report = reward_report(rewards, weights)
    for g, group in enumerate(rewards * torch.tensor(weights)):
        close(report.covariance[g], torch.cov(group.T))
        close(report.correlation[g], torch.corrcoef(group.T))
        close(report.s[g], torch.corrcoef(group.T).sum())


def test_shares_and_multipliers():
    rewards, weights = random_rewards(), [1.0, 2.0, 0.5]
    report = reward_report(rewards, weights)
    close(report.grpo_share, report.covariance.sum(-1) / report.covariance.sum((1, 2))[:, None])
    close(report.corrgrpo_share, report.correlation.sum(-1) / report.s[:, None])
    close(
        report.variance_share,
        report.covariance.diagonal(dim1=1, dim2=2) / report.covariance.sum((1, 2))[:, None],
    )
    centred = advantages("dr_grpo", rewards, weights=weights)
    close(advantages("grpo", rewards, weights=weights), report.grpo_multiplier[:, None] * centred)
    close(advantages("corrgrpo", rewards, weights=weights), report.corrgrpo_multiplier[:, None] * centred)


def test_groups_without_variance_do_not_enter_the_averages():
    rewards = random_rewards(groups=4)
    rewards[1] = 0.1
    rewards[2, :, 0] = 0.3
    report = reward_report(rewards, names=["a", "b", "c"])
    figures = report.summary()
    assert figures["live_share"] == 0.75 and figures["alive_share/a"] == 0.5
    assert figures["s"] == pytest.approx(report.s[[0, 2, 3]].mean().item())
    assert figures["correlation/a/b"] == pytest.approx(report.correlation[[0, 3], 0, 1].mean().item())
    assert figures["correlation/b/c"] == pytest.approx(report.correlation[[0, 2, 3], 1, 2].mean().item())
    assert figures["covariance/a/a"] == pytest.approx(report.covariance[:, 0, 0].mean().item())
    assert sum(figures[f"corrgrpo_share/{name}"] for name in "abc") == pytest.approx(1)


def test_floored_share_is_that_of_the_estimator():
    rewards = torch.tensor([[[0.0, 3], [1, 0], [1, 0], [0, 3]], [[0, 0], [1, 1], [0, 0], [1, 0]]], dtype=torch.float64)
    report = reward_report(rewards)
    assert report.floored.tolist() == [True, False] and report.summary()["floored_share"] == 0.5
    assert estimate("corrgrpo", rewards).info["floored_share"] == 0.5
    assert reward_report(rewards, guard="paper").summary()["floored_share"] == 0


def test_all_constant_batch_has_no_made_up_figures():
    figures = reward_report(torch.full((3, 4, 2), 0.1)).summary()
    assert figures["live_share"] == 0 and figures["covariance/0/1"] == 0
    assert "s" not in figures and "grpo_multiplier" not in figures and "grpo_share/0" not in figures
    assert figures == {key: value for key, value in figures.items() if math.isfinite(value)}


@settings(max_examples=60, deadline=None)
@given(wild_batches())
def test_summary_is_always_valid_json(batch):
    report = reward_report(batch["rewards"], batch["weights"], batch["mask"])
    json.dumps(report.summary(), allow_nan=False)
    assert all(len(values) == len(batch["rewards"]) for values in report.per_group.values())


def test_mistakes_are_named():
    with pytest.raises(GymError, match="2 names for 3 reward components"):
        reward_report(random_rewards(), names=["a", "b"])
    with pytest.raises(GymError, match="Did you mean 'paper'"):
        reward_report(random_rewards(), guard="papper")
