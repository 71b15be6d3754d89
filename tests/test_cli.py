"""The command line: light help, lists, and mistakes that end in one message and status 2."""

import re
import resource
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.main import get_command

from corrgrpo_gym import __version__
from corrgrpo_gym.cli import app
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
    assert "train" in done.stdout and "export" in done.stdout
    for heavy in ("torch", "transformers", "gymnasium", "numpy", "pydantic"):
        assert f"'{heavy}'" not in done.stdout


def test_help_takes_less_than_half_a_second_of_cpu():
    def cpu():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    def once():
        before = cpu()
        assert run("--help").returncode == 0
        return cpu() - before

    # The least of three: other jobs on the machine only add to it.
    assert min(once() for _ in range(3)) < 0.5


def test_train_help_shows_every_option_with_its_default():
    done = run("train", "--help")
    config = TrainConfig()
    expected = {f"--{key}": str(getattr(config, key)) for key in ("env", "algo", "model", "data", "steps", "seed")}
    expected |= {"--out": "runs/ENV-ALGO-DATE", "--print-config": "off"}
    # An option, and its text with the default up to the next one.
    found = dict(re.findall(r"(--[a-z-]+)  (.*?)(?=\n│ --|\n╰)", done.stdout, re.DOTALL))
    options = {o for p in get_command(app).commands["train"].params for o in p.opts}
    assert set(found) == options | {"--help"}
    for option in options:
        default = re.search(r"\[default: \(?(.*?)\)?\]", found[option])
        assert default, option
        assert option not in expected or default[1] == expected[option]


def test_version():
    assert run("--version").stdout.strip() == __version__


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


def test_mistakes_about_run_folders(tmp_path):
    (tmp_path / "used").mkdir()
    (tmp_path / "used/config.toml").write_text("seed = 1\n")
    (tmp_path / "empty").mkdir()
    for args, message in (
        (["train", "--out", "used", "--steps", "0"], "used holds a run already"),
        (["train", "--resume", "empty"], "it is not a run folder"),
        (["train", "--resume", "used", "--out", "other"], "only --steps may be given"),
        (["export", "used", "--to", "model"], "has no checkpoint yet"),
        (["export", "empty", "--to", "model"], "cannot read the configuration"),
    ):
        done = run(*args, cwd=tmp_path)
        assert done.returncode == 2, done.stdout + done.stderr
        assert message in " ".join(done.stderr.split()) and done.stderr.count("error:") == 1
        assert "Traceback" not in done.stderr + done.stdout
    assert sorted(p.name for p in (tmp_path / "used").iterdir()) == ["config.toml"]


def test_unknown_options_and_commands():
    for args in (["train", "--stepz", "3"], ["trian"], ["train", "--steps", "many"]):
        done = run(*args)
        assert done.returncode == 2 and "Traceback" not in done.stderr
