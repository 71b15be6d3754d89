"""Figures and identities that algorithms.md states, by estimator."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from corrgrpo_gym.corrgrpo import advantages, estimate, reward_report
from corrgrpo_gym.errors import GymError

FIGURE_2 = torch.tensor(
    [[[0.10, 0.18, 0.80], [0.18, 0.10, 7.28], [0.82, 0.90, 8.00], [0.90, 0.82, 1.52]]], dtype=torch.float64
)


@st.composite
def reward_batches(draw, groups=(1, 3), rollouts=(2, 6), components=(1, 4)):
    """Rewards in eighths, so that constants, ties and opposed components are common."""
    shape = tuple(draw(st.integers(*bounds)) for bounds in (groups, rollouts, components))
    eighths = draw(hnp.arrays(np.int64, shape, elements=st.integers(-16, 16)))
    return torch.tensor(eighths / 8)


def close(a, b, rtol=1e-9, atol=1e-9):
    torch.testing.assert_close(a, b, rtol=rtol, atol=atol)


def correlation_sum(rewards, ddof):
    """S of one group [n, K] from its correlation matrix, as the formula reads."""
    live = rewards[:, (rewards != rewards[0]).any(0)]
    if live.shape[1] == 0:
        return 0.0
    deviation = live - live.mean(0)
    covariance = deviation.T @ deviation / (len(live) - ddof)
    scale = covariance.diagonal().sqrt()
    return (covariance / scale[:, None] / scale).sum().item()


def test_figure_2():
    report = reward_report(FIGURE_2)
    rho = report.correlation[0]
    assert f"{rho[0, 1]:.4f} {rho[0, 2]:.4f} {rho[1, 2]:.4f}" == "0.9756 0.1098 0.1098"
    deviation = report.covariance[0].diagonal().sqrt()
    assert f"{deviation[2] / deviation[0]:.3f} {deviation[2] / deviation[1]:.3f}" == "9.000 9.000"
    assert f"{report.variance_share[0, 2]:.4f}" == "0.9111"
    assert f"{report.grpo_multiplier[0]:.4f} {report.corrgrpo_multiplier[0]:.4f}" == "0.2536 0.4307"
    numerator = advantages("dr_grpo", FIGURE_2)
    close(advantages("grpo", FIGURE_2) / numerator, report.grpo_multiplier.expand(1, 4))
    close(advantages("corrgrpo", FIGURE_2) / numerator, report.corrgrpo_multiplier.expand(1, 4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_constant_component_with_float_noise_is_constant(dtype):
    live = torch.tensor([0.0, 1, 0, 1, 1, 0, 1], dtype=dtype)
    constant = torch.full((7,), 0.1, dtype=dtype)
    assert torch.full((7,), 0.1).var() > 0  # why a variance test is not enough
    with_constant = torch.stack([live, constant], -1)[None]
    close(advantages("corrgrpo", with_constant), advantages("corrgrpo", live[None, :, None]), rtol=1e-6, atol=0)
    for name in ("grpo", "corrgrpo", "gdpo", "gdpo+corrgrpo", "reinforce++", "dara"):
        assert advantages(name, constant[None, :, None]).eq(0).all(), name


@settings(max_examples=60, deadline=None)
@given(reward_batches(), st.sampled_from([0, 1]))
def test_corrgrpo_is_its_formula_with_either_divisor(rewards, ddof):
    s = torch.tensor([correlation_sum(group, ddof) for group in rewards])
    total = rewards.sum(-1)
    expected = (total - total.mean(1, keepdim=True)) / (s.clamp(min=0) + 1e-6).sqrt()[:, None]
    # Rounding of S near 0 is under the root, and the matrix loses digits that the sum of columns keeps.
    close(advantages("corrgrpo", rewards, guard="paper"), expected, rtol=1e-6, atol=1e-6)
    floored = expected * ((s.clamp(min=0) + 1e-6) / (s.clamp(min=0.1) + 1e-6)).sqrt()[:, None]
    close(advantages("corrgrpo", rewards), floored, rtol=1e-6, atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(reward_batches())
def test_s_lies_between_0_and_the_square_of_the_active(rewards):
    report = reward_report(rewards)
    active = report.alive.double().sum(-1)
    s = report.s.nan_to_num(0)
    assert bool(((s >= 0) & (s <= active.square() + 1e-9)).all())
    close(report.correlation.sum((1, 2)), s)


@settings(max_examples=60, deadline=None)
@given(reward_batches())
def test_duplicated_vector_leaves_corrgrpo_unchanged(rewards):
    twice = torch.cat([rewards, rewards], -1)
    tiny = {"guard": "paper", "eps": 1e-18}
    s = reward_report(rewards).s
    well = ~(s < 1e-6)  # elsewhere eps is part of the denominator
    close(
        advantages("corrgrpo", twice, **tiny)[well],
        advantages("corrgrpo", rewards, **tiny)[well],
        rtol=1e-7,
        atol=1e-7,
    )


@settings(max_examples=60, deadline=None)
@given(reward_batches(rollouts=(2, 2)))
def test_two_rollouts_count_ups_and_downs(rewards):
    step = (rewards[:, 1] - rewards[:, 0]).sign().sum(-1)
    report = reward_report(rewards, guard="paper")
    close(report.s.nan_to_num(0), step.square())


@settings(max_examples=60, deadline=None)
@given(reward_batches(), st.sampled_from(["paper", "floor"]))
def test_corrgrpo_is_dr_grpo_over_root_s(rewards, guard):
    report = reward_report(rewards, guard=guard)
    scale = report.corrgrpo_multiplier.nan_to_num(1)[:, None]
    close(advantages("corrgrpo", rewards, guard=guard), advantages("dr_grpo", rewards) * scale)


@settings(max_examples=60, deadline=None)
@given(reward_batches())
def test_ten_times_the_rewards_give_ten_times_corrgrpo(rewards):
    for guard in ("paper", "floor"):
        # Near S = 0 the root amplifies the rounding of S.
        close(
            advantages("corrgrpo", 10 * rewards, guard=guard),
            10 * advantages("corrgrpo", rewards, guard=guard),
            rtol=1e-6,
            atol=1e-9,
        )


@settings(max_examples=40, deadline=None)
@given(reward_batches(components=(1, 1)))
def test_one_component_makes_corrgrpo_dr_grpo(rewards):
    close(advantages("corrgrpo", rewards), advantages("dr_grpo", rewards), rtol=1e-6)


def test_independent_components_have_s_about_their_number():
    rewards = torch.randn(1, 20_000, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert abs(reward_report(rewards).s.item() - 7) < 0.3


@pytest.mark.parametrize(("n", "share"), [(4, 0.056), (8, 0.004)])
def test_share_of_opposed_groups_of_fair_coins(n, share):
    coins = torch.tensor(list(itertools.product([0.0, 1.0], repeat=2 * n)), dtype=torch.float64).reshape(-1, n, 2)
    report = reward_report(coins, [1.0, 0.3])
    live = report.alive.any(-1)
    opposed = live & (report.s < 1e-9)
    assert abs(opposed.sum().item() / live.sum().item() - share) < 5e-4
    raised = estimate("corrgrpo", coins, weights=[1.0, 0.3])
    assert raised.info["floored_share"] == pytest.approx(opposed.sum().item() / live.sum().item(), abs=5e-3)


def test_floor_acts_for_two_components_only_below_minus_095():
    for rho, acts in ((-0.949, False), (-0.951, True)):
        x = torch.tensor([1.0, -1, 1, -1], dtype=torch.float64)
        y = torch.tensor([1.0, 1, -1, -1], dtype=torch.float64)
        rewards = torch.stack([x, rho * x + math.sqrt(1 - rho * rho) * y], -1)[None]
        assert estimate("corrgrpo", rewards).info["floored_share"] == acts


def test_opposed_components_of_unequal_scale_under_both_guards():
    rewards = torch.tensor([[[0.0, 3], [1, 0], [1, 0], [0, 3]]], dtype=torch.float64)
    centred = advantages("dr_grpo", rewards)
    close(advantages("corrgrpo", rewards, guard="paper"), 1000 * centred, rtol=1e-6)
    close(advantages("corrgrpo", rewards), centred / math.sqrt(0.1 + 1e-6))


def test_weights_come_before_correlations():
    rewards = torch.tensor([[[0.0, 0], [1, 1], [0, 1], [1, 1.5]]], dtype=torch.float64)
    weighted = rewards * torch.tensor([2.0, -0.5])
    close(advantages("corrgrpo", rewards, weights=[2, -0.5]), advantages("corrgrpo", weighted))
    close(advantages("corrgrpo", rewards, weights=[1, 0]), advantages("corrgrpo", rewards[..., :1]))


def test_singletons_have_no_advantage():
    rewards = torch.tensor([[[1.0, 2.0]]], dtype=torch.float64)
    for name in (
        "grpo",
        "dr_grpo",
        "corrgrpo",
        "gdpo",
        "gdpo+corrgrpo",
        "rloo",
        "reinforce++",
        "dvao",
        "gd2po",
    ):
        assert advantages(name, rewards).item() == 0, name


def test_missing_component_counts_nothing_or_by_choice():
    nan = math.nan
    rewards = torch.tensor([[[1.0, 10], [0, nan], [0, 20], [1, 30]]], dtype=torch.float64)
    by_hand = torch.tensor([[0.5, -0.5, -0.5, 0.5]]) + torch.tensor([[-10.0, 0, 0, 10]])
    close(advantages("dr_grpo", rewards), by_hand.double())
    sums = torch.tensor([[11.0, 0, 20, 31]]).double()
    close(advantages("dr_grpo", rewards, missing="nansum"), sums - sums.mean())
    close(advantages("corrgrpo", rewards, missing="zero"), advantages("corrgrpo", rewards.nan_to_num(0)))
    # The correlation is over the scorable values too: rollouts 0, 2 and 3 carry the second component.
    report = reward_report(rewards)
    z1, z2 = torch.tensor([1.0, -1, -1, 1]) / 2, torch.tensor([-1.0, 0, 0, 1]) / math.sqrt(2)
    assert report.s.item() == pytest.approx((z1 + z2).square().sum().item(), rel=1e-6)


@pytest.mark.parametrize("missing", ["centre", "nansum"])
def test_rollout_without_a_score_is_as_if_absent(missing):
    generator = torch.Generator().manual_seed(1)
    rewards = torch.rand(3, 5, 2, generator=generator, dtype=torch.float64)
    rewards[:, 2] = math.nan
    others = [0, 1, 3, 4]
    for name in ("grpo", "corrgrpo", "gdpo", "gdpo+corrgrpo", "rloo", "reinforce++", "dara", "gd2po", "dvao"):
        result = advantages(name, rewards, missing=missing)
        assert result[:, 2].eq(0).all()
        close(result[:, others], advantages(name, rewards[:, others]))


def test_whitening_over_tokens_repeats_each_rollout():
    rewards = torch.rand(2, 3, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    tokens = torch.tensor([[3, 1, 4], [2, 0, 7]])
    plain = advantages("mo_grpo", rewards).flatten().repeat_interleave(tokens.flatten())
    whitened = (plain - plain.mean()) / (plain.var() + 1e-8).sqrt()
    ours = advantages("gdpo", rewards, token_counts=tokens, whiten="tokens").flatten()
    close(ours.repeat_interleave(tokens.flatten()), whitened)
    centred = advantages("dr_grpo", rewards).flatten().repeat_interleave(tokens.flatten())
    expected = (centred - centred.mean()) / (centred.var() + 1e-8).sqrt()
    ours = advantages("reinforce++", rewards, token_counts=tokens).flatten()
    close(ours.repeat_interleave(tokens.flatten()), expected)


def test_no_token_counts_means_one_token_each():
    rewards = torch.rand(2, 3, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    for name in ("reinforce++", "gdpo+corrgrpo"):
        close(advantages(name, rewards), advantages(name, rewards, token_counts=torch.ones(2, 3)))


def test_gdpo_corrgrpo_takes_one_row_per_rollout():
    rewards = torch.rand(3, 4, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    weights = torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64)
    tokens = torch.randint(1, 9, (3, 4), generator=torch.Generator().manual_seed(5))
    z = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-6)
    columns = (z * weights).flatten(0, 1)
    s = torch.corrcoef(columns.T).sum()
    total = columns.sum(-1)
    expected = (total - (total * tokens.flatten()).sum() / tokens.sum()) / (s + 1e-6).sqrt()
    close(advantages("gdpo+corrgrpo", rewards, weights=weights, token_counts=tokens).flatten(), expected)


def test_rloo_subtracts_the_mean_of_the_others_and_bounds_the_total_first():
    rewards = torch.tensor([[[1.0], [2.0], [6.0]]], dtype=torch.float64)
    close(advantages("rloo", rewards), torch.tensor([[-3.0, -1.5, 4.5]]).double())
    close(advantages("rloo", rewards, clip=(0, 2)), torch.tensor([[-1.0, 0.5, 0.5]]).double())
    with pytest.raises(GymError, match="must be .low, high."):
        advantages("rloo", rewards, clip=(2, 0))


def test_dara_lifts_the_rarely_alive_component():
    # Component 0 lives in all four groups, component 1 in one: d = sqrt(1 / (1/4)) = 2.
    rewards = torch.zeros(4, 2, 2, dtype=torch.float64)
    rewards[:, 1, 0] = 1
    rewards[0, 1, 1] = 1
    z = 0.5 / (math.sqrt(0.5) + 1e-6)
    symmetric = torch.tensor([[-3 * z, 3 * z]] + [[-z, z]] * 3, dtype=torch.float64)
    asymmetric = torch.tensor([[-2 * z, 3 * z]] + [[-z, z]] * 3, dtype=torch.float64)
    for raw, flag in ((symmetric, True), (asymmetric, False)):
        expected = (raw - raw.mean()) / (raw.std() + 1e-6)
        close(advantages("dara", rewards, symmetric=flag), expected)
    assert estimate("dara", rewards).info["density_1"] == 0.25


def test_gd2po_drops_conflicts_and_weights_prompts_by_the_share_kept():
    rewards = torch.tensor([[[0.0, 0], [1, 1], [0, 1], [1, 0]], [[0, 0], [1, 1], [0, 0], [1, 1]]]).double()
    result = estimate("gd2po", rewards)
    assert result.advantages[0, 2:].eq(0).all() and result.advantages[1].ne(0).all()
    close(result.group_weights, torch.tensor([0.5, 1.0]).double())
    close(result.weighted()[0], result.advantages[0] / 2)
    assert result.info["kept_share"] == 0.75


def test_dvao_ignores_correlation():
    rewards = torch.rand(3, 4, 2, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    weights = torch.tensor([1.0, 3.0], dtype=torch.float64)
    expected = (weights * (rewards - rewards.mean(1, keepdim=True))).sum(-1)
    expected = expected / (weights * rewards.std(1, correction=0)).sum(-1, keepdim=True)
    close(advantages("dvao", rewards, weights=weights), expected)


def test_penalty_enters_the_numerator_and_not_s():
    rewards = torch.rand(2, 4, 3, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    penalty = torch.tensor([[0.0, -1, 0, -0.5], [0, 0, 0, -1]]).double()
    multiplier = reward_report(rewards).corrgrpo_multiplier[:, None]
    plain = advantages("corrgrpo", rewards)
    close(
        advantages("corrgrpo", rewards, penalty=penalty),
        plain + multiplier * (penalty - penalty.mean(1, keepdim=True)),
    )
    total = rewards.sum(-1) + penalty
    for name in ("grpo", "dr_grpo", "rloo"):
        close(advantages(name, rewards, penalty=penalty), advantages(name, total[..., None]))
    close(
        advantages("mo_grpo", rewards, penalty=penalty),
        advantages("mo_grpo", rewards) + penalty - penalty.mean(1, keepdim=True),
    )


def test_penalty_alone_keeps_its_scale_where_every_component_is_constant():
    rewards = torch.ones(1, 4, 3, dtype=torch.float64)
    penalty = torch.tensor([[0.0, 0, -1, -1]]).double()
    for guard in ("paper", "floor"):
        close(advantages("corrgrpo", rewards, penalty=penalty, guard=guard), penalty + 0.5, rtol=1e-6)
