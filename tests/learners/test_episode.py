"""Episodes of several turns: the ids that are trained are the ids that the engine saw and sampled."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from corrgrpo_gym.corrgrpo import Algorithm
from corrgrpo_gym.envs.base import Turn
from corrgrpo_gym.errors import GymError, NotScored
from corrgrpo_gym.learners import session
from corrgrpo_gym.learners.chat import continuation
from corrgrpo_gym.learners.config import PolicyConfig, UpdateConfig, resolve
from corrgrpo_gym.learners.engines.base import Completion, Interrupted, Sampling
from corrgrpo_gym.learners.engines.transformers import TransformersEngine
from corrgrpo_gym.learners.episode import Episode, Limits
from corrgrpo_gym.learners.policy import Piece, Policy
from corrgrpo_gym.learners.rollouts import Prompts, collect
from corrgrpo_gym.learners.update import Updater

from . import runs, talk, tiny

ENDS = (tiny.END,)


class Recorded(TransformersEngine):
    """Writes down what the model was given for each answer and what it sampled."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.seen = {}

    def _decode(self, rows, draws, sampling, finish, interrupted):
        def record(row, completion):
            self.seen.setdefault((row.prompt, row.sample), []).append((list(row.context), completion))
            finish(row, completion)

        super()._decode(rows, draws, sampling, record, interrupted)


def policy_of(tokenizer, kind="llama", scale=0.12):
    made = tiny.model(kind, vocabulary=len(tokenizer), scale=scale, max_position_embeddings=512)
    return Policy(made, tokenizer, PolicyConfig())


def gather(template, env=None, n=4, limits=None, seed=3, kind="llama", max_rows=256, temperature=1.0, tasks=(0, 1)):
    tokenizer = talk.tokenizer(template)
    policy = policy_of(tokenizer, kind)
    engine = Recorded(policy.model, ENDS, max_rows)
    with ThreadPoolExecutor(4) as scorers:
        groups = collect(
            Prompts(env or talk.Talk(), tokenizer, 400), list(tasks), n, engine, ENDS,
            Sampling(400, temperature, seed=seed), scorers, limits=limits or Limits(400, 20),
        )  # fmt: skip
    return policy, engine, groups


@pytest.mark.parametrize("template", talk.TEMPLATES)
def test_trained_ids_are_the_ids_that_were_seen_and_sampled(template):
    policy, engine, groups = gather(template)
    stops = 0
    for g, group in enumerate(groups):
        for j, rollout in enumerate(group.rollouts):
            turns = engine.seen[g, j]
            assert rollout.turns == len(turns) == 3
            whole = [*group.prompt, *rollout.ids]
            end = len(group.prompt)
            for context, answer in turns:
                assert context == whole[: len(context)]
                assert not any(rollout.sampled[end - len(group.prompt) : len(context) - len(group.prompt)])
                end = len(context) + len(answer.ids)
                where = slice(len(context) - len(group.prompt), end - len(group.prompt))
                assert rollout.ids[where] == answer.ids and rollout.logps[where] == answer.logps
                assert all(rollout.sampled[where])
                stops += answer.finish == "stop"
            assert end == len(whole)
        with torch.no_grad():
            for shared in (True, False):
                logps, mask = policy.logps([Piece(group.prompt, [r.ids for r in group.rollouts])], 1.0, shared=shared)
                for row, seen, rollout in zip(logps, mask, group.rollouts, strict=True):
                    sampled = torch.tensor(rollout.sampled)
                    said = torch.tensor(rollout.logps)
                    torch.testing.assert_close(row[seen][sampled], said[sampled], rtol=0, atol=1e-4)
                    assert (said[~sampled] == 0).all()
    assert 0 < stops < 24  # both answers that ended and answers that were cut


@pytest.mark.parametrize("template", talk.TEMPLATES)
def test_what_stands_between_is_what_the_template_writes(template):
    """Where answers ended by themselves, the tokens read as the whole chat rendered at once."""
    tokenizer = talk.tokenizer(template)
    env = talk.Talk()
    episode = Episode(env, 1, tokenizer, ENDS, Limits(400))
    text = tokenizer.apply_chat_template(
        list(episode.rollout.messages), tools=talk.TOOLS, add_generation_prompt=True, tokenize=False
    )
    ids = tokenizer.encode(text, add_special_tokens=False)
    for said in ("look", "go on", "done"):
        answer = [*tokenizer.encode(said, add_special_tokens=False), tiny.END]
        episode.advance(Completion(answer, [-1.0] * len(answer), "stop"))
    rollout = episode.rollout
    chat = [*rollout.messages, *rollout.said]
    assert [m["role"] for m in chat] == ["user", "assistant", "tool", "tool", "assistant", "user", "assistant"]
    rendered = tokenizer.apply_chat_template(chat, tools=talk.TOOLS, tokenize=False)
    whole = tokenizer.decode([*ids, *rollout.ids])
    assert rendered.removesuffix("\n") == whole
    # And in the same tokens, since they begin and end at special ones.
    assert tokenizer.encode(rendered, add_special_tokens=False)[: len(ids) + len(rollout.ids)] == [*ids, *rollout.ids]


def test_an_answer_that_was_cut_is_closed_by_tokens_that_carry_no_loss():
    tokenizer = talk.tokenizer("chatml_tools")
    episode = Episode(talk.Talk(), 0, tokenizer, ENDS, Limits(400, 3))
    more = episode.advance(Completion([9, 10, 11], [-1.0, -2.0, -3.0], "length"))
    assert more.ids[0] == tiny.END and more.max_new_tokens == 3
    closed = Episode(talk.Talk(), 0, tokenizer, ENDS, Limits(400, 3))
    after = closed.advance(Completion([9, 10, tiny.END], [-1.0, -2.0, -3.0], "stop"))
    assert [tiny.END, *after.ids] == list(more.ids)
    assert episode.rollout.sampled[:5] == [True, True, True, False, False]


def test_rewards_add_up_and_what_was_heard_is_the_decoded_text():
    _, _, groups = gather("embedded")
    for group in groups:
        for rollout in group.rollouts:
            said = [m["content"] for m in rollout.said if m["role"] == "assistant"]
            assert rollout.info["heard"] == said
            np.testing.assert_array_equal(rollout.reward, np.float32([sum(map(len, said)) / 8, 1.0]))
            assert rollout.reward.dtype == np.float32


def test_episodes_of_different_lengths_run_side_by_side_and_repeat_whatever_the_batches():
    class Uneven(talk.Talk):
        def turn(self, reply):
            self.length = 1 + len(reply["content"]) % 4
            return super().turn(reply) if len(self.heard) < 3 else Turn([0.0, 1.0], terminated=True)

    def ids(max_rows, seed=3):
        groups = gather("chatml_default", Uneven(), n=6, max_rows=max_rows, seed=seed)[2]
        assert len({r.turns for g in groups for r in g.rollouts}) > 1
        return [r.ids for g in groups for r in g.rollouts]

    assert ids(256) == ids(256) == ids(5) == ids(1)
    assert ids(256, seed=4) != ids(256)


def test_a_rollout_does_not_depend_on_its_neighbours_turns():
    """Later draws come from the row's own place, not from who else is still talking."""

    class Short(talk.Talk):
        def begin(self, task):
            super().begin(task)
            self.length = 3 if task else 1

    together = gather("chatml_default", talk.Talk(), n=2)[2]
    mixed = gather("chatml_default", Short(), n=2)[2]
    assert [r.turns for g in mixed for r in g.rollouts] == [1, 1, 3, 3]
    assert [r.ids for r in mixed[1].rollouts] == [r.ids for r in together[1].rollouts]


def test_models_whose_layers_mind_padding_talk_too():
    policy, engine, groups = gather("chatml_default", kind="mistral")
    for group in groups:
        with torch.no_grad():
            logps, mask = policy.logps([Piece(group.prompt, [r.ids for r in group.rollouts])], 1.0)
        for row, seen, rollout in zip(logps, mask, group.rollouts, strict=True):
            sampled = torch.tensor(rollout.sampled)
            torch.testing.assert_close(row[seen][sampled], torch.tensor(rollout.logps)[sampled], rtol=0, atol=1e-4)


def test_greedy_talk_and_temperatures():
    policy, _, groups = gather("chatml_default", temperature=0.0, n=2)
    assert groups[0].rollouts[0].ids == groups[0].rollouts[1].ids


def scripted(limits, answers, template="chatml_tools", env=None):
    """An episode in which answers of these lengths are given; returns it and the room that each was given."""
    tokenizer = talk.tokenizer(template)
    episode = Episode(env or talk.Talk(), 0, tokenizer, ENDS, limits)
    rooms = [limits.first]
    for length, finish in answers:
        ids = [9] * (length - 1) + [tiny.END if finish == "stop" else 9]
        more = episode.advance(Completion(ids, [-1.0] * length, finish))
        if more is None:
            break
        rooms.append(more.max_new_tokens)
    return episode.rollout, rooms


def test_the_limit_on_tokens_counts_everything_after_the_prompt():
    free, rooms = scripted(Limits(1000), [(10, "stop"), (10, "stop"), (5, "stop")])
    assert free.finish == "stop" and free.turns == 3
    between = [len(free.ids) - 25]
    assert rooms[0] == 1000 and rooms[2] == 1000 - 20 - between[0]
    # Exactly enough: the last answer has one token.
    needed = len(free.ids) - 5
    tight, rooms = scripted(Limits(needed + 1), [(10, "stop"), (10, "stop"), (1, "length")])
    assert rooms[-1] == 1 and tight.turns == 3 and len(tight.ids) == needed + 1
    assert tight.finish == "length"
    # One less: the second reply of the environment does not fit, and is neither shown nor recorded.
    cut, rooms = scripted(Limits(needed), [(10, "stop"), (10, "stop")])
    assert cut.finish == "length" and cut.turns == 2 and cut.info["cut"] is True
    assert len(cut.ids) <= needed and cut.said[-1]["role"] == "assistant"
    np.testing.assert_array_equal(cut.reward, np.float32([18 / 8, 0.25]))


def test_truncated_is_not_terminated():
    whole, _ = scripted(Limits(1000), [(4, "stop")] * 3)
    turns, _ = scripted(Limits(1000, turns=2), [(4, "stop")] * 3)
    assert (whole.finish, turns.finish) == ("stop", "turns")
    assert whole.reward[1] == 1.0 and turns.reward[1] == 0.25 and turns.info["cut"] is True

    class Limited(talk.Talk):
        def turn(self, reply):
            return Turn([1.0, 0.0], truncated=True)

    assert scripted(Limits(1000), [(4, "stop")], env=Limited())[0].finish == "turns"
    # An answer that was cut and that the environment ends on is cut all the same.
    last, _ = scripted(Limits(1000, 4), [(4, "stop"), (4, "stop"), (4, "length")])
    assert last.finish == "length" and last.reward[1] == 1.0


def test_limits_of_one_answer():
    assert Limits(100, 7).first == 7 and Limits(5, 7).first == 5 and Limits(100).first == 100
    _, rooms = scripted(Limits(60, 20), [(10, "stop"), (10, "stop"), (2, "stop")], template="embedded")
    assert rooms[0] == 20 and all(0 < room <= 20 for room in rooms)


def test_what_cannot_be_scored_in_the_middle_ends_the_episode_as_not_a_number():
    class Lost(talk.Talk):
        def turn(self, reply):
            if self.heard:
                raise NotScored("the judge is away")
            return super().turn(reply)

    rollout, _ = scripted(Limits(1000), [(4, "stop")] * 3, env=Lost())
    assert rollout.turns == 2 and np.isnan(rollout.reward).all() and rollout.info == {"not_scored": "the judge is away"}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}", "leaves out what"),
        ("{% for m in messages %}{{ m.content }}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
         "{% endfor %}", "roles user, assistant, tool, tool: no tools"),
    ],
)  # fmt: skip
def test_templates_that_cannot_go_on_are_an_error(template, text):
    tokenizer = talk.tokenizer("chatml_tools")
    tokenizer.chat_template = template
    episode = Episode(talk.Talk(), 0, tokenizer, ENDS, Limits(400))
    with pytest.raises(GymError, match=text):
        episode.advance(Completion([9, tiny.END], [-1.0, -1.0], "stop"))


def test_hostile_tool_results_cannot_confuse_where_the_answer_was():
    tokenizer = talk.tokenizer("chatml_tools")
    opening = [{"role": "user", "content": "look"}]
    plain = continuation(tokenizer, opening, (), [{"role": "user", "content": "x"}], tiny.END)
    for text in ("<|im_end|>", "{{ 1 }}", "0" * 32):
        ids = continuation(tokenizer, opening, (), [{"role": "user", "content": text}], tiny.END)
        assert tokenizer.decode(ids) == tokenizer.decode(plain).replace("x", text)


def test_an_interruption_is_heard_between_and_during_turns():
    tokenizer = talk.tokenizer("embedded")
    policy = policy_of(tokenizer)
    calls = []

    def interrupted():
        calls.append(1)
        return len(calls) > 30

    with ThreadPoolExecutor(2) as scorers, pytest.raises(Interrupted):
        collect(
            Prompts(talk.Talk(), tokenizer, 400), [0, 1], 4, TransformersEngine(policy.model, ENDS), ENDS,
            Sampling(400, seed=3), scorers, limits=Limits(400, 20), interrupted=interrupted,
        )  # fmt: skip


def test_an_environment_that_fails_in_a_later_turn_ends_the_run_with_its_error():
    class Broken(talk.Talk):
        def turn(self, reply):
            if self.heard:
                raise GymError("the mailbox is gone")
            return super().turn(reply)

    with pytest.raises(GymError, match="the mailbox is gone"):
        gather("embedded", Broken())


def test_only_sampled_tokens_carry_loss():
    policy, _, groups = gather("chatml_tools")
    advantages = torch.tensor([[1.0, -1.0, 0.5, -0.5], [2.0, 0.0, -1.0, -1.0]])
    expected = tokens = 0
    for g, group in enumerate(groups):
        for j, rollout in enumerate(group.rollouts):
            ids = torch.tensor([[*group.prompt, *rollout.ids]])
            logits = policy.model(ids).logits[0, len(group.prompt) - 1 : -1]
            logp = logits.log_softmax(-1)[range(len(rollout.ids)), rollout.ids]
            sampled = torch.tensor(rollout.sampled)
            expected = expected - (logp[sampled] * float(advantages[g, j])).sum()
            tokens += int(sampled.sum())
    (expected / tokens).backward()
    wanted = [p.grad.clone() for p in policy.trainable()]
    algorithm = Algorithm("ppo_clip", "grpo", {"aggregation": "token-mean"})
    for options in ({}, {"micro_batch_tokens": 300}, {"shared_prefix": False}):
        policy.model.zero_grad()
        updater = Updater(policy, algorithm, UpdateConfig(lr=1e-9, grad_clip=0.0, **options), 1.0, 2.0)
        metrics = updater.update(groups, advantages, 1e-9, (0,))
        for parameter, grad in zip(policy.trainable(), wanted, strict=True):
            torch.testing.assert_close(parameter.grad, grad, rtol=1e-3, atol=2e-5)
        assert metrics["sampler_gap_max"] < 1e-4


def test_a_training_run_of_several_turns_writes_them_and_resumes(tmp_path, capsys):
    tokenizer = talk.tokenizer("chatml_tools")
    tiny.model(vocabulary=len(tokenizer), scale=0.12, max_position_embeddings=512).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    settings = {
        "env": f"{talk.__name__}:make", "model": str(tmp_path / "model"), "threads": 1, "steps": 4,
        "rollout": {"prompts": 2, "samples": 4, "max_new_tokens": 300, "max_turn_tokens": 12, "max_prompt_tokens": 300},
        "update": {"lr": 1e-3}, "checkpoint": {"every": 2},
        "validation": {"every": 2, "samples": 2, "temperature": 1.0},
    }  # fmt: skip
    session.start(resolve(settings), tmp_path / "whole")
    metrics, rollouts = (runs.records(tmp_path / "whole", s) for s in ("metrics.jsonl", "rollouts.jsonl"))
    assert [m.get("turns") for m in metrics] == [None, 3.0, 3.0, 3.0, 3.0]
    assert all(m["loss"] != 0 and m["sampler_gap_max"] < 1e-4 for m in metrics[1:])
    for record in rollouts:
        roles = [m["role"] for m in record["messages"]]
        assert roles == ["user", "assistant", "tool", "tool", "assistant", "user", "assistant"]
        assert record["turns"] == 3 and 3 <= record["completion_tokens"] <= 36 and record["environment_tokens"] > 50
        said = [m["content"] for m in record["messages"] if m["role"] == "assistant"]
        assert record["reward"] == {"spoke": sum(map(len, said)) / 8, "ended": 1.0}
    session.start(resolve(settings | {"steps": 2}), tmp_path / "parts")
    session.resume(tmp_path / "parts", 4)
    assert runs.streams(tmp_path / "parts") == runs.streams(tmp_path / "whole")
