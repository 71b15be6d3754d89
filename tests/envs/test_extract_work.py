"""How much work the extractor does: bounded on hostile texts, and little on ordinary ones."""

import ast
import sys

import pytest

from corrgrpo_gym.envs import extract
from corrgrpo_gym.envs.extract import PARSE_FACTOR, _EntryPoint, _Reading, extract_code

from .test_extract import DRAFT, GOOD, fenced, run

HOSTILE = {
    "quotes": "'" * 9,
    "triple quotes": '```python\n"""\n```\n',
    "escaped triple quotes": '```python\n\\"""\n```\nSolution f\n',
    "mixed triple quotes": "```python\n\"\"\" ''' \"\"\" '''\nSolution\n```\n",
    "comment and triple quotes": "```python\n# '''\n\"\"\"\nclass Solution:\n```\n",
    "fences": "```\n",
    "tagged fences": "```python\nclass Solution:\n",
    "other fences": "~~~~\n```\nSolution\n",
    "alternating fences": "```python\n~~~python\n",
    "longer fences in shorter ones": "~~~a\n~~~~b\n~~~~~c\n",
    "growing mixture": '~~~x\n```y\n"""\nSolution().f\n',
    "thoughts": "<think>",
    "thoughts closed": "<think></think>a",
    "thoughts closing": "</think>",
    "ANSI": "\x1b[0;1",
    "ANSI string": "\x1b]0;a",
    "C1": "\x9b0;",
    "escape and spaces": "\x1b   ",
    "spaces": "  ",
    "fence and spaces": "```" + " " * 40 + "x",
    "carriage returns": "\r",
    "brackets": "(",
    "classes": "class Solution:\n",
    "class blocks": "```python\nclass Solution: pass\n```\n",
    "class in prose": "class Solution\n",
    "class and spaces": "class   ",
    "needs": "```\nimport a\n```\n",
    "decorators": "@a\n",
    "indented class": "a\n  class Solution:\n",
    "list markers": "1. - * ",
    "assignments": "a, ",
    "elif": "if 1: pass\n",
}


class Meter:
    """Counts what the extractor does: characters parsed, and characters scanned for fences."""

    def __init__(self):
        self.calls = self.parsed = 0

    def __call__(self, code):
        self.calls += 1
        self.parsed += len(code)
        raise SyntaxError("counted only")


WRAPS = ["{}", "```python\n{}", "```python\n{}\n```\n" + GOOD, "~~~\n" + 3 * '"' + "{}"]


@pytest.mark.parametrize("wrap", WRAPS, ids=range(4))
@pytest.mark.parametrize("unit", HOSTILE.values(), ids=HOSTILE.keys())
def test_work_is_bounded_by_the_budgets(unit, wrap):
    text = wrap.format(unit * (20_000 // len(unit)))
    meter = Meter()
    reading = _Reading(text, _EntryPoint("Solution().f"), meter)
    reading.extract()
    assert meter.parsed <= PARSE_FACTOR * len(text)
    # What is left may be overdrawn by scans under way, and by those that go on from where one ended.
    assert reading.scan_budget >= -4 * (len(text) + 1)


@pytest.mark.parametrize("unit", HOSTILE.values(), ids=HOSTILE.keys())
def test_steps_grow_with_the_length(unit):
    """Twice the text takes about twice the interpreter's steps, counted, not timed."""
    small, large = (_steps(unit * (size // len(unit))) for size in (2_000, 8_000))
    assert large <= 4 * 1.5 * small + 2_000


def _steps(text):
    count = 0

    def trace(frame, event, arg):
        nonlocal count
        if frame.f_code.co_filename == extract.__file__:
            count += 1
            return trace
        return None

    sys.settrace(trace)
    try:
        extract_code(text, "Solution().f", parse=Meter())
    finally:
        sys.settrace(None)
    return count


def test_ordinary_answers_are_parsed_about_once():
    meter = Meter()
    text = fenced("import math\n") + fenced(DRAFT) + fenced(GOOD)
    extract_code(text, "Solution().f", parse=meter)
    assert meter.calls == 2

    counts = []
    extract_code(text, "Solution().f", parse=lambda code: counts.append(code) or ast.parse(code))
    assert counts == [GOOD.rstrip()]


MANY = 400_000
LONG_LINES = {
    "words": "word " * MANY,
    "quotes": "'" * MANY,
    "fence and spaces": "```" + " " * MANY + "x",
    "fence and tag": "```" + "a" * MANY + " !",
    "fence and attributes": "```" + "a " * MANY + "!",
    "spaces": " " * MANY + "x",
    "spaces and fence": " " * MANY + "``",
    "letters and fence": "x" * MANY + "``` !",
    "backticks": "`" * MANY + "x",
    "late fence": "x" + "`" * MANY + " " * MANY + "x",
    "class": "class" + " " * MANY,
    "targets": "a, " * MANY,
    "annotation": "a:" + "b" * MANY,
    "digits": "1" * MANY + ".",
    "ANSI": "\x1b[" + "0" * MANY + " " * MANY + "\n" + "\x9b" * MANY,
    "ANSI string": "\x1b]" * MANY,
    "tags": "<think" * MANY,
    "backslashes": "'" + "\\" * MANY,
    "fences": "```python\n'" * 30_000 + "```\n" * 7,
}


@pytest.mark.parametrize("line", LONG_LINES.values(), ids=LONG_LINES.keys())
def test_long_lines(line):
    """A quadratic regular expression would take hours here."""
    assert run(line + "\n~~~\n~~~\n```\n```\n" + fenced(GOOD))[0] == 2
