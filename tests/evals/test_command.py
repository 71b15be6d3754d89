"""The commands `eval` and `rescore` in processes of their own."""

import json
import re
import signal
import subprocess
import sys
import time
import tomllib

import pytest
from typer.main import get_command

from corrgrpo_gym.cli import app
from corrgrpo_gym.evals.config import EvalConfig
from corrgrpo_gym.evals.registry import names

from . import toys
from .server import Response, Server, completion


def adds(asked):
    return Response(completion(toys.calculate(asked.prompt)))


def test_against_an_endpoint(tmp_path):
    with Server(adds) as server:
        status, output = toys.run(
            "eval", "--env", toys.ENV, "--option", "size=6", "--base-url", server.url, "--out", "r", "--n", 2,
            "--temperature", 0.5, "--top-p", 0.9, "--max-tokens", 64, "--seed", 7, "--system", "Be brief.",
            "--extra-body", '{"top_k": 5}', "--stop", "a", "--stop", "b", "--concurrency", 3, "--timeout", 20,
            "--retries", 2, "--api-key-env", "MINE", "--price-in", 2, "--price-out", 4,
            cwd=tmp_path, MINE="sk-secret",
        )  # fmt: skip
    assert status == 0, output
    body = server.asked[0].body
    assert {k: v for k, v in body.items() if k not in ("messages", "seed")} == {
        "model": "tiny", "temperature": 0.5, "top_p": 0.9, "max_tokens": 64, "stop": ["a", "b"], "top_k": 5,
    }  # fmt: skip
    assert body["messages"][0] == {"role": "system", "content": "Be brief."} and len(server.asked) == 12
    assert {a.body["seed"] for a in server.asked} == {7, 8}
    assert server.asked[0].headers["authorization"] == "Bearer sk-secret"
    for file in (tmp_path / "r").iterdir():
        assert "sk-secret" not in file.read_text()
    assert "temperature 0.5, 2 samples per case" in output and "12 of 12 samples answered" in output
    assert "\x1b[" not in output  # no terminal: no colours, no bar


def test_config_and_resume_and_rescore(tmp_path):
    with Server(adds) as server:
        asking = ("--base-url", server.url, "--model", "tiny")
        assert toys.run("eval", "--env", toys.ENV, *asking, "--limit", 3, "--out", "r", cwd=tmp_path)[0] == 0
        saved = tomllib.loads((tmp_path / "r/config.toml").read_text())
        assert saved["env"] == toys.ENV and saved["limit"] == 3
        # The run's file repeats the run.
        status, output = toys.run("eval", "--config", "r/config.toml", "--out", "again", cwd=tmp_path)
        assert status == 0, output
        status, output = toys.run("eval", "--resume", "r", "--limit", 5, "--concurrency", 2, cwd=tmp_path)
        assert status == 0 and "going on: 3 of 5 samples are there" in output, output
    assert toys.records(tmp_path / "again").items() <= toys.records(tmp_path / "r").items()
    assert len(server.asked) == 3 + 3 + 2
    status, output = toys.run("rescore", "r", cwd=tmp_path)
    assert status == 0 and "5 scored" in output, output
    status, output = toys.run("eval", "--resume", "r", "--temperature", 1, cwd=tmp_path)
    assert status == 2 and "temperature was 0.0, now 1.0" in " ".join(output.split())


def test_the_status_says_where_something_has_no_score(tmp_path):
    mine = tmp_path / "mine.py"
    text = (
        "from corrgrpo_gym.evals import Benchmark, Case, Column, Score, mean\n"
        "class Mine(Benchmark):\n"
        "    name, settings, columns = 'mine', {}, [Column('right', '', mean('right'))]\n"
        "    cases = [Case(str(i), ({'role': 'user', 'content': 'x'},), reference='y', row=i) for i in range(3)]\n"
        "    def score(self, case, replies):\n"
        "        return Score({'right': 1 / (2 - case.row)})\n"
    )
    mine.write_text(text)
    status, output = toys.run("eval", "--env", "mine.py:Mine", "--model", "reference", "--out", "r", cwd=tmp_path)
    assert status == 1 and "2: " in output and "ZeroDivisionError" in output and "rescore r" in output, output
    status, output = toys.run("rescore", "r", cwd=tmp_path)
    assert status == 1 and "Partial: these figures are of 2 of 3 samples." in output, output
    mine.write_text(text.replace("2 - case.row", "1 + case.row"))
    status, output = toys.run("rescore", "r", cwd=tmp_path)
    assert status == 0 and "3 scored" in output and "Partial" not in output, output


def test_print_config_explains_every_key(tmp_path):
    status, output = toys.run("eval", "--env", "humaneval", "--model", "reference", "--print-config", "--n", "3")
    assert status == 0 and EvalConfig(**tomllib.loads(output)) == EvalConfig(env="humaneval", model="reference", n=3)
    assert output.count("\n# ") + 1 >= len(EvalConfig.model_fields)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "eval needs --env"),
        (["--env", "humanevl", "--model", "reference"], "Did you mean 'humaneval'"),
        (["--env", "x"], "what shall answer?"),
        (["--env", "x", "--model", "m", "--completions"], "--completions is for endpoints"),
        (["--env", "x", "--model", "m", "--extra-body", "{}x"], "--extra-body is not JSON"),
        (["--env", "x", "--model", "m", "--extra-body", "[1]"], "--extra-body is a JSON list"),
        (["--env", "x", "--model", "m", "--extra-body", '{"a": [null]}'], "null cannot be kept"),
        (["--env", "x", "--model", "m", "--option", "nonsense"], "--option 'nonsense': expected KEY=VALUE"),
        (["--env", "x", "--model", "m", "--n", "0"], "configuration key n"),
        (["--env", "x", "--model", "m", "--top-p", "2"], "configuration key top_p"),
        (["--env", "x", "--model", "m", "--answers", "f"], "--answers takes the place of a model"),
        (["--env", "humaneval", "--model", "reference", "--option", "promt=x"], "Did you mean 'prompt"),
        (["--env", "humaneval", "--model", "reference", "--prompt", "absent"], "there is no file absent"),
        (["--env", toys.ENV, "--model", "reference", "--prompt", "absent"], "takes no other prompt"),
        (["--env", toys.ENV, "--model", "./absent"], "there is no such file or folder"),
        (["--env", toys.ENV, "--model", "reference", "--against-paper"], "the paper has no figures for this"),
        (["--env", toys.ENV, "--base-url", "http://127.0.0.1:9/v1", "--model", "m"], "nobody answers at"),
        (["--env", toys.ENV, "--base-url", "ftp://x"], "is not an address"),
        (["--env", "x", "--base-url", "http://localhost:99999/v1"], "Port out of range"),
        (["--env", "x", "--base-url", "http://localhost:abc/v1"], "is not an address such as"),
        (["--env", "x", "--base-url", "http://[::1/v1"], "Invalid IPv6"),
        (["--env", "x", "--base-url", "localhost:8000"], "does not begin with http:// or https://"),
        (["--env", "x", "--base-url", "http:///v1"], "it has no host"),
        (["--env", "x", "--base-url", "http://a\nb/v1"], "it holds a space, a line end"),
        (["--env", "x", "--base-url", "http://ü..x/v1"], "there is no such host name"),
        (["--env", "x", "--model", "m", "--system", b"\xff\xfe"], "configuration key system holds bytes that are not"),
        (["--env", "x", "--model", "m", "--stop", b"\xff"], "configuration key stop holds bytes that are not UTF-8"),
        (["--env", "x", "--base-url", "http://x", "--extra-body", '{"a": [NaN]}'], "extra_body holds nan"),
        (["--env", "x", "--base-url", "http://x", "--extra-body", "[" * 100_000], "--extra-body is not JSON"),
        (["--env", "x", "--model", "m", "--limit", "-1"], "configuration key limit"),
        (["--env", "x", "--model", "m", "--temperature", "nan"], "configuration key temperature"),
        (["--env", "x", "--model", "m", "--price-in", "inf"], "configuration key price_in"),
        (["--env", "x", "--model", "m", "--timeout", "1e300"], "configuration key timeout"),
        (["--env", "x", "--model", "m", "--seed", "9" * 20], "configuration key seed"),
        (["--env", toys.ENV, "--model", "reference", "--out", "wrong.toml"], "--out wrong.toml is a file"),
        (["--resume", "absent"], "it is not a run folder"),
        (["--resume", "r", "--config", "c"], "leave --config and --out out"),
        (["--config", "wrong.toml"], "unknown configuration key 'temprature'. Did you mean 'temperature'"),
    ],
)
def test_mistakes(args, message, tmp_path):
    (tmp_path / "wrong.toml").write_text('env = "x"\nmodel = "m"\ntemprature = 1\n')
    out = [] if {"--resume", "--out"} & set(args) else ["--out", "r"]
    status, output = toys.run("eval", *args, *out, cwd=tmp_path)
    output = " ".join(output.split())
    assert status == 2 and message in output and "Traceback" not in output and output.count("error:") == 1
    assert not (tmp_path / "r").exists()


def test_samples_without_number_are_begun_at_once_and_end_when_told_to(tmp_path):
    with Server(adds) as server:
        args = ("--env", toys.ENV, "--base-url", server.url, "--model", "m", "--limit", 1, "--n", 10**12, "--out", "r")
        process = toys.command("eval", *args, cwd=tmp_path)
        try:
            deadline = time.monotonic() + 60
            while len(server.asked) < 20 and time.monotonic() < deadline:
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130 and "of 1000000000000 samples, which are saved" in output, output


def test_help_shows_every_option_with_its_default():
    status, output = toys.run("eval", "--help", COLUMNS="80")
    assert status == 0 and max(map(len, output.splitlines())) <= 80
    found = dict(re.findall(r"(--[a-z-]+)  (.*?)(?=\n│ --|\n╰)", output, re.DOTALL))
    found = {option: " ".join(re.sub("[│\n]", " ", text).split()) for option, text in found.items()}
    options = {o for p in get_command(app).commands["eval"].params for o in p.opts}
    assert set(found) == options | {"--help"} and not any("<" in found[o] for o in options)
    defaults = EvalConfig(env="x").model_dump()
    # What --concurrency 0 means, and where a new run goes, stand in the text.
    defaults |= {"env": None, "concurrency": 16, "out": "runs/eval-ENV-MODEL-DATE"}
    for option in options:
        value = defaults.get(option[2:].replace("-", "_"))
        if value in (None, "", [], {}) or value is False:
            assert "[default" not in found[option], option
        else:
            shown = f"{value:g}" if isinstance(value, float) else str(value)
            assert f"[default: {shown}]" in found[option], option
    for name in names():
        assert name in found["--env"], name


def test_an_endpoint_needs_no_torch(tmp_path):
    """The core install: without torch, transformers and the rest of the extras."""
    script = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('torch', 'transformers', 'tokenizers', 'safetensors', 'peft'):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "sys.argv = ['corrgrpo-gym', *sys.argv[1:]]\n"
        "from corrgrpo_gym.cli import main\n"
        "main()\n"
    )
    with Server(adds) as server:
        for args, status, says in (
            (("--base-url", server.url), 0, "24 of 24 samples answered"),
            (("--model", "some/model"), 2, "a local model needs torch and transformers"),
        ):
            done = subprocess.run(
                [sys.executable, "-c", script, "eval", "--env", toys.ENV, *args, "--out", str(tmp_path / f"r{status}")],
                capture_output=True, text=True,
            )  # fmt: skip
            assert done.returncode == status and says in done.stdout + done.stderr, done.stdout + done.stderr
    assert json.loads((tmp_path / "r0/summary.json").read_text())["scored"] == 24


def test_importing_evals_is_light():
    script = (
        "import sys, corrgrpo_gym.evals.registry, corrgrpo_gym.evals.session, corrgrpo_gym.evals.rescore\n"
        "print([m for m in ('torch', 'transformers', 'openai', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
