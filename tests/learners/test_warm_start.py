import pytest
import torch

from corrgrpo_gym.envs import SingleTurnEnv
from corrgrpo_gym.errors import GymError
from corrgrpo_gym.learners import embedded_policy
from corrgrpo_gym.learners.config import PolicyConfig, WarmStartConfig
from corrgrpo_gym.learners.engines.base import Interrupted
from corrgrpo_gym.learners.policy import Policy, load_policy
from corrgrpo_gym.learners.rollouts import Prompts
from corrgrpo_gym.learners.warm_start import examples, warm_start

from . import runs, talk, tiny, toy

ROWS = [{"prompt": f"{a}+{b}", "answer": [str(a + b), "?" * (a + 1)]} for a in range(4) for b in range(3)]


def any_reward(answer):
    return 0.0


def parts(reference="answer", **options):
    tokenizer = tiny.tokenizer()
    policy = Policy(tiny.model(vocabulary=len(tokenizer), scale=0.1, **options), tokenizer, PolicyConfig())
    return policy, Prompts(SingleTurnEnv(ROWS, [any_reward], reference=reference), tokenizer, 64)


def weights(policy):
    return torch.cat([p.detach().flatten() for p in policy.model.parameters()])


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_it_learns_the_answers_and_their_end(optimizer):
    policy, prompts = parts()
    config = WarmStartConfig(steps=60, batch=8, lr=1e-2, optimizer=optimizer)
    losses = warm_start(policy, prompts, config, max_answer_tokens=16)
    assert len(losses) == 60 and losses[0] > 3 and losses[-1] < 0.4 * losses[0]
    # Half of the answers to 0+1 are "1", half "?": either, then the end.
    ids = prompts.ids(1)
    one, ask = policy.tokenizer.convert_tokens_to_ids(["1", "?"])
    with torch.no_grad():
        first = policy.model(torch.tensor([ids])).logits[0, -1].softmax(-1)
        second = policy.model(torch.tensor([[*ids, one]])).logits[0, -1].softmax(-1)
    assert first[one] + first[ask] > 0.4 and second[tiny.END] > 0.4


def test_the_loss_is_the_mean_over_answer_tokens():
    policy, prompts = parts()
    expected = tokens = 0
    with torch.no_grad():
        for task, row in enumerate(ROWS):
            for answer in row["answer"]:
                ids, said = prompts.ids(task), [*policy.tokenizer.encode(answer, add_special_tokens=False), tiny.END]
                logits = policy.model(torch.tensor([[*ids, *said]])).logits[0, len(ids) - 1 : -1]
                expected -= logits.log_softmax(-1)[range(len(said)), said].sum().item()
                tokens += len(said)
    # One batch of all answers.
    losses = warm_start(policy, prompts, WarmStartConfig(steps=1, batch=24), max_answer_tokens=16)
    assert losses == pytest.approx([expected / tokens], rel=1e-5)


def test_micro_batches_and_the_seed():
    def run(**options):
        policy, prompts = parts()
        warm_start(policy, prompts, WarmStartConfig(steps=6, batch=8, lr=1e-3), max_answer_tokens=16, **options)
        return weights(policy)

    whole = run()
    assert torch.equal(whole, run())
    # Adam divides by the size of a gradient, which shows rounding where it is next to nothing.
    assert (whole - run(micro_batch_tokens=1)).abs().quantile(0.95) < 1e-5
    assert (whole - run(seed=1)).abs().max() > 1e-4


def test_what_is_left_out():
    policy, prompts = parts()
    seen = []
    warm_start(
        policy, prompts, WarmStartConfig(steps=3, batch=4), max_answer_tokens=2, progress=lambda *a: seen.append(a)
    )
    assert [s for s, _ in seen] == [1, 2, 3]
    with pytest.raises(GymError, match="every reference answer is longer than 1 tokens"):
        warm_start(policy, prompts, WarmStartConfig(steps=3), max_answer_tokens=1)
    with pytest.raises(GymError, match="has no reference answers in split 'train'"):
        warm_start(*parts(reference=None), WarmStartConfig(steps=3), max_answer_tokens=9)
    policy.tokenizer.eos_token = None
    with pytest.raises(GymError, match="no end token"):
        warm_start(policy, prompts, WarmStartConfig(steps=3), max_answer_tokens=9)


def test_requests_to_stop():
    policy, prompts = parts()
    done = []
    with pytest.raises(Interrupted):
        warm_start(
            policy, prompts, WarmStartConfig(steps=30), max_answer_tokens=9,
            progress=lambda *a: done.append(a), interrupted=lambda: len(done) == 4,
        )  # fmt: skip
    assert len(done) == 4


def test_the_embedded_policy_reads_and_writes_any_text(tmp_path):
    env = toy.make()
    texts = embedded_policy.texts_of(env)
    embedded_policy.build(texts, tmp_path / "a")
    embedded_policy.build(texts, tmp_path / "b")
    for name in ("model.safetensors", "tokenizer.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    policy = load_policy(str(tmp_path / "a"), PolicyConfig(device="cpu"))
    assert sum(p.numel() for p in policy.model.parameters()) < 250_000
    for text in ("paint the house", "naïve\n\ttabs  and spaces 0123 €", "\x00\x7f\r\n", "𝒳" * 3):
        assert policy.tokenizer.decode(policy.tokenizer.encode(text)) == text
    prompts = Prompts(env, policy.tokenizer, 64)
    shown = policy.tokenizer.decode(prompts.ids(0))
    assert shown == "<|user|>" + env.tasks[0]["prompt"] + "<|assistant|>"
    assert policy.end_ids == (policy.tokenizer.convert_tokens_to_ids("<|end|>"),)
    with pytest.raises(GymError, match="no reference answers.*--model"):
        embedded_policy.texts_of(SingleTurnEnv(ROWS, [any_reward]))


def test_fingerprints_name_what_makes_the_policy():
    texts = ["a", "b"]
    first = embedded_policy.fingerprint(texts, runs.config())
    assert first == embedded_policy.fingerprint(texts, runs.config(seed=5, algo="gdpo", policy={"lora_rank": 3}))
    others = [
        embedded_policy.fingerprint(["a", "c"], runs.config()),
        embedded_policy.fingerprint(["ab", ""], runs.config()),
        embedded_policy.fingerprint(texts, runs.config(warm_start={"steps": 3})),
        embedded_policy.fingerprint(texts, runs.config(rollout={"max_new_tokens": 9})),
        embedded_policy.fingerprint(texts, runs.config(rollout={"max_prompt_tokens": 9})),
    ]
    assert len({first, *others}) == 6


def test_the_cache_holds_whole_policies_or_none(tmp_path):
    (tmp_path / "made").mkdir()
    (tmp_path / "made/weights").write_text("1")
    place = tmp_path / "cache/policy-1"
    embedded_policy.publish(tmp_path / "made", place)
    assert (place / "weights").read_text() == "1"
    (tmp_path / "made/weights").write_text("2")
    embedded_policy.publish(tmp_path / "made", place)  # another process was faster
    assert (place / "weights").read_text() == "1" and list(place.parent.iterdir()) == [place]
    (tmp_path / "file").write_text("")
    embedded_policy.publish(tmp_path / "made", tmp_path / "file/policy-1")  # no cache can be written: no harm


class Taught(talk.Talk):
    """Gives whole episodes to learn from, and a single answer."""

    def reference_answers(self, task):
        return [("look", "more", "done"), "only once"] if task == 0 else [["a" * 30, "b" * 200, "c"]]


def test_references_of_several_turns_are_played_through_the_environment():
    tokenizer = talk.tokenizer("chatml_tools")
    prompts = Prompts(Taught(), tokenizer, 400)
    whole, once = examples(prompts, tiny.END, 250)
    assert (whole.task, once.task) == (0, 0)
    said = [i for i, learnt in zip(whole.ids, whole.learnt, strict=True) if learnt]
    assert tokenizer.decode(said) == "look<|im_end|>more<|im_end|>done<|im_end|>"
    assert "saw 1 things" in tokenizer.decode(whole.ids) and "saw" not in tokenizer.decode(said)
    assert tokenizer.decode(once.ids) == "only once<|im_end|>" and all(once.learnt)
    # The other is too long with what the environment says in it.
    assert len(examples(prompts, tiny.END, 4000)) == 3

    class TooLong(Taught):
        length = 2

    with pytest.raises(GymError, match="task train/0: a reference answer has 3 turns, but .* after 2"):
        examples(Prompts(TooLong(), tokenizer, 400), tiny.END, 400)


def test_only_what_an_assistant_says_is_learnt():
    tokenizer = talk.tokenizer("chatml_tools")
    policy = Policy(
        tiny.model(vocabulary=len(tokenizer), scale=0.1, max_position_embeddings=512), tokenizer, PolicyConfig()
    )
    prompts = Prompts(Taught(tasks=["look"]), tokenizer, 400)
    expected = tokens = 0
    for example in examples(prompts, tiny.END, 300):
        ids = prompts.ids(0)
        with torch.no_grad():
            logits = policy.model(torch.tensor([[*ids, *example.ids]])).logits[0, len(ids) - 1 : -1]
        logp = logits.log_softmax(-1)[range(len(example.ids)), example.ids]
        expected -= logp[torch.tensor(example.learnt)].sum().item()
        tokens += sum(example.learnt)
    losses = warm_start(policy, prompts, WarmStartConfig(steps=1, batch=2), max_answer_tokens=300)
    assert losses == pytest.approx([expected / tokens], rel=1e-5)
