"""What is sent to an endpoint, and what becomes of requests that it does not take."""

import asyncio
import json
from dataclasses import replace

import pytest

from corrgrpo_gym.errors import GymError
from corrgrpo_gym.evals.models.base import ModelFailure
from corrgrpo_gym.evals.models.endpoint import Endpoint, plain_prompt

from .asking import answer, ask, request
from .server import Response, Server, error

FILTERED = "The response was filtered due to the prompt triggering the content management policy."


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("seed", error("Unsupported parameter: 'seed' is not supported.", "unsupported_parameter", "seed")),
        ("seed", {"detail": [{"loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}]}),
        ("temperature", error("'temperature' does not support 0 with this model.", "unsupported_value", "temperature")),
        ("top_p", error("`top_p` is deprecated for this model")),
        ("stop", error("unknown field: stop")),
    ],
)  # fmt: skip
def test_parameters_that_the_server_rejects_are_left_out_once(name, complaint):
    def behave(asked):
        if name in asked.body:
            return Response(complaint, 400 if "error" in complaint else 422)
        return Response()

    with Server(behave) as server:

        async def session():
            endpoint = Endpoint(server.url, "tiny")
            asked = request(top_p=0.5, stop=("x",))
            replies = [await endpoint.complete(replace(asked, case=str(i))) for i in range(3)]
            await endpoint.close()
            return replies

        replies = asyncio.run(session())
    # Found out once; every answer says so.
    assert len(server.asked) == 4
    assert all(r.notes == (f"the endpoint does not take {name}: left out",) for r in replies)


def test_max_tokens_under_its_new_name():
    def behave(asked):
        if "max_tokens" in asked.body:
            text = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
            return Response(error(text, "unsupported_parameter", "max_tokens"), 400)
        return Response()

    with Server(behave) as server:
        (reply,), _ = ask(server, request(max_tokens=77))
    assert reply.notes == ("the endpoint does not take max_tokens: max_completion_tokens sent instead",)
    assert server.asked[1].body["max_completion_tokens"] == 77


def test_what_the_user_asked_for_is_never_left_out():
    complaint = error("Unsupported parameter: 'top_k' and 'seed'", None, "top_k")
    behave = lambda asked: Response(complaint, 400)  # noqa: E731
    failure = answer(behave, request(seed=None, extra={"top_k": 5, "seed": 3}))
    assert failure.kind == "rejected" and "top_k" in str(failure)
    # A server that goes on complaining of what is gone already ends as well.
    with Server(lambda asked: Response(error("unsupported: seed"), 400)) as server:
        (failure,), _ = ask(server)
    assert failure.kind == "rejected" and len(server.asked) == 2


@pytest.mark.parametrize(
    "complaint",
    [
        error("Please reduce the length of the messages.", "context_length_exceeded"),
        error(
            "This model's maximum context length is 2048 tokens. However, you requested 2100 tokens (52 in the "
            "messages, 2048 in the completion)."
        ),
        error("prompt is too long: 213462 tokens > 200000 maximum"),
        error("the request exceeds the available context size. try increasing the context size"),
        {"object": "error", "message": "max_model_len is 512", "code": 400},
    ],
)  # fmt: skip
def test_a_full_context(complaint):
    with Server(lambda asked: Response(complaint, 400)) as server:
        (failure,), _ = ask(server)
    assert failure.kind == "context" and len(server.asked) == 1


@pytest.mark.parametrize(
    ("status", "complaint", "says"),
    [
        (401, "Incorrect API key provided", "NOWHERE is not set"),
        (403, "no access", "NOWHERE is not set"),
        (404, "The model `tny` does not exist", "Did you mean 'tiny'"),
    ],
)
def test_what_can_never_work_stops_with_advice(status, complaint, says):
    with Server(lambda asked: Response(error(complaint), status)) as server:
        out, _ = ask(server, request(), request("2"), model="tny", key_name="NOWHERE")
    for stop in out:
        assert isinstance(stop, GymError) and says in str(stop) and complaint in str(stop)


def test_advice_where_the_key_is_set_or_the_address_is_wrong():
    with Server(lambda asked: Response(error("bad key"), 401)) as server:
        ((stop,), _) = ask(server, api_key="sk-secret", key_name="MINE")
    assert "Is the key in MINE right" in str(stop) and "sk-secret" not in str(stop)
    with Server(lambda asked: Response(b"Not Found", 404, kind="text/plain"), models=None) as server:
        ((stop,), _) = ask(server)
    assert "it mostly ends in /v1" in str(stop)
    quota = error("You exceeded your current quota", "insufficient_quota", kind="insufficient_quota")
    with Server(lambda asked: Response(quota, 429)) as server:
        ((stop,), _) = ask(server)
    assert "no quota left" in str(stop)


@pytest.mark.parametrize("status", [401, 403, 404])
def test_once_something_worked_the_same_is_a_failure_of_its_sample(status):
    behave = lambda asked: Response(error("odd"), status) if asked.prompt == "2" else Response()  # noqa: E731

    with Server(behave) as server:

        async def session():
            endpoint = Endpoint(server.url, "tiny", base=0.005)
            try:
                assert (await endpoint.complete(request("1"))).text == "hello"
                with pytest.raises(ModelFailure) as failed:
                    await endpoint.complete(request("2"))
                assert failed.value.kind == "rejected"
                assert (await endpoint.complete(request("3"))).text == "hello"
            finally:
                await endpoint.close()

        asyncio.run(session())
    assert len(server.asked) == 3


def test_the_key_goes_to_the_server_and_nowhere_else():
    with Server() as server:
        _, endpoint = ask(server, api_key="sk-secret")
        ask(server)
        address = server.url.replace("://", "://user:secret@")
        assert "secret" not in json.dumps(dict(Endpoint(address, "m").identity))
    assert server.asked[0].headers["authorization"] == "Bearer sk-secret"
    assert server.asked[1].headers["authorization"] == "Bearer none"
    assert "secret" not in json.dumps(dict(endpoint.identity))


def test_the_only_model_needs_no_name():
    with Server() as server:
        assert ask(server, check=True, model="")[1].model == "tiny"
    with Server(models=("a", "b")) as server, pytest.raises(GymError, match="--model: it has a, b"):
        ask(server, check=True, model="")
    with Server(models=None) as server, pytest.raises(GymError, match="does not say which models"):
        ask(server, check=True, model="")
    with Server(models=None) as server:
        assert ask(server, check=True, model="m")[0][0].text == "hello"
    with pytest.raises(GymError, match="not an address"):
        Endpoint("localhost:8000/v1", "m")


def test_plain_completions():
    body = {"choices": [{"text": " four", "finish_reason": "length"}], "usage": {"prompt_tokens": 3}}
    with Server(lambda asked: Response(body)) as server:
        messages = [{"role": "system", "content": "Count."}, {"role": "user", "content": "one two"}]
        (reply,), endpoint = ask(server, request(messages=messages), completions=True)
        (stop,), _ = ask(server, request(tools=[{}]), completions=True)
    assert (reply.text, reply.finish, reply.usage.prompt) == (" four", "length", 3)
    assert server.asked[0].path == "/v1/completions" and server.asked[0].body["prompt"] == "Count.\n\none two"
    assert "messages" not in server.asked[0].body and endpoint.identity["api"] == "completions"
    assert isinstance(stop, GymError) and "--completions" in str(stop)
    assert plain_prompt([{"role": "assistant", "content": None}, {"role": "user", "content": "x"}]) == "x"


def test_what_is_sent_back_in_a_second_turn():
    said = {"role": "assistant", "content": None, "reasoning_content": "hm", "refusal": "no"}
    called = {"role": "assistant", "content": None, "tool_calls": [{"id": "a"}]}
    with Server() as server:
        ask(server, request(messages=[{"role": "user", "content": "x"}, said, called]))
    assert server.asked[0].body["messages"][1:] == [{"role": "assistant", "content": ""}, called]
