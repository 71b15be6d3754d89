"""Whole runs: what is written, what repeats, what is kept and exported."""

import os

import pytest
import torch

from corrgrpo_gym.corrgrpo import Algorithm
from corrgrpo_gym.errors import GymError
from corrgrpo_gym.learners import checkpoints, session
from corrgrpo_gym.learners.config import load_toml, resolve
from corrgrpo_gym.learners.rollouts import Prompts

from . import runs, tiny, toy
from .runs import VARIANTS, same_as


def test_what_a_run_writes(whole, capsys):
    out = whole("corrgrpo")
    metrics, rollouts = runs.records(out), runs.records(out, "rollouts.jsonl")
    assert [m["step"] for m in metrics] == [0, 1, 2, 3, 4]
    for m in metrics:
        assert {f"val/{n}" for n in (*toy.NAMES, "total")} <= m.keys() if m["step"] % 2 == 0 else "val/total" not in m
        if m["step"]:
            assert {f"reward/{n}" for n in (*toy.NAMES, "total")} <= m.keys()
            assert {"lr", "loss", "grad_norm", "entropy", "sampler_gap_max", "report/correlation/correct/brief"} <= (
                m.keys()
            )
            assert m["grad_norm"] > 0 and m["entropy"] > 0 and m["sampler_gap_max"] < 1e-3
    trained = [r for r in rollouts if r["split"] == "train"]
    assert len(trained) == 4 * 4 * 6 and len(rollouts) == len(trained) + 3 * 6 * 2
    for r in trained:
        assert r["messages"][0]["role"] == "user" and r["messages"][-1]["role"] == "assistant"
        assert set(r["reward"]) == set(toy.NAMES) and isinstance(r["advantage"], float)
        assert r["finish"] in ("stop", "length") and 1 <= r["completion_tokens"] <= 8
        said = r["messages"][-1]["content"]
        assert r["reward"]["polite"] == float("please" in said)
    assert {r["task_id"].split("-")[0] for r in trained} == {"paint", "sell", "find", "describe"}
    assert all(r["advantage"] is None for r in rollouts if r["split"] == "test")
    for step in (1, 4):
        rewards = [r["reward"] for r in trained if r["step"] == step]
        mean = sum(r["correct"] for r in rewards) / len(rewards)
        assert metrics[step]["reward/correct"] == pytest.approx(mean)
        total = sum(r["correct"] + 0.5 * r["brief"] + 0.25 * r["polite"] for r in rewards) / len(rewards)
        assert metrics[step]["reward/total"] == pytest.approx(total)
    assert load_toml(out / "config.toml")["rollout"]["samples"] == 6
    assert "finished at step 4" in (out / "log.txt").read_text()
    assert [t["step"] for t in runs.records(out, "timings.jsonl")] == [0, 1, 2, 3, 4]


def test_the_seed_decides_and_the_written_configuration_repeats_the_run(whole, tmp_path):
    out = whole("corrgrpo")
    session.start(resolve(load_toml(out / "config.toml")), tmp_path / "again")
    same_as(tmp_path / "again", out)
    runs.start(tmp_path / "other", **VARIANTS["corrgrpo"], seed=1)
    assert runs.streams(tmp_path / "other")[1] != runs.streams(out)[1]


def test_the_seed_decides_both_what_is_asked_and_what_is_answered(tmp_path, monkeypatch, capsys):
    def tasks_and_answers(seed):
        out = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        runs.start(out, steps=1, validation={"every": 0}, seed=seed)
        found = runs.records(out, "rollouts.jsonl")
        return [r["task"] for r in found], [r["messages"][-1]["content"] for r in found]

    assert tasks_and_answers(1)[0] != tasks_and_answers(2)[0]
    order = Prompts.order
    monkeypatch.setattr(Prompts, "order", lambda self, seed, start, count: order(self, 0, start, count))
    first, other = tasks_and_answers(1), tasks_and_answers(2)
    assert first[0] == other[0] and first[1] != other[1]


def test_checkpoints_are_whole_models_and_the_best_is_linked(whole):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    out = whole("corrgrpo")
    folder = out / "checkpoints"
    metrics = {m["step"]: m for m in runs.records(out)}
    assert runs.saved(out) == [2, 4]
    ids = torch.tensor([[5, 6, 7, 8]])
    said = []
    for name in ("step-000002", "step-000004", "best"):
        model = AutoModelForCausalLM.from_pretrained(folder / name)
        tokenizer = AutoTokenizer.from_pretrained(folder / name)
        assert tokenizer.chat_template and len(tokenizer) == model.config.vocab_size
        said.append(model(ids).logits.detach())
    assert not torch.equal(said[0], said[1])
    best = max((2, 4), key=lambda step: metrics[step]["val/total"])
    assert os.readlink(folder / "best") == f"step-{best:06d}"


@pytest.mark.parametrize("mode", ["max", "min"])
def test_the_best_and_the_latest_are_kept(tmp_path, mode, capsys):
    out = tmp_path / "run"
    runs.start(
        out, steps=8, validation={"every": 0}, checkpoint={"every": 1, "keep": 1, "metric": "entropy", "mode": mode}
    )
    values = {m["step"]: m["entropy"] for m in runs.records(out)}
    best = (max if mode == "max" else min)(values, key=values.get)
    assert os.readlink(out / "checkpoints/best") == f"step-{best:06d}"
    assert runs.saved(out) == sorted({best, 8})
    assert not any("val/total" in m for m in runs.records(out))


def test_export(whole, tmp_path):
    from transformers import AutoModelForCausalLM

    out = whole("corrgrpo")
    best = checkpoints.Checkpoints(out / "checkpoints").best
    for step, folder in ((None, f"step-{best:06d}"), (2, "step-000002")):
        to = session.export(out, tmp_path / f"to-{step}", step, "float32")
        exported = AutoModelForCausalLM.from_pretrained(to).state_dict()
        original = AutoModelForCausalLM.from_pretrained(out / "checkpoints" / folder).state_dict()
        assert all(torch.equal(exported[name], original[name]) for name in original)
        assert not (to / "trainer.pt").exists()
    session.export(out, tmp_path / "half", dtype="bfloat16")
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "half").dtype == torch.bfloat16
    with pytest.raises(GymError, match="is not empty"):
        session.export(out, tmp_path / "half")
    with pytest.raises(GymError, match=r"no checkpoint of step 3; there are \[2, 4\]"):
        session.export(out, tmp_path / "x", 3)
    with pytest.raises(GymError, match="cannot read the configuration"):
        session.export(tmp_path / "nothing", tmp_path / "x")


def test_export_of_adapters_is_the_model_that_was_trained(whole, tmp_path):
    from transformers import AutoModelForCausalLM

    from corrgrpo_gym.learners.policy import load_policy

    out = whole("lora")
    config = resolve(load_toml(out / "config.toml"))
    step = checkpoints.Checkpoints(out / "checkpoints").best
    policy = load_policy(str(out / "start"), config.policy, adapter=out / f"checkpoints/step-{step:06d}")
    ids = torch.tensor([[5, 6, 7, 8]])
    exported = AutoModelForCausalLM.from_pretrained(session.export(out, tmp_path / "to"))
    base = AutoModelForCausalLM.from_pretrained(out / "start")
    with torch.no_grad():
        adapted = policy.model(ids).logits
        torch.testing.assert_close(exported(ids).logits, adapted, rtol=0, atol=1e-4)
        assert (base(ids).logits - adapted).abs().max() > 1e-3


def test_exporting_a_run_does_not_disturb_it(whole, tmp_path):
    out = whole("corrgrpo")
    half = out / "checkpoints/.new-000006"
    half.mkdir()
    session.export(out, tmp_path / "to")
    assert half.is_dir()
    half.rmdir()


def test_dynamic_sampling_draws_until_groups_have_a_signal(whole):
    out = whole("dapo")
    metrics = [m for m in runs.records(out) if m["step"]]
    assert all(m["sampled_groups"] % 4 == 0 for m in metrics)
    assert max(m["sampled_groups"] for m in metrics) > 4
    log = (out / "log.txt").read_text()
    for m in metrics:
        groups: dict = {}
        for r in runs.records(out, "rollouts.jsonl"):
            if r["step"] == m["step"] and r["split"] == "train":
                groups.setdefault(r["group"], []).append(r)
        assert len(groups) == 4 and all(len(g) == 6 for g in groups.values())
        if f"step {m['step']}: only" not in log:
            assert all(len({r["reward"]["correct"] for r in g}) == 2 for g in groups.values())


def test_overlong_answers_are_punished(whole):
    """The advantages are those of rewards less the penalty for length, which the limit of 8 tokens brings."""
    out = whole("dapo")
    algorithm = Algorithm.from_name("dapo+gdpo", weights=(1.0, 0.5, 0.25))
    found = [r for r in runs.records(out, "rollouts.jsonl") if r["split"] == "train"]
    rewards = torch.tensor([list(r["reward"].values()) for r in found]).view(-1, 6, 3)
    lengths = torch.tensor([r["completion_tokens"] for r in found]).view(-1, 6)
    advantages = torch.tensor([r["advantage"] for r in found], dtype=torch.float64).view(-1, 6)
    assert (lengths == 8).any() and (lengths < 8).any()
    for step in range(0, len(rewards), 4):
        part = slice(step, step + 4)
        punished = algorithm.estimate(rewards[part], penalty=-(lengths[part] == 8).double()).weighted()
        torch.testing.assert_close(advantages[part], punished.double(), rtol=0, atol=1e-6)
    plain = algorithm.estimate(rewards[:4]).weighted()
    assert (plain - advantages[:4]).abs().max() > 0.1


def test_kl_is_measured_against_the_start(whole):
    for variant in ("kl", "lora"):
        kl = [m["kl"] for m in runs.records(whole(variant)) if m["step"]]
        assert kl[0] == pytest.approx(0, abs=1e-6) and kl[-1] > 1e-5
    assert "kl" not in runs.records(whole("corrgrpo"))[1]


def test_kl_by_the_options_of_the_loss(tmp_path, capsys):
    runs.start(tmp_path / "run", steps=2, validation={"every": 0}, algorithm={"loss_options": {"kl_coef": 0.1}})
    assert runs.records(tmp_path / "run")[-1]["kl"] > 0


def test_adapters_do_not_spoil_the_cached_start(tmp_path, monkeypatch, capsys):
    """Whoever comes first, the start is trained whole."""
    monkeypatch.setenv("CORRGRPO_GYM_CACHE", str(tmp_path / "cache"))
    short = {"steps": 0, "warm_start": {"steps": 3}}
    runs.start(tmp_path / "a", **short, policy={"lora_rank": 2})
    runs.start(tmp_path / "b", **short)
    monkeypatch.setenv("CORRGRPO_GYM_CACHE", str(tmp_path / "cache2"))
    runs.start(tmp_path / "c", **short)
    start = [(tmp_path / run / "start/model.safetensors").read_bytes() for run in "abc"]
    assert start[0] == start[1] == start[2]


def test_a_pretrained_model_from_a_folder(tmp_path, capsys):
    source = tiny.folder(tmp_path / "model")
    (tmp_path / "env.py").write_text(
        "from corrgrpo_gym.envs import SingleTurnEnv\n"
        "def short(answer):\n    return 1 / (1 + len(answer))\n"
        "def digits(answer):\n    return min(1.0, sum(c.isdigit() for c in answer) / 4)\n"
        "env = SingleTurnEnv([{'prompt': f'{i}+1', 'answer': str(i + 1)} for i in range(9)], [short, digits],\n"
        "                    reference='answer')\n"
    )
    over = {
        "env": f"{tmp_path}/env.py:env",
        "model": str(source),
        "validation": {"split": "train", "every": 1},
        "checkpoint": {"metric": "val/digits"},
        "steps": 2,
    }
    out = tmp_path / "run"
    runs.start(out, **over, warm_start={"steps": 0})
    assert not (out / "start").exists()
    assert runs.records(out)[-1]["grad_norm"] > 0
    # A warm start for any model: its folder is the one that training starts from.
    out = tmp_path / "warm"
    runs.start(out, **over, warm_start={"steps": 5, "optimizer": "adamw", "lr": 1e-2})
    assert (out / "start/model.safetensors").read_bytes() != (source / "model.safetensors").read_bytes()
    for blocks in ({"train_last_blocks": 1}, {"lora_rank": 2}, {"gradient_checkpointing": True}):
        out = tmp_path / next(iter(blocks))
        runs.start(out, **over, warm_start={"steps": 2, "optimizer": "muon"}, policy=blocks)
        assert runs.records(out)[-1]["grad_norm"] > 0


def test_what_is_wrong_is_said_before_there_is_a_run(tmp_path, capsys):
    cases = [
        ({"algo": "grpoo"}, "grpoo.*Did you mean"),
        ({"env": "leetcod"}, "unknown environment 'leetcod'. Did you mean 'leetcode'"),
        ({"algorithm": {"weights": {"corect": 1}}}, "algorithm.weights: .*'corect'. Did you mean 'correct'"),
        ({"algorithm": {"estimator_options": {"gard": 1}}}, "gard"),
        ({"checkpoint": {"metric": "val/totl"}}, "checkpoint.metric: .*'val/totl'. Did you mean 'val/total'"),
        ({"validation": {"split": "dev"}}, "'dev'"),
        ({"model": str(tmp_path / "none"), "warm_start": {"steps": 0}}, "model .*none: there is no such file"),
        ({"model": str(tmp_path), "warm_start": {"steps": 0}}, "cannot load the model"),
        ({"track": ["wandb"]}, r"wandb, which is not installed: pip install 'corrgrpo-gym\[wandb\]'"),
        ({"rollout": {"max_prompt_tokens": 2}}, "all 24 prompts are longer"),
        ({"rollout": {"max_new_tokens": 1}}, "every reference answer is longer than 1 tokens"),
        ({"policy": {"chat_template": str(tmp_path / "none")}}, "policy.chat_template: cannot read"),
        ({"policy": {"lora_rank": 0, "train_last_blocks": 9}}, "train_last_blocks is 9"),
    ]
    if __import__("importlib.util").util.find_spec("wandb"):
        cases = [c for c in cases if "track" not in c[0]]
    for number, (over, message) in enumerate(cases):
        out = tmp_path / f"run-{number}"
        with pytest.raises(GymError, match=message):
            runs.start(out, **over)
        if "train_last_blocks is" not in message:  # by then the start has been made
            assert not out.exists(), over
    (tmp_path / "file").write_text("")
    with pytest.raises(GymError, match="cannot write the run folder .*another --out"):
        runs.start(tmp_path / "file" / "run", steps=0)


def test_tensorboard(tmp_path, capsys):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    runs.start(tmp_path / "run", steps=2, track=["tensorboard"])
    events = EventAccumulator(str(tmp_path / "run/tensorboard"))
    events.Reload()
    found = {e.step: e.value for e in events.Scalars("reward/total")}
    expected = {m["step"]: m["reward/total"] for m in runs.records(tmp_path / "run") if m["step"]}
    assert found == pytest.approx(expected)
