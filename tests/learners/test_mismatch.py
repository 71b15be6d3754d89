"""How far the sampler is from the learner: figures, the limit, and what is named as the cause."""

import math

import pytest
import torch

from corrgrpo_gym.learners.mismatch import Gaps, Mismatch, likely_cause


def test_figures_by_hand():
    gaps = Gaps()
    gaps.add(torch.tensor([[0.0, math.log(2)]]))
    gaps.add(torch.tensor([]))
    gaps.add(torch.tensor([-math.log(4)]))
    # Weights 1, 2, 1/4.
    assert gaps.metrics() == pytest.approx({
        "sampler_gap_mean": 3 * math.log(2) / 3,
        "sampler_gap_max": math.log(4),
        "sampler_kl": (3.25 - 3 + math.log(2)) / 3,
        "sampler_ess": 3.25**2 / (3 * (1 + 4 + 1 / 16)),
    })  # fmt: skip
    assert Gaps().metrics() == {} and Gaps().mean == 0


def test_kl_is_that_of_the_distributions():
    generator = torch.Generator().manual_seed(0)
    p, q = (torch.randn(2, 20, generator=generator) * 0.7).softmax(-1).double()
    drawn = torch.multinomial(p, 200_000, replacement=True, generator=generator)
    gaps = Gaps()
    gaps.add((q.log() - p.log())[drawn])
    assert gaps.metrics()["sampler_kl"] == pytest.approx(float((p * (p / q).log()).sum()), rel=0.05)
    assert gaps.metrics()["sampler_ess"] == pytest.approx(float(1 / (q * q / p).sum()), rel=0.05)


def test_huge_differences_stay_finite():
    gaps = Gaps()
    gaps.add(torch.tensor([1e4, -1e4]))
    assert all(math.isfinite(v) for v in gaps.metrics().values())


def test_the_limit():
    gaps = Gaps()
    gaps.add(torch.tensor([0.3, -0.1]))
    gaps.check(0.25)
    gaps.check(0)
    with pytest.raises(Mismatch, match="0.2 nats per token, largest 0.3"):
        gaps.check(0.15)


@pytest.mark.parametrize(
    ("engine", "staleness", "before", "expected"),
    [
        ("vllm", 1, 0.01, "1 update older"),
        ("transformers", 0, 0.0, "policy.dtype=float32"),
        ("vllm", 0, 0.001, "did not all reach vLLM"),
        ("vllm", 0, 0.18, "arithmetic or the model's code"),
        ("vllm", 0, 0.0, "arithmetic or the model's code"),
    ],
)
def test_causes(engine, staleness, before, expected):
    assert expected in likely_cause(Mismatch(0.2, 1.0), engine, staleness, before)
