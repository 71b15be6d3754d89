"""The judge's view of a candidate: calls go to its process, plain values come back.

Runs in the trusted judge process: standard library only.
"""

import builtins
import marshal
import os
import socket
import time
from typing import Any

from . import values, wire

_SLICE_SECONDS = 0.05
_ANSWER = 8


class Stop(BaseException):
    """The verdict is known: unwind the test."""


class CandidateError(Exception):
    """An exception that the candidate raised; also an instance of the builtin class of that name, if any."""


class Protocol(Exception):
    """The candidate's process sent something that is not an answer."""


_SIMPLE = (
    "ArithmeticError AssertionError AttributeError BufferError EOFError IndexError KeyError LookupError MemoryError "
    "NameError NotImplementedError OverflowError RecursionError ReferenceError RuntimeError StopIteration TypeError "
    "ValueError ZeroDivisionError"
).split()
_ERRORS: dict[str, type[CandidateError]] = {
    name: type(name, (CandidateError, getattr(builtins, name)), {}) for name in _SIMPLE
}


class Handle:
    """An object of the candidate's that has no form as data. Equal to itself only."""

    __slots__ = ("_candidate", "_number")

    def __init__(self, candidate: "Candidate", number: int):
        object.__setattr__(self, "_candidate", candidate)
        object.__setattr__(self, "_number", number)

    def __getattr__(self, name: str) -> Any:
        return self._candidate.ask("get", self._number, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._candidate.ask("set", self._number, (name, value))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._candidate.ask("call", self._number, (args, kwargs))

    def __bool__(self) -> bool:
        return self._candidate.ask("bool", self._number, None) is True

    def __len__(self) -> int:
        return self._candidate.ask("len", self._number, None)

    def __iter__(self) -> Any:
        return iter(self._candidate.ask("list", self._number, None))

    def __str__(self) -> str:
        return str(self._candidate.ask("str", self._number, None))

    def __eq__(self, other: object) -> bool:
        return type(other) is Handle and other._number == self._number

    def __hash__(self) -> int:
        return hash(self._number)


class Candidate:
    """A program in its own process.

    Args:
        stream: the judge's end of its channel.
        cpu_limit: seconds of CPU time from the first call on.
        space: the namespace of the judge's prelude, for its node classes.

    Attributes:
        space: the namespace.
        outcome: (status, detail) once the verdict no longer depends on the test.
        returned: how many calls have returned a value.
        cpu: seconds of CPU time until the last answer.
    """

    def __init__(self, stream: socket.socket, cpu_limit: float, space: dict[str, Any]):
        self._stream = stream
        self._limit = cpu_limit
        self.space = space
        self._clock = 0
        self._base = 0.0
        self._nonce = int.from_bytes(os.urandom(6), "little")
        self._started = False
        self.outcome: tuple[str, str] | None = None
        self.returned = 0
        self.cpu = 0.0
        self.pid = 0

    # -- the stream

    def meet(self) -> None:
        """Take the first message, by which the kernel vouches for the process id.

        Raises:
            EOFError: the process ended first.
        """
        stream = self._stream
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        while True:
            try:
                data, ancillary, _, _ = stream.recvmsg(4, 64)
                break
            except BlockingIOError:
                continue
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
        if len(data) < 4:
            raise EOFError
        self.pid = int.from_bytes(ancillary[0][2][:4], "little")
        self._clock = (~self.pid << 3) | 2
        self._base = time.clock_gettime(self._clock)

    def used(self) -> float:
        """CPU seconds of the process since it was met or, later, since the first line of its code."""
        return time.clock_gettime(self._clock) - self._base

    def _read_exactly(self, n: int) -> bytes:
        parts = []
        while n:
            try:
                part = self._stream.recv(n if n < 1 << 20 else 1 << 20)
            except BlockingIOError:
                if self.used() > self._limit:
                    self.stop("timeout", f"over {self._limit:g} s of CPU time")
                continue
            except ConnectionResetError:
                part = b""
            if not part:
                raise EOFError
            parts.append(part)
            n -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read(self) -> bytes:
        """Read one message.

        Raises:
            EOFError: the process ended.
            Protocol: the message is too large.
        """
        size = wire.frame_length(self._read_exactly(4))
        if size > wire.MAX_FRAME:
            raise Protocol("a message too large")
        return self._read_exactly(size)

    def write(self, body: bytes) -> None:
        """Send one message (the time limit of a stuck reader is the job's wall clock)."""
        data = memoryview(wire.frame(body))
        while data:
            try:
                data = data[self._stream.send(data) :]
            except BlockingIOError:
                if self.used() > self._limit:
                    self.stop("timeout", f"over {self._limit:g} s of CPU time")
            except (BrokenPipeError, ConnectionResetError):
                raise EOFError from None

    def stop(self, status: str, detail: str) -> None:
        """Settle the verdict and unwind."""
        if self.outcome is None:
            self.outcome = (status, detail)
        raise Stop

    # -- what the test sees

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.ask("call", 0, (args, kwargs))

    def ask(self, op: str, target: int, payload: Any) -> Any:
        """Have the candidate's process do something, and return the value that comes back.

        Raises:
            CandidateError: it raised.
            Stop: it ended, ran out of time, or did not answer properly.
        """
        if self.outcome is not None:
            raise Stop
        self._nonce += 1
        nonce = self._nonce.to_bytes(_ANSWER, "little")
        try:
            request = marshal.dumps((nonce, op, target, False, payload))
        except ValueError:
            tree = values.Packer(self._refer).pack(payload)
            request = marshal.dumps((nonce, op, target, True, tree))
        if not self._started:
            self._started = True
            self._base = time.clock_gettime(self._clock)
        try:
            self.write(request)
            body = self.read()
            self.cpu = self.used()
            if self.cpu > self._limit:
                self.stop("timeout", f"over {self._limit:g} s of CPU time")
            if body[:_ANSWER] != nonce:
                raise Protocol("an answer to another call")
            value = self._value(body)
        except EOFError:
            self.cpu = self.used()
            if self.cpu > self._limit:
                self.stop("timeout", f"over {self._limit:g} s of CPU time")
            self.stop("runtime_error", "ended")
        except (Protocol, wire.BadBytes) as error:
            self.stop("runtime_error", f"the program wrote to the judge's stream: {error}")
        self.returned += 1
        return value

    def _value(self, body: bytes) -> Any:
        kind = body[_ANSWER : _ANSWER + 1]
        plain = wire.loads(body, _ANSWER + 1)
        if kind == b"V":
            return plain
        if kind == b"R":
            try:
                return values.Unpacker(
                    lambda val: self.space.get("ListNode", values.ListNode)(val),
                    lambda val: self.space.get("TreeNode", values.TreeNode)(val),
                    lambda number: Handle(self, number),
                ).unpack(plain)
            except Exception as error:
                raise Protocol(f"malformed value ({type(error).__name__})") from None
        if kind == b"E" and type(plain) is tuple and len(plain) == 3 and type(plain[2]) is list:
            name, text, bases = plain
            raise self._error(str(name), str(text), bases)
        raise Protocol("not an answer")

    @staticmethod
    def _error(name: str, text: str, bases: list[Any]) -> CandidateError:
        # The nearest builtin class, so that a test that expects an exception can catch it.
        for base in bases:
            if type(base) is str and base in _ERRORS:
                return _ERRORS[base](name, text)
        return CandidateError(name, text)

    @staticmethod
    def _refer(value: Any) -> int | None:
        return value._number if type(value) is Handle else None


def open_stream() -> tuple[socket.socket, socket.socket]:
    """Return a channel's two ends; reads and writes on the first give up the CPU clock's slice at a time."""
    ours, theirs = socket.socketpair()
    slice_ = int(_SLICE_SECONDS * 1e6)
    packed = (slice_ // 1_000_000).to_bytes(8, "little") + (slice_ % 1_000_000).to_bytes(8, "little")
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, packed)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, packed)
    return ours, theirs
