"""The command line: light help, lists, and mistakes that end in one message and status 2."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from corrgrpo_gym.learners.config import TrainConfig


def run(*args, cwd=None):
    command = [sys.executable, "-m", "corrgrpo_gym", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=ENVIRONMENT)


ENVIRONMENT = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": str(Path.home()),
    "COLUMNS": "200",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}


def test_help_loads_nothing_heavy():
    script = (
        "import sys, corrgrpo_gym.cli as c\n"
        "try:\n c.app(['--help'])\nexcept SystemExit:\n pass\n"
        "print(sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=ENVIRONMENT)
    assert "train" in done.stdout
    for heavy in ("torch", "transformers", "gymnasium", "numpy", "pydantic"):
        assert f"'{heavy}'" not in done.stdout


def test_train_help_shows_every_option_with_its_default():
    text = run("train", "--help").stdout
    for option, default in {
        "--env": "leetcode",
        "--algo": "corrgrpo",
        "--model": "auto",
        "--data": "auto",
        "--steps": str(TrainConfig().steps),
        "--seed": "0",
        "--out": "runs/ENV-ALGO-DATE",
    }.items():
        assert option in text and f"default: ({default})" in text


def test_lists():
    text = run("algos").stdout
    for name in ("corrgrpo", "gdpo+corrgrpo", "reinforce++", "dapo", "cispo", "gspo", "dr_grpo", "gd2po"):
        assert name in text
    assert "2609.36820" in text and "guard=floor" in text
    text = run("envs").stdout
    assert "leetcode" in text and "ast_similarity" in text


def test_print_config_is_a_configuration(tmp_path):
    done = run("train", "--print-config", "--model", "embedded", "--set", "update.lr=0.5", "--seed", "3")
    values = tomllib.loads(done.stdout)
    assert values["update"]["lr"] == 0.5 and values["seed"] == 3 and values["data"] == "embedded"
    (tmp_path / "c.toml").write_text(done.stdout)
    again = run("train", "--print-config", "--config", tmp_path / "c.toml")
    assert again.stdout == done.stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--env", "leetcod"], "leetcode"),
        (["--algo", "corgrpo"], "corrgrpo"),
        (["--set", "update.lrr=1"], "update.lr"),
        (["--set", "update.lr=fast"], "update.lr"),
        (["--set", "nonsense"], "KEY=VALUE"),
        (["--config", "absent.toml"], "absent.toml"),
        (["--resume", "absent"], "absent"),
        (["--resume", "absent", "--seed", "1"], "--steps"),
        (["--model", "./absent", "--data", "embedded"], "absent"),
        (["--data", "./absent"], "absent"),
        (["--set", "algorithm.weights.accuracyy=1"], "accuracy"),
        (["--set", "algorithm.estimator_options.gaurd=paper"], "guard"),
        (["--set", "validation.split=tests"], "test"),
        (["--env", "no_such_package.module:thing"], "no_such_package"),
    ],
)
def test_mistakes(args, message, tmp_path):
    done = (
        run("train", *args, "--out", "r", cwd=tmp_path) if "--resume" not in args else run("train", *args, cwd=tmp_path)
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in done.stderr and "Traceback" not in done.stderr + done.stdout
    assert not (tmp_path / "r" / "config.toml").exists()
