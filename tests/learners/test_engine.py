import math

import pytest
import torch

from corrgrpo_gym.learners.engines.base import Interrupted, Sampling
from corrgrpo_gym.learners.engines.transformers import TransformersEngine, draw
from corrgrpo_gym.learners.policy import Piece

from . import tiny

PROMPTS = [[5, 6, 7, 8, 9], [3], [4, 20, 21], [10, 11, 12, 13, 14, 15, 16, 17, 18]]


def engine_of(policy, **options):
    return TransformersEngine(policy.model, policy.end_ids, **options)


def ids_of(groups):
    return [[c.ids for c in group] for group in groups]


@pytest.fixture(scope="module", params=["llama", "mistral"])
def policy(request):
    """Mistral with a window shorter than the sequences."""
    options = {"sliding_window": 4} if request.param == "mistral" else {}
    return tiny.policy(request.param, scale=0.15, **options)


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_sampled_log_probabilities_are_those_that_training_computes(policy, temperature):
    groups = engine_of(policy).generate(PROMPTS, 5, Sampling(12, temperature, top_p=0.9, top_k=20, seed=4))
    pieces = [Piece(p, [c.ids for c in group]) for p, group in zip(PROMPTS, groups, strict=True)]
    completions = [c for group in groups for c in group]
    assert {c.finish for c in completions} == {"stop", "length"}
    for shared in (True, False):
        with torch.no_grad():
            logps, mask = policy.logps(pieces, temperature, shared=shared)
        for row, seen, completion in zip(logps, mask, completions, strict=True):
            torch.testing.assert_close(row[seen], torch.tensor(completion.logps), rtol=0, atol=1e-5)


def test_the_seed_decides_and_batches_do_not(policy):
    sampling = Sampling(10, seed=7)
    whole = engine_of(policy).generate(PROMPTS, 4, sampling)
    again = engine_of(policy).generate(PROMPTS, 4, sampling)
    assert whole == again
    for rows in (1, 3, 7):
        parts = engine_of(policy, max_rows=rows).generate(PROMPTS, 4, sampling)
        assert ids_of(parts) == ids_of(whole)
        for a, b in zip(sum(parts, []), sum(whole, []), strict=True):
            torch.testing.assert_close(torch.tensor(a.logps), torch.tensor(b.logps), rtol=0, atol=1e-5)
    other = engine_of(policy).generate(PROMPTS, 4, Sampling(10, seed=8))
    assert ids_of(other) != ids_of(whole)
    assert len({tuple(c.ids) for c in whole[0]}) > 1


def test_greedy_is_that_of_transformers(policy):
    groups = engine_of(policy).generate(PROMPTS, 1, Sampling(15, temperature=0))
    for prompt, (completion,) in zip(PROMPTS, groups, strict=True):
        expected = policy.model.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            do_sample=False, max_new_tokens=15, pad_token_id=0,
        )  # fmt: skip
        assert completion.ids == expected[0, len(prompt) :].tolist()
        with torch.no_grad():
            logps, _ = policy.logps([Piece(prompt, [completion.ids])], 0.0)
        torch.testing.assert_close(logps[0], torch.tensor(completion.logps), rtol=0, atol=1e-5)


def test_answers_end_at_end_tokens_or_the_limit(policy):
    finished = {}

    def on_finish(prompt, sample, completion):
        assert (prompt, sample) not in finished
        finished[prompt, sample] = completion

    groups = engine_of(policy).generate(PROMPTS, 16, Sampling(6, seed=1), on_finish=on_finish)
    assert finished == {(i, j): c for i, group in enumerate(groups) for j, c in enumerate(group)}
    assert {c.finish for c in finished.values()} == {"stop", "length"}
    for completion in finished.values():
        assert len(completion.ids) == len(completion.logps)
        assert tiny.END not in completion.ids[:-1]
        if completion.finish == "stop":
            assert completion.ids[-1] == tiny.END
        else:
            assert completion.ids[-1] != tiny.END and len(completion.ids) == 6


def test_several_end_tokens_and_none(policy):
    every = TransformersEngine(policy.model, range(24)).generate(PROMPTS, 8, Sampling(20, seed=2))
    for completion in sum(every, []):
        assert all(t >= 24 for t in completion.ids[:-1])
        assert (completion.ids[-1] < 24) == (completion.finish == "stop")
    none = TransformersEngine(policy.model, ()).generate(PROMPTS, 8, Sampling(20, seed=2))
    assert {(len(c.ids), c.finish) for c in sum(none, [])} == {(20, "length")}


@pytest.mark.parametrize("training", [True, False])
def test_interruption_restores_the_mode(training):
    policy = tiny.policy()
    policy.model.train(training)
    asked = []

    def interrupted():
        assert not policy.model.training
        asked.append(1)
        return len(asked) > 3

    with pytest.raises(Interrupted):
        engine_of(policy, max_rows=8).generate(PROMPTS, 4, Sampling(30), interrupted=interrupted)
    assert len(asked) == 4 and policy.model.training is training

    def broken(*_):
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        engine_of(policy).generate(PROMPTS, 4, Sampling(2), on_finish=broken)
    assert policy.model.training is training
    engine_of(policy).generate(PROMPTS, 4, Sampling(2))
    assert policy.model.training is training


def _drawn(probabilities, **options):
    """The distribution of `draw` over a fine grid of u, for one row of logits."""
    count = 20_000
    u = (torch.arange(count) + 0.5) / count
    logits = torch.tensor(probabilities).log().expand(count, -1)
    tokens, logps = draw(logits, u, Sampling(1, **options))
    return torch.bincount(tokens, minlength=len(probabilities)).double() / count, tokens, logps


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0.05, 0.3, 0.0, 0.4, 0.1, 0.15]),
        ({"top_k": 2}, [0, 3 / 7, 0, 4 / 7, 0, 0]),
        ({"top_k": 1}, [0, 0, 0, 1, 0, 0]),
        ({"top_k": 100}, [0.05, 0.3, 0.0, 0.4, 0.1, 0.15]),
        # The smallest set with at least this much probability.
        ({"top_p": 0.39}, [0, 0, 0, 1, 0, 0]),
        ({"top_p": 0.5}, [0, 3 / 7, 0, 4 / 7, 0, 0]),
        ({"top_p": 0.8}, [0, 0.3 / 0.85, 0, 0.4 / 0.85, 0, 0.15 / 0.85]),
        ({"top_p": 0.8, "top_k": 2}, [0, 3 / 7, 0, 4 / 7, 0, 0]),
        ({"temperature": 0.5}, [p * p / 0.285 for p in (0.05, 0.3, 0.0, 0.4, 0.1, 0.15)]),
    ],
)
def test_what_may_be_drawn_and_how_often(options, expected):
    probabilities = [0.05, 0.3, 0.0, 0.4, 0.1, 0.15]
    found, tokens, logps = _drawn(probabilities, **options)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=2e-4)
    # The log-probability is that of the whole distribution, not of what is left of it.
    scaled = torch.tensor(probabilities).pow(1 / options.get("temperature", 1.0))
    torch.testing.assert_close(logps, (scaled / scaled.sum()).log()[tokens], rtol=0, atol=1e-5)


@pytest.mark.parametrize("u", [0.0, 0.5, 1 - 2**-24])
@pytest.mark.parametrize("options", [{}, {"top_p": 0.99}, {"top_k": 7}])
def test_impossible_tokens_are_never_drawn(u, options):
    """Not at the ends of the interval either, whatever rounding does to the sums."""
    logits = torch.randn(200, 301, generator=torch.Generator().manual_seed(0))
    logits[:, ::3] = -math.inf
    tokens, logps = draw(logits, torch.full((200,), u), Sampling(1, **options))
    assert (tokens % 3 != 0).all() and logps.isfinite().all()
