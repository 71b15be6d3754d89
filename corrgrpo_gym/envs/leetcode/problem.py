"""One LeetCode problem, from a row of either published layout."""

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

_ENTRY_POINT = re.compile(r"(?:(?P<owner>[A-Za-z_]\w*)\(\)\.)?(?P<name>[A-Za-z_]\w*)")
_CHECK = re.compile(r"^def check\(\s*(?P<candidate>[A-Za-z_]\w*)?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Problem:
    """A task of the environment.

    Attributes:
        task_id: the problem's slug.
        query: the user message.
        prelude: imports and helpers that run before the candidate and before the test.
        completion: the reference solution, whose syntax-tree shape `ast_similarity` compares with.
        baseline: the solution whose time is the unit of `efficiency`: the reference, or a slow one.
        entry_point: what the test calls, e.g. "Solution().twoSum".
        test: code that defines `check(candidate)`.
        starter_code: the class and method line of the statement; "" where the row has none.
        difficulty: "Easy", "Medium", "Hard" or "".
        tags: topics.
    """

    task_id: str
    query: str
    prelude: str
    completion: str
    baseline: str
    entry_point: str
    test: str
    starter_code: str = ""
    difficulty: str = ""
    tags: tuple[str, ...] = ()

    @property
    def slow_baseline(self) -> bool:
        """Whether the unit of time is another solution than the reference."""
        return self.baseline != self.completion


def parse_row(row: Any) -> Problem:
    """Check one row and keep what the environment needs.

    Args:
        row: an object with the fields of v0.3.1, or with some of them in `meta` as up to v0.3.0.

    Raises:
        ValueError: a field is missing, of a wrong type or empty, or the parts don't fit each other; the
            message doesn't say which row.
    """
    if not isinstance(row, Mapping):
        raise ValueError(f"it is a JSON {type(row).__name__}, not an object with fields")
    completion = _text(row, "completion")
    problem = Problem(
        task_id=_text(row, "task_id"),
        query=_text(row, "query"),
        prelude=_text(row, "prompt", blank=True),
        completion=completion,
        baseline=_text(row, "baseline") if "baseline" in row else completion,
        entry_point=_text(row, "entry_point").strip(),
        test=_text(row, "test"),
        starter_code=_optional(row, ("starter_code", "lang_code"), str, ""),
        difficulty=_optional(row, ("difficulty",), str, ""),
        tags=tuple(map(str, _optional(row, ("tags",), list, []))),
    )
    _check_parts(problem)
    return problem


def _check_parts(problem: Problem) -> None:
    entry = _ENTRY_POINT.fullmatch(problem.entry_point)
    if entry is None:
        raise ValueError(f"entry_point {problem.entry_point!r} is neither 'Class().method' nor a function's name")
    for field, code in (("completion", problem.completion), ("baseline", problem.baseline)):
        if not re.search(rf"\bdef {entry['name']}\s*\(", code) or (
            entry["owner"] and not re.search(rf"\bclass {entry['owner']}\b", code)
        ):
            raise ValueError(f"{field} doesn't define the entry_point {problem.entry_point!r}")
    check = _CHECK.search(problem.test)
    if check is None or not check["candidate"]:
        raise ValueError("test doesn't define check(candidate)")
    _check_compiles("prompt", problem.prelude)
    for field in ("test", "completion", "baseline"):
        _check_compiles(field, getattr(problem, field))
    if not re.search(rf"\b{check['candidate']}\b", problem.test[check.end() :]):
        raise ValueError("test is empty: it never calls its candidate")


@lru_cache(maxsize=64)  # thousands of rows share a few preludes
def _check_compiles(field: str, code: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(code, f"<{field}>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"{field} doesn't compile ({error})") from None


def _field(row: Mapping[str, Any], name: str) -> Any:
    if name in row:
        return row[name]
    meta = row.get("meta")
    return meta.get(name) if isinstance(meta, Mapping) else None


def _text(row: Mapping[str, Any], name: str, *, blank: bool = False) -> str:
    value = _field(row, name)
    if value is None:
        raise ValueError(f"field {name!r} is missing (it has {', '.join(sorted(map(str, row))) or 'none'})")
    if not isinstance(value, str):
        raise ValueError(f"field {name!r} is a {type(value).__name__}, not a text")
    if not blank and not value.strip():
        raise ValueError(f"field {name!r} is empty")
    return value


def _optional(row: Mapping[str, Any], names: tuple[str, ...], kind: type, default: Any) -> Any:
    for name in names:
        value = _field(row, name)
        if value is not None:
            if not isinstance(value, kind):
                raise ValueError(f"field {name!r} is a {type(value).__name__}, not a {kind.__name__}")
            return value
    return default
