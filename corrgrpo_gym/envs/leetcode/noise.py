"""Imperfect answers to embedded problems, for a warm start that leaves room to learn.

Most are the slow solution, some the fast one, and a share of both has one slip of the kind that a small model
makes: a constant miscopied, a bound off by one, a wrong operator, a line left out, a character lost.
"""

import re
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

_OFF_BY_ONE = (
    ("range(1, n + 1)", "range(1, n)"),
    ("range(n + 1)", "range(n)"),
    ("range(n)", "range(1, n)"),
    ("range(i)", "range(1, i)"),
    ("range(i)", "range(i + 1)"),
    (", n + 1)", ", n)"),
    (" + 1", ""),
    (" - 1", ""),
    (" <= ", " < "),
    (" >= ", " > "),
    ("n < ", "n <= "),
    (" = 0\n", " = 1\n"),
    ("(1, ", "(0, "),
    ("nums:", "nums[1:]:"),
)
_OPERATORS = (
    (" + ", " - "),
    (" - ", " + "),
    (" // ", " % "),
    (" % ", " // "),
    (" * ", " + "),
    (" == ", " != "),
    (" += ", " -= "),
    (" or ", " and "),
    (" and ", " or "),
    ("max(", "min("),
    ("min(", "max("),
    (" ^ ", " + "),
    ("abs", ""),
)


def fenced(code: str) -> str:
    """Return code as an answer in a ```python block."""
    return f"```python\n{code.rstrip()}\n```"


def noisy_answers(row: Mapping[str, Any], rng: Random, *, fast: float = 0.3, slips: float = 0.15) -> Iterator[str]:
    """Yield answers to one embedded row without end.

    Args:
        row: a row of `embedded_rows`.
        rng: source of every choice.
        fast: share of answers that follow the fast solution, the others the slow one.
        slips: share of answers with one slip (nearly all of them fail, about a fifth of them do not run).

    Yields:
        Whole answers, fenced.
    """
    while True:
        code = row["completion"] if rng.random() < fast else row["baseline"]
        yield fenced(slip(code, rng) if rng.random() < slips else code)


def slip(code: str, rng: Random) -> str:
    """Return a class with one slip in its method's body; the text always changes."""
    head, line, body = code.partition(") -> ")
    rest, newline, body = body.partition("\n")
    while True:
        change = rng.choices((_constant, _replace, _line, _character), (40, 42, 10, 8))[0]
        changed = change(body, rng)
        if changed != body:
            return head + line + rest + newline + changed


def _constant(body: str, rng: Random) -> str:
    """Change one of the task's constants (numbers above 1) to a near, a reversed or any other one."""
    found = [m for m in re.finditer(r"\d+", body) if int(m[0]) > 1]
    if not found:
        return body
    match = rng.choice(found)
    value = int(match[0])
    wrong = rng.choice((value + 1, value - 1, value + 10, int(match[0][::-1]), rng.randrange(2, 98)))
    return body[: match.start()] + str(wrong) + body[match.end() :]


def _replace(body: str, rng: Random) -> str:
    """Move a bound by one or swap an operator."""
    table = rng.choice((_OFF_BY_ONE, _OPERATORS))
    old, new = rng.choice(table)
    at = [m.start() for m in re.finditer(re.escape(old), body)]
    if not at:
        return body
    start = rng.choice(at)
    return body[:start] + new + body[start + len(old) :]


def _line(body: str, rng: Random) -> str:
    """Leave one line out."""
    lines = body.splitlines(keepends=True)
    del lines[rng.randrange(len(lines))]
    return "".join(lines)


def _character(body: str, rng: Random) -> str:
    """Lose one colon or bracket."""
    start = rng.choice([m.start() for m in re.finditer(r"[:()\[\]]", body)] or [0])
    return body[:start] + body[start + 1 :]
