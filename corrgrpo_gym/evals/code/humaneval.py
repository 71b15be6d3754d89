"""HumanEval (Chen et al. 2021): 164 functions to complete, and HumanEval+ with `plus`.

A program is prompt + completion + test + check(entry_point), within 3 s of CPU time. The answer may be the missing body
or the whole function (see `envs.extract_forms`); what the prompt defines, helper functions included, is there on both
sides: the test uses the helpers of HumanEval/32, 38 and 50.

Prompts: `body`, the paper's ("return only the missing function body"), and `script`, which asks for a self-contained
script as EvalPlus does. Both instructions are written anew with the same content; `prompt_file` takes another text,
with the place {prompt}.

Departures from upstream: CPU time in the place of wall-clock time; exceptions that the test meets in handling what the
program returned count against the program there and here, as `executable` shows.
"""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...envs.leetcode.noise import fenced
from ...envs.sandbox import CodeJob, Sandbox
from ...errors import GymError, unknown
from ..benchmark import Case, Caveat, Score
from ..data import Source, digest, find, parsed, parsed_rows, text
from ..models.base import Reply
from . import evalplus
from .base import MEMORY_BYTES, CodeBenchmark, checked_ks, pass_columns, score_of, wall_seconds
from .prompts import Template

SOURCE = Source(
    "humaneval",
    ("HumanEval.jsonl",),
    "openai/openai_humaneval",
    "openai_humaneval/test-00000-of-00001.parquet",
    address="https://github.com/openai/human-eval/blob/master/data/HumanEval.jsonl.gz",
)
PLUS_SOURCE = Source(
    "evalplus",
    ("HumanEvalPlus-v0.1.10.jsonl", "HumanEvalPlus.jsonl"),
    cache=("~/.cache/evalplus",),
    address="https://github.com/evalplus/humanevalplus_release/releases",
)
PROMPTS = {
    "body": "Below is the beginning of a Python function. Write the rest of it. Answer with the missing body of the "
    "function and with nothing else: no signature, no docstring, no explanation.\n\n{prompt}",
    "script": "Below is the beginning of a Python function. Write a self-contained Python script that solves the "
    "problem: the whole function, with the imports and helpers that it needs, in one Markdown code block.\n\n"
    "```python\n{prompt}\n```",
}
FAULTY = {
    "HumanEval/47": "an example in the docstring contradicts the test (15.0 for a median of 8.0)",
    "HumanEval/116": "the examples in the docstring contradict the test",
}


@dataclass(frozen=True, slots=True)
class Task:
    """A row, checked."""

    task_id: str
    prompt: str
    entry_point: str
    solution: str
    test: str
    base: dict[str, Any] | None = None
    more: dict[str, Any] | None = None


class HumanEval(CodeBenchmark):
    """See the module."""

    name = "humaneval"

    def __init__(
        self,
        data: str | Path | None = None,
        *,
        prompt: str = "body",
        prompt_file: str | Path | None = None,
        plus: bool = False,
        k: int | str | Sequence[int] = 1,
        cpu_seconds: float | None = None,
        sandbox: str | Sandbox = "bubblewrap",
        workers: int | None = None,
    ) -> None:
        """Load the rows.

        Args:
            data: None, "auto" or "hub" (its cache, then the hub), or a path.
            prompt: "body" or "script".
            prompt_file: a file with another prompt.
            plus: HumanEval+ (from EvalPlus's cache, or the path): its further inputs must be right, too.
            k: of pass@k, as in "1,5,10".
            cpu_seconds: CPU limit of one program; default 3, with plus 10 or 4 times the reference's, if that is more.
            sandbox: name of the back end that runs programs, or a sandbox.
            workers: its processes; None for one per CPU.

        Raises:
            GymError: bad options or data.
        """
        super().__init__(sandbox, workers)
        if prompt not in PROMPTS:
            raise GymError(f"humaneval: {unknown('prompt', prompt, PROMPTS)}")
        self._plus = plus
        self._cpu_seconds = float(cpu_seconds or (10.0 if plus else 3.0))
        path, self.note = find(self.name, PLUS_SOURCE if plus else SOURCE, data)
        template = Template(PROMPTS[prompt], ("prompt",), prompt_file, "prompt")
        tasks = parsed_rows(path, _parse_plus if plus else _parse, lambda task: task.task_id)
        self.cases = [_case(task, template, prompt) for task in tasks.values()]
        self.settings = {
            "data": digest(path),
            "plus": plus,
            "prompt": prompt if prompt_file is None else "file",
            "prompt_text": template.source,
            "cpu_seconds": self._cpu_seconds,
        }
        faulty = {} if plus else {name: why for name, why in FAULTY.items() if name in tasks}
        ks = checked_ks(k)
        self.columns = pass_columns(ks, faulty)
        if plus:
            self.columns += pass_columns(ks[:1], (), "passed_base", "base_pass")
        else:
            self.paper = {"pass@1": "humaneval_pass@1"}
        self.caveats = [
            "upstream's limit is wall-clock time; here it is CPU time, with a loose wall-clock cap",
            *(["the prompt's instruction is ours, with the content of the paper's"] if prompt_file is None else []),
            *(["HumanEval+: one limit for the whole suite; upstream has one per input"] if plus else []),
            *(Caveat(f"{name}: {why}", [name]) for name, why in faulty.items()),
        ]

    def score(self, case: Case, replies: Sequence[Reply]) -> Score:
        """Judge the program: `passed`, `executable`, with plus also `passed_base` (without the further inputs)."""
        task: Task = case.row
        job = CodeJob(
            name=task.task_id,
            answer=replies[-1].text,
            prelude=task.prompt,
            test=task.test,
            entry_point=task.entry_point,
            cpu_seconds=self._cpu_seconds,
            wall_seconds=wall_seconds(self._cpu_seconds),
            memory_bytes=evalplus.MEMORY_BYTES if self._plus else MEMORY_BYTES,
            completes=True,
        )
        if not self._plus:
            return score_of(self.judge(job))
        return evalplus.score(self.judge, replace(job, data=task.base), task.more, task.solution)


def _case(task: Task, template: Template, prompt: str) -> Case:
    reference = task.solution if prompt == "body" else fenced(task.prompt + task.solution)
    return Case(task.task_id, template.fill(prompt=task.prompt), reference=reference, row=task)


def _parse(row: Mapping[str, Any]) -> Task:
    task = Task(
        task_id=text(row, "task_id"),
        prompt=text(row, "prompt"),
        entry_point=text(row, "entry_point"),
        solution=text(row, "canonical_solution"),
        test=text(row, "test"),
    )
    for field, code in (("prompt", task.prompt), ("canonical_solution", task.prompt + task.solution)):
        try:
            body = parsed(code).body
        except (SyntaxError, ValueError) as error:
            raise ValueError(f"its {field} doesn't parse ({error})") from None
        if not any(isinstance(node, ast.FunctionDef) and node.name == task.entry_point for node in body):
            raise ValueError(f"its {field} doesn't define the entry_point {task.entry_point!r}")
    if "def check(" not in task.test:
        raise ValueError("its test defines no check(candidate)")
    return task


def _parse_plus(row: Mapping[str, Any]) -> Task:
    task = _parse(row)
    base, more = evalplus.inputs_of(row)
    solution = task.prompt + task.solution
    return replace(
        task,
        test=evalplus.TEST,
        base=evalplus.test_data("humaneval", row, solution, base),
        more=evalplus.test_data("humaneval", row, solution, more) if more else None,
    )
