"""Scores anew from saved replies."""

import json
import os

import pytest

from corrgrpo_gym.errors import GymError, NotScored
from corrgrpo_gym.evals.records import REPLIES, SCORES
from corrgrpo_gym.evals.rescore import rescore

from . import toys
from .server import Server, adds, endpoint, half_wrong


def test_rescore(tmp_path, bench):
    out = tmp_path / "r"
    with Server(half_wrong) as server:
        toys.start(out, **endpoint(server, env="sums"))
    replies, asked = (out / REPLIES).read_bytes(), len(server.asked)
    before = toys.state(out)
    assert rescore(out).finished and toys.state(out) == before
    # A scorer that changed its mind.
    bench.__init__(offset=0.25)
    outcome = rescore(out)
    assert outcome.summary["columns"][0]["value"] == 0.75
    assert (out / REPLIES).read_bytes() == replies and len(server.asked) == asked
    assert json.loads((out / "run.json").read_text())["scored"]["offset"] == 0.25
    # New replies would be scored by other rules than the old ones.
    with pytest.raises(GymError, match=r"benchmark.offset was 0.0, now 0.25"):
        toys.start(None, resume=out)
    bench.__init__()
    with pytest.raises(GymError, match="was scored anew with other options"):
        toys.start(None, resume=out)
    rescore(out)
    with Server(half_wrong) as server:
        assert toys.state(out) == before


def test_rescore_that_fails_leaves_the_scores_alone(tmp_path, bench):
    out = tmp_path / "r"
    toys.start(out, env="sums", model="reference")
    scores = (out / SCORES).read_bytes()
    bench.trouble = {7: GymError("row 7 is broken")}
    with pytest.raises(GymError, match="row 7"):
        rescore(out)
    bench.trouble = {7: KeyboardInterrupt()}
    assert not rescore(out).finished
    assert (out / SCORES).read_bytes() == scores
    bench.trouble = {7: NotScored("away")}
    assert rescore(out).summary["not_scored"] == 1
    assert not [f for f in os.listdir(out) if f.endswith(".new")]
    bench.trouble = {}
    bench.cases = bench.cases[:5]
    with pytest.raises(GymError, match="'sum-[0-9]+', which is no case of sums"):
        rescore(out)
    with pytest.raises(GymError, match="not a run folder"):
        rescore(tmp_path / "elsewhere")


def test_rescore_of_what_is_not_finished(tmp_path, bench):
    out = tmp_path / "r"
    bench.trouble = {2: GymError("row 2 is broken")}
    with Server(adds) as server:
        with pytest.raises(GymError):
            toys.start(out, **endpoint(server, env="sums", concurrency=1))
        done = len(toys.records(out))
        bench.trouble = {}
        outcome = rescore(out)
        assert outcome.summary["scored"] == done < 12 and not (out / "summary.json").exists()
        _, outcome = toys.start(None, resume=out)
    assert outcome.summary["scored"] == 12
