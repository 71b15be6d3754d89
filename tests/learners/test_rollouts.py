import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from corrgrpo_gym.corrgrpo import advantages
from corrgrpo_gym.envs import MultiRewardEnv, SingleTurnEnv
from corrgrpo_gym.errors import GymError, NotScored
from corrgrpo_gym.learners import chat
from corrgrpo_gym.learners.engines.base import Completion, Interrupted, Sampling, settle
from corrgrpo_gym.learners.engines.transformers import TransformersEngine
from corrgrpo_gym.learners.rollouts import Prompts, collect

from . import tiny

ENDS = (tiny.END,)
SAMPLING = Sampling(8)


@pytest.fixture(scope="module")
def tokenizer():
    return tiny.tokenizer()


@pytest.fixture
def scorers():
    with ThreadPoolExecutor(4) as pool:
        yield pool


def environment(*rewards, texts=("a+b", "1+2", "what?", "no")):
    rows = [{"prompt": t, "task_id": f"t{i}"} for i, t in enumerate(texts)]
    return SingleTurnEnv(rows, list(rewards) or [length])


def length(answer):
    return min(1.0, len(answer) / 10)


class Scripted:
    """An engine that says what it is told, one sample after the other."""

    def __init__(self, tokenizer, answer, between=lambda i, j: None):
        self.tokenizer, self.answer, self.between = tokenizer, answer, between

    def generate(self, prompts, n, sampling, *, on_finish=None, interrupted=lambda: False):
        out, futures = [], []
        for i in range(len(prompts)):
            out.append([])
            for j in range(n):
                if interrupted():
                    raise Interrupted
                ids = [*self.tokenizer.encode(self.answer(i, j), add_special_tokens=False), tiny.END]
                completion = Completion(ids, [-0.5] * len(ids), "stop")
                out[-1].append(completion)
                futures.append(on_finish(i, j, completion))
                self.between(i, j)
        settle(futures, interrupted)
        return out


def test_groups_hold_what_was_sampled_and_scored(tokenizer, scorers):
    env = environment(length, Rewarded("a"), Rewarded("b"))
    engine = Scripted(tokenizer, lambda i, j: "ab"[i] * (j + 1))
    groups = collect(Prompts(env, tokenizer, 99), [2, 0], 3, engine, ENDS, SAMPLING, scorers)
    assert [(g.task, g.task_id) for g in groups] == [(2, "t2"), (0, "t0")]
    for i, group in enumerate(groups):
        assert tokenizer.decode(group.prompt) == env.tasks[group.task]["prompt"] + "\n="
        for j, rollout in enumerate(group.rollouts):
            assert rollout.said == [{"role": "assistant", "content": "ab"[i] * (j + 1)}]
            assert rollout.ids[-1] == tiny.END and len(rollout.ids) == len(rollout.logps) == j + 2
            assert all(rollout.sampled) and rollout.turns == 1 and rollout.finish == "stop"
            assert [m["content"] for m in rollout.messages] == [env.tasks[group.task]["prompt"]]
            expected = np.array([(j + 1) / 10, (j + 1) / 10 * (i == 0), (j + 1) / 10 * (i == 1)], np.float32)
            assert rollout.reward.dtype == np.float32
            np.testing.assert_array_equal(rollout.reward, expected)


class Rewarded:
    def __init__(self, letter):
        self.__name__, self.letter = letter, letter

    def __call__(self, answer):
        return answer.count(self.letter) / 10


def test_a_real_engine_and_the_text_it_is_scored_by(tokenizer, scorers):
    policy = tiny.policy(vocabulary=len(tokenizer), scale=0.1)
    heard = []

    def hear(answer):
        heard.append(answer)
        return 0.0

    env = environment(hear)
    engine = TransformersEngine(policy.model, ENDS)
    groups = collect(Prompts(env, tokenizer, 99), [0, 1], 6, engine, ENDS, Sampling(40, seed=1), scorers)
    rollouts = [r for g in groups for r in g.rollouts]
    assert sorted(heard) == sorted(r.said[0]["content"] for r in rollouts)
    for rollout in rollouts:
        ids = rollout.ids
        text = "".join(tokenizer.decode([i]) for i in (ids[:-1] if ids[-1] == tiny.END else ids))
        assert rollout.said[0]["content"] == text
    assert any(r.finish == "stop" for r in rollouts)


def test_scoring_overlaps_with_sampling(tokenizer, scorers):
    """The sampler waits after its first answer until that one has been scored."""
    scored = threading.Event()

    def reward(answer):
        scored.set()
        return 0.0

    def between(i, j):
        assert scored.wait(30), "scoring waits for the end of sampling"

    groups = collect(
        Prompts(environment(reward), tokenizer, 99), [0, 1], 2, Scripted(tokenizer, lambda i, j: "a", between), ENDS,
        SAMPLING, scorers,
    )  # fmt: skip
    assert len(groups) == 2


def test_answers_are_scored_at_the_same_time(tokenizer, scorers):
    together = threading.Barrier(4, timeout=30)

    def reward(answer):
        together.wait()
        return 0.0

    engine = Scripted(tokenizer, lambda i, j: "a")
    collect(Prompts(environment(reward), tokenizer, 99), [0], 4, engine, ENDS, SAMPLING, scorers)


def test_an_environment_that_raises_ends_it_and_is_named(tokenizer, scorers):
    def strict(answer):
        raise ValueError("cannot read this")

    engine = Scripted(tokenizer, lambda i, j: "a")
    with pytest.raises(GymError, match="strict.*raised ValueError: cannot read this for task t1"):
        collect(Prompts(environment(strict), tokenizer, 99), [1], 2, engine, ENDS, SAMPLING, scorers)


def test_requests_to_stop_are_heard_while_answers_are_scored(tokenizer, scorers):
    begun, release = threading.Event(), threading.Event()

    def slow(answer):
        begun.set()
        assert release.wait(60)
        return 0.0

    try:
        with pytest.raises(Interrupted):
            collect(
                Prompts(environment(slow), tokenizer, 99), [0], 1, Scripted(tokenizer, lambda i, j: "a"), ENDS,
                SAMPLING, scorers, interrupted=begun.is_set,
            )  # fmt: skip
    finally:
        release.set()


def test_too_long_prompts_are_left_out(tokenizer):
    env = environment(texts=("a", "bbbb", "cc", "d" * 30))
    prompts = Prompts(env, tokenizer, 5)
    assert prompts.tasks == [0, 2] and prompts.too_long == ["t1", "t3"]
    assert set(prompts.order(0, 0, 50)) == {0, 2}
    assert Prompts(env, tokenizer, 6).tasks == [0, 1, 2]
    with pytest.raises(GymError, match="all 4 prompts are longer than rollout.max_prompt_tokens = 2"):
        Prompts(env, tokenizer, 2)


def test_the_order_is_a_shuffle_of_each_epoch_and_depends_on_the_place_alone(tokenizer):
    prompts = Prompts(environment(texts=[f"a{i}" for i in range(10)]), tokenizer, 99)
    whole = prompts.order(3, 0, 40)
    epochs = [whole[i : i + 10] for i in range(0, 40, 10)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4
    for start, count in ((0, 7), (7, 7), (14, 20), (9, 1), (10, 1), (33, 7), (5, 0)):
        assert prompts.order(3, start, count) == whole[start : start + count]
    assert prompts.order(4, 0, 40) != whole


def test_templates_that_cannot_render_are_an_error(tokenizer):
    broken = tiny.tokenizer()
    broken.chat_template = "{{ raise_exception('only users may speak') }}"
    with pytest.raises(GymError, match="roles user: only users may speak.*chat_template=FILE"):
        chat.render(broken, [{"role": "user", "content": "a"}])
    broken.chat_template = "{{ messages[0]['content'] "
    with pytest.raises(GymError, match="cannot render"):
        chat.render(broken, [{"role": "user", "content": "a"}])
    broken.chat_template = "{% if false %}a{% endif %}"
    with pytest.raises(GymError, match="to nothing"):
        chat.render(broken, [{"role": "user", "content": "a"}])


def test_end_tokens_and_decoding(tokenizer):
    model = tiny.model(vocabulary=len(tokenizer))
    assert chat.end_ids(tokenizer, model) == (tiny.END,)
    model.generation_config.eos_token_id = [5, 3]
    assert chat.end_ids(tokenizer, model) == (tiny.END, 3, 5)
    ids = tokenizer.encode("ab", add_special_tokens=False)
    assert chat.decode(tokenizer, [*ids, tiny.END], (tiny.END,)) == "ab"
    assert chat.decode(tokenizer, ids, (tiny.END,)) == "ab"
    # Only the one that ended it goes; what was sampled besides stays to be seen.
    assert chat.decode(tokenizer, [*ids, 0, tiny.END], (tiny.END,)) == "ab<pad>"


def test_tokenizers_without_a_template(tmp_path):
    made = tiny.tokenizer()
    made.chat_template = None
    made.save_pretrained(tmp_path / "plain")
    with pytest.raises(GymError, match="no chat template.*policy.chat_template=FILE"):
        chat.load_tokenizer(str(tmp_path / "plain"))
    with pytest.raises(GymError, match="policy.chat_template: cannot read .*absent"):
        chat.load_tokenizer(str(tmp_path / "plain"), str(tmp_path / "absent"))
    (tmp_path / "chat.jinja").write_text("{{ messages[0]['content'] }}!")
    loaded = chat.load_tokenizer(str(tmp_path / "plain"), str(tmp_path / "chat.jinja"))
    assert loaded.decode(chat.render(loaded, [{"role": "user", "content": "ab?"}])) == "ab??"  # ! is unknown


class Fragile(MultiRewardEnv):
    """Cannot score answers that hold a "b"."""

    reward_names = ("long", "one")

    def prompt(self, task):
        return [{"role": "user", "content": "a+b"}]

    def score(self, task, reply):
        if "b" in reply["content"]:
            raise NotScored("the scorer is away")
        return [length(reply["content"]), 1.0]


def gather(env, tokenizer, scorers, answer):
    prompts = Prompts(env, tokenizer, 100)
    return collect(prompts, [0], 3, Scripted(tokenizer, answer), ENDS, SAMPLING, scorers)


def test_an_answer_that_cannot_be_scored_costs_itself_alone(tokenizer, scorers):
    (group,) = gather(Fragile([0]), tokenizer, scorers, lambda i, j: ["a", "b", "aa"][j])
    rewards = np.stack([r.reward for r in group.rollouts])
    assert rewards[[0, 2]] == pytest.approx(np.array([[0.1, 1], [0.2, 1]]))
    assert np.isnan(rewards[1]).all()
    assert [r.info.get("not_scored") for r in group.rollouts] == [None, "the scorer is away", None]
    for name in ("grpo", "corrgrpo", "gdpo", "rloo"):
        whole = advantages(name, torch.from_numpy(rewards)[None])[0]
        assert whole[1] == 0
        assert whole[[0, 2]] == pytest.approx(advantages(name, torch.from_numpy(rewards[[0, 2]])[None])[0])


def test_a_batch_without_any_score_is_an_error(tokenizer, scorers):
    with pytest.raises(GymError, match="not one answer of this batch.*the scorer is away"):
        gather(Fragile([0]), tokenizer, scorers, lambda i, j: "b")
