"""A model whose context is used up: scored where the benchmark says what that is worth, failed elsewhere."""

import pytest

from corrgrpo_gym.evals import registry
from corrgrpo_gym.evals.benchmark import Benchmark, Case, Episode, Score
from corrgrpo_gym.evals.metrics import Column, mean
from corrgrpo_gym.evals.records import SCORES
from corrgrpo_gym.evals.rescore import rescore

from . import toys
from .server import Response, Server, completion, endpoint, error


class Counting(Episode):
    """Over after three turns; what it is worth is how many there were."""

    worth = True

    def __init__(self, case):
        super().__init__(case)
        self.turns = 0

    def advance(self, reply):
        self.turns += 1
        return None if self.turns == 3 else [{"role": "user", "content": "more"}]

    def score(self):
        return Score({"turns": float(self.turns)})

    def cut(self):
        if self.worth == "broken":
            raise ValueError("no idea")
        return self.score() if self.worth else None


class Turns(Benchmark):
    name = "turns"
    passing = "-"

    def __init__(self):
        self.settings = {}
        self.cases = [Case(f"c{i}", ({"role": "user", "content": f"{i}"},)) for i in range(4)]
        self.columns = [Column("turns", "how many", mean("turns", bounds=None), percent=False)]

    def episode(self, case):
        return Counting(case)

    def score(self, case, replies):
        return Score({"turns": float(len(replies))})


def short(asked):
    """Case i has room for i answers."""
    messages = asked.body["messages"]
    if len(messages) // 2 >= int(messages[0]["content"]):
        return Response(error("maximum context length is 8 tokens", "context_length_exceeded"), status=400)
    return Response(completion("a"))


@pytest.mark.parametrize("worth", [True, False, "broken"])
def test_context_that_is_used_up(worth, tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "make", lambda name, data=None, **options: Turns())
    monkeypatch.setattr(Counting, "worth", worth)
    with Server(short) as server:
        _, outcome = toys.start(tmp_path / "r", env="turns", **endpoint(server))
    summary, column = outcome.summary, outcome.summary["columns"][0]
    if worth is True:
        assert summary["failed"] == {} and summary["scored"] == 4 and column["value"] == (0 + 1 + 2 + 3) / 4
        assert "cut short" in (tmp_path / "r/log.txt").read_text()
        kept = toys.records(tmp_path / "r", SCORES)
        assert rescore(tmp_path / "r").summary["columns"] == summary["columns"]
        assert toys.records(tmp_path / "r", SCORES) == kept
    elif worth is False:
        assert summary["failed"] == {"context": 3} and summary["scored"] == 1 and column["value"] == 3
    else:
        assert summary["failed"] == {} and summary["scored"] == 1 and summary["not_scored"] == 3
