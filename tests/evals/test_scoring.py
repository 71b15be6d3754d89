"""What is scored, what is not, and episodes of several turns."""

import pytest

from corrgrpo_gym.errors import GymError, NotScored
from corrgrpo_gym.evals.benchmark import Case, Episode
from corrgrpo_gym.evals.models.base import ModelFailure
from corrgrpo_gym.evals.records import SCORES

from . import toys
from .server import Response, Server, adds, completion, endpoint, error, half_wrong


def test_a_benchmark_of_right_and_wrong_names_what_did_not_pass(tmp_path, bench):
    with Server(half_wrong) as server:
        printed, outcome = toys.start(tmp_path / "r", **endpoint(server, env="sums"))
    odd = [f"sum-{i}" for i in range(1, 12, 2)]
    assert outcome.summary["not_passed"] == {"count": 6, "cases": odd}
    assert f"Not passed, 6 of 12 cases: {', '.join(odd)}" in printed
    assert "- The numbers are small." in printed and "50.00" in printed and "right %" in printed
    assert bench.closed == 1


def test_what_cannot_be_scored_now_is_scored_later(tmp_path, bench):
    bench.trouble = {3: NotScored("the judge is away"), 5: ZeroDivisionError("a bug")}
    printed, outcome = toys.start(tmp_path / "r", env="sums", model="reference")
    assert outcome.finished and outcome.summary["not_scored"] == 2 and outcome.summary["scored"] == 10
    assert "Not scored 2" in printed
    scores = toys.records(tmp_path / "r", SCORES)
    assert scores["sum-3", 0]["not_scored"] == "the judge is away"
    assert scores["sum-5", 0]["not_scored"] == "the scorer failed: ZeroDivisionError: a bug"
    assert "Traceback" in (tmp_path / "r/log.txt").read_text()
    bench.trouble = {}
    _, outcome = toys.start(None, resume=tmp_path / "r")
    assert outcome.summary["not_scored"] == 0 and outcome.summary["columns"][0]["value"] == 1


def test_broken_data_stop_the_evaluation_and_lose_nothing(tmp_path, bench):
    bench.trouble = {6: GymError("row 6 is broken: mend it")}
    with pytest.raises(GymError, match="row 6 is broken"):
        toys.start(tmp_path / "r", env="sums", model="reference", concurrency=1)
    kept = toys.records(tmp_path / "r")
    assert ("sum-6", 0) in kept
    bench.trouble = {}
    _, outcome = toys.start(None, resume=tmp_path / "r")
    assert outcome.summary["scored"] == 12 and toys.records(tmp_path / "r").items() >= kept.items()


def test_names_of_cases_are_unique(tmp_path, bench):
    bench.cases = [*bench.cases, bench.cases[2]]
    with pytest.raises(GymError, match="two cases are named 'sum-2'"):
        toys.start(tmp_path / "r", env="sums", model="reference")
    bench.cases = []
    with pytest.raises(GymError, match="no cases"):
        toys.start(tmp_path / "r", env="sums", model="reference")
    assert not (tmp_path / "r").exists()


class Relay(Episode):
    """Two turns: what was said comes back as a question."""

    ended: list = []

    def __init__(self, case):
        super().__init__(case)
        self.turns = 0

    def advance(self, reply):
        self.turns += 1
        return [{"role": "user", "content": "again"}] if self.turns == 1 else None

    def close(self):
        Relay.ended.append(self.case.id)


def test_episodes_of_several_turns(tmp_path, bench, monkeypatch):
    monkeypatch.setattr(bench, "episode", Relay, raising=False)
    Relay.ended.clear()

    def behave(asked):
        messages = asked.body["messages"]
        if len(messages) == 3 and messages[0]["content"].startswith("4 "):
            return Response(error("no"), 400)
        return Response(completion(toys.calculate(messages[0]["content"])))

    with Server(behave) as server:
        _, outcome = toys.start(tmp_path / "r", **endpoint(server, env="sums"))
    assert sorted(Relay.ended) == sorted(c.id for c in bench.cases)
    assert outcome.summary["failed"] == {"rejected": 1} and outcome.summary["scored"] == 11
    saved = toys.records(tmp_path / "r")
    assert [r["message"]["content"] for r in saved["sum-5", 0]["replies"]] == ["10", "10"]
    assert len(saved["sum-4", 0]["replies"]) == 1  # what there was before it failed
    long = [a.body["messages"] for a in server.asked if len(a.body["messages"]) == 3]
    assert {m[2]["content"] for m in long} == {"again"} and {m[1]["role"] for m in long} == {"assistant"}


def test_an_episode_that_breaks_is_not_scored(tmp_path, bench, monkeypatch):
    class Breaks(Episode):
        def advance(self, reply):
            raise NotScored("no tool server") if self.case.row % 2 else KeyError("x")

    monkeypatch.setattr(bench, "episode", Breaks, raising=False)
    _, outcome = toys.start(tmp_path / "r", env="sums", model="reference")
    assert outcome.summary["not_scored"] == 12 and len(toys.records(tmp_path / "r")) == 12


def test_a_model_that_breaks_is_a_failure(tmp_path, bench, monkeypatch):
    from corrgrpo_gym.evals.models.reference import ReferenceModel

    async def complete(self, request):
        if request.case == "sum-1":
            raise RuntimeError("out of memory")
        raise ModelFailure("timeout", "slow")

    monkeypatch.setattr(ReferenceModel, "complete", complete)
    _, outcome = toys.start(tmp_path / "r", env="sums", model="reference")
    assert outcome.summary["failed"] == {"internal": 1, "timeout": 11}


def test_the_system_message(tmp_path, bench):
    bench.cases[1] = Case("own", ({"role": "system", "content": "Tools: none."}, *bench.cases[1].messages), row=1)
    with Server(adds) as server:
        toys.start(tmp_path / "r", **endpoint(server, env="sums", system="Be brief.", limit=2, concurrency=1))
    plain, own = (a.body["messages"] for a in server.asked)
    assert plain[0] == {"role": "system", "content": "Be brief."} and len(plain) == 2
    assert own[0] == {"role": "system", "content": "Be brief.\n\nTools: none."} and len(own) == 2
