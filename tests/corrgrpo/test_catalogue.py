"""Names: how they are found, listed, composed and registered."""

import subprocess
import sys

import pytest
import torch

from corrgrpo_gym.corrgrpo import (
    Algorithm,
    SamplingRules,
    TokenLoss,
    advantages,
    catalogue,
    policy_loss,
    register_estimator,
    register_loss,
)
from corrgrpo_gym.errors import GymError


@pytest.fixture
def registry(monkeypatch):
    """A registry that forgets what a test registers."""
    catalogue.estimators()
    for kind in ("estimator", "loss"):
        monkeypatch.setitem(catalogue._REGISTRY, kind, dict(catalogue._REGISTRY[kind]))


@pytest.mark.parametrize(
    ("name", "loss", "estimator"),
    [
        ("grpo", "ppo_clip", "grpo"),
        ("corrgrpo", "ppo_clip", "corrgrpo"),
        ("gdpo+corrgrpo", "ppo_clip", "gdpo+corrgrpo"),
        ("reinforce++", "ppo_clip", "reinforce++"),
        ("mo_grpo", "ppo_clip", "mo_grpo"),
        ("dr_grpo", "dr_grpo", "dr_grpo"),
        ("dapo", "dapo", "grpo"),
        ("cispo", "cispo", "grpo"),
        ("gspo", "gspo", "grpo"),
        ("dapo+corrgrpo", "dapo", "corrgrpo"),
        ("gspo+gdpo", "gspo", "gdpo"),
        ("cispo+gdpo+corrgrpo", "cispo", "gdpo+corrgrpo"),
        ("cispo+reinforce++", "cispo", "reinforce++"),
        ("dr_grpo+corrgrpo", "dr_grpo", "corrgrpo"),
        ("ppo_clip+dr_grpo", "ppo_clip", "dr_grpo"),
        (" CISPO+CorrGRPO ", "cispo", "corrgrpo"),
    ],
)
def test_names(name, loss, estimator):
    algorithm = Algorithm.from_name(name)
    assert (algorithm.loss, algorithm.estimator) == (loss, estimator)
    assert algorithm.name == name.strip().lower()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("corgrpo", "Did you mean 'corrgrpo'"),
        ("cispo+corgrpo", "unknown estimator 'corgrpo'. Did you mean 'corrgrpo'"),
        ("cisp+corrgrpo", "unknown loss 'cisp'. Did you mean 'cispo'"),
        ("corrgrpo+cispo", r"the loss comes first. Did you mean 'cispo\+corrgrpo'"),
        ("", "unknown algorithm ''"),
    ],
)
def test_unknown_names_suggest_the_nearest(name, says):
    with pytest.raises(GymError, match=says):
        Algorithm.from_name(name)


def test_every_name_is_listed_with_paper_formula_and_defaults():
    rows = {row.name: row for row in catalogue.algorithms()}
    wanted = "grpo dr_grpo corrgrpo gdpo gdpo+corrgrpo rloo reinforce++ mo_grpo dara dvao gd2po dapo cispo gspo"
    assert set(wanted.split()) <= set(rows)
    for row in rows.values():
        assert "arXiv 2" in row.paper or "arXiv 1" in row.paper
        assert row.description and "\n" not in row.description
        assert Algorithm.from_name(row.name).loss == row.loss
    assert rows["corrgrpo"].defaults["guard"] == "floor" and rows["corrgrpo"].defaults["s_min"] == 0.1
    assert rows["dapo"].defaults["clip_high"] == 0.28 and rows["dapo"].sampling.dynamic
    assert rows["dr_grpo"].defaults["aggregation"] == "seq-mean-token-sum-norm"
    assert rows["cispo"].defaults["clip_high"] == 0.2


def test_catalogue_and_algorithm_need_no_torch():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from corrgrpo_gym.corrgrpo import Algorithm, catalogue\n"
        "assert len(catalogue.algorithms()) > 10\n"
        "assert Algorithm.from_name('dapo+gdpo').sampling.overlong\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_package_exports_what_it_lists():
    import corrgrpo_gym.corrgrpo as package

    for name in package.__all__:
        assert getattr(package, name) is not None
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="no attribute 'advantage_'"):
        package.advantage_  # noqa: B018


def test_options_are_checked_when_the_algorithm_is_made():
    with pytest.raises(GymError, match="Did you mean 's_min'"):
        Algorithm.from_name("corrgrpo", estimator_options={"smin": 0.2})
    with pytest.raises(GymError, match="Did you mean 'clip_high'"):
        Algorithm.from_name("dapo", loss_options={"cliphigh": 0.2})
    with pytest.raises(GymError, match="not both"):
        Algorithm.from_name("cispo", loss_options={"clip_high": 0.2, "ratio_cap": 5})
    with pytest.raises(GymError, match="unknown loss 'ppo'"):
        Algorithm(loss="ppo")
    full = Algorithm.from_name(
        "grpo",
        loss_options={"aggregation": "token-mean", "kl_coef": 0.001, "kl": "k3", "dual_clip": None},
        estimator_options={"missing": "nansum", "eps": 1e-4},
    )
    assert full.aggregation == "token-mean"


def test_algorithm_computes_what_its_parts_compute():
    rewards = torch.rand(2, 3, 2, generator=torch.Generator().manual_seed(0))
    algorithm = Algorithm.from_name(
        "cispo+corrgrpo",
        loss_options={"clip_high": 0.5, "kl_coef": 0.1},
        estimator_options={"guard": "paper"},
        weights=(1.0, 0.5),
    )
    estimate = algorithm.estimate(rewards)
    expected = advantages("corrgrpo", rewards, weights=(1.0, 0.5), guard="paper")
    assert torch.equal(estimate.advantages, expected)
    logp = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    arguments = (logp, logp - 0.3, expected.flatten(), torch.ones(6, 4))
    ours = algorithm.policy_loss(*arguments, ref_logp=logp + 0.1)
    direct = policy_loss("cispo", *arguments, ref_logp=logp + 0.1, clip_high=0.5, kl_coef=0.1)
    assert torch.equal(ours.loss, direct.loss)
    assert ours.metrics.keys() == direct.metrics.keys()


def test_own_estimator_takes_part_everywhere(registry):
    @register_estimator("median", paper="ours", description="R - median R")
    def median(batch, *, scale: float = 1.0):
        return scale * (batch.total - batch.total.median(1, keepdim=True).values)

    rewards = torch.tensor([[[0.0], [1.0], [5.0]]])
    assert advantages("median", rewards, scale=2.0).tolist() == [[-2, 0, 8]]
    assert Algorithm.from_name("cispo+median").estimator == "median"
    assert "median" in [row.name for row in catalogue.algorithms()]
    with pytest.raises(GymError, match="Did you mean 'scale'"):
        advantages("median", rewards, scal=2.0)
    with pytest.raises(GymError, match="already registered"):
        register_estimator("median")(median)
    register_estimator("median", replace=True)(median)


def test_an_estimator_may_be_an_object(registry):
    class Shift:
        def __init__(self):
            self.calls = 0

        def __call__(self, batch, *, by: float = 1.0):
            self.calls += 1
            return batch.centred_total + by

    shift = Shift()
    register_estimator("shift")(shift)
    assert advantages("shift", torch.zeros(1, 2, 1)).tolist() == [[1, 1]] and shift.calls == 1
    assert catalogue.find("estimator", "shift").function is shift


def test_own_loss_takes_part_everywhere(registry):
    @register_loss("reinforce", description="-A logp", sampling=SamplingRules(overlong=True))
    def reinforce(terms):
        return -terms.advantages * terms.logp

    @register_loss("weighted", aggregation="token-sum")
    def weighted(terms, *, power: float = 1.0):
        return TokenLoss(-terms.advantages * terms.logp**power, terms.log_ratio.exp(), {"odd": terms.logp < -1})

    logp = torch.tensor([[-1.0, -3.0]])
    arguments = (logp, logp, torch.tensor([2.0]), torch.ones(1, 2))
    assert policy_loss("reinforce", *arguments).loss == 4
    result = policy_loss("weighted", *arguments, power=2.0)
    assert result.loss == -20 and result.metrics["odd"] == 0.5
    algorithm = Algorithm.from_name("reinforce+corrgrpo")
    assert algorithm.sampling.overlong and not algorithm.sampling.dynamic


def test_longest_registered_name_wins(registry):
    @register_estimator("cispo+grpo", description="an estimator with a composed name")
    def composed(batch):
        return batch.centred_total

    assert catalogue.resolve("cispo+grpo") == ("ppo_clip", "cispo+grpo")
    assert catalogue.resolve("dapo+cispo+grpo") == ("dapo", "cispo+grpo")


def test_bad_registrations_are_named(registry):
    with pytest.raises(GymError, match="lower case without spaces"):
        register_estimator("My Own")(lambda batch: batch.total)
    with pytest.raises(GymError, match="'eps' must be keyword-only with a default"):

        @register_estimator("positional")
        def positional(batch, eps):
            return batch.total

    with pytest.raises(GymError, match="Did you mean 'token-mean'"):
        register_loss("own", aggregation="token_mean")

    @register_estimator("flat")
    def flat(batch):
        return batch.total.flatten()

    @register_loss("summed")
    def summed(terms):
        return -(terms.advantages * terms.logp).sum(1)

    with pytest.raises(GymError, match=r"the result of loss 'summed' has shape \(2,\); logp has \(2, 3\)"):
        policy_loss("summed", torch.zeros(2, 3), torch.zeros(2, 3), torch.zeros(2), torch.ones(2, 3))
    with pytest.raises(GymError, match=r"returned shape \(4,\), expected \[groups, rollouts\] = \(2, 2\)"):
        advantages("flat", torch.zeros(2, 2, 1))
