"""The judge's view of a candidate: calls go to its process, plain values come back.

Arguments are copied, with what they share among each other in one call. What a program does to them stays
with it:
no test of the data sets looks at its arguments afterwards, and where one passes an object twice, the second
call should not see what the first one made of it.

Runs in the trusted judge process: standard library only.
"""

import builtins
import contextlib
import marshal
import os
import signal
from typing import Any, NoReturn

from . import values, wire
from .channel import OverTime
from .line import Astray, Calls, Line

ENDED = "the process ended"
INTRUDED = "the program wrote to the judge's stream"


class RowError(Exception):
    """The data's own code is broken."""


class Stop(BaseException):
    """The verdict is known: unwind the test."""


class CandidateError(Exception):
    """An exception that the candidate raised; also an instance of the builtin class of that name, if any."""


_SIMPLE = (
    "ArithmeticError AssertionError AttributeError BufferError EOFError IndexError KeyError LookupError "
    "MemoryError NameError NotImplementedError OverflowError RecursionError ReferenceError RuntimeError "
    "StopIteration TypeError ValueError ZeroDivisionError"
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

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: D102
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
        line: to it.
        space: the namespace of the judge's prelude, for its node classes.
        calls: takes each request with its answer.

    Attributes:
        outcome: (status, detail) once the verdict no longer depends on the test.
        answered: how many requests the program has answered, with a value or an exception.
        cpu: seconds of CPU time until the last answer.
        astray: its process was sent other requests than the test makes, so that this run does not count.
    """

    def __init__(self, line: Line, space: dict[str, Any], calls: Calls | None = None):
        self._line = line
        self._calls = calls
        self.space = space
        self.outcome: tuple[str, str] | None = None
        self.answered = 0
        self.cpu = 0.0
        self.astray = False

    def stop(self, status: str, detail: str) -> NoReturn:
        """Settle the verdict, if it is not settled yet, and unwind."""
        if self.outcome is None:
            self.outcome = (status, detail)
        raise Stop

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: D102
        return self.ask("call", 0, (args, kwargs))

    def ask(self, op: str, target: int, payload: Any) -> Any:
        """Have the candidate's process do something, and return the value that comes back.

        Raises:
            CandidateError: it raised.
            Stop: it ended, ran out of time, or did not answer properly.
            Unsendable: the test passes something that has no form as data.
        """
        if self.outcome is not None:
            raise Stop
        request = encode_request(op, target, payload)
        try:
            try:
                answer = self._line.ask(request)
            finally:
                self.cpu = self._line.cpu
            if self._calls is not None:
                self._calls.append((request, answer))
            kind, value = self._value(answer)
        except EOFError:
            self.stop("runtime_error", ENDED)
        except OverTime:
            self.stop("timeout", f"over {self._line.channel.limit:g} s of CPU time")
        except wire.BadBytes as error:
            self.stop("runtime_error", f"{INTRUDED}: {error}")
        except Astray:
            self.astray = True
            self.stop("runtime_error", "asked otherwise than foreseen")
        self.answered += 1
        if kind == b"E":
            raise _error(value)
        return value

    def _value(self, answer: bytes) -> tuple[bytes, Any]:
        """Read an answer; an exception is (name, text, names of its bases)."""
        kind = answer[:1]
        plain = wire.loads(answer, 1)
        if kind == b"V":
            return kind, plain
        if kind == b"R":
            try:
                return kind, values.Unpacker(
                    lambda val: self.space.get("ListNode", values.ListNode)(val),
                    lambda val: self.space.get("TreeNode", values.TreeNode)(val),
                    lambda number: Handle(self, number),
                ).unpack(plain)
            except Exception as error:
                raise wire.BadBytes(f"malformed value ({type(error).__name__})") from None
        if kind == b"E":
            return kind, _described(plain)
        raise wire.BadBytes("not an answer")


def encode_request(op: str, target: int, payload: Any) -> bytes:
    """Return a request as it is sent.

    Raises:
        Unsendable: it holds something that has no form as data.
    """
    try:
        return marshal.dumps((op, target, False, payload))
    except ValueError:
        tree = values.Packer(lambda v: v._number if type(v) is Handle else None).pack(payload)
        return marshal.dumps((op, target, True, tree))


def exception(body: bytes) -> CandidateError:
    """Read the exception that a script says it ended with.

    Raises:
        BadBytes: the bytes say no such thing.
    """
    if body[:1] != b"E":
        raise wire.BadBytes("not an exception")
    return _error(_described(wire.loads(body, 1)))


def ending(status: int | None) -> str:
    """Say how a process ended, from its wait status."""
    if status is None:
        return ENDED
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"the process was ended by {signal.Signals(-code).name}"
        return f"the process was ended by signal {-code}"
    return f"the process exited with status {code}"


def _described(plain: Any) -> tuple[str, str, list[Any]]:
    if type(plain) is not tuple or [type(part) for part in plain] != [str, str, list]:
        raise wire.BadBytes("not an answer")
    return plain[0][:100], plain[1][:300], plain[2]


def _error(described: tuple[str, str, list[Any]]) -> CandidateError:
    name, text, bases = described
    # The nearest builtin class, so that a test that expects an exception can catch it.
    for base in bases:
        if type(base) is str and base in _ERRORS:
            return _ERRORS[base](name, text)
    return CandidateError(name, text)
