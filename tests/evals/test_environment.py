"""Any environment is a benchmark."""

import math

import pytest

from corrgrpo_gym import envs
from corrgrpo_gym.envs import MultiRewardEnv, SingleTurnEnv, Turn
from corrgrpo_gym.errors import GymError
from corrgrpo_gym.evals import registry
from corrgrpo_gym.evals.models.base import Reply
from corrgrpo_gym.evals.rescore import rescore

from . import toys
from .server import Response, Server, completion


def said(text):
    return Reply({"role": "assistant", "content": text})


@pytest.fixture(autouse=True)
def registrations(monkeypatch):
    """What a test registers ends with it."""
    monkeypatch.setattr(envs.registry, "_entries", dict(envs.registry._entries))


def test_components_and_their_weighted_total():
    bench = registry.make(toys.ENV, size=5)
    assert [c.name for c in bench.columns] == ["correct", "brief", "total"] and len(bench.cases) == 5
    case = bench.cases[3]
    assert (case.id, case.reference, case.messages[0]["content"]) == ("sum-3", "6", "3 + 3 =")
    assert bench.score(case, [said("6")]).values == pytest.approx({"correct": 1, "brief": 0.5, "total": 1.05})
    assert bench.score(case, [said("six")]).values == pytest.approx({"correct": 0, "brief": 0.25, "total": 0.025})
    assert bench.settings["reward_weights"] == {"correct": 1.0, "brief": 0.1}
    assert [c.id for c in bench.cases[1:3]] == ["sum-1", "sum-2"] and bench.cases[-1].id == "sum-4"
    with pytest.raises(IndexError):
        bench.cases[5]
    bench.close()


def test_the_digest_follows_the_data():
    digests = [registry.make(toys.ENV, size=size).settings["data"] for size in (5, 6, 5)]
    assert digests[0] == digests[2] != digests[1]


def test_several_turns_are_asked_scored_and_replayed(tmp_path):
    def behave(asked):
        assert [m["role"] for m in asked.body["messages"]] == ["user", "assistant"] * (
            len(asked.body["messages"]) // 2
        ) + ["user"]
        word = asked.prompt.removeprefix("say ")
        return Response(completion("wrong" if word == "c2" else word))

    printed, gold = toys.start(tmp_path / "gold", env=toys.TALK, model="reference")
    assert [c["value"] for c in gold.summary["columns"]] == pytest.approx([1, 1, 1 + 2 / 3])
    with Server(behave) as server:
        printed, outcome = toys.start(tmp_path / "r", env=toys.TALK, base_url=server.url, model="tiny")
    assert len(server.asked) == 9
    # Rewards of the turns add up; what is NaN for task b is not eligible, and counts nothing in the total.
    columns = {c["name"]: (c["value"], c["count"]) for c in outcome.summary["columns"]}
    assert columns["right"] == (pytest.approx(8 / 9), 3) and columns["polite"] == (1.0, 2)
    assert columns["total"] == (pytest.approx((2 + 1 + 5 / 3) / 3), 3)
    before = toys.state(tmp_path / "r")
    rescore(tmp_path / "r")
    assert toys.state(tmp_path / "r") == before


def test_episodes_without_an_end_are_cut(tmp_path):
    class Endless(MultiRewardEnv):
        reward_names = ("turns",)
        reward_ranges = {"turns": (0.0, math.inf)}
        splits = ("train",)

        def __init__(self):
            super().__init__(["x"], split="train")

        def prompt(self, task):
            return [{"role": "user", "content": "go on"}]

        def turn(self, reply):
            return Turn([1.0], [{"role": "user", "content": "go on"}])

        def cut(self):
            return Turn([100.0], truncated=True)

    envs.register("endless", Endless, replace=True)
    with Server() as server:
        _, outcome = toys.start(
            tmp_path / "r", env="endless", base_url=server.url, model="tiny", options={"max_turns": 4}
        )
    assert outcome.summary["columns"][0]["value"] == 104 and len(server.asked) == 4
    assert outcome.summary["columns"][0]["low"] is None  # no bounds, one case


def test_which_split():
    class Splits(SingleTurnEnv):
        pass

    def make(split="train"):
        data = {"train": [{"prompt": "a"}], "dev": [{"prompt": "b"}, {"prompt": "c"}]}
        return SingleTurnEnv(data, [toys.brief], split=split)

    def tested(split="train"):
        return SingleTurnEnv(lambda s: [{"prompt": s}], [toys.brief], split=split)

    envs.register("splits-of-mine", make, replace=True)
    envs.register("tested", tested, replace=True)
    assert registry.make("splits-of-mine").settings["split"] == "train"
    assert registry.make("splits-of-mine", split="dev").settings["split"] == "dev"
    assert registry.make("tested").settings["split"] == "test"
    with pytest.raises(GymError, match="unknown split 'test'"):
        registry.make("splits-of-mine", split="test")
    with pytest.raises(GymError, match="unknown option 'siez'.*size"):
        registry.make(toys.ENV, siez=3)
    with pytest.raises(GymError, match="unknown benchmark or environment 'tset'"):
        registry.make("tset")


def test_a_benchmark_of_ones_own(tmp_path):
    mine = f"{toys.Path(toys.__file__).resolve()}:Mine"
    _, outcome = toys.start(tmp_path / "r", env=mine, model="reference", options={"word": "no"})
    assert outcome.summary["benchmark"] == "mine" and outcome.summary["columns"][0]["value"] == 1
    assert outcome.summary["not_passed"] == {"count": 0, "cases": []}
    with pytest.raises(GymError, match="unknown option 'wrod'.*'word'"):
        registry.make(mine, wrod=1)
    with pytest.raises(GymError, match="takes no data"):
        registry.make(mine, "elsewhere")


def test_the_same_name_twice_and_prompts_that_are_drawn():
    class Draws(MultiRewardEnv):
        reward_names = ("same",)
        splits = ("test",)

        def __init__(self):
            super().__init__([{"task_id": "x"}, {"task_id": "x"}], split="test")

        def begin(self, task):
            self.number = int(self.np_random.integers(1000))

        def prompt(self, task):
            return [{"role": "user", "content": f"repeat {self.number}"}]

        def score(self, task, reply):
            return [float(reply["content"] == str(self.number))]

    envs.register("draws", Draws, replace=True)
    bench = registry.make("draws")
    assert [c.id for c in bench.cases] == ["0:x", "1:x"]
    for case in bench.cases:
        number = case.messages[0]["content"].removeprefix("repeat ")
        assert bench.score(case, [said(number)]).values == {"same": 1.0, "total": 1.0}
    assert bench.cases[0].messages != bench.cases[1].messages
