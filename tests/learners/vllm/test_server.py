"""A real vLLM server, as `corrgrpo-gym serve` starts it: tokens by HTTP, weights through files."""

from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from corrgrpo_gym.errors import GymError
from corrgrpo_gym.learners.config import merge
from corrgrpo_gym.learners.engines.base import Interrupted, More, Sampling
from corrgrpo_gym.learners.engines.vllm.server import VllmServer

from .. import runs, tiny, toy
from . import helpers
from .helpers import PROMPTS
from .serving import serve, stop


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    helpers.policy().model.save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def url(model, tmp_path_factory):
    process, address = serve(
        model, tmp_path_factory.mktemp("log") / "log", "--max-model-len", "128", "--lora-rank", "4"
    )
    yield address
    stop(process)


def test_full_weights(url):
    policy = helpers.policy()
    engine = VllmServer(url + "/v1/", policy.end_ids)
    try:
        helpers.follows(engine, policy, helpers.disturb)
    finally:
        engine.close()


def test_adapters(url):
    policy = helpers.policy(lora_rank=4)
    engine = VllmServer(url, policy.end_ids, lora=True)
    try:
        helpers.follows(engine, policy, helpers.disturb_adapters)
    finally:
        engine.close()


def test_sampling(url):
    policy = helpers.policy()
    engine = VllmServer(url, policy.end_ids)
    engine.push(policy, 0)
    for temperature in (0.0, 0.7):
        groups, gap = helpers.sample(engine, policy, n=5, max_new_tokens=30, temperature=temperature)
        assert gap < 1e-3 and [len(g) for g in groups] == [5] * 4
        for completion in (c for group in groups for c in group):
            assert (completion.ids[-1] == tiny.END) == (completion.finish == "stop")
    again = [helpers.sample(engine, policy, seed=s)[0] for s in (1, 1, 2)]
    assert again[0] == again[1] != again[2]
    engine.close()


def test_episodes(url):
    policy = helpers.policy()
    engine = VllmServer(url, policy.end_ids)
    engine.push(policy, 0)
    contexts, turns = {}, {}

    def reply(i, j, answer):
        turns[i, j] = turns.get((i, j), 0) + 1
        if turns[i, j] == 3:
            return None
        contexts[i, j] = [*contexts.get((i, j), PROMPTS[i]), *answer.ids, 7, 8]
        return More([7, 8], 5)

    with ThreadPoolExecutor(4) as pool:
        last = engine.generate(PROMPTS, 2, Sampling(6, seed=2), on_finish=lambda i, j, a: pool.submit(reply, i, j, a))
    assert set(turns.values()) == {3} and len(turns) == 8
    for i, j in turns:
        assert helpers.largest_gap(policy, [contexts[i, j]], [[last[i][j]]]) < 1e-3
    engine.close()


def test_interruption_and_failures(url):
    policy = helpers.policy()
    engine = VllmServer(url, policy.end_ids)
    engine.push(policy, 0)
    with pytest.raises(Interrupted):
        engine.generate(PROMPTS, 2, Sampling(100), on_finish=lambda *a: Future(), interrupted=lambda: True)
    broken = Future()
    broken.set_exception(GymError("the environment broke"))
    with pytest.raises(GymError, match="the environment broke"):
        engine.generate(PROMPTS, 2, Sampling(4), on_finish=lambda *a: broken)
    with pytest.raises(GymError, match="failed: .*128"):
        engine.generate([[3] * 200], 1, Sampling(4))
    assert helpers.sample(engine, policy)[1] < 1e-3
    engine.close()


def test_a_training_with_a_server(url, model, tmp_path):
    settings = {
        "env": f"{toy.__name__}:loose", "model": str(model), "engine": {"url": url, "off_policy_steps": 1},
        "warm_start": {"steps": 0}, "steps": 3, "update": {"lr": 1e-4},
    }  # fmt: skip
    assert runs.start(tmp_path / "run", **merge(settings, {})).finished
    metrics = runs.records(tmp_path / "run")[1:]
    assert [m["staleness"] for m in metrics] == [0, 1, 1]
    assert metrics[0]["sampler_gap_max"] < 1e-3 < metrics[1]["sampler_gap_max"]


def test_servers_that_will_not_do(url, model, tmp_path):
    with pytest.raises(GymError, match="no vLLM server answers at http://127.0.0.1:9"):
        VllmServer("http://127.0.0.1:9", (1,))
    with pytest.raises(GymError, match="other log-probabilities than raw_logprobs"):
        VllmServer(url, (1,), cut=True)
    other = VllmServer(url, (1,))
    with pytest.raises(GymError, match="Does it serve the model that is trained"):
        other.push(helpers.policy(vocabulary=50), 0)
    other.close()
    with pytest.raises(GymError, match="name a folder that both can read"):
        VllmServer(url.replace("127.0.0.1", "0.0.0.0"), (1,))
    with pytest.raises(GymError, match="cannot write to /nowhere"):
        VllmServer(url, (1,), folder="/nowhere")
