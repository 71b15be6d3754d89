"""MBPP (Austin et al. 2021): the 500 tasks of the test split, ids 11-510 of the full set, and MBPP+ with `plus`.

A program is code + test_setup_code + test_list, within 10 s of CPU time. The function's name stands in the tests alone,
so the prompt shows them: the task and its test_list. That instruction is written anew; `prompt_file` takes another
text, with the places {text} and {tests}.

What a program returns is compared by type as Python does: a tuple is no list. Where the tests use a class of the
program's (MBPP/367 builds nodes of one), they hold its objects by handles, which are equal to themselves alone.

MBPP+ has 378 of the tasks, prompts of its own ({text} is such a prompt, with one test in it), and more inputs.

Departures from upstream: it sets no limits of its own; evaluations of it take some seconds by the wall clock.
"""

import ast
import builtins
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import Any

from ...envs.leetcode.noise import fenced
from ...envs.sandbox import CodeJob, Sandbox
from ...errors import GymError
from ..benchmark import Case, Caveat, Score
from ..data import Source, digest, find, parsed, parsed_rows, text
from ..models.base import Reply
from . import evalplus
from .base import MEMORY_BYTES, CodeBenchmark, checked_ks, pass_columns, score_of, wall_seconds
from .prompts import Template

FIRST, LAST = 11, 510
SOURCE = Source(
    "mbpp",
    ("mbpp.jsonl",),
    "google-research-datasets/mbpp",
    "full/test-00000-of-00001.parquet",
    address="https://github.com/google-research/google-research/blob/master/mbpp/mbpp.jsonl",
)
PLUS_SOURCE = Source(
    "evalplus",
    ("MbppPlus-v0.2.0.jsonl", "MbppPlus.jsonl"),
    cache=("~/.cache/evalplus",),
    address="https://github.com/evalplus/mbppplus_release/releases",
)
PROMPT = (
    "Solve this task with a Python function.\n\n{text}\n\nThe code must pass these tests:\n\n"
    "```python\n{tests}\n```\n\nAnswer with the complete code in one Markdown code block, without the tests."
)
PLUS_PROMPT = (
    "Write a self-contained Python script that solves the problem below, in one Markdown code block.\n\n"
    "```python\n{text}\n```"
)

# Found by reading the tests; there are more.
FAULTY = {
    "MBPP/15": "the tests want what stands before the first lowercase letter dropped, which the text does not say",
    "MBPP/31": "ties are ordered by the reference's heap",
    "MBPP/39": "several arrangements are valid, one is accepted",
    "MBPP/136": "the tariff that the tests go by stands nowhere",
    "MBPP/177": "several pairs are valid, one is accepted",
    "MBPP/180": "the tests take degrees for radians",
    "MBPP/193": "the order of the result is that of a set",
}


@dataclass(frozen=True, slots=True)
class Task:
    """A row, checked.

    Attributes:
        names: what its tests use of the program besides the entry point.
        base, more: data of `evalplus.TEST`; None where the row has tests of its own.
    """

    task_id: str
    text: str
    tests: str
    code: str
    entry_point: str
    test: str
    names: tuple[str, ...] = ()
    base: dict[str, Any] | None = None
    more: dict[str, Any] | None = None


class Mbpp(CodeBenchmark):
    """See the module."""

    name = "mbpp"

    def __init__(
        self,
        data: str | Path | None = None,
        *,
        prompt_file: str | Path | None = None,
        challenge: bool = False,
        plus: bool = False,
        k: int | str | Sequence[int] = 1,
        cpu_seconds: float = 10.0,
        sandbox: str | Sandbox = "bubblewrap",
        workers: int | None = None,
    ) -> None:
        """Load the rows.

        Args:
            data: None, "auto" or "hub" (its cache, then the hub), or a path.
            prompt_file: a file with another prompt.
            challenge: the challenge tests that some rows have must pass, too.
            plus: MBPP+ (from EvalPlus's cache, or the path): its further inputs must be right, too.
            k: of pass@k, as in "1,5,10".
            cpu_seconds: CPU limit of one program; 4 times the reference's, if that is more.
            sandbox: name of the back end that runs programs, or a sandbox.
            workers: its processes; None for one per CPU.

        Raises:
            GymError: bad options or data.
        """
        super().__init__(sandbox, workers)
        if plus and challenge:
            raise GymError("mbpp: MBPP+ has no challenge tests; leave one of plus and challenge out")
        self._plus, self._cpu_seconds = plus, float(cpu_seconds)
        path, self.note = find(self.name, PLUS_SOURCE if plus else SOURCE, data)
        template = Template(PLUS_PROMPT if plus else PROMPT, ("text", "tests"), prompt_file, "text")
        parse = _parse_plus if plus else lambda row: _parse(row, challenge)
        tasks = parsed_rows(path, parse, lambda task: task.task_id)
        if not plus:
            tasks = {name: task for name, task in tasks.items() if FIRST <= int(name.partition("/")[2]) <= LAST}
            if not tasks:
                raise GymError(f"mbpp: {path} has no task of the test split (task_id {FIRST} to {LAST})")
        self.cases = [_case(task, template) for task in tasks.values()]
        self.settings = {
            "data": digest(path),
            "plus": plus,
            "challenge": challenge,
            "prompt_text": template.source,
            "cpu_seconds": self._cpu_seconds,
        }
        ks = checked_ks(k)
        faulty = {} if plus else {name: why for name, why in FAULTY.items() if name in tasks}
        self.columns = pass_columns(ks, faulty)
        if plus:
            self.columns += pass_columns(ks[:1], (), "passed_base", "base_pass")
        else:
            self.paper = {"pass@1": "mbpp_pass@1"}
        self.caveats = [
            "limits are CPU time; upstream sets none",
            *(["the prompt's instruction is ours, with the content of the paper's"] if prompt_file is None else []),
            *(_PLUS_CAVEATS if plus else []),
            *(Caveat(f"{name}: {why}", [name]) for name, why in faulty.items()),
        ]

    def score(self, case: Case, replies: Sequence[Reply]) -> Score:
        """Judge the program: `passed`, `executable`, with plus also `passed_base` (without the further inputs)."""
        task: Task = case.row
        job = CodeJob(
            name=task.task_id,
            answer=replies[-1].text,
            prelude="",
            test=task.test,
            entry_point=task.entry_point,
            cpu_seconds=self._cpu_seconds,
            wall_seconds=wall_seconds(self._cpu_seconds),
            memory_bytes=evalplus.MEMORY_BYTES if self._plus else MEMORY_BYTES,
            names=task.names,
            data=task.base,
        )
        reference = fenced(task.code)
        if not self._plus:
            return score_of(self.judge(job, reference))
        return evalplus.score(self.judge, job, task.more, reference)


def _case(task: Task, template: Template) -> Case:
    messages = template.fill(text=task.text, tests=task.tests)
    return Case(task.task_id, messages, reference=fenced(task.code), row=task)


def _parse(row: Mapping[str, Any], challenge: bool) -> Task:
    number = row["task_id"]
    if type(number) is not int:
        raise ValueError(f"field 'task_id' is {number!r}, not a number")
    tests = _tests(row, "test_list")
    if not tests:
        raise ValueError("field 'test_list' is empty: any program would pass")
    shown = "\n".join(tests)
    if challenge:
        tests = tests + _tests(row, "challenge_test_list")
    setup = text(row, "test_setup_code", blank=True)
    code = text(row, "code")
    entry_point, names = _used(setup + "\n" + "\n".join(tests), code)
    # Bound again inside: the function may be called check (MBPP/56).
    lines = [f"{entry_point} = candidate", *map(_one_line, tests)]
    test = f"{setup}\n\ndef check(candidate):\n" + indent("\n".join(lines), "    ")
    return Task(f"MBPP/{number}", text(row, "text"), shown, code, entry_point, test, names)


def _parse_plus(row: Mapping[str, Any]) -> Task:
    code, entry_point = text(row, "canonical_solution"), text(row, "entry_point")
    if entry_point not in _defined(parsed(code)):
        raise ValueError(f"its canonical_solution doesn't define the entry_point {entry_point!r}")
    base, more = evalplus.restored(row)
    return Task(
        text(row, "task_id"),
        text(row, "prompt").strip("\n"),
        text(row, "assertion").strip("\n"),
        code,
        entry_point,
        evalplus.TEST,
        base=evalplus.test_data("mbpp", row, code, base),
        more=evalplus.test_data("mbpp", row, code, more) if more else None,
    )


def _tests(row: Mapping[str, Any], field: str) -> list[str]:
    tests = row[field]
    if not isinstance(tests, list) or not all(isinstance(test, str) for test in tests):
        raise ValueError(f"field {field!r} is not a list of texts")
    return [test.replace("\r\n", "\n").strip() for test in tests]


def _one_line(test: str) -> str:
    # Indenting would change the strings inside of a test of several lines.
    return ast.unparse(parsed(test)) if "\n" in test else test


def _used(tests: str, code: str) -> tuple[str, tuple[str, ...]]:
    """Which names of the code the tests use: the function that they call first, and the others.

    Raises:
        ValueError: they use none, or do not parse.
    """
    try:
        defined = _defined(parsed(code))
        nodes = list(ast.walk(parsed(tests)))
    except SyntaxError as error:
        raise ValueError(f"its code or tests don't parse ({error})") from None
    read = [n for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.id in defined]
    used = dict.fromkeys(n.id for n in sorted(read, key=lambda n: (n.lineno, n.col_offset)))
    called = [n.func.id for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    functions = [name for name in used if name in called and defined[name]]
    if not functions:
        known = ", ".join(name for name in dict.fromkeys(called) if not hasattr(builtins, name))
        raise ValueError(f"its tests call no function that its code defines (they call {known or 'none'})")
    return functions[0], tuple(name for name in used if name != functions[0])


def _defined(tree: ast.Module) -> dict[str, bool]:
    """Top-level names that a program binds, and whether they are functions."""
    names: dict[str, bool] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names[node.name] = isinstance(node, ast.FunctionDef)
        elif isinstance(node, ast.Assign):
            function = isinstance(node.value, ast.Lambda)
            names.update((target.id, function) for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update((alias.asname or alias.name.partition(".")[0], False) for alias in node.names)
    return names


_PLUS_CAVEATS = (
    "MBPP+: one limit for the whole suite; upstream has one per input",
    "MBPP+: inputs get their tuples from the row's own assertion; upstream by a table",
    "MBPP+: five inputs of Mbpp/255 are left out: their answers have millions of items",
)
