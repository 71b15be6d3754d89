"""A local model, by the engine that training samples with."""

import asyncio
import time

import pytest

pytest.importorskip("torch")

from learners import tiny

from corrgrpo_gym.errors import GymError
from corrgrpo_gym.evals.models.base import ChatSampling, ModelFailure, Reply, Request
from corrgrpo_gym.evals.models.local import LocalModel
from corrgrpo_gym.learners.chat import decode, render
from corrgrpo_gym.learners.engines.base import Sampling

from . import toys


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tiny.folder(tmp_path_factory.mktemp("tiny") / "model"))


def request(text, case="c", sample=0, turn=0, **sampling):
    sampling = {"max_tokens": 12, **sampling}
    return Request(case, sample, turn, [{"role": "user", "content": text}], (), ChatSampling(**sampling))


def ask(folder, requests, together=True, **options):
    async def session():
        model = LocalModel(folder, device="cpu", **options)
        try:
            if together:
                return list(await asyncio.gather(*map(model.complete, requests), return_exceptions=True))
            return [await model.complete(r) for r in requests]
        finally:
            await model.close()

    return asyncio.run(session())


def test_greedy_answers_are_the_engines(folder):
    texts = ["3 + 4", "a", "what is 12 + 5 ?", "x " * 9]
    replies = ask(folder, [request(t) for t in texts])
    model = LocalModel(folder, device="cpu")
    for text, reply in zip(texts, replies, strict=True):
        prompt = render(model.tokenizer, [{"role": "user", "content": text}])
        ((alone,),) = model.engine.generate([prompt], 1, Sampling(12, temperature=0))
        assert reply.text == decode(model.tokenizer, alone.ids, model.end_ids)
        assert (reply.finish, reply.usage.prompt, reply.usage.completion) == (alone.finish, len(prompt), len(alone.ids))
    asyncio.run(model.close())


def test_drawn_answers_depend_on_nothing_but_their_request(folder):
    asked = [
        request(f"{i} + {i}", case=str(i), sample=s, temperature=1.0, seed=seed)
        for i in range(4) for s in range(3) for seed in (0, 1)
    ]  # fmt: skip
    together = ask(folder, asked)
    assert together == ask(folder, asked, together=False)
    assert together[::-1] == ask(folder, asked[::-1], concurrency=5)
    assert len({r.text for r in together}) > 20
    again = ask(folder, [request("0 + 0", case="0", temperature=1.0, seed=None, turn=t) for t in (0, 1)])
    assert again[0] != again[1]


def test_limits_that_differ_do_not_disturb_each_other(folder):
    replies = ask(folder, [request("3 + 4", max_tokens=m) for m in (2, 9, 2)])
    assert [r.usage.completion for r in replies] == [2, 9, 2] and replies[1].text.startswith(replies[0].text)


def test_texts_that_end_an_answer(folder):
    (whole,) = ask(folder, [request("3 + 4")])
    mark = whole.text[4:6]
    (cut,) = ask(folder, [request("3 + 4", stop=(mark,))])
    assert cut.text == whole.text.partition(mark)[0] and cut.finish == "stop"


def test_a_full_context(folder):
    replies = ask(folder, [request("a" * 250, max_tokens=40), request("a" * 300), request("b", max_tokens=None)])
    assert isinstance(replies[0], Reply) and replies[0].usage.completion <= 4
    assert replies[0].notes == ("the context leaves room for 4 tokens",)
    assert isinstance(replies[1], ModelFailure) and replies[1].kind == "context"
    assert replies[2].usage.prompt + replies[2].usage.completion <= 256


def test_an_engine_that_breaks_fails_its_batch_alone(folder):
    async def session():
        model = LocalModel(folder, device="cpu")
        real, calls = model.engine.generate, []

        def generate(*args, **options):
            calls.append(1)
            if len(calls) == 1:
                raise RuntimeError("out of memory")
            return real(*args, **options)

        model.engine.generate = generate
        with pytest.raises(RuntimeError, match="out of memory"):
            await model.complete(request("1"))
        assert isinstance(await model.complete(request("1")), Reply)
        await model.close()

    asyncio.run(session())


def test_closing_stops_what_is_decoded(folder):
    async def session():
        model = LocalModel(folder, device="cpu")
        generate = model.engine.generate

        def slowly(*args, interrupted, **options):
            while not interrupted():
                time.sleep(0.01)
            return generate(*args, interrupted=interrupted, **options)

        model.engine.generate = slowly
        waiting = asyncio.create_task(model.complete(request("1", max_tokens=250, temperature=1.0)))
        await asyncio.sleep(0.05)
        await model.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(session())


def test_a_whole_evaluation(folder, tmp_path):
    printed, outcome = toys.start(tmp_path / "r", model=folder, max_tokens=8, device="cpu", limit=6)
    assert outcome.summary["scored"] == 6 and outcome.summary["tokens"]["completion"] > 6
    assert outcome.summary["model"] == {"kind": "transformers", "model": folder, "commit": ""}
    assert f"{folder}, greedy, 1 sample per case" in printed.replace("\n", "")
    _, again = toys.start(tmp_path / "again", model=folder, max_tokens=8, device="cpu", limit=6, concurrency=2)
    assert toys.records(tmp_path / "r") == toys.records(tmp_path / "again")


def test_models_that_are_not_there(tmp_path):
    with pytest.raises(GymError, match="there is no such file or folder"):
        LocalModel(str(tmp_path / "absent"))
    with pytest.raises(GymError, match="knows nothing before it is trained"):
        LocalModel("embedded")
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    with pytest.raises(GymError, match="has no checkpoint yet"):
        LocalModel(str(tmp_path / "run"))


def test_the_best_checkpoint_of_a_run(folder, tmp_path):
    from corrgrpo_gym.learners.checkpoints import STATE, Checkpoints

    checkpoints = Checkpoints(tmp_path / "run/checkpoints")
    for step, seed in ((2, 1), (4, 2)):
        tiny.folder(checkpoints.path(step), seed=seed)
        (checkpoints.path(step) / STATE).touch()
    checkpoints.link(2)
    (best,) = ask(str(tmp_path / "run"), [request("3 + 4")])
    assert (best,) == tuple(ask(str(checkpoints.path(2)), [request("3 + 4")]))
    assert (best,) != tuple(ask(str(checkpoints.path(4)), [request("3 + 4")]))
