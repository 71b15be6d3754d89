"""Evaluations by vLLM in this process; the same engine as in training."""

import asyncio
import json

import pytest

from corrgrpo_gym.evals import config as configs
from corrgrpo_gym.evals import session
from corrgrpo_gym.evals.models.base import ChatSampling, ModelFailure, Request
from corrgrpo_gym.evals.models.local import LocalModel

from .. import tiny
from . import helpers


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tiny.folder(tmp_path_factory.mktemp("tiny") / "model", kind="qwen2", scale=0.15, **helpers.SIZES))


def request(text, case="c", sample=0, **sampling):
    sampling = {"max_tokens": 12, **sampling}
    return Request(case, sample, 0, [{"role": "user", "content": text}], (), ChatSampling(**sampling))


def ask(folder, requests, **options):
    async def session():
        model = LocalModel(folder, device="cpu", **options)
        try:
            return list(await asyncio.gather(*map(model.complete, requests), return_exceptions=True))
        finally:
            await model.close()

    return asyncio.run(session())


def test_greedy_answers_are_those_of_transformers(folder):
    requests = [request(t, max_tokens=k) for t in ("3 + 4", "a", "what is 12 + 5 ?", "x " * 9) for k in (3, 20)]
    replies = {engine: ask(folder, requests, engine=engine) for engine in ("vllm", "transformers")}
    assert replies["vllm"] == replies["transformers"]


def test_drawn_answers_depend_on_nothing_but_their_request(folder):
    asked = [request(f"{i} + {i}", str(i), s, temperature=1.0, top_p=0.9) for i in range(4) for s in range(3)]
    together, reverse = ask(folder, asked, engine="vllm"), ask(folder, asked[::-1], engine="vllm", concurrency=3)
    assert together == reverse[::-1]
    assert len({r.text for r in together}) > 8


def test_a_prompt_that_leaves_no_room_is_a_failed_sample(folder):
    long, short = ask(folder, [request("x " * 300), request("x")], engine="vllm")
    assert isinstance(long, ModelFailure) and long.kind == "context"
    assert short.text


def test_an_evaluation(folder, tmp_path):
    """The table of a whole run, by either engine."""
    summaries = []
    for engine in ("vllm", "transformers"):
        resolved = configs.resolve(
            {"env": "learners.toy:make", "model": folder, "engine": engine, "device": "cpu", "max_tokens": 8, "n": 2}
        )
        outcome = session.evaluate(resolved, tmp_path / engine)
        assert outcome.finished
        summaries.append(json.loads((tmp_path / engine / "summary.json").read_text()))
    figures = [{k: v for k, v in s.items() if k in ("columns", "answered", "failed")} for s in summaries]
    assert figures[0] == figures[1] and figures[0]
