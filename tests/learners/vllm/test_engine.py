"""Sampling with vLLM in this process, by the contract that all token engines have."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import torch

from corrgrpo_gym.errors import GymError
from corrgrpo_gym.learners.engines.base import Interrupted, More, Sampling
from corrgrpo_gym.learners.engines.transformers import TransformersEngine
from corrgrpo_gym.learners.engines.vllm.local import Options, VllmEngine

from .. import tiny
from . import helpers
from .helpers import PROMPTS

OPTIONS = {"dtype": "float32", "max_model_len": 128, "max_rows": 64, "kv_cache_bytes": 2**26}


@pytest.fixture(scope="module")
def policy():
    return helpers.policy()


@pytest.fixture(scope="module")
def engine(policy):
    made = VllmEngine.of_policy(policy, Options(**OPTIONS))
    made.push(policy, 0)
    yield made
    made.close()


def ids_of(groups):
    return [[c.ids for c in group] for group in groups]


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_log_probabilities_are_those_that_training_computes(engine, policy, temperature):
    groups, gap = helpers.sample(engine, policy, n=8, max_new_tokens=40, temperature=temperature)
    assert gap < 1e-3
    finishes = {c.finish for group in groups for c in group}
    assert temperature == 0 or finishes == {"stop", "length"}
    for completion in (c for group in groups for c in group):
        assert (completion.ids[-1] == tiny.END) == (completion.finish == "stop")
        assert tiny.END not in completion.ids[:-1]
        assert len(completion.ids) == len(completion.logps) <= 40
        assert completion.finish == "stop" or len(completion.ids) == 40


def test_greedy_answers_are_the_learners_own(engine, policy):
    greedy = Sampling(24, 0.0)
    expected = TransformersEngine(policy.model, policy.end_ids).generate(PROMPTS, 2, greedy)
    assert ids_of(engine.generate(PROMPTS, 2, greedy)) == ids_of(expected)


def test_seeds(engine):
    first = ids_of(engine.generate(PROMPTS, 6, Sampling(12, seed=1)))
    assert ids_of(engine.generate(PROMPTS, 6, Sampling(12, seed=1))) == first
    assert ids_of(engine.generate(PROMPTS, 6, Sampling(12, seed=2))) != first
    samples = [tuple(ids) for group in first for ids in group]
    assert len(set(samples)) == len(samples)
    # With seeds of its own a prompt's answers do not depend on what else is asked.
    alone = ids_of(engine.generate(PROMPTS[2:3], 6, Sampling(12), seeds=[7]))
    assert ids_of(engine.generate(PROMPTS, 6, Sampling(12), seeds=[5, 6, 7, 8]))[2] == alone[0]


def test_frequencies_of_first_tokens_are_the_models_probabilities(engine, policy):
    prompt = PROMPTS[0]
    first = [c.ids[0] for c in engine.generate([prompt], 4000, Sampling(1, 1.3, seed=5))[0]]
    with torch.no_grad():
        expected = (policy.model(torch.tensor([prompt])).logits[0, -1] / 1.3).softmax(-1)
    counts = torch.bincount(torch.tensor(first), minlength=len(expected)) / len(first)
    assert float((counts - expected).abs().sum()) < 0.12  # total variation of 4000 draws among 48: about 0.08


def test_episodes_go_on_in_the_running_batch(engine, policy):
    """Three turns, of which the replies come late and out of order."""
    seen = {}
    contexts = {}

    def reply(i, j, answer):
        turns = seen.setdefault((i, j), [])
        turns.append(answer)
        context = contexts.setdefault((i, j), list(PROMPTS[i]))
        if len(turns) == 3:
            return None
        more = [2 + len(turns), 30 + j]
        context += [*answer.ids, *more]
        return More(more, 6)

    with ThreadPoolExecutor(8) as pool:
        last = engine.generate(PROMPTS, 3, Sampling(8, seed=9), on_finish=lambda i, j, a: pool.submit(reply, i, j, a))
    assert {key: len(turns) for key, turns in seen.items()} == {(i, j): 3 for i in range(4) for j in range(3)}
    for (i, j), turns in seen.items():
        assert turns[-1] is last[i][j]
        assert len(turns[-1].ids) <= 6
        assert helpers.largest_gap(policy, [contexts[i, j]], [[turns[-1]]]) < 1e-3


def test_answers_are_handed_over_one_by_one(engine):
    """A group's first answer is scored while its others are sampled."""
    order = []
    engine.generate([PROMPTS[0]], 12, Sampling(60, 1.0, seed=4), on_finish=lambda i, j, a: order.append(len(a.ids)))
    assert len(order) == 12 and order == sorted(order) and order[0] < order[-1]


def test_callers_share_batches(engine, policy):
    results, errors = {}, []

    def work(number):
        try:
            results[number] = engine.generate([PROMPTS[number % 4]], 2, Sampling(20), seeds=[number])
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for number, groups in results.items():
        assert helpers.largest_gap(policy, [PROMPTS[number % 4]], groups) < 1e-3


def test_interruption_drops_what_runs(engine, policy):
    calls = []

    def interrupted():
        calls.append(1)
        return len(calls) > 1

    never = Future()
    with pytest.raises(Interrupted):
        engine.generate(PROMPTS, 8, Sampling(100, seed=1), on_finish=lambda *a: never, interrupted=interrupted)
    assert engine._pump.call(lambda inner: inner.has_unfinished_requests()) is False
    assert helpers.sample(engine, policy)[1] < 1e-3  # and it is as good as before


def test_a_failing_scorer_ends_it(engine):
    def boom(i, j, answer):
        future = Future()
        future.set_exception(GymError("the environment broke"))
        return future

    with pytest.raises(GymError, match="the environment broke"):
        engine.generate(PROMPTS, 2, Sampling(4), on_finish=boom)


def test_prompts_that_do_not_fit(engine):
    with pytest.raises(GymError, match="vLLM failed while sampling"):
        engine.generate([[3] * 200], 1, Sampling(4))


def test_threads_of_torch_can_still_be_set(engine):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


def test_one_at_a_time(engine, policy):
    with pytest.raises(GymError, match="has a vLLM engine already"):
        VllmEngine.of_policy(policy, Options(**OPTIONS))
