"""What is scored, what is not, and episodes of several turns."""

import pytest

from corrgrpo_gym.envs.loading import load
from corrgrpo_gym.errors import GymError, NotScored
from corrgrpo_gym.evals.benchmark import Case, Caveat, Episode, Score
from corrgrpo_gym.evals.models.base import ModelFailure
from corrgrpo_gym.evals.records import SCORES
from corrgrpo_gym.evals.rescore import rescore

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
    summary = outcome.summary
    assert summary["partial"] and summary["scorer_errors"] == 1 and summary["columns"][0]["count"] == 10
    assert [u["case"] for u in summary["not_scored_samples"]] == ["sum-3", "sum-5"]
    assert "Partial: these figures are of 10 of 12 samples." in printed
    assert "Not scored 2: no figure above counts them." in printed
    assert "sum-3: the judge is away" in printed and "sum-5: the scorer failed: ZeroDivisionError: a bug" in printed
    assert "In 1 of them the scorer failed: a fault of the benchmark or its data" in printed
    assert f"without asking the model: corrgrpo-gym rescore {tmp_path / 'r'}" in printed.replace("python -m ", "")
    scores = toys.records(tmp_path / "r", SCORES)
    assert scores["sum-3", 0]["not_scored"] == "the judge is away"
    assert scores["sum-5", 0]["not_scored"] == "the scorer failed: ZeroDivisionError: a bug"
    assert "Traceback" in (tmp_path / "r/log.txt").read_text()
    bench.trouble = {}
    printed, outcome = toys.start(None, resume=tmp_path / "r")
    assert outcome.summary["not_scored"] == 0 and outcome.summary["columns"][0]["value"] == 1
    assert not outcome.summary["partial"] and "Not scored" not in printed and "Partial" not in printed


@pytest.mark.parametrize("values", [{"right": "often"}, {"right": [1]}, 5])
def test_what_is_no_score_is_the_scorers_fault(values, tmp_path, bench, monkeypatch):
    score = bench.score
    odd = lambda case, replies: Score(values) if case.row == 2 else score(case, replies)  # noqa: E731
    monkeypatch.setattr(bench, "score", odd)
    _, outcome = toys.start(tmp_path / "r", env="sums", model="reference")
    assert (outcome.summary["scored"], outcome.summary["scorer_errors"]) == (11, 1)
    before = toys.state(tmp_path / "r")
    rescore(tmp_path / "r")
    assert toys.state(tmp_path / "r") == before


def test_figures_are_the_same_after_numbers_that_are_not_finite_were_written(tmp_path, bench, monkeypatch):
    monkeypatch.setattr(bench, "score", lambda case, replies: Score({"right": float("nan") if case.row else 1}))
    _, first = toys.start(tmp_path / "r", env="sums", model="reference")
    assert first.summary["columns"][0]["count"] == 1 and first.summary["columns"][0]["value"] == 1
    assert toys.start(None, resume=tmp_path / "r")[1].summary == first.summary


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


def test_caveats_are_those_of_the_cases_that_took_part(tmp_path, bench, monkeypatch):
    several = Caveat("several answers: ", ["sum-1", "sum-4"], listed=True)
    group = Caveat("odd: ", {"all of them": ["sum-5", "sum-6"]}, listed=True)
    monkeypatch.setattr(bench, "caveats", ["Known.", several, Caveat("sum-3: wrong", ["sum-3"]), group])
    assert bench.caveats[1:] == ["several answers: sum-1, sum-4", "sum-3: wrong", "odd: all of them"]
    printed, outcome = toys.start(tmp_path / "r", env="sums", model="reference", limit=2)
    assert outcome.summary["caveats"] == ["Known.", "several answers: sum-1"] and "sum-4" not in printed
    _, outcome = toys.start(None, resume=tmp_path / "r", limit=6)
    assert outcome.summary["caveats"] == bench.caveats
    _, outcome = toys.start(tmp_path / "one", env="sums", model="reference", limit=1)
    assert outcome.summary["caveats"] == ["Known."]


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
    assert outcome.summary["scorer_errors"] == 6


def test_an_episode_that_broke_off_is_not_scored_as_if_it_were_over(tmp_path, monkeypatch):
    turn = toys.Talk.turn

    def breaks(self, reply):
        if self.task == 1 and self.turns == 1:
            raise OSError("the tool is away")
        return turn(self, reply)

    talk = load(toys.TALK, here=True)
    monkeypatch.setattr(talk, "turn", breaks)
    _, outcome = toys.start(tmp_path / "r", env=toys.TALK, model="reference")
    assert outcome.summary["scorer_errors"] == 1 and outcome.summary["columns"][0]["count"] == 2
    monkeypatch.setattr(talk, "turn", turn)
    for again in (lambda: toys.start(None, resume=tmp_path / "r")[1], lambda: rescore(tmp_path / "r")):
        (unscored,) = again().summary["not_scored_samples"]
        assert "--retry-failed" in unscored["text"]
    _, outcome = toys.start(None, resume=tmp_path / "r", retry_failed=True)
    assert outcome.summary["scored"] == 3 and outcome.summary["columns"][0]["value"] == pytest.approx(1)


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
