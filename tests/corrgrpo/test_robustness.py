"""What must hold for every estimator, whatever comes in."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from corrgrpo_gym.corrgrpo import catalogue, estimate
from corrgrpo_gym.errors import GymError

VARIANTS = {name: [{}] for name in catalogue.estimators()} | {
    "grpo": [{}, {"scale": "batch"}],
    "corrgrpo": [{}, {"guard": "paper"}],
    "gdpo": [{}, {"whiten": "tokens"}],
    "gdpo+corrgrpo": [{}, {"guard": "paper"}],
    "dara": [{}, {"symmetric": True}, {"whiten": "tokens"}],
    "rloo": [{}, {"clip": (-0.5, 0.5)}],
}
ALL = [(name, options) for name, variants in VARIANTS.items() for options in variants]
IDS = [" ".join([name, *map(str, options.values())]) for name, options in ALL]


@st.composite
def wild_batches(draw):
    """Any finite or missing float64 reward, any mask, weights, token counts and penalty."""
    groups, n, k = (draw(st.integers(1, top)) for top in (3, 5, 4))
    finite = st.floats(allow_nan=False, allow_infinity=False)
    some = st.sampled_from([0.0, 1.0, 0.1, -0.1, 1e-300, 5e-324, 1e308, -1e308, 1e16, 1e16 + 2])
    element = finite | some | st.just(float("nan"))
    weights = st.floats(-1e30, 1e30) | st.sampled_from([0.0, 1.0, -1.0])
    return {
        "rewards": torch.tensor(draw(hnp.arrays(np.float64, (groups, n, k), elements=element))),
        "mask": torch.tensor(draw(hnp.arrays(np.bool_, (groups, n)))),
        "weights": draw(st.none() | st.lists(weights, min_size=k, max_size=k)),
        "token_counts": draw(
            st.none() | hnp.arrays(np.int64, (groups, n), elements=st.integers(0, 50)).map(torch.tensor)
        ),
        "penalty": draw(st.none() | hnp.arrays(np.float64, (groups, n), elements=finite).map(torch.tensor)),
        "missing": draw(st.sampled_from(catalogue.MISSING_MODES)),
    }


@settings(max_examples=120, deadline=None)
@given(wild_batches(), st.booleans())
def test_no_finite_or_missing_input_gives_nan_or_infinity(batch, single):
    rewards = batch.pop("rewards")
    if single:
        rewards = rewards.clamp(-3e38, 3e38).float()
    for name, options in ALL:
        result = estimate(name, rewards, **batch, **options)
        assert result.advantages.isfinite().all(), (name, options)
        assert result.advantages[~batch["mask"]].eq(0).all(), (name, options)
        assert result.advantages.dtype == rewards.dtype
        assert all(value == value for value in result.info.values()), (name, result.info)
        if result.group_weights is not None:
            assert result.group_weights.isfinite().all()


def random_batch(seed, groups=4, n=6, k=3):
    generator = torch.Generator().manual_seed(seed)
    rewards = torch.randint(0, 5, (groups, n, k), generator=generator).double() / 4
    rewards[torch.rand(rewards.shape, generator=generator) < 0.1] = torch.nan
    tokens = torch.randint(1, 30, (groups, n), generator=generator)
    penalty = -torch.rand(groups, n, generator=generator).double()
    return rewards, {"token_counts": tokens, "penalty": penalty}


def pick(extra, index):
    return {name: values[index] for name, values in extra.items()}


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("missing", catalogue.MISSING_MODES)
@pytest.mark.parametrize(("name", "options"), ALL, ids=IDS)
def test_order_of_groups_rollouts_and_components_does_not_matter(name, options, missing):
    for seed in range(5):
        rewards, extra = random_batch(seed)
        weights = torch.tensor([1.0, 0.5, 2.0])
        result = estimate(name, rewards, weights=weights, missing=missing, **extra, **options).advantages
        generator = torch.Generator().manual_seed(seed)
        groups, rollouts, components = (torch.randperm(size, generator=generator) for size in rewards.shape)
        index = groups[:, None], rollouts
        moved = estimate(
            name,
            rewards[index][..., components],
            weights=weights[components],
            missing=missing,
            **pick(extra, index),
            **options,
        ).advantages
        close(moved, result[index])


@pytest.mark.parametrize("missing", catalogue.MISSING_MODES)
@pytest.mark.parametrize(("name", "options"), ALL, ids=IDS)
def test_masked_is_removed(name, options, missing):
    for seed in range(5):
        rewards, extra = random_batch(seed)
        mask = torch.ones(rewards.shape[:2], dtype=torch.bool)
        mask[:, [1, 4]] = False
        mask[2] = False
        kept = torch.tensor([0, 1, 3])[:, None], torch.tensor([0, 2, 3, 5])
        whole = rewards.clone()
        whole[~mask] = torch.inf  # what stands there is not read
        masked = estimate(name, whole, mask=mask, missing=missing, **extra, **options)
        removed = estimate(name, rewards[kept], missing=missing, **pick(extra, kept), **options)
        close(masked.advantages[kept], removed.advantages)
        assert masked.advantages[~mask].eq(0).all()
        if removed.group_weights is not None:
            close(masked.group_weights[[0, 1, 3]], removed.group_weights)


PER_GROUP = ["grpo", "dr_grpo", "corrgrpo", "rloo", "mo_grpo", "dvao"]


@pytest.mark.parametrize("name", PER_GROUP)
def test_groups_are_independent_of_each_other(name):
    rewards, extra = random_batch(0)
    result = estimate(name, rewards, **extra).advantages
    for g in range(len(rewards)):
        close(estimate(name, rewards[g : g + 1], **pick(extra, slice(g, g + 1))).advantages, result[g : g + 1])


@pytest.mark.parametrize(("name", "options"), ALL, ids=IDS)
def test_complete_rewards_do_not_depend_on_the_treatment_of_missing_ones(name, options):
    rewards = random_batch(3)[0].nan_to_num(0.5)
    results = [estimate(name, rewards, missing=mode, **options).advantages for mode in catalogue.MISSING_MODES]
    close(results[0], results[1])
    close(results[0], results[2])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int64])
def test_other_dtypes_are_computed_in_float64_and_returned_in_float32(dtype):
    rewards = torch.tensor([[[0, 3], [1, 2], [1, 0], [4, 1]]], dtype=dtype)
    result = estimate("corrgrpo", rewards).advantages
    assert result.dtype == torch.float32
    close(result, estimate("corrgrpo", rewards.double()).advantages.float())


def test_large_offset_keeps_its_digits():
    rewards = torch.tensor([[[0.0, 1], [1, 1], [1, 0], [0.25, 0.5]]], dtype=torch.float64)
    close(estimate("corrgrpo", rewards + 2.0**30).advantages, estimate("corrgrpo", rewards).advantages)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"rewards": torch.zeros(2, 3)}, r"rewards\[..., None\]"),
        ({"rewards": torch.zeros(2, 0, 3)}, r"none of them 0, got shape \(2, 0, 3\)"),
        ({"weights": [1.0, 2.0]}, "2 weights for 3 reward components"),
        ({"weights": [1.0, 2.0, float("nan")]}, "weights must be finite"),
        ({"mask": torch.ones(2, 4)}, r"mask must be \[groups, rollouts\] = \[2, 4\]|mask must be"),
        ({"token_counts": torch.full((2, 4), -1)}, "token_counts must be finite and >= 0"),
        ({"penalty": torch.full((2, 4), float("inf"))}, "penalty must be finite"),
        ({"missing": "nanmean"}, "Did you mean 'nansum'"),
        ({"guard": "flor"}, "Did you mean 'floor'"),
        ({"gaurd": "floor"}, "Did you mean 'guard'"),
        ({"eps": "small"}, "option 'eps' of estimator 'corrgrpo' must be a number"),
        ({"eps": 0.0}, "must be > 0"),
        ({"s_min": float("nan")}, "must be a number"),
    ],
)
def test_mistakes_are_named(arguments, says):
    rewards = arguments.pop("rewards", torch.zeros(2, 4, 3))
    if "mask" in arguments:
        rewards = torch.zeros(2, 5, 3)
    with pytest.raises(GymError, match=says):
        estimate("corrgrpo", rewards, **arguments)


def test_infinite_reward_is_named_by_place():
    rewards = torch.zeros(2, 4, 3)
    rewards[1, 2, 0] = -torch.inf
    with pytest.raises(GymError, match=r"rewards\[1, 2, 0\] is -inf"):
        estimate("grpo", rewards)
