"""LiveCodeBench (Jain et al. 2024), code generation, the slice that is new in v6: 175 problems of test6.jsonl.

AtCoder's problems are scripts that read standard input; LeetCode's are a method that is called. Public tests come
first, then the private ones; each may take 6 s of CPU time, and the first that fails ends it. What a script prints is
compared line by line, without space at the ends of lines and of the whole; a line that differs is right if it consists
of the same numbers, compared as decimals. What a method returns is compared with ==; a tuple counts as a list.

The prompt has upstream's content and is written anew; `prompt_file` takes another text, with the places {question} and
{format} (what to write, and the starter code where there is one).

Departures from upstream:

1. Limits are CPU time, and loading the program counts; each test has a process of its own. Upstream loads it once: what
   a program leaves behind from test to test counts there. LeetCode itself makes a new object for each test, too.
2. Scripts run as scripts, with real file descriptors. Upstream runs them in a function, with a stand-in for sys.stdin;
   open(0) and os.read do not work there. There is no /dev/stdin in the sandbox.
3. sys.exit ends a script normally, as upstream; os._exit does if its status is 0.
4. Memory is limited to 1 GiB (upstream: 4 GB).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...envs.sandbox import CodeJob, Sandbox
from ..benchmark import Case, Caveat, Score
from ..data import Source, digest, find, parsed_rows, text
from ..metrics import Column, pass_at
from ..models.base import Reply
from .base import MEMORY_BYTES, CodeBenchmark, checked_ks, pass_columns, score_of, several_answers, wall_seconds
from .private_tests import unpack
from .prompts import Template

SOURCE = Source(
    "livecodebench",
    ("test6.jsonl",),
    "livecodebench/code_generation_lite",
    "test6.jsonl",
    address="https://huggingface.co/datasets/livecodebench/code_generation_lite",
)
PROMPT = (
    "You are an expert Python programmer. Read the problem below and write a correct Python program that does what it "
    "says and passes all of its tests.\n\n### Problem\n\n{question}\n\n### Format\n\n{format}\n\n### Answer\n\n"
    "Give the program in one Markdown code block."
)
STARTER = "Use this starter code, and put your program in a Markdown code block.\n\n```python\n{starter}\n```"
SCRIPT = (
    "Read the input from standard input, solve the problem, and write the answer to standard output. Do not run the "
    "program on the examples. Put it in a Markdown code block.\n\n```python\n# YOUR CODE HERE\n```"
)
_STARS = (
    "string re datetime collections heapq bisect copy math random statistics itertools functools operator io sys json "
    "builtins typing"
).split()
# Answers may rely on what LeetCode and upstream import for them.
PRELUDE = "\n".join(
    [f"from {name} import *" for name in _STARS]
    + [f"import {name}" for name in _STARS]
    + ["sys.setrecursionlimit(50000)"]
)
# Run in the judge; `data` is a list of (input, output).
STDIN_TEST = """
import decimal

def lines(text):
    return [line.strip() for line in text.strip().split("\\n")]

def numbers(line):
    try:
        return [decimal.Decimal(word) for word in line.split()]
    except decimal.InvalidOperation:
        return None

def same(line, wanted):
    if line == wanted:
        return True
    mine = numbers(line)
    try:
        return mine is not None and mine == numbers(wanted)
    except decimal.InvalidOperation:  # a signalling NaN
        return False

def check(candidate):
    for i, (given, wanted) in enumerate(data):
        mine, wanted = lines(candidate(given)), lines(wanted)
        assert len(mine) == len(wanted) and all(map(same, mine, wanted)), f"test {i}"
"""
CALL_TEST = """
def check(candidate):
    for i, (given, wanted) in enumerate(data):
        result = candidate(*given)
        if type(result) is tuple:
            result = list(result)
        assert result == wanted, f"test {i}"
"""


@dataclass(frozen=True, slots=True)
class Task:
    """A row, checked. Its private tests stay packed: unpacked, all rows take gigabytes.

    Attributes:
        entry_point: what is called; empty for a script.
    """

    task_id: str
    question: str
    starter: str
    difficulty: str
    entry_point: str
    public: str
    private: str


class LiveCodeBench(CodeBenchmark):
    """See the module."""

    name = "livecodebench"

    def __init__(
        self,
        data: str | Path | None = None,
        *,
        prompt_file: str | Path | None = None,
        k: int | str | Sequence[int] = 1,
        cpu_seconds: float = 6.0,
        sandbox: str | Sandbox = "bubblewrap",
        workers: int | None = None,
    ) -> None:
        """Load the rows and check all tests, which takes some seconds.

        Args:
            data: None, "auto" or "hub" (its cache, then the hub), or a path.
            prompt_file: a file with another prompt.
            k: of pass@k, as in "1,5,10".
            cpu_seconds: CPU limit of one test.
            sandbox: name of the back end that runs programs, or a sandbox.
            workers: its processes; None for one per CPU.

        Raises:
            GymError: bad options or data.
        """
        super().__init__(sandbox, workers)
        self._cpu_seconds = float(cpu_seconds)
        path, self.note = find(self.name, SOURCE, data)
        template = Template(PROMPT, ("question", "format"), prompt_file, "question")
        tasks = parsed_rows(path, _parse, lambda task: task.task_id)
        self.cases = [_case(task, template) for task in tasks.values()]
        self.settings = {
            "data": digest(path),
            "prompt_text": template.source,
            "cpu_seconds": self._cpu_seconds,
        }
        faulty = [task.task_id for task in tasks.values() if several_answers(task.question)]
        ks = checked_ks(k)
        self.columns = pass_columns(ks, faulty)
        levels = dict.fromkeys(task.difficulty for task in tasks.values())
        self.columns += [Column(f"{level}@1", f"pass@1 of {level} ones", pass_at(1, group=level)) for level in levels]
        self.paper = {"pass@1": "lcb_v6_pass@1"}
        self.caveats = [
            "each test has a fresh process and 6 s of CPU time; upstream: one process, wall-clock time",
            "scripts have real standard streams; upstream replaces sys.stdin",
            *(["the prompt is ours, with the content of LiveCodeBench's"] if prompt_file is None else []),
            *([Caveat("statements that admit several answers, one accepted: ", faulty, listed=True)] if faulty else []),
        ]

    def score(self, case: Case, replies: Sequence[Reply]) -> Score:
        """Judge the program on all tests: `passed`, `executable`."""
        task: Task = case.row
        tests = _tests(task)
        job = CodeJob(
            name=task.task_id,
            answer=replies[-1].text,
            prelude=PRELUDE,
            test=CALL_TEST if task.entry_point else STDIN_TEST,
            entry_point=task.entry_point,
            cpu_seconds=self._cpu_seconds,
            wall_seconds=wall_seconds(self._cpu_seconds),
            memory_bytes=MEMORY_BYTES,
            calls=len(tests),
            data=tests,
        )
        return score_of(self.judge(job))


def _case(task: Task, template: Template) -> Case:
    form = STARTER.replace("{starter}", task.starter) if task.starter else SCRIPT
    messages = template.fill(question=task.question, format=form)
    return Case(task.task_id, messages, group=task.difficulty, row=task)


def _parse(row: Mapping[str, Any]) -> Task:
    metadata = row["metadata"]
    if isinstance(metadata, str):
        metadata = json.loads(metadata or "{}")
    name = metadata.get("func_name") if isinstance(metadata, Mapping) else None
    if name is not None and not (isinstance(name, str) and name.isidentifier()):
        raise ValueError(f"metadata's func_name {name!r} is no name")
    task = Task(
        task_id=text(row, "question_id"),
        question=text(row, "question_content"),
        starter=text(row, "starter_code", blank=True),
        difficulty=text(row, "difficulty"),
        entry_point=f"Solution().{name}" if name else "",
        public=text(row, "public_test_cases"),
        private=text(row, "private_test_cases", blank=True),
    )
    if not _tests(task):
        raise ValueError("it has no tests: any program would pass")
    return task


def _tests(task: Task) -> list[tuple[Any, Any]]:
    """Inputs and outputs of all tests, the public ones first.

    Raises:
        ValueError: they are not what the published layout says.
    """
    tests = [*_listed(task.public, "public_test_cases"), *_listed(unpack(task.private), "private_test_cases")]
    kind = "functional" if task.entry_point else "stdin"
    pairs = []
    for i, test in enumerate(tests):
        given, wanted, said = (test.get(field) for field in ("input", "output", "testtype"))
        if not isinstance(given, str) or not isinstance(wanted, str):
            raise ValueError(f"test {i} has no input or output")
        if said != kind:
            raise ValueError(f"test {i} is of type {said!r}, but the row's metadata say {kind!r}")
        pairs.append(_called(i, given, wanted) if task.entry_point else (given, wanted))
    return pairs


def _called(i: int, given: str, wanted: str) -> tuple[Any, Any]:
    try:
        return [json.loads(line) for line in given.split("\n")], json.loads(wanted)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"test {i}: its input or output is not JSON ({error})") from None


def _listed(tests: str, field: str) -> list[dict[str, Any]]:
    try:
        listed = json.loads(tests) if tests else []
    except (ValueError, RecursionError) as error:
        raise ValueError(f"field {field!r} is not JSON ({error})") from None
    if not isinstance(listed, list) or not all(isinstance(test, dict) for test in listed):
        raise ValueError(f"field {field!r} is not a list of tests")
    return listed
