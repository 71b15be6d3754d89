"""Every algorithm trains, and rewards rise."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from corrgrpo_gym.corrgrpo import catalogue
from corrgrpo_gym.learners import session

from . import runs, toy

NAMES = [row.name for row in catalogue.algorithms()]


def test_all_names_are_tried():
    assert {"grpo", "corrgrpo", "gdpo", "dapo", "cispo", "gspo", "dr_grpo", "rloo"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_gradient_flows_for(name, tmp_path, capsys):
    out = tmp_path / "run"
    runs.start(out, algo=name, steps=1, validation={"every": 0})
    (metrics,) = [m for m in runs.records(out) if m["step"] == 1]
    assert metrics["grad_norm"] > 1e-4 and metrics["skipped_updates"] == 0
    assert any(r["advantage"] != 0 for r in runs.records(out, "rollouts.jsonl"))
    before = (out / "start/model.safetensors").read_bytes()
    assert (out / "checkpoints/step-000001/model.safetensors").read_bytes() != before


@pytest.mark.slow
@pytest.mark.parametrize("name", ["grpo", "corrgrpo", "gdpo"])
def test_rewards_rise_on_tasks_not_trained_on(name, tmp_path, capsys):
    out = tmp_path / "run"
    runs.start(
        out, algo=name, steps=40, rollout={"prompts": 6, "samples": 8},
        validation={"every": 20, "prompts": 12, "samples": 4},
    )  # fmt: skip
    first, _, last = [m for m in runs.records(out) if "val/total" in m]
    assert first["val/total"] < 0.8
    assert last["val/total"] > 1.4 and last["val/correct"] > first["val/correct"] + 0.4
    for component in toy.NAMES:
        assert last[f"val/{component}"] >= first[f"val/{component}"] - 0.1


@pytest.mark.slow
def test_leetcode_from_end_to_end(tmp_path, capsys):
    """The embedded policy on the embedded problems, judged in the real sandbox."""
    out = tmp_path / "run"
    runs.start(
        out, env="leetcode", algo="corrgrpo", data="embedded", steps=2,
        rollout={"prompts": 3, "samples": 4, "max_prompt_tokens": 256, "max_new_tokens": 128},
        warm_start={"steps": 100, "batch": 8, "lr": 4e-3, "matrix_lr": 0.01},
        validation={"every": 2, "prompts": 4, "samples": 1}, env_options={"workers": 2},
    )  # fmt: skip
    metrics = runs.records(out)
    names = ("accuracy", "efficiency")
    assert [m["step"] for m in metrics] == [0, 1, 2]
    assert all(f"reward/{n}" in m for m in metrics[1:] for n in names)
    rewards = [r["reward"] for r in runs.records(out, "rollouts.jsonl")]
    assert len(rewards) == 2 * 12 + 2 * 4 and all(len(r) == 7 for r in rewards)
    # A hundred steps teach the form, if not what to write in it.
    assert len({json.dumps(r) for r in rewards}) > 1
    assert session.resume(out).finished


ROOT = Path(__file__).parents[2]


def command(*arguments):
    return [sys.executable, "-c", "from corrgrpo_gym.cli import main; main()", *map(str, arguments)]


def arguments(out):
    over = [
        "steps=400", "threads=1", "rollout.prompts=4", "rollout.samples=6", "rollout.max_prompt_tokens=32",
        "rollout.max_new_tokens=8", "warm_start.steps=200", "validation.every=2", "validation.prompts=6",
        "checkpoint.every=2", "env_options={}",
    ]  # fmt: skip
    flags = [f"--set={text}" for text in over]
    return ["train", "--env", "tests/learners/toy.py:make", "--model", "embedded", "--out", out, *flags]


@pytest.mark.slow
def test_signals_from_outside(tmp_path):
    """SIGTERM ends the command in order, and the command it names goes on."""
    out = tmp_path / "run"
    with subprocess.Popen(command(*arguments(out)), cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 300
        while not (out / "metrics.jsonl").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=300)
    assert process.returncode == 130
    assert f"corrgrpo-gym train --resume {out}" in " ".join(said.split())
    done = runs.saved(out)[-1]
    assert done < 400
    again = command("train", "--resume", out, "--steps", done + 1)
    subprocess.run(again, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, timeout=300)
    assert [m["step"] for m in runs.records(out)] == list(range(done + 2))
    assert os.path.lexists(out / "checkpoints" / f"step-{done + 1:06d}")
