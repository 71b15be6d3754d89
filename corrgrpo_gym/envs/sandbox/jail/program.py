"""One candidate program, in a process of its own: load it, then answer the judge's calls.

Whatever runs here is untrusted from the first line of candidate code on. The judge believes one thing only:
that an answer is a plain value, to be compared like any other.

Runs inside the jail: standard library only.
"""

import atexit
import contextlib
import gc
import io
import marshal
import os
import re
import sys
import threading
import types
from collections.abc import Callable
from typing import Any, NoReturn

from .. import values, wire

_OPERATIONS: dict[str, Callable[[Any], Any]] = {"bool": bool, "len": len, "str": str, "list": list}
_REHEARSAL = marshal.dumps(
    compile(
        """
class Solution:
    def rehearse(self, items: list, n: int) -> list:
        seen = {}
        for i, item in enumerate(items):
            if item not in seen:
                seen[item] = [i + n, str(item)]
        return sorted([k for k, _ in seen.values()]) + [x * 2 for x in range(300, 600)]
""",
        "<rehearsal>",
        "exec",
    )
)
_READ = 8192
_METHOD = re.compile(r"(\w+)\(\)\.(\w+)")


class Program:
    """The candidate's side of one job.

    Args:
        channel: file descriptor of the judge's stream.
        module: what it runs in, from `prepare`.
        script: whether descriptors 0 and 1 are its standard input and output.
    """

    def __init__(self, channel: int, module: types.ModuleType, script: bool = False):
        self._fd = channel
        self._ahead = b""
        self._objects: dict[int, Any] = {0: _not_loaded}
        self._module = module
        sys.modules.update(__main__=module, builtins=module.__dict__["__builtins__"])
        if script:
            # Opened anew: a process begins with streams that know what kind of files they are.
            stdin, stdout = _open(0, "r", "<stdin>"), _open(1, "w", "<stdout>")
            vars(sys).update(stdin=stdin, __stdin__=stdin, stdout=stdout, __stdout__=stdout)

    # -- the stream

    def _receive(self) -> bytes:
        data = self._ahead
        while len(data) < 4:
            data += self._more(_READ)
        end = 4 + wire.frame_length(data)
        if len(data) < end:
            parts, missing = [data], end - len(data)
            while missing > 0:
                parts.append(self._more(max(_READ, min(missing, 1 << 20))))
                missing -= len(parts[-1])
            data = b"".join(parts)
        self._ahead = data[end:]
        return data[4:end]

    def _more(self, n: int) -> bytes:
        data = os.read(self._fd, n)
        if not data:
            os._exit(0)
        return data

    def _send(self, body: bytes) -> None:
        data = wire.frame(body)
        sent = os.write(self._fd, data)
        while sent < len(data):
            data = data[sent:]
            sent = os.write(self._fd, data)

    # -- the job

    def run(self, prelude: types.CodeType) -> None:
        """Run the rest of the prelude, report, then load the program and answer until the judge closes the stream."""
        exec(prelude, self._module.__dict__)
        self._rehearse()
        gc.enable()
        self._send(b"")  # by this message's credentials the judge learns the process id
        # The judge is trusted, so marshal may read what it writes.
        code, entry_point = marshal.loads(self._receive())
        code = marshal.loads(code)
        if not entry_point:
            self._script(code, sys.stdout)
        while True:
            request = self._receive()
            nonce = request[: wire.NONCE]
            op, target, rich, payload = marshal.loads(memoryview(request)[wire.NONCE :])
            del request
            try:
                if code is not None:
                    ready, code = code, None
                    self._load(ready, entry_point)
                body = self._encode(self._perform(op, target, self._decode(payload) if rich else payload))
            except BaseException as error:
                body = _describe(error)
            self._send(nonce + body)

    def _rehearse(self) -> None:
        """Go once through what a call does, so that the first one does not pay for untouched memory."""
        space: dict[str, Any] = {"__name__": "rehearsal"}
        exec(marshal.loads(_REHEARSAL), space)
        request = wire.frame(marshal.dumps(("call", 0, False, (([1, "a", 0.5],), {"n": 1}))))
        op, target, _, payload = marshal.loads(memoryview(request)[4:])
        self._objects[0] = _lookup(space, "Solution")().rehearse
        wire.frame(b"" + self._encode(self._perform(op, target, payload)))
        self._objects[0] = _not_loaded

    def _script(self, code: types.CodeType, stdout: Any) -> NoReturn:
        """Run the program as a script, and end as an interpreter does."""
        try:
            with contextlib.suppress(SystemExit):
                exec(code, self._module.__dict__)
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
            for stream in (sys.stdout, stdout):
                with contextlib.suppress(ValueError):  # it may be closed
                    stream.flush()
        except BaseException as error:
            self._send(_describe(error))
            os._exit(1)
        os._exit(0)

    def _load(self, code: types.CodeType, entry_point: str) -> None:
        space = self._module.__dict__
        exec(code, space)
        match = _METHOD.fullmatch(entry_point)
        if match:
            self._objects[0] = getattr(_lookup(space, match[1])(), match[2])
        else:
            self._objects[0] = _lookup(space, entry_point)

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
        return _OPERATIONS[op](thing)

    # -- values

    def _keep(self, value: Any) -> int:
        number = len(self._objects)
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


def _open(fd: int, mode: str, name: str) -> io.TextIOWrapper:
    raw = io.FileIO(fd, mode, closefd=False)
    raw.name = name
    buffer: Any = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
    newline = None if mode == "r" else "\n"
    return io.TextIOWrapper(buffer, encoding="utf-8", errors="surrogateescape", newline=newline)


def _not_loaded(*args: Any, **kwargs: Any) -> Any:
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
