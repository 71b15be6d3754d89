"""Trainings that sample with vLLM, from the configuration to the run folder."""

import pytest

from corrgrpo_gym.errors import GymError
from corrgrpo_gym.learners import session
from corrgrpo_gym.learners.config import merge
from corrgrpo_gym.learners.engines.vllm import worker

from .. import runs, tiny, toy
from . import helpers


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(tiny.folder(tmp_path_factory.mktemp("model"), kind="qwen2", tie_word_embeddings=True, **helpers.SIZES))


def start(model, out, **over):
    base = {
        "env": f"{toy.__name__}:loose",
        "model": model,
        "engine": {"name": "vllm", "kv_cache_gib": 0.1},
        "warm_start": {"steps": 0},
        "steps": 3,
    }
    return runs.start(out, **merge(base, over))


def test_a_training(model, tmp_path):
    assert start(model, tmp_path / "run").finished
    metrics = runs.records(tmp_path / "run")
    assert [m["step"] for m in metrics] == [0, 1, 2, 3]
    for m in metrics[1:]:
        assert m["sampler_gap_max"] < 1e-3 and m["sampler_gap_mean"] < 1e-4
        assert m["sampler_ess"] == pytest.approx(1, abs=1e-3) and abs(m["sampler_kl"]) < 1e-6
        assert m["staleness"] == 0 and m["grad_norm"] > 0
    records = runs.records(tmp_path / "run", "rollouts.jsonl")
    assert {(r["split"], r["step"], r["version"]) for r in records} == {
        ("train", 1, 0), ("train", 2, 1), ("train", 3, 2), ("test", 0, 0), ("test", 2, 2), ("test", 3, 3),
    }  # fmt: skip
    pushes = ["push" in t for t in runs.records(tmp_path / "run", "timings.jsonl")]
    assert pushes == [True, False, True, True]  # step 1 begins with what step 0's validation used


def test_one_step_off_policy(model, tmp_path):
    """Each batch but the first was sampled with the weights that the update before it began with."""
    assert start(model, tmp_path / "run", engine={"off_policy_steps": 1}, update={"lr": 2e-4}, steps=5).finished
    metrics = runs.records(tmp_path / "run")[1:]
    assert [m["staleness"] for m in metrics] == [0, 1, 1, 1, 1]
    assert metrics[0]["sampler_gap_max"] < 1e-3
    assert all(m["sampler_gap_mean"] > 1e-3 and m["sampler_kl"] > 0 and m["sampler_ess"] < 1 for m in metrics[1:])
    records = runs.records(tmp_path / "run", "rollouts.jsonl")
    train = {(r["step"], r["version"]) for r in records if r["split"] == "train"}
    assert train == {(1, 0), (2, 0), (3, 1), (4, 2), (5, 3)}
    # Held-out figures are always those of the newest weights.
    assert all(r["version"] == r["step"] for r in records if r["split"] == "test")
    # Every prompt once, in the order that a run on-policy has.
    tasks = [r["task"] for r in records if r["split"] == "train" and r["sample"] == 0]
    assert start(model, tmp_path / "other", steps=5).finished
    others = runs.records(tmp_path / "other", "rollouts.jsonl")
    assert tasks == [r["task"] for r in others if r["split"] == "train" and r["sample"] == 0]


@pytest.mark.parametrize("over", [{"policy": {"lora_rank": 4}}, {"engine": {"off_policy_steps": 1}}])
def test_interrupted_and_resumed(model, tmp_path, over):
    out = tmp_path / "run"
    # After validation at step 0 (12 answers), in the middle of step 2's batch of 24.
    runs.at_answer(12 + 24 + 10, runs.terminate)
    settings = {"env": f"{toy.__name__}:make", "validation": {"prompts": 6, "every": 4}, "steps": 4}
    assert not start(model, out, **merge(settings, over)).finished
    toy.HOOKS.clear()
    done = runs.saved(out)[-1]
    assert done in (1, 2)
    assert session.resume(out).finished
    metrics = runs.records(out)
    assert [m["step"] for m in metrics] == [0, 1, 2, 3, 4]
    assert all(m.get("sampler_gap_max", 0) < 1e-3 for m in metrics[1:] if not m["staleness"])


def test_weights_that_do_not_arrive_stop_the_run(model, tmp_path, monkeypatch):
    """The trap of the CPU build: every call succeeds and the head keeps its old weights."""
    whole, pushes = worker._repack, []

    def once(model):
        pushes.append(1)
        if len(pushes) == 1:
            whole(model)

    monkeypatch.setattr(worker, "_repack", once)
    with pytest.raises(GymError, match=r"step 2: .*not the learner's[\s\S]*did not all reach vLLM"):
        start(model, tmp_path / "run", update={"lr": 0.05}, engine={"max_mismatch": 0.05}, validation={"every": 0},
              checkpoint={"every": 0})  # fmt: skip
    assert [m["step"] for m in runs.records(tmp_path / "run")] == [1]
    assert runs.saved(tmp_path / "run") == [1]  # nothing is lost
