"""What goes into the sandbox and what comes out."""

from dataclasses import dataclass
from typing import Any, Literal

from ...errors import GymError, NotScored

Status = Literal["nothing", "syntax_error", "compile_error", "runtime_error", "timeout", "failed", "passed"]


class SandboxError(GymError):
    """The sandbox or the data failed, not the program: it says nothing about the answer.

    Raised for a row whose own prelude or test is broken.
    """


class VerdictLost(SandboxError, NotScored):
    """A worker was lost twice on the same job; the verdict on it is unknown."""


class SandboxUnavailable(GymError):
    """A sandbox back end cannot be used on this machine; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class CodeJob:
    """A model's answer and the tests that it must pass.

    The test calls the candidate with arguments and gets what the entry point returns; where there is no entry point,
    with the text of standard input, and gets what the program wrote to standard output.

    Attributes:
        name: the task's id, for error messages.
        answer: the model's raw text; the code is extracted from it, parsed and compiled inside the jail.
        prelude: the data's code that goes before the answer (imports, node classes); runs on both sides.
        test: the data's test code, which defines ``check(candidate)``; runs in the trusted judge process
            only.
        entry_point: ``Solution().method`` (one instance for all calls) or the name of a function; empty for a
            script, which needs ``calls``.
        cpu_seconds: limit on CPU time of the candidate's process, for loading and all calls together.
        wall_seconds: loose limit on the whole verdict by the wall clock.
        memory_bytes: limit on the candidate's address space, above what the interpreter itself takes.
        calls: 0: one process answers all calls. Else each call has a fresh process, to which the limits apply, and
            the test makes no more calls than this.
        completes: the prelude ends in the function of the entry point, with its docstring for a body; the answer may
            be the body that is missing there, or the whole function.
        names: globals of the program that the test uses besides the entry point.
        data: plain values for the test, in its namespace as ``data``. Beside it is ``kept``, an empty dictionary in
            which a test may keep what it computes from its row, for later answers to the same one.
    """

    name: str
    answer: str
    prelude: str
    test: str
    entry_point: str
    cpu_seconds: float = 15.0
    wall_seconds: float = 60.0
    memory_bytes: int = 1 << 30
    calls: int = 0
    completes: bool = False
    names: tuple[str, ...] = ()
    data: Any = None

    def __post_init__(self) -> None:
        if self.calls < 0 or (not self.entry_point and not self.calls):
            raise ValueError(f"task {self.name!r}: calls is {self.calls}; a script needs a number of calls")


@dataclass(frozen=True, slots=True)
class Verdict:
    """How far a program came.

    Attributes:
        status: the furthest stage. ``nothing``: no code in the answer; ``syntax_error``: the code does not
            parse; ``compile_error``: prelude + code + test do not compile; ``runtime_error``: an exception,
            also one that the test met in handling what the program returned, an exit, a crash, or no memory;
            ``timeout``; ``failed``: an assertion of the test was false; ``passed``: the test ran to its end.
        code: the extracted code; empty where there is none.
        fenced: the code came from a fenced block.
        parses: the code parses.
        shape: node type names of the code's syntax tree in pre-order, with ``)`` after each node's children;
            None if it does not parse or has over 5,000 nodes.
        cpu_seconds: CPU time of the candidate's process from before the first line of its code to its last
            answer, read from outside the process; summed over its processes where it has several.
        detail: a short text for people: the exception, or the assertion that was false.
    """

    status: Status
    code: str = ""
    fenced: bool = False
    parses: bool = False
    shape: tuple[str, ...] | None = None
    cpu_seconds: float = 0.0
    detail: str = ""
