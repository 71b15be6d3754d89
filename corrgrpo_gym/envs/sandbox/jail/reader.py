"""Reads answers: finds the code in a model's text, parses it, compiles it. Runs none of it.

Hostile text can crash or stall a parser, so this is a jailed process of its own, which the judge replaces
when that happens. It lives from answer to answer, as parsing in a warm process is several times cheaper than
in one just forked; programs never run here, and the processes that they run in are not forked from here.

Runs inside the jail: standard library only.
"""

import ast
import ctypes
import marshal
import resource
import socket
import types
import warnings
from typing import Any

from ...extract import extract_code
from ...extract_forms import extract_completion, extract_script
from .. import wire
from . import seccomp
from .streams import confine_streams

_PR_SET_DUMPABLE = 4
MAX_SHAPE_NODES = 5_000
_CLOSE = ")"
_MEMORY_BYTES = 2 << 30


def shape(tree: ast.AST) -> str | None:
    """Return the node type names in pre-order, closing marks included, joined by spaces; None if too many."""
    out: list[str] = []
    stack: list[Any] = [tree]
    nodes = 0
    while stack:
        node = stack.pop()
        if node is None:
            out.append(_CLOSE)
            continue
        nodes += 1
        if nodes > MAX_SHAPE_NODES:
            return None
        out.append(node.__class__.__name__)
        stack.append(None)
        children: list[Any] = []
        for field in node._fields:
            value = getattr(node, field, None)
            if value.__class__ is list:
                children += [item for item in value if isinstance(item, ast.AST)]
            elif isinstance(value, ast.AST):
                children.append(value)
        children.reverse()
        stack += children
    return " ".join(out)


def _needs_whole(tree: ast.Module) -> bool:
    """Whether compiling after the prelude could differ from compiling alone."""
    return any(
        isinstance(node, ast.Global) or (isinstance(node, ast.ImportFrom) and node.module == "__future__")
        for node in tree.body
    )


def compile_code(code: str, tree: ast.Module, prelude: str, flags: int) -> types.CodeType:
    """Compile the program's own part, to run after the prelude.

    What counts is whether prelude + code + test compile as one file. The test stays out of the jail, and need
    not be here: code that parses by itself leaves nothing open that the lines after it could change or close,
    so the whole compiles if and only if prelude + code does and the test does (the judge compiles it). By the
    same argument the prelude changes nothing for the code, but for a ``from __future__`` line, which must
    come first, and a module-level ``global``, which must precede assignments; with either, the two are
    compiled together too.
    """
    if _needs_whole(tree):
        compile(prelude + "\n" + code, "<prelude and answer>", "exec", 0, True, 0)
    return compile(code, "<answer>", "exec", flags, True, 0)


class Reader:
    """Serves the judge, one answer at a time, until it closes the socket."""

    def __init__(self, stream: socket.socket):
        self._stream = stream
        self._file = stream.makefile("rb")

    def run(self) -> None:
        """Serve."""
        self._send(b"")  # by this message's credentials the judge learns the process id
        while header := self._file.read(4):
            self._read(*marshal.loads(self._file.read(wire.frame_length(header))))

    def _send(self, body: bytes) -> None:
        self._stream.sendall(wire.frame(body))

    def _read(self, answer: str, entry_point: str, prelude: str, flags: int, completes: bool) -> None:
        trees: dict[str, ast.Module] = {}

        def parse(source: str) -> ast.Module:
            trees[source] = tree = ast.parse(source)
            return tree

        if not entry_point:
            found = extract_script(answer, parse=parse)
        elif completes:
            found = extract_completion(answer, entry_point, prelude, parse=parse)
        else:
            found = extract_code(answer, entry_point, parse=parse)
        tree = form = None
        if found.parses:
            tree = trees.get(found.code) or ast.parse(found.code)
            form = shape(tree)
        trees.clear()
        self._send(wire.dumps((found.code, bool(found.fenced), bool(found.parses), form)))
        if tree is None:
            return
        try:
            code = compile_code(found.code, tree, prelude, flags)
        except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
            self._send(wire.dumps(f"{type(error).__name__}: {error}"[:300]))
            return
        self._send(wire.dumps(marshal.dumps(code)))


def main(fd: int) -> None:
    """Run the reader on an inherited socket."""
    stream = socket.socket(fileno=fd)
    warnings.simplefilter("ignore")
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    confine_streams()
    compile("import math\nclass A:\n    def f(self): return 1\n", "<warm>", "exec", ast.PyCF_ONLY_AST)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    if seccomp.supported():
        seccomp.Filter(sockets=True).apply()
    Reader(stream).run()
