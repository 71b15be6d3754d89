"""Policy losses: what they compute, and that splitting a batch changes nothing."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from corrgrpo_gym.corrgrpo import (
    AGGREGATIONS,
    BatchTotals,
    aggregate,
    catalogue,
    kl_divergence,
    policy_loss,
    truncated_importance_weights,
)
from corrgrpo_gym.errors import GymError

LOSSES = list(catalogue.losses())


def batch(seed=0, sequences=6, tokens=7, scale=0.4):
    """Random inputs; one sequence is fully masked, and lengths differ."""
    g = torch.Generator().manual_seed(seed)
    logp = -torch.rand(sequences, tokens, generator=g, dtype=torch.float64) * 3
    noise = [scale * torch.randn(sequences, tokens, generator=g, dtype=torch.float64) for _ in range(3)]
    lengths = torch.randint(1, tokens + 1, (sequences,), generator=g)
    lengths[-1] = 0
    return {
        "logp": logp,
        "old_logp": logp + noise[0],
        "ref_logp": logp + noise[1],
        "sampler_weights": noise[2].exp(),
        "advantages": torch.randn(sequences, generator=g, dtype=torch.float64),
        "mask": torch.arange(tokens) < lengths[:, None],
    }


def run(name, inputs, rows=slice(None), width=None, **options):
    """Loss, gradient and metrics of some rows, padded to `width` tokens."""
    cut = {k: v[rows] if v.ndim == 1 else v[rows, :width] for k, v in inputs.items()}
    logp = cut.pop("logp").clone().requires_grad_()
    result = policy_loss(name, logp, cut.pop("old_logp"), cut.pop("advantages"), cut.pop("mask"), **cut, **options)
    result.loss.backward()
    return result.loss.detach(), logp.grad, result.metrics


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.permutations(range(6)), st.lists(st.integers(1, 5), max_size=3, unique=True))
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("name", LOSSES)
def test_parts_of_a_batch_add_up_to_it(name, aggregation, seed, order, cuts):
    inputs = batch(seed)
    options = {"aggregation": aggregation, "norm_length": 11, "kl_coef": 0.1}
    loss, gradient, metrics = run(name, inputs, **options)
    edges = [0, *sorted(cuts), 6]
    parts = [order[a:b] for a, b in zip(edges, edges[1:], strict=False)]
    # Ranks and micro-batches know their own lengths; the totals are summed over them first.
    totals = [BatchTotals.from_mask(inputs["mask"][part]) for part in parts]
    whole = totals[0]
    for other in totals[1:]:
        whole = whole + other
    sums, added = {}, torch.zeros(())
    for part in parts:
        longest = max(1, int(inputs["mask"][part].sum(1).max()))
        part_loss, part_gradient, part_metrics = run(name, inputs, part, longest, totals=whole, **options)
        added = added + part_loss
        close(part_gradient, gradient[part, :longest])
        sums = {key: sums.get(key, 0) + value for key, value in part_metrics.items()}
    close(added, loss)
    assert sums.keys() == metrics.keys()
    for key, value in metrics.items():
        close(sums[key].double(), value.double())


def test_totals_as_numbers_or_of_lengths_are_the_same():
    inputs = batch()
    lengths = inputs["mask"].sum(1)
    reference = run("dapo", inputs)
    for totals in (BatchTotals.from_lengths(lengths), BatchTotals(int(lengths.sum()), 5)):
        close(run("dapo", inputs, totals=totals)[0], reference[0])


@pytest.mark.parametrize("name", LOSSES)
def test_padding_is_never_read(name):
    inputs = batch()
    options = {"norm_length": 5, "kl_coef": 0.1}
    loss, gradient, metrics = run(name, inputs, **options)
    spoiled = dict(inputs)
    for key in ("logp", "old_logp", "ref_logp", "sampler_weights"):
        spoiled[key] = inputs[key].masked_fill(~inputs["mask"], math.nan)
    spoiled["old_logp"] = inputs["old_logp"].masked_fill(~inputs["mask"], -math.inf)
    spoiled["advantages"] = inputs["advantages"][:, None].masked_fill(~inputs["mask"], math.nan)
    again = run(name, spoiled, **options)
    close(again[0], loss)
    close(again[1], gradient)
    assert gradient[~inputs["mask"]].eq(0).all()
    assert metrics.keys() == again[2].keys()
    for key in metrics:
        close(again[2][key], metrics[key])


@pytest.mark.parametrize("name", LOSSES)
def test_on_policy_gradient_is_the_policy_gradient(name):
    inputs = batch()
    inputs["old_logp"] = inputs["logp"]
    del inputs["sampler_weights"]
    gradient = run(name, inputs, aggregation="token-sum")[1]
    expected = -inputs["advantages"][:, None] * inputs["mask"]
    close(gradient, expected)


@pytest.mark.parametrize("name", LOSSES)
def test_loss_is_proportional_to_the_size_of_the_advantages(name):
    inputs = batch()
    twice = inputs | {"advantages": 2 * inputs["advantages"]}
    close(run(name, twice, norm_length=3)[0], 2 * run(name, inputs, norm_length=3)[0])


@pytest.mark.parametrize("name", LOSSES)
def test_nothing_to_train_on_is_zero_and_extreme_ratios_are_finite(name):
    inputs = batch()
    nothing = inputs | {"mask": torch.zeros_like(inputs["mask"])}
    loss, gradient, _ = run(name, nothing, norm_length=3, kl_coef=0.1)
    assert loss == 0 and gradient.eq(0).all()
    for shift in (-1000.0, 1000.0):
        far = inputs | {"old_logp": inputs["logp"] + shift, "ref_logp": inputs["logp"] - shift}
        loss, gradient, metrics = run(name, far, norm_length=3, kl_coef=0.1, kl_unbiased=True)
        assert loss.isfinite() and gradient.isfinite().all()
        assert all(value.isfinite() for value in metrics.values())


def by_hand(ratio, advantage, low, high, ceiling):
    loss = max(-advantage * ratio, -advantage * min(max(ratio, 1 - low), 1 + high))
    return min(loss, -advantage * ceiling) if advantage < 0 and ceiling else loss


@pytest.mark.parametrize(
    ("name", "low", "high", "ceiling"),
    [
        ("ppo_clip", 0.2, 0.2, 3.0),
        ("dapo", 0.2, 0.28, 10.0),
        ("dr_grpo", 0.2, 0.2, 3.0),
        ("gspo", 3e-4, 4e-4, None),
    ],
)
@pytest.mark.parametrize("ratio", [0.1, 0.85, 0.9998, 1.0, 1.0002, 1.25, 2.0, 5.0, 20.0])
@pytest.mark.parametrize("advantage", [-1.5, 0.0, 0.7])
def test_clipped_losses_with_their_defaults(name, low, high, ceiling, ratio, advantage):
    logp = torch.tensor([[math.log(ratio) - 1]], dtype=torch.float64)
    result = policy_loss(name, logp, torch.tensor([[-1.0]]), torch.tensor([advantage]), torch.ones(1, 1), norm_length=1)
    assert result.loss.item() == pytest.approx(by_hand(ratio, advantage, low, high, ceiling), rel=1e-6)


def test_cispo_bounds_the_weight_of_the_gradient_not_the_gradient():
    old = torch.full((1, 4), -2.0, dtype=torch.float64)
    ratios = torch.tensor([[0.01, 1.0, 1.1, 9.0]], dtype=torch.float64)

    def gradient(**options):
        logp = (old + ratios.log()).requires_grad_()
        policy_loss("cispo", logp, old, torch.tensor([2.0]), torch.ones(1, 4), **options).loss.backward()
        return -4 * logp.grad / 2

    close(gradient(), torch.tensor([[0.01, 1, 1.1, 1.2]], dtype=torch.float64))
    close(gradient(clip_high=0.05, clip_low=0.5), torch.tensor([[0.5, 1, 1.05, 1.05]], dtype=torch.float64))
    close(gradient(ratio_cap=5.0), torch.tensor([[0.01, 1, 1.1, 5]], dtype=torch.float64))
    with pytest.raises(GymError, match="'clip_high' or 'ratio_cap', not both"):
        gradient(clip_high=0.2, ratio_cap=5.0)


def test_gspo_ratio_is_of_the_sequence():
    inputs = batch()
    log_ratio = ((inputs["logp"] - inputs["old_logp"]) * inputs["mask"]).sum(1) / inputs["mask"].sum(1).clamp(min=1)
    expected = (log_ratio.exp() * inputs["mask"].sum(1)).sum() / inputs["mask"].sum()
    del inputs["sampler_weights"]
    close(run("gspo", inputs)[2]["ratio_mean"], expected)


def test_aggregations_by_hand():
    values = torch.tensor([[1.0, 2, 3, 99], [10, 99, 99, 99], [99, 99, 99, 99]], dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]])
    by_mode = {
        "token-mean": 16 / 4,
        "token-sum": 16,
        "seq-mean-token-mean": (2 + 10) / 2,
        "seq-mean-token-sum": (6 + 10) / 2,
        "seq-mean-token-sum-norm": (6 + 10) / 2 / 8,
    }
    assert set(by_mode) == set(AGGREGATIONS)
    for mode, expected in by_mode.items():
        assert aggregate(values, mask, mode, norm_length=8).item() == pytest.approx(expected), mode


def test_kl_estimators_by_hand():
    logp, ref = torch.tensor([-1.0, -2.0, -50.0]).double(), torch.tensor([-1.5, -1.0, -1.0]).double()
    d = ref - logp
    close(kl_divergence(logp, ref, "k1"), -d)
    close(kl_divergence(logp, ref, "k2"), d * d / 2)
    close(kl_divergence(logp, ref, "k3")[:2], (d.exp() - d - 1)[:2])
    assert kl_divergence(logp, ref, "k3")[2] == 10


def test_kl_term_is_added_with_the_losss_aggregation():
    inputs = batch()
    for mode in AGGREGATIONS:
        options = {"aggregation": mode, "norm_length": 9}
        without, with_kl = (run("ppo_clip", inputs, kl_coef=c, **options)[0] for c in (0.0, 0.25))
        kl = kl_divergence(inputs["logp"], inputs["ref_logp"])
        close(with_kl - without, 0.25 * aggregate(kl, inputs["mask"], mode, norm_length=9))


def test_zero_advantage_leaves_the_kl_term():
    inputs = batch() | {"advantages": torch.zeros(6)}
    loss, gradient, metrics = run("ppo_clip", inputs, kl_coef=0.1)
    assert loss > 0 and gradient.abs().sum() > 0 and metrics["policy_loss"] == 0


def test_sampler_weights_multiply_the_policy_term_alone():
    inputs = batch()
    weights = inputs["sampler_weights"]
    plain = {key: value for key, value in inputs.items() if key != "sampler_weights"}
    token = plain["advantages"][:, None].expand(6, 7)
    close(
        run("cispo", inputs, kl_coef=0.1)[0],
        run("cispo", plain | {"advantages": token * weights}, kl_coef=0.1)[0],
    )


def test_truncated_importance_weights():
    old, sampler = torch.tensor([[-1.0, -1.0, -3.0, -1.0]]), torch.tensor([[-1.0, -9.0, -2.0, math.nan]])
    weights = truncated_importance_weights(old.requires_grad_(), sampler, torch.tensor([[1, 1, 1, 0]]))
    torch.testing.assert_close(weights, torch.tensor([[1.0, 2.0, math.exp(-1), 1.0]]))
    assert not weights.requires_grad
    with pytest.raises(GymError, match="cap must be > 0"):
        truncated_importance_weights(old, sampler, torch.ones(1, 4), cap=0)


def test_half_precision_is_computed_in_float32():
    inputs = {key: value.bfloat16() if value.is_floating_point() else value for key, value in batch().items()}
    exact = {key: value.float() if value.is_floating_point() else value for key, value in inputs.items()}
    half, full = run("dapo", inputs), run("dapo", exact)
    assert half[0].dtype == torch.float32 and half[1].dtype == torch.bfloat16
    torch.testing.assert_close(half[0], full[0])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"name": "ppo_clp"}, "Did you mean 'ppo_clip'"),
        ({"clip_hi": 0.3}, "Did you mean 'clip_high'"),
        ({"aggregation": "token_mean"}, "Did you mean 'token-mean'"),
        ({"aggregation": "seq-mean-token-sum-norm"}, "norm_length > 0"),
        ({"kl": "k4", "ref_logp": torch.zeros(2, 3)}, "unknown value of kl"),
        ({"kl_coef": 0.1}, "no ref_logp"),
        ({"kl_coef": -0.1}, "kl_coef must be >= 0"),
        ({"dual_clip": 0.5}, "dual_clip > 1"),
        ({"clip_low": 1.5}, "clip_low must be in"),
        ({"clip_high": "0.2"}, "must be a number"),
        ({"old_logp": torch.zeros(2, 4)}, r"old_logp has shape \(2, 4\); logp has \(2, 3\)"),
        ({"advantages": torch.zeros(3)}, "advantages has shape"),
        ({"mask": torch.ones(3)}, "mask has shape"),
    ],
)
def test_mistakes_are_named(change, says):
    call = {
        "name": "ppo_clip",
        "old_logp": torch.zeros(2, 3),
        "advantages": torch.zeros(2),
        "mask": torch.ones(2, 3),
    }
    call |= change
    first = (
        call.pop("name"),
        torch.zeros(2, 3),
        call.pop("old_logp"),
        call.pop("advantages"),
        call.pop("mask"),
    )
    with pytest.raises(GymError, match=says):
        policy_loss(*first, **call)
