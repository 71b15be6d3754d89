"""Answers by code in two further forms: the body of a function that the prompt began, and a script.

Both read the answer by `extract`: what a fence is, and what stands in one, is decided there. Like it, this file is
executed inside the sandbox's jail and imports nothing else of the package.

A completion may be, fenced or not, with prose around it or not:

1. a program that defines the whole function (imports and helpers may stand with it), as `extract_code` finds it;
2. the missing body: with the indentation of the function, without any, or with its first line's lost (as where the
   answer was stripped); functions and imports may stand in it, and at the margin after it. It must return something.

A script is the last fenced block of Python that parses, with what it needs from earlier ones, or all of an answer
without fences. A block without a language tag must call something: "3" is an example's output, and parses.
"""

import ast
import re
from collections.abc import Callable, Iterator
from typing import Any

from .extract import _CODE, Extraction, _Block, _dedented, _EntryPoint, _Reading, _statements, extract_code

_PYTHON = re.compile(r"(?:\{\.)?(?:python|py)(?:3|\b)", re.IGNORECASE)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MAX_PIECES = 8
_NOWHERE = "__main__"  # names no function: nothing is looked for by it
_NOTHING = Extraction("", False, False)


def extract_completion(
    text: str, entry_point: str, head: str, *, parse: Callable[[str], Any] = ast.parse
) -> Extraction:
    """Find the function that completes a prompt.

    Args:
        text: the raw answer.
        entry_point: the function's name.
        head: the prompt's code, which ends in that function, with its docstring for a body.
        parse: as in `extract_code`.

    Returns:
        Code that defines the function: the answer's own, or the head with the answer's body.
    """
    whole = extract_code(text, entry_point, parse=parse)
    if whole.parses and _defines(parse(whole.code), entry_point):
        return whole
    margin = _margin(head, entry_point, parse)
    if margin is not None:
        head = head.rstrip() + "\n"
        for piece in _pieces(_read(text, entry_point, parse)):
            for body in _placed(piece.text, margin):
                if _returns(code := head + body + "\n", entry_point, parse):
                    return Extraction(code, piece.closed, True)
    return whole


def extract_script(text: str, *, parse: Callable[[str], Any] = ast.parse) -> Extraction:
    """Find the program that an answer consists of.

    Args:
        text: the raw answer.
        parse: as in `extract_code`.
    """
    reading = _read(text, _NOWHERE, parse)
    for closed in (True, False):
        for tagged in (True, False):
            for i, block in reversed(list(enumerate(reading.blocks))):
                if block.closed == closed and _python(block) == tagged and (tagged or not block.info):
                    tree = reading._tree(block)
                    if tree is not None and tree.body and (tagged or _calls(tree)):
                        return Extraction(reading._completed(block, reading.blocks[:i]), closed, True)
    for lines in _wholes(reading):
        block = _Block(lines)
        if (tree := reading._tree(block)) is not None and _calls(tree):
            return Extraction(block.code, False, True)
    for block in reversed(reading.blocks):
        if _python(block) and block.text.strip():
            return Extraction(block.text, block.closed, False)
    return _NOTHING


def _read(text: str, entry_point: str, parse: Callable[[str], Any]) -> _Reading:
    reading = _Reading(text, _EntryPoint(entry_point), parse)
    reading._find_blocks()
    return reading


def _wholes(reading: _Reading) -> Iterator[list[str]]:
    """All lines; those before a stray closing fence; what stands before, between and after blocks, the last first."""
    yield reading.lines
    if reading.last_bare_fence is not None:
        yield reading.lines[: reading.last_bare_fence]
    if len(reading.outside) > 1:
        yield from reversed(reading.outside)


def _python(block: _Block) -> bool:
    return _PYTHON.match(block.info) is not None


def _calls(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.Call) for node in ast.walk(tree))


def _defines(tree: ast.Module, name: str) -> bool:
    """Whether the module defines the function: a body may bind its name, too, and returns then."""
    found = False
    for node in _statements(tree.body):
        if isinstance(node, ast.Return):
            return False
        targets = node.targets if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda) else []
        found |= isinstance(node, _FUNCTIONS) and node.name == name
        found |= any(isinstance(target, ast.Name) and target.id == name for target in targets)
    return found


def _function(tree: ast.Module, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    return next((n for n in reversed(tree.body) if isinstance(n, _FUNCTIONS) and n.name == name), None)


def _margin(head: str, name: str, parse: Callable[[str], Any]) -> str | None:
    """The whitespace before the statements of the head's function."""
    try:
        function = _function(parse(head), name)
    except Exception:
        return None
    if function is None:
        return None
    first = function.body[0]
    margin = head.split("\n")[first.lineno - 1][: first.col_offset]
    return None if margin.strip() else margin


def _pieces(reading: _Reading) -> Iterator[_Block]:
    """What may be a body, best first: fenced blocks, the text, indented lines of it, and paragraphs of it."""
    for closed in (True, False):
        yield from [b for b in reversed(reading.blocks[-_MAX_PIECES:]) if b.closed == closed]
    for lines in _wholes(reading):
        yield _Block(lines)
    runs = [run for lines in reading.outside for run in _indented_runs(lines)]
    yield from map(_Block, reversed(runs[-_MAX_PIECES:]))
    paragraphs = "\n".join(reading.lines).strip("\n").split("\n\n")
    for first in (0, 1):
        for last in range(len(paragraphs), max(first, len(paragraphs) - _MAX_PIECES), -1):
            yield _Block("\n\n".join(paragraphs[first:last]).split("\n"))


def _indented_runs(lines: list[str]) -> Iterator[list[str]]:
    """Indented lines that stand together; not those below the head of a function or the like."""
    run: list[str] = []
    above = ""
    for line in [*lines, "-"]:
        if not line[:1].strip() and (run or line.strip()):
            run.append(line)
        elif line.strip():
            if run and not (_CODE.match(above) and above.rstrip().endswith(":")):
                yield run
            run, above = [], line


def _placed(text: str, margin: str) -> Iterator[str]:
    """A body with the function's indentation, by each way in which it may have lost it."""
    lines = text.split("\n")
    if lines[0][:1].isspace():
        yield text
    yield _indented(lines, margin)
    if len(lines) > 1:
        yield _indented([lines[0].lstrip(), *_dedented(lines[1:])], margin)


def _indented(lines: list[str], margin: str) -> str:
    return "\n".join(margin + line if line.strip() else "" for line in lines)


def _returns(code: str, name: str, parse: Callable[[str], Any]) -> bool:
    """Whether the code parses, and its function of this name returns or yields something."""
    try:
        function = _function(parse(code), name)
    except Exception:  # SyntaxError, ValueError (NUL, surrogates), RecursionError, MemoryError, ...
        return False
    if function is None:
        return False
    if any(isinstance(node, ast.Return) and node.value is not None for node in _statements(function.body)):
        return True
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function))
