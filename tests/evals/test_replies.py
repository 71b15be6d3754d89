"""Bodies of chat completions, as servers write them."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corrgrpo_gym.envs.chat import message_problem
from corrgrpo_gym.errors import GymError
from corrgrpo_gym.evals.models.base import Reply
from corrgrpo_gym.evals.models.replies import NoReply, parse_reply
from corrgrpo_gym.evals.records import reply_of, reply_record

from .server import completion


def test_content_in_parts():
    parts = [
        {"type": "thinking", "thinking": "hm "}, {"type": "reasoning", "text": "ha"}, {"type": "text", "text": "one "},
        "two ", {"type": "output_text", "text": "three"}, {"type": "image_url", "image_url": {}},
    ]  # fmt: skip
    reply = parse_reply(completion(parts))
    assert reply.message == {"role": "assistant", "content": "one two three", "reasoning_content": "hm ha"}
    assert reply.notes == ("a content part of type 'image_url' is left out",)
    refused = parse_reply(completion([{"type": "refusal", "refusal": "no"}]))
    assert refused.message == {"role": "assistant", "content": None, "refusal": "no"}


def test_content_of_another_type():
    reply = parse_reply(completion({"answer": 42}))
    assert reply.text == '{"answer": 42}' and reply.notes == ("content is a JSON dict",)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("stop", "stop"), ("STOP", "stop"), ("eos", "stop"), ("length", "length"), ("max_tokens", "length"),
        ("tool_calls", "tool_calls"), ("function_call", "tool_calls"), ("content_filter", "content_filter"),
        (None, "unknown"), ("abort", "unknown"), (3, "unknown"),
    ],
)  # fmt: skip
def test_finish_reasons(theirs, ours):
    reply = parse_reply(completion("x", theirs))
    assert reply.finish == ours and bool(reply.notes) == (ours == "unknown")


def test_usage():
    body = completion("x")
    body["usage"] = {"prompt_tokens": 5, "completion_tokens": "7", "completion_tokens_details": {"reasoning_tokens": 2}}
    usage = parse_reply(body).usage
    assert (usage.prompt, usage.completion, usage.reasoning) == (5, None, 2)
    for odd in (None, [], {"prompt_tokens": -1, "completion_tokens_details": None}, {"prompt_tokens": True}):
        body["usage"] = odd
        assert parse_reply(body).usage.prompt is None


def test_tool_calls_of_other_dialects():
    calls = [{"function": {"name": "f", "arguments": {"x": 1}}}, "noise", {"id": "", "function": {"name": "g"}}]
    reply = parse_reply(completion(None, "tool_calls", tool_calls=calls))
    assert reply.message["tool_calls"] == [
        {"type": "function", "id": "call_0", "function": {"name": "f", "arguments": '{"x": 1}'}},
        {"type": "function", "id": "call_2", "function": {"name": "g"}},
    ]
    assert len(reply.notes) == 2
    old = parse_reply(completion(None, "function_call", function_call={"name": "f", "arguments": "{"}))
    assert old.message["tool_calls"][0]["function"] == {"name": "f", "arguments": "{"}
    assert "tool_calls" not in parse_reply(completion("x", tool_calls=[])).message


def test_text_that_utf8_cannot_hold():
    body = json.loads(json.dumps(completion("a\ud83d b")))
    reply = parse_reply(body)
    assert reply.text == "a? b" and reply.notes == ("lone surrogates replaced",)


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        ("plain", "plain"), ("<think>a</think>b", "b"), ("<think>a</think>\n\nb", "b"), ("a</think>b", "b"),
        ("<think>cut", ""), ("  <think>\ncut", ""), ("<think>a</think><think>b</think> c", " c"), (None, ""),
        ("x <think> y", "x <think> y"),
    ],
)  # fmt: skip
def test_the_answer_after_reasoning(content, answer):
    reply = Reply({"role": "assistant", "content": content})
    assert reply.answer == answer and reply.text == (content or "")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KEYS = ("content", "reasoning", "reasoning_content", "refusal", "tool_calls", "function_call", "role", "type", "text")
MESSAGE = st.dictionaries(st.sampled_from(KEYS), JSON, max_size=6)


@settings(max_examples=300, deadline=None)
@given(MESSAGE, JSON, JSON, st.lists(st.dictionaries(st.sampled_from(("id", "type", "function")), JSON), max_size=3))
def test_anything_is_a_reply_or_none(message, finish, usage, calls):
    for given_calls in ({}, {"tool_calls": calls}):
        body = {"choices": [{"message": message | given_calls, "finish_reason": finish}], "usage": usage}
        reply = parse_reply(body)
        assert message_problem(reply.message, ("assistant",)) is None
        # It goes to a file and comes back equal.
        saved = json.loads(json.dumps(reply_record(reply)))
        assert json.dumps(reply_record(reply_of(saved))) == json.dumps(saved)
    for body in (message, finish, {"choices": finish}, {"choices": [finish]}, {"choices": [{"message": usage}]}):
        try:
            assert isinstance(parse_reply(body), Reply)
        except NoReply as none:
            assert str(none)


def test_what_a_call_holds_besides_is_left_out_however_deep():
    deep = {}
    for _ in range(900):
        deep = {"x": deep}
    call = {"id": "a", "extra": deep, "function": {"name": "f", "arguments": "{}", "other": deep}}
    reply = parse_reply({"choices": [{"message": {"content": None, "tool_calls": [call, {"function": deep}]}}]})
    assert reply.message["tool_calls"][0] == {
        "id": "a",
        "type": "function",
        "function": {"name": "f", "arguments": "{}"},
    }
    json.dumps(reply.message)


def test_counts_of_tokens_are_counts():
    for number in (int("9" * 400), -1, 1.5, True, "7", None):
        reply = parse_reply({"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": number}})
        assert reply.usage.prompt is None


def test_failures_can_be_written():
    from corrgrpo_gym.evals.models.base import ModelFailure

    assert str(ModelFailure("server", "a \ud800 b")) == "a ? b"


def test_long_complaints_are_read_at_their_beginning():
    from corrgrpo_gym.evals.models.troubles import of_status

    trouble = of_status(400, {}, "exceed" * 200_000, {}, ())
    assert trouble.kind == "rejected" and len(trouble.text) < 400


def test_addresses_with_secrets_and_bodies_that_say_what_the_evaluation_says_are_refused():
    from corrgrpo_gym.evals.config import resolve

    base = {"env": "rlla", "model": "m"}
    for url in ("http://user:pw@host/v1", "http://host/v1?key=x"):
        with pytest.raises(GymError, match="--api-key-env"):
            resolve(base | {"base_url": url})
    with pytest.raises(GymError, match="--extra-body: 'model'"):
        resolve(base | {"base_url": "http://host/v1", "extra_body": {"model": "other"}})
