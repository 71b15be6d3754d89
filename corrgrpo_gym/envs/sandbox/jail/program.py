"""One candidate program, in a process of its own: take it from the model's text, load it, answer calls.

Whatever runs here is untrusted from the first line of candidate code on. The judge believes nothing but two things:
the reports that are sent before that line, and that an answer is a plain value, to be compared like any other.

Runs inside the jail: standard library only.
"""

import __future__

import ast
import gc
import marshal
import os
import re
import sys
import types
from typing import Any

from ...extract import extract_code
from .. import values, wire

MAX_SHAPE_NODES = 5_000
_CLOSE = ")"
_FUTURE = 0
for _name in __future__.all_feature_names:
    _FUTURE |= getattr(__future__, _name).compiler_flag


def shape(tree: ast.AST) -> str | None:
    """Return the tree's node type names, pre-order with a closing mark, joined by spaces; None if it is too large."""
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
        children = []
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


def compile_code(code: str, tree: ast.Module, prelude: str, prelude_flags: int) -> types.CodeType:
    """Compile the program's own part, to run after the prelude.

    What counts is whether prelude + code + test compile as one file. The test stays out of this process, and need not
    be here: code that parses by itself leaves nothing open that the lines after it could change or close, so the whole
    compiles if and only if prelude + code does and the test does (the judge compiles it). By the same argument the
    prelude changes nothing for the code, but for a ``from __future__`` line, which must come first, and a module-level
    ``global``, which must precede assignments; with either, the two are compiled together too.
    """
    if _needs_whole(tree):
        compile(prelude + "\n" + code, "<prelude and answer>", "exec", 0, True, 0)
    return compile(code, "<answer>", "exec", prelude_flags, True, 0)


class Program:
    """The candidate's side of one job.

    Args:
        channel: file descriptor of the judge's stream.
        prelude: (source, code object) of the data's prelude.
    """

    def __init__(self, channel: int, prelude: tuple[str, types.CodeType]):
        self._fd = channel
        self._prelude = prelude
        self._objects: dict[int, Any] = {}
        self._module = types.ModuleType("__main__")
        self._code: types.CodeType | None = None
        self._entry_point = ""

    # -- the stream

    def _read_exactly(self, n: int) -> bytes:
        data = os.read(self._fd, n)
        if len(data) == n:
            return data
        parts = [data]
        left = n - len(data)
        while left:
            data = os.read(self._fd, min(left, 1 << 20))
            if not data:
                os._exit(0)
            parts.append(data)
            left -= len(data)
        return b"".join(parts)

    def _receive(self) -> Any:
        # The judge is trusted, so marshal may read what it writes.
        return marshal.loads(self._read_exactly(wire.frame_length(self._read_exactly(4))))

    def _send(self, body: bytes) -> None:
        data = wire.frame(body)
        sent = os.write(self._fd, data)
        while sent < len(data):
            data = data[sent:]
            sent = os.write(self._fd, data)

    # -- before any candidate code

    def prepare(self) -> bool:
        """Extract, parse and compile; report each step. Returns whether there is a program to run."""
        self._send(b"")  # set up; by this message's credentials the judge learns the process id
        answer, self._entry_point = self._receive()
        trees: dict[str, ast.Module] = {}

        def parse(source: str) -> ast.Module:
            tree = ast.parse(source)
            trees[source] = tree
            return tree

        found = extract_code(answer, self._entry_point, parse=parse)
        tree = None
        if found.parses:
            tree = trees.get(found.code) or ast.parse(found.code)
        trees.clear()
        form = None if tree is None else shape(tree)
        self._send(wire.dumps((found.code, bool(found.fenced), bool(found.parses), form)))
        if tree is None:
            return False
        source, prelude = self._prelude
        try:
            self._code = compile_code(found.code, tree, source, prelude.co_flags & _FUTURE)
        except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
            self._send(wire.dumps(f"{type(error).__name__}: {error}"[:300]))
            return False
        del tree
        sys.modules["__main__"] = self._module
        exec(prelude, self._module.__dict__)
        self._send(wire.dumps(None))
        return True

    # -- with candidate code

    def serve(self) -> None:
        """Answer the judge until it closes the stream."""
        gc.enable()
        while True:
            nonce, op, target, rich, payload = self._receive()
            try:
                if self._code is not None:
                    self._load()
                body = self._encode(self._perform(op, target, self._decode(payload) if rich else payload))
            except BaseException as error:
                body = _describe(error)
            self._send(nonce + body)

    def _load(self) -> None:
        code, self._code = self._code, None
        assert code is not None
        self._objects[0] = _Failed()
        space = self._module.__dict__
        exec(code, space)
        match = re.fullmatch(r"(\w+)\(\)\.(\w+)", self._entry_point)
        if match:
            self._objects[0] = getattr(_lookup(space, match[1])(), match[2])
        else:
            self._objects[0] = _lookup(space, self._entry_point)

    def _perform(self, op: str, target: int, payload: Any) -> Any:
        if op == "call":
            args, kwargs = payload
            return self._objects[target](*args, **kwargs)
        if op == "name":
            return _lookup(self._module.__dict__, payload)
        thing = self._objects[target]
        if op == "get":
            return getattr(thing, payload)
        if op == "set":
            setattr(thing, *payload)
            return None
        return {"bool": bool, "len": len, "str": str, "list": list}[op](thing)

    # -- values

    def _keep(self, value: Any) -> int:
        number = len(self._objects) + 1
        self._objects[number] = value
        return number

    def _encode(self, value: Any) -> bytes:
        try:
            body = b"V" + wire.dumps(value)
        except ValueError:
            try:
                body = b"R" + wire.dumps(values.Packer(self._keep).pack(value))
            except ValueError:
                body = b""
        if not body or len(body) > wire.MAX_FRAME - 16:
            body = b"R" + wire.dumps(("h", self._keep(value)))
        return body

    def _decode(self, tree: Any) -> Any:
        return values.Unpacker(
            lambda val: self._node("ListNode", values.ListNode, val),
            lambda val: self._node("TreeNode", values.TreeNode, val),
            self._objects.__getitem__,
        ).unpack(tree)

    def _node(self, name: str, fallback: type, val: Any) -> Any:
        """A node of the class that the name means in the program: the prelude's, or the candidate's own."""
        return self._module.__dict__.get(name, fallback)(val)


class _Failed:
    """Stands for the entry point of a program that did not load."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("the program did not load")


def _lookup(space: dict[str, Any], name: str) -> Any:
    try:
        return space[name]
    except KeyError:
        raise NameError(f"name {name!r} is not defined") from None


def _describe(error: BaseException) -> bytes:
    try:
        kind = str(type(error).__name__)[:100]
        bases = [str(t.__name__)[:100] for t in type(error).__mro__[:20]]
        try:
            text = str(error)[:300]
        except BaseException:
            text = ""
        return b"E" + wire.dumps((kind, text, bases))
    except BaseException:
        return b"E" + wire.dumps(("Exception", "", []))
