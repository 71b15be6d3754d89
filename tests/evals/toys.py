"""Benchmarks and environments of a few lines, and runs of them."""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from corrgrpo_gym.envs import MultiRewardEnv, Reward, SingleTurnEnv, Turn
from corrgrpo_gym.evals import session
from corrgrpo_gym.evals.benchmark import Benchmark, Case, Score
from corrgrpo_gym.evals.config import resolve
from corrgrpo_gym.evals.metrics import Column, mean
from corrgrpo_gym.evals.records import REPLIES, SCORES

ENV = f"{Path(__file__).resolve()}:sums"
TALK = f"{Path(__file__).resolve()}:Talk"


def correct(answer, target):
    return float(answer.strip() == target)


def brief(answer):
    return 1 / (1 + len(answer))


def sums(size=24):
    rows = [{"task_id": f"sum-{i}", "prompt": f"{i} + {i} =", "target": str(2 * i)} for i in range(size)]
    return SingleTurnEnv(rows, [correct, Reward(brief, weight=0.1)], reference="target")


class Talk(MultiRewardEnv):
    """Three questions in a row; each right answer adds to a reward, and one component is known at the end alone."""

    reward_names = ("right", "polite")
    nan_rewards = frozenset({"polite"})
    splits = ("test",)

    def __init__(self, split="test"):
        super().__init__(["a", "b", "c"], split=split)

    def prompt(self, task):
        return [{"role": "user", "content": f"say {self.tasks[task]}0"}]

    def begin(self, task):
        self.turns = 0

    def turn(self, reply):
        self.turns += 1
        text = reply["content"] or ""
        right = float(text == f"{self.tasks[self.task]}{self.turns - 1}") / 3
        if self.turns == 3:
            polite = float("nan") if self.task == 1 else 1.0
            return Turn({"right": right, "polite": polite}, terminated=True)
        return Turn(
            {"right": right, "polite": 0.0}, [{"role": "user", "content": f"say {self.tasks[self.task]}{self.turns}"}]
        )

    def reference_answers(self, task):
        return [[f"{self.tasks[task]}{i}" for i in range(3)]]


class Mine(Benchmark):
    """A benchmark of one's own."""

    name = "mine"

    def __init__(self, word="yes"):
        self.settings = {"word": word}
        self.word = word
        self.cases = [Case("a", ({"role": "user", "content": "yes or no?"},), reference=word)]
        self.columns = [Column("right", "share of right words", mean("right"))]

    def score(self, case, replies):
        return Score({"right": float(replies[0].text == self.word)})


class Sums(Benchmark):
    """A benchmark whose scorer does as it is told."""

    name = "sums"
    note = "made for tests"
    caveats = ("The numbers are small.",)

    def __init__(self, size=12, offset=0.0):
        self.settings = {"size": size, "offset": offset}
        self.offset = offset
        self.cases = [
            Case(f"sum-{i}", ({"role": "user", "content": f"{i} + {i} ="},), reference=str(2 * i), row=i)
            for i in range(size)
        ]
        self.columns = [Column("right", "share of right sums", mean("right"))]
        self.trouble = {}
        self.closed = 0

    def score(self, case, replies):
        if case.row in self.trouble:
            raise self.trouble[case.row]
        return Score({"right": float(replies[-1].text == case.reference) + self.offset}, {"said": replies[-1].text})

    def close(self):
        self.closed += 1


def calculate(prompt):
    """What a model that can add answers."""
    return str(2 * int(prompt.split()[0]))


def start(out, console=None, resume=None, **values):
    """An evaluation in this process: what it printed, and how it ended."""
    printed = io.StringIO()
    keywords = {k: values.pop(k) for k in ("retry_failed", "paper", "paper_row") if k in values}
    flags = {"env": ENV, **values} if resume is None else values
    config = resolve(flags) if resume is None else session.resume_config(resume, flags)
    console = console or Console(file=printed, width=100, highlight=False)
    outcome = session.evaluate(config, resume or out, console=console, **keywords)
    return printed.getvalue(), outcome


def records(out, stream=REPLIES):
    """The last record of each sample, without the clock."""
    lines = [json.loads(line) for line in (out / stream).read_text().splitlines()]
    for line in lines:
        line.pop("seconds", None)
    return {(line["case"], line["sample"]): line for line in lines}


def state(out):
    """All that a repeated evaluation repeats."""
    return records(out), records(out, SCORES), json.loads((out / "summary.json").read_text())


def command(*args, cwd=None, **environment):
    """The command line in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "corrgrpo_gym", *(a if isinstance(a, bytes) else str(a) for a in args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=cwd,
        env={**os.environ, "COLUMNS": "100", "OMP_NUM_THREADS": "1", **environment},
        # Python's tests may run where Ctrl-C is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def run(*args, **options):
    """The same, to its end: status and output."""
    process = command(*args, **options)
    output, _ = process.communicate(timeout=120)
    return process.returncode, output
