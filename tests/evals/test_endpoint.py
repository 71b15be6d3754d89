"""Endpoints as they are: each way in which a real server can fail has its recorded outcome."""

import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from corrgrpo_gym.errors import GymError
from corrgrpo_gym.evals.models.base import ModelFailure, Reply

from .asking import answer, ask, request
from .server import DROP, HANG, Response, Server, completion, error

FILTERED = "The response was filtered due to the prompt triggering the content management policy."


def first(*responses):
    """These, one after the other, then good ones."""
    return lambda asked: responses[asked.number] if asked.number < len(responses) else Response()


def test_a_good_answer():
    behave = lambda asked: Response(completion("fine", usage=(11, 4)))  # noqa: E731
    with Server(behave) as server:
        (reply,), _ = ask(
            server, request("how?", temperature=0.7, top_p=0.9, max_tokens=50, stop=("END",), seed=5, sample=3)
        )
    assert reply == Reply({"role": "assistant", "content": "fine"}, "stop", reply.usage)
    assert (reply.usage.prompt, reply.usage.completion, reply.notes) == (11, 4, ())
    (asked,) = server.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.body == {
        "model": "tiny", "messages": [{"role": "user", "content": "how?"}], "temperature": 0.7, "top_p": 0.9,
        "max_tokens": 50, "seed": 8, "stop": ["END"],
    }  # fmt: skip


def test_greedy_asks_for_nothing_else():
    with Server() as server:
        ask(server, request(seed=None, max_tokens=None, extra={"top_k": 1, "temperature": 0.5}))
    assert server.asked[0].body == {
        "model": "tiny", "messages": [{"role": "user", "content": "hi"}], "temperature": 0.5, "top_k": 1,
    }  # fmt: skip


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
def test_passing_troubles_are_asked_again(status):
    with Server(first(Response(error("busy"), status), Response(b"<html>nginx", status, kind="text/html"))) as server:
        (reply,), endpoint = ask(server)
    assert reply.text == "hello" and len(server.asked) == 3
    assert sum(endpoint.troubles.values()) == 2


@pytest.mark.parametrize(
    ("status", "kind"), [(429, "rate_limit"), (500, "server"), (503, "server"), (529, "server"), (504, "timeout")]
)
def test_lasting_troubles_are_recorded(status, kind):
    with Server(lambda asked: Response(error("out of order"), status)) as server:
        (failure,), _ = ask(server, retries=2)
    assert isinstance(failure, ModelFailure) and failure.kind == kind
    assert str(failure) == f"HTTP {status}: out of order (3 tries)" and len(server.asked) == 3


def test_retry_after_in_seconds_and_as_a_date():
    # A date has whole seconds: what is left of them is at least one less.
    in_three = lambda: format_datetime(datetime.now(UTC) + timedelta(seconds=3), usegmt=True)  # noqa: E731
    for header, least in ((lambda: "1", 0.95), (lambda: "0.4", 0.35), (in_three, 1.8)):
        at = []

        def behave(asked, header=header, at=at):
            at.append(time.monotonic())
            return Response() if asked.number else Response(error("wait"), 429, {"Retry-After": header()})

        assert answer(behave).text == "hello" and at[1] - at[0] >= least


def test_retry_after_stops_all_requests():
    at = []

    def behave(asked):
        at.append(time.monotonic())
        return Response(error("wait"), 429, {"Retry-After": "0.5"}) if asked.number == 0 else Response(wait=0.05)

    replies = answer(behave, *(request(f"{i}") for i in range(20)), concurrency=2)
    assert all(isinstance(r, Reply) for r in replies)
    # One more was in flight when the server said so; nothing else came before the time was over.
    assert len([t for t in at if t - at[0] < 0.45]) <= 2


def test_a_wait_beyond_all_patience_is_a_failure_at_once():
    with Server(lambda asked: Response(error("tomorrow"), 429, {"Retry-After": "86400"})) as server:
        (failure,), _ = ask(server)
    assert failure.kind == "rate_limit" and "86400 s" in str(failure) and len(server.asked) == 1


def test_senseless_retry_after_is_left_aside():
    for header in ("soon", "nan", "inf", "-5", "Fri, 99 Foo 2020"):
        assert answer(first(Response(error("wait"), 503, {"Retry-After": header}))).text == "hello"


def test_a_hanging_server_times_out():
    with Server(lambda asked: HANG) as server:
        (failure,), _ = ask(server, timeout=0.2, retries=8)
    assert failure.kind == "timeout" and len(server.asked) == 3
    with Server(lambda asked: HANG if asked.number == 0 else Response()) as server:
        assert ask(server, timeout=0.3)[0][0].text == "hello"


def test_a_server_that_drips_times_out():
    failure = answer(lambda asked: Response(drip=0.05), timeout=0.3, retries=0)
    assert failure.kind == "timeout"


@pytest.mark.parametrize(
    "response",
    [
        DROP, Response(cut=20), Response(cut=200), Response(garbage=b"HTTP/9 what\r\n\r\n"),
        Response(garbage=b"\x00\xff" * 50),
    ],
    ids=["dropped", "cut in the body", "cut in the head", "another protocol", "noise"],
)  # fmt: skip
def test_connections_that_break(response):
    with Server(first(response)) as server:
        (reply,), _ = ask(server)
    assert reply.text == "hello" and len(server.asked) == 2
    failure = answer(lambda asked: response, retries=1)
    assert failure.kind == "connection" and "2 tries" in str(failure)


def test_a_server_that_goes_away():
    with Server() as server:
        url = server.url
    server = replace_url(url)
    (failure,), _ = ask(server, retries=1)
    assert failure.kind == "connection"
    with pytest.raises(GymError, match="nobody answers at http://127.0.0.1.*Is the server running"):
        ask(server, check=True)


def replace_url(url):
    class Gone:
        pass

    gone = Gone()
    gone.url = url
    return gone


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"{not json", "server"), (b"", "server"), (b"<html>login</html>", "server"), (b"null", "no_answer"),
        (b"[]", "no_answer"), (b'"text"', "server"), ({"choices": []}, "no_answer"),
        ({"choices": None}, "no_answer"), ({"choices": [None]}, "no_answer"), ({"id": 1}, "no_answer"),
        ({"choices": [{"finish_reason": "stop"}]}, "no_answer"), (error("inside"), "server"),
        (error("slow down", 429), "rate_limit"), ({"choices": [{"message": None}]}, "no_answer"),
    ],
)  # fmt: skip
def test_bodies_without_an_answer(body, kind):
    with Server(first(Response(body))) as server:
        (reply,), _ = ask(server)
    assert reply.text == "hello" and len(server.asked) == 2
    failure = answer(lambda asked: Response(body), retries=1)
    assert failure.kind == kind, failure


def test_a_body_that_is_not_what_its_encoding_says():
    broken = Response(b"plain", headers={"Content-Encoding": "gzip"})
    assert answer(first(broken)).text == "hello"
    failure = answer(lambda asked: broken, retries=1)
    assert isinstance(failure, ModelFailure) and failure.kind in ("connection", "server")


def test_json_under_another_content_type():
    assert answer(lambda asked: Response(kind="text/plain")).text == "hello"
    assert answer(lambda asked: Response(b"welcome", kind="text/html"), retries=0).kind == "server"


def test_content_that_is_none_or_cut_or_refused():
    reply = answer(lambda asked: Response(completion(None)))
    assert reply.message["content"] is None and reply.text == "" and reply.notes == ("no content",)
    reply = answer(lambda asked: Response(completion("half a", "length")))
    assert (reply.text, reply.finish) == ("half a", "length")
    reply = answer(lambda asked: Response(completion(None, refusal="I can't help with that.")))
    assert reply.message["refusal"] == "I can't help with that." and reply.notes == ("refusal",)


@pytest.mark.parametrize(
    "response",
    [
        Response(error(FILTERED, "content_filter"), 400),
        Response(error("Your input was flagged", 403), 403),
        Response(error("Invalid prompt: flagged as violating our usage policy", "invalid_prompt"), 400),
    ],
)
def test_what_a_filter_refuses_is_an_answer(response):
    with Server(lambda asked: response) as server:
        (reply,), _ = ask(server)
    assert reply.finish == "content_filter" and reply.text == "" and "HTTP 40" in reply.message["refusal"]
    assert len(server.asked) == 1


def test_reasoning_in_a_field_of_its_own_and_in_tags():
    for key in ("reasoning_content", "reasoning"):
        reply = answer(lambda asked, key=key: Response(completion("42", **{key: "six times seven"})))
        assert reply.message == {"role": "assistant", "content": "42", "reasoning_content": "six times seven"}
    inside = "<think>six times seven</think>\n\n42"
    reply = answer(lambda asked: Response(completion(inside)))
    assert reply.text == inside and reply.answer == "42"


def test_tool_calls_stay_as_they_came():
    calls = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1, "x": 2'}}]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    with Server(lambda asked: Response(completion(None, "tool_calls", tool_calls=calls))) as server:
        (reply,), _ = ask(server, request(tools=tools))
    assert reply.message["tool_calls"] == calls and reply.finish == "tool_calls" and reply.notes == ()
    assert server.asked[0].body["tools"] == tools


def test_servers_that_ignore_n_or_give_more():
    body = completion("first")
    body["choices"] = [*body["choices"], *completion("second")["choices"]]
    reply = answer(lambda asked: Response(body))
    assert reply.text == "first" and reply.notes == ("2 choices where one was asked for",)


def test_concurrency_is_bounded():
    with Server(lambda asked: Response(wait=0.02)) as server:
        replies, _ = ask(server, *(request(str(i)) for i in range(60)), concurrency=7)
    assert all(r.text == "hello" for r in replies) and server.most == 7


def test_a_storm_of_429_slows_us_down_and_loses_nothing():
    allowed = 3

    def behave(asked):
        if server._flying > allowed:
            return Response(error("too many requests"), 429)
        return Response(wait=0.02)

    with Server(behave) as server:
        replies, endpoint = ask(server, *(request(str(i)) for i in range(120)), concurrency=32, retries=30)
    assert all(isinstance(r, Reply) and r.text == "hello" for r in replies)
    # Far fewer are turned away than if all 32 had kept coming.
    assert endpoint.troubles["rate_limit"] < 240
    late = server.asked[-60:]
    assert len(late) == 60 and endpoint._pace.limit < 32


def test_a_mixed_bag_of_troubles():
    """Every second request fails in another way; every sample has its answer in the end."""
    bad = [
        Response(error("x"), 500), DROP, Response(b"{", 200), Response(cut=30), Response({"choices": []}),
        Response(error("x"), 429, {"Retry-After": "0.05"}), HANG, Response(error("x"), 503),
    ]  # fmt: skip
    behave = lambda asked: bad[asked.number // 2 % len(bad)] if asked.number % 2 else Response()  # noqa: E731
    with Server(behave) as server:
        replies, _ = ask(server, *(request(str(i)) for i in range(60)), timeout=0.5, retries=20)
    assert [r.text for r in replies] == ["hello"] * 60
