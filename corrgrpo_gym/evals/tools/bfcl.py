"""The Berkeley Function Calling Leaderboard, v4: its single-turn Python categories, by its rules on syntax trees.

One column a category: right calls by `bfcl_ast`; in irrelevance and live_irrelevance, no call; in live_relevance, any
call. An answer that can't be read as calls makes none. `overall` is the unweighted mean of the categories.

The functions stand in the prompt, and calls are asked for as `[f(a=1), g(b="x")]` (the instruction is ours, with the
content of upstream's; --prompt takes another, in which {functions} stands for their descriptions); or, with
native_tools=true, they are passed as tools of the endpoint, with dots of names as underscores. Answers are read in any
dialect that `envs.tool_calls` reads.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...envs.tool_calls import Call, parse
from ...errors import GymError
from ..benchmark import Benchmark, Case, Score
from ..data import Source, digest, find, parsed_rows
from ..metrics import Column, average, mean
from ..models.base import Reply
from .bfcl_ast import first_right, wrong

CATEGORIES = {
    "simple_python": "one function, one call",
    "multiple": "several functions, one call",
    "parallel": "one function, several calls",
    "parallel_multiple": "several functions, several calls",
    "live_simple": "of users: one function, one call",
    "live_multiple": "of users: several functions, one call",
    "live_parallel": "of users: one function, several calls",
    "live_parallel_multiple": "of users: several functions, several calls",
    "irrelevance": "no function fits: no call",
    "live_irrelevance": "of users: no function fits: no call",
    "live_relevance": "of users: some function fits: a call",
}
NONE = ("irrelevance", "live_irrelevance")
ANY = ("live_relevance",)
SOURCE = Source("bfcl", ("bfcl_single_turn_python.jsonl",), address="the package bfcl-eval (see SOURCES of its rows)")
PROMPT = (
    "You are given a question and some functions. Answer with the calls of functions that are needed, and with nothing "
    'else, in this form: [name1(parameter1=value1, parameter2="text"), name2(parameter=value)]\n'
    "If none of the functions can be used, or a parameter that is needed is not given, say so and call none.\n\n"
    "The functions, in JSON:\n{functions}"
)
_JSON_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}


class Bfcl(Benchmark):
    """See the module."""

    name = "bfcl"

    def __init__(
        self, data: str | Path | None = None, *, native_tools: bool = False, prompt_file: str | Path | None = None
    ) -> None:
        """Load all categories.

        Args:
            data: path of bfcl_single_turn_python.jsonl (packed by gzip or not) or of the folder that holds it. Its rows
                have id, category, question, function and ground_truth, as the files of bfcl-eval have.
            native_tools: pass the functions as tools; the prompt is then the question alone.
            prompt_file: another system prompt.

        Raises:
            GymError: bad options or data.
        """
        if data in (None, "auto", "hub"):
            raise GymError(
                f"bfcl: the data are on no hub in one file. Get {SOURCE.files[0]} and pass its path with --data"
            )
        path, self.note = find("bfcl", SOURCE, data)
        prompt = PROMPT
        if prompt_file is not None:
            try:
                prompt = Path(prompt_file).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise GymError(f"bfcl: prompt_file {prompt_file} can't be read: {error}") from None
            if "{functions}" not in prompt:
                raise GymError(f"bfcl: prompt_file {prompt_file} has no {{functions}} in it")
        self._native = native_tools
        rows = parsed_rows(path, _checked, lambda row: str(row["id"]))
        self.cases = [self._case(row, prompt) for row in rows.values()]
        self.settings = {
            "native_tools": native_tools,
            "prompt": "" if native_tools else hashlib.sha256(prompt.encode()).hexdigest()[:12],
            "prompt_source": "ours" if prompt_file is None else "file",
            "data": digest(path),
        }
        found = [name for name in CATEGORIES if any(row["category"] == name for row in rows.values())]
        means = [mean("right", group=name) for name in found]
        self.columns = [Column(n, CATEGORIES[n], by) for n, by in zip(found, means, strict=True)]
        self.columns.append(Column("overall", "unweighted mean of the categories", average(*means)))
        self.caveats = [
            *(
                []
                if native_tools or prompt_file
                else ["the prompt's instruction is ours, with the content of upstream's"]
            ),
            "answers are read in any dialect of calls; upstream reads the one that it asks for",
        ]

    def _case(self, row: dict[str, Any], prompt: str) -> Case:
        functions = row["function"]
        messages = [{"role": str(m["role"]), "content": str(m["content"])} for m in row["question"][0]]
        if not self._native:
            text = prompt.replace("{functions}", json.dumps(functions, ensure_ascii=False, indent=1))
            if messages[0]["role"] == "system":
                messages[0]["content"] = f"{text}\n\n{messages[0]['content']}"
            else:
                messages.insert(0, {"role": "system", "content": text})
        gold = row["ground_truth"]
        if row["category"] in NONE:
            reference = "None of the functions can be used for this."
        else:
            calls = first_right(gold, functions) if gold else [Call(functions[0]["name"], {})]
            reference = "[" + ", ".join(_written(call) for call in calls) + "]"
        return Case(
            id=row["id"],
            messages=tuple(messages),
            tools=tuple(_schema(function) for function in functions) if self._native else (),
            reference=reference,
            group=row["category"],
            row=(row["category"], functions, gold),
        )

    def score(self, case: Case, replies: Sequence[Reply]) -> Score:
        """Judge the calls by the category's rule."""
        category, functions, gold = case.row
        parsed = parse(replies[-1].message)
        calls = () if parsed.errors else parsed.calls
        errors = [str(e) for e in parsed.errors][:3]
        if category in NONE:
            reason = f"{len(calls)} calls, where none fits" if calls else ""
        elif category in ANY:
            reason = "" if calls else "no call"
        else:
            reason = "; ".join(errors) or wrong(calls, gold, functions)
        return Score({"right": float(not reason)}, {"why": reason, "calls": len(calls), "errors": errors})


def _checked(row: Any) -> dict[str, Any]:
    category = row["category"]
    if category not in CATEGORIES:
        raise ValueError(f"category {category!r} is none of {', '.join(CATEGORIES)}")
    if not row["question"] or not row["question"][0]:
        raise ValueError("the question is empty")
    names = {function["name"] for function in row["function"]}
    gold = row.get("ground_truth")
    if category in NONE + ANY:
        gold = None
    elif not gold or any(len(call) != 1 or not set(call) <= names for call in gold):
        raise ValueError("ground_truth holds no calls of the functions")
    return {**row, "ground_truth": gold}


def _written(call: Call) -> str:
    return f"{call.name}({', '.join(f'{key}={value!r}' for key, value in call.arguments.items())})"


def _schema(function: dict[str, Any]) -> dict[str, Any]:
    about = {
        "name": function["name"].replace(".", "_"),
        "description": function["description"],
        "parameters": _json_schema(function["parameters"]),
    }
    return {"type": "function", "function": about}


def _json_schema(about: Any) -> Any:
    """A description with JSON Schema's names of types."""
    if isinstance(about, list):
        return [_json_schema(item) for item in about]
    if not isinstance(about, dict):
        return about
    return {
        key: _JSON_TYPES.get(value, value) if key == "type" and isinstance(value, str) else _json_schema(value)
        for key, value in about.items()
    }
