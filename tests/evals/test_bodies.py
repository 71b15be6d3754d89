"""Answers of any size, packed or not."""

import gzip
import json
import tracemalloc

import pytest

from corrgrpo_gym.evals.models import bodies
from corrgrpo_gym.evals.models.base import ModelFailure

from .asking import answer, ask
from .server import Response, Server, completion, error


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(bodies, "MAX_BODY", 1 << 20)


@pytest.mark.parametrize("status", [200, 400, 503])
def test_a_body_that_is_too_large_is_a_failure_and_is_not_asked_for_again(status, small):
    body = completion("a" * (1 << 20)) if status == 200 else error("a" * (1 << 20))
    with Server(lambda asked: Response(body, status)) as server:
        (failure,), _ = ask(server)
    assert isinstance(failure, ModelFailure) and len(server.asked) == 1
    assert (failure.kind, str(failure)) == ("too_large", "the answer is larger than 1 MiB")


def test_a_body_that_is_not_too_large(small):
    assert answer(lambda asked: Response(completion("a" * 1_000_000))).text == "a" * 1_000_000


def test_a_small_body_that_unpacks_to_a_large_one():
    packed = gzip.compress(b'{"choices": [' + b" " * (400 << 20), 1)
    packed = Response(packed, headers={"Content-Encoding": "gzip"})
    tracemalloc.start()
    failure = answer(lambda asked: packed)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert failure.kind == "too_large" and peak < 3 * bodies.MAX_BODY


def test_bodies_that_are_packed():
    whole = json.dumps(completion("packed")).encode()
    assert answer(lambda asked: Response(gzip.compress(whole), headers={"Content-Encoding": "gzip"})).text == "packed"
    failure = answer(lambda asked: Response(whole, headers={"Content-Encoding": "br"}))
    assert failure.kind == "too_large" and "packed by 'br'" in str(failure)


def test_redirections_are_followed_and_their_bodies_left_unread(small):
    def behave(asked):
        if asked.path == "/v1/chat/completions":
            return Response(b"a" * (4 << 20), 307, headers={"Location": "/v1/elsewhere"})
        return Response(completion(asked.prompt))

    assert answer(behave).text == "hi"
    loop = answer(lambda asked: Response(b"", 308, headers={"Location": asked.path}))
    assert loop.kind == "rejected" and "HTTP 308" in str(loop)


def test_a_list_of_models_that_is_too_large(small):
    with Server(models=["a" * (2 << 20)]) as server:
        (reply,), _ = ask(server, check=True)
    assert reply.text == "hello"
