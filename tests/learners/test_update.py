import copy
import math

import numpy as np
import pytest
import torch

from corrgrpo_gym.corrgrpo import Algorithm
from corrgrpo_gym.learners.config import UpdateConfig
from corrgrpo_gym.learners.episode import Rollout
from corrgrpo_gym.learners.mismatch import Mismatch
from corrgrpo_gym.learners.policy import Piece
from corrgrpo_gym.learners.rollouts import Group
from corrgrpo_gym.learners.update import Updater, learning_rate

from . import tiny

LR = 1e-3
TEMPERATURE = 1.2
NORM_LENGTH = 9.0
LENGTHS = [[3, 6, 1, 2], [5, 5, 4, 7], [2, 1, 8, 3]]
PROMPTS = [[5, 6, 7], [8, 9, 10, 11, 12, 13], [14]]
TOKEN_MEAN = Algorithm("ppo_clip", "grpo", {"aggregation": "token-mean"})


def groups_of(policy, noise=0.0, finish="stop"):
    """Groups whose sampler's log-probabilities differ from the policy's by noise."""
    rng = np.random.default_rng(0)
    made = []
    for g, (prompt, lengths) in enumerate(zip(PROMPTS, LENGTHS, strict=True)):
        completions = [rng.integers(2, 48, n).tolist() for n in lengths]
        with torch.no_grad():
            logps, mask = policy.logps([Piece(prompt, completions)], TEMPERATURE, shared=False)
        rollouts = []
        for ids, row, seen in zip(completions, logps, mask, strict=True):
            said = (row[seen].numpy() + rng.normal(0, noise, len(ids))).tolist()
            ends = finish if isinstance(finish, str) else finish[len(rollouts)]
            rollouts.append(Rollout(finish=ends, turns=1))
            rollouts[-1].append(ids, said)
        made.append(Group(g, str(g), prompt, rollouts))
    return made


def advantages(seed=0):
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))


def updater(policy, algorithm=None, cap=2.0, **options):
    settings = UpdateConfig(**{"lr": LR, "grad_clip": 0.0} | options)
    return Updater(policy, algorithm or TOKEN_MEAN, settings, TEMPERATURE, cap)


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def logps_alone(model, prompt, ids):
    """One sequence by itself, through the plain model."""
    logits = model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1]
    return (logits / TEMPERATURE).log_softmax(-1)[range(len(ids)), ids]


def reference_loss(model, groups, values, old, aggregation, kept=None, cap=2.0, clip=0.2):
    """PPO's clipped loss with truncated importance weights, written out token by token."""
    tokens, sequences, counts = [], [], 0
    for g, group in enumerate(groups):
        for j, rollout in enumerate(group.rollouts):
            if kept is not None and not kept[g][j]:
                continue
            logp = logps_alone(model, group.prompt, rollout.ids)
            said = torch.tensor(rollout.logps, dtype=logp.dtype)
            ratio = (logp - old[g][j]).exp()
            a = float(values[g, j])
            token = -torch.minimum(ratio * a, ratio.clamp(1 - clip, 1 + clip) * a)
            token = token * (old[g][j] - said).exp().clamp(max=cap)
            tokens.append(token)
            counts += len(token)
            sequences.append(token)
    sums = torch.stack([t.sum() for t in sequences])
    means = torch.stack([t.mean() for t in sequences])
    return {
        "token-mean": torch.cat(tokens).sum() / counts,
        "token-sum": torch.cat(tokens).sum(),
        "seq-mean-token-mean": means.mean(),
        "seq-mean-token-sum": sums.mean(),
        "seq-mean-token-sum-norm": sums.mean() / NORM_LENGTH,
    }[aggregation]


def old_logps(model, groups):
    with torch.no_grad():
        return [[logps_alone(model, g.prompt, r.ids) for r in g.rollouts] for g in groups]


@pytest.mark.parametrize(
    "aggregation", ["token-mean", "token-sum", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"]
)
def test_one_step_is_the_one_written_by_hand(aggregation):
    policy = tiny.policy(dtype=torch.float64)
    groups, values = groups_of(policy, noise=0.5), advantages()
    twin = copy.deepcopy(policy.model)
    loss = reference_loss(twin, groups, values, old_logps(twin, groups), aggregation)
    loss.backward()
    gradient = torch.cat([p.grad.flatten() for p in twin.parameters()])
    # Adam's first step: both moments, corrected for their start, are those of this gradient.
    expected = weights(twin) - LR * gradient / (gradient.abs() + 1e-8)
    options = {"aggregation": aggregation, "norm_length": NORM_LENGTH}
    metrics = updater(policy, Algorithm("ppo_clip", "grpo", options)).update(groups, values, LR, (0,))
    # Where the gradient is as small as float32 (RMSNorm) makes errors, Adam's division shows them.
    clear = gradient.abs() > 1e-4 * gradient.abs().max()
    assert clear.double().mean() > 0.5
    torch.testing.assert_close(weights(policy.model)[clear], expected[clear], rtol=0, atol=1e-3 * LR)
    assert metrics["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert metrics["grad_norm"] == pytest.approx(gradient.norm().item(), rel=1e-5)
    assert metrics["skipped_updates"] == 0 and metrics["lr"] == LR


def test_sampler_metrics():
    policy = tiny.policy(dtype=torch.float64)
    groups = groups_of(policy, noise=0.3)
    old = old_logps(policy.model, groups)
    gaps = torch.cat(
        [
            (o - torch.tensor(r.logps)).abs()
            for g, row in zip(groups, old, strict=True)
            for r, o in zip(g.rollouts, row, strict=True)
        ]
    )
    metrics = updater(policy).update(groups, advantages(), LR, (0,))
    assert metrics["sampler_gap_max"] == pytest.approx(gaps.max().item(), rel=1e-4)
    assert metrics["sampler_gap_mean"] == pytest.approx(gaps.mean().item(), rel=1e-4)
    assert metrics["ratio_mean"] == pytest.approx(1.0)


@pytest.mark.parametrize("options", [{}, {"mini_batch": 1}, {"epochs": 2}])
def test_a_sampler_too_far_away_changes_nothing(options):
    """The limit is on the mean of the batch, and it is looked at before the first of its optimiser steps."""
    policy = tiny.policy(dtype=torch.float64)
    groups, before = groups_of(policy), weights(policy.model).clone()
    for rollout in groups[0].rollouts:  # one group is off by 1, so the batch by its share of the tokens
        rollout.logps = [logp - 1.0 for logp in rollout.logps]
    share = sum(LENGTHS[0]) / sum(map(sum, LENGTHS))
    work = updater(policy, **options)
    work.max_mismatch = share - 0.01
    with pytest.raises(Mismatch, match="largest 1"):
        work.update(groups, advantages(), LR, (0,))
    assert torch.equal(weights(policy.model), before)
    work.max_mismatch = share + 0.01
    metrics = work.update(groups, advantages(), LR, (0,))
    assert metrics["sampler_gap_max"] == pytest.approx(1.0, abs=0.1)
    assert not torch.equal(weights(policy.model), before)


def _after(shared=True, budget=16384, algorithm=None, config=None, noise=0.2, reference=False, **options):
    policy = tiny.policy(dtype=torch.float64, reference=reference)
    if reference:
        with torch.no_grad():
            for p in policy.trainable():
                p.mul_(1.01)
    groups = groups_of(policy, noise)
    made = updater(policy, algorithm, micro_batch_tokens=budget, shared_prefix=shared, **options)
    metrics = made.update(groups, advantages(), LR, (0,))
    return weights(policy.model), metrics


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        ("ppo_clip", {}),
        ("ppo_clip", {"kl_coef": 0.1}),
        ("dapo", {}),
        ("cispo", {}),
        ("gspo", {}),
        ("dr_grpo", {"norm_length": NORM_LENGTH}),
    ],
)
def test_micro_batches_do_not_matter(loss, options):
    """SGD-like comparison is not possible through Adam, so the steps themselves must agree."""
    algorithm = Algorithm(loss, "grpo", options)
    kl = bool(options.get("kl_coef"))
    whole, metrics = _after(algorithm=algorithm, reference=kl)
    for shared, budget in ((True, 30), (True, 1), (False, 40)):
        parts, again = _after(shared, budget, algorithm, reference=kl)
        assert (whole - parts).abs().quantile(0.95) < 1e-3 * LR
        assert (whole - parts).abs().max() < 0.5 * LR
        assert again.keys() == metrics.keys()
        for name in metrics:
            assert again[name] == pytest.approx(metrics[name], rel=1e-4, abs=1e-6), name
    assert ("kl" in metrics) == kl
    if kl:
        assert metrics["kl"] > 0


@pytest.mark.parametrize(("mini_batch", "epochs"), [(1, 1), (2, 1), (0, 3), (1, 2)])
def test_several_steps_on_a_batch_use_the_log_probabilities_from_before(mini_batch, epochs):
    policy = tiny.policy(dtype=torch.float64)
    groups, values = groups_of(policy, noise=0.1), advantages()
    twin = copy.deepcopy(policy.model)
    old = old_logps(twin, groups)
    optimizer = torch.optim.AdamW(twin.parameters(), lr=0.005, weight_decay=0.0)
    losses = []
    for epoch in range(epochs):
        order = np.random.default_rng([5, epoch]).permutation(3)
        size = mini_batch or 3
        for start in range(0, 3, size):
            chosen = sorted(order[start : start + size].tolist())
            optimizer.zero_grad()
            loss = reference_loss(
                twin, [groups[i] for i in chosen], values[chosen], [old[i] for i in chosen], "token-mean"
            )
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    made = updater(policy, lr=0.005, mini_batch=mini_batch, epochs=epochs)
    metrics = made.update(groups, values, 0.005, (5,))
    assert len(losses) == epochs * -(-3 // (mini_batch or 3))
    assert metrics["loss"] == pytest.approx(np.mean(losses), rel=1e-3)
    assert metrics["ratio_mean"] != pytest.approx(1.0, abs=1e-4)  # the policy has moved in between
    close = (weights(policy.model) - weights(twin)).abs() < 1e-2 * 0.005
    assert close.double().mean() > 0.95


def test_truncated_answers_can_be_left_out():
    finish = ["stop", "length", "stop", "length"]
    kept = [[f == "stop" for f in finish]] * 3
    policy = tiny.policy(dtype=torch.float64)
    groups, values = groups_of(policy, finish=finish), advantages()
    loss = reference_loss(policy.model, groups, values, old_logps(policy.model, groups), "token-mean", kept)
    metrics = updater(policy, mask_truncated=True).update(groups, values, LR, (0,))
    assert metrics["loss"] == pytest.approx(loss.item(), rel=1e-5)
    with_all = updater(tiny.policy(dtype=torch.float64)).update(groups, values, LR, (0,))
    assert with_all["loss"] != pytest.approx(metrics["loss"], rel=1e-2)


def test_all_answers_truncated():
    policy = tiny.policy()
    before = weights(policy.model)
    metrics = updater(policy, mask_truncated=True).update(groups_of(policy, finish="length"), advantages(), LR, (0,))
    assert torch.equal(weights(policy.model), before)
    assert all(math.isfinite(v) for v in metrics.values())


def test_a_batch_without_advantages_changes_nothing():
    policy = tiny.policy()
    groups = groups_of(policy)
    made = updater(policy, weight_decay=0.1)
    before = weights(policy.model)
    metrics = made.update(groups, torch.zeros(3, 4), LR, (0,))
    assert torch.equal(weights(policy.model), before)
    assert metrics["grad_norm"] == 0 and metrics["loss"] == 0
    assert all(math.isfinite(v) for v in metrics.values())
    # Nor do the moments of earlier steps move it.
    made.update(groups, advantages(), LR, (0,))
    before = weights(policy.model)
    made.update(groups, torch.zeros(3, 4), LR, (0,))
    assert torch.equal(weights(policy.model), before)


def test_groups_without_advantages_count_in_the_mean():
    """They give no gradient, so they are not computed; the others' weight must not grow for that."""
    policy = tiny.policy(dtype=torch.float64)
    groups, values = groups_of(policy), advantages()
    values[1] = 0
    loss = reference_loss(policy.model, groups, values, old_logps(policy.model, groups), "token-mean")
    metrics = updater(policy).update(groups, values, LR, (0,))
    assert metrics["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert metrics["ratio_mean"] == pytest.approx(1.0)


def test_a_kl_term_pulls_back_where_no_advantage_pushes():
    policy = tiny.policy(dtype=torch.float64, reference=True)
    with torch.no_grad():
        for p in policy.trainable():
            p.mul_(1.02)
    groups = groups_of(policy)
    made = updater(policy, Algorithm("ppo_clip", "grpo", {"kl_coef": 1.0}), lr=1e-4)
    kl = [made.update(groups, torch.zeros(3, 4), 1e-4, (0,))["kl"] for _ in range(8)]
    assert 0 < kl[-1] < 0.8 * kl[0]


def test_gradients_are_clipped():
    moved = []
    for clip in (0.0, 1e-3):
        policy = tiny.policy(dtype=torch.float64)
        made = updater(policy, grad_clip=clip)
        metrics = made.update(groups_of(policy), advantages(), LR, (0,))
        norm = math.sqrt(sum(p.grad.square().sum().item() for p in policy.trainable()))
        moved.append((metrics["grad_norm"], norm))
    (before, unclipped), (again, clipped) = moved
    assert before == pytest.approx(unclipped) == pytest.approx(again)
    assert clipped == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_is_left_out_and_reported(bad):
    policy = tiny.policy()
    groups, values = groups_of(policy), advantages()
    made = updater(policy)
    made.update(groups, values, LR, (0,))
    before, state = weights(policy.model), copy.deepcopy(made.optimizer.state_dict()["state"])
    values[1, 2] = bad
    metrics = made.update(groups, values, LR, (0,))
    assert metrics["skipped_updates"] == 1 and "grad_norm" not in metrics
    assert torch.equal(weights(policy.model), before)
    for number, moments in made.optimizer.state_dict()["state"].items():
        assert torch.equal(moments["exp_avg"], state[number]["exp_avg"])
    again = made.update(groups, advantages(1), LR, (0,))
    assert again["skipped_updates"] == 0 and not torch.equal(weights(policy.model), before)


def test_learning_rates():
    def course(steps=6, **options):
        return [learning_rate(UpdateConfig(lr=1.0, **options), s, steps) for s in range(1, steps + 1)]

    assert course() == [1.0] * 6
    assert course(warmup_steps=4) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert course(schedule="linear") == pytest.approx([1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6])
    assert course(schedule="linear", warmup_steps=2) == pytest.approx([0.5, 1, 1, 0.75, 0.5, 0.25])
    assert course(schedule="cosine") == pytest.approx([0.5 + 0.5 * math.cos(math.pi * k / 6) for k in range(6)])
    assert course(schedule="cosine", warmup_steps=20) == pytest.approx([s / 20 for s in range(1, 7)])
    assert all(rate > 0 for rate in course(steps=1, schedule="cosine"))


def test_the_learning_rate_of_the_step_is_used():
    moved = []
    for lr in (1e-3, 5e-4):
        policy = tiny.policy(dtype=torch.float64)
        before = weights(policy.model)
        updater(policy).update(groups_of(policy), advantages(), lr, (0,))
        moved.append((weights(policy.model) - before).abs().median().item())
    assert moved[0] == pytest.approx(2 * moved[1], rel=1e-3)
