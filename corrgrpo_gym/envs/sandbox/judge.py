"""The trusted process of one worker: runs the data's tests against the candidate, and takes the verdict.

The expected values and the comparison are here, in memory that the candidate's process cannot reach. This
process is not the trainer's: test code, though trusted, is still code from a data set.

Standard library only: it is started without the package's dependencies.
"""

import __future__

import contextlib
import ctypes
import hashlib
import marshal
import os
import random
import resource
import signal
import socket
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from . import stopwatch, wire
from .channel import OverTime
from .foresee import SECONDS, Foreseen, is_plain, run_blindly
from .jails import Jail, JailLost
from .line import Calls, Line
from .processes import Processes
from .remote import ENDED, Candidate, CandidateError, RowError, Stop, ending

_MAX_COMPILED = 64
_MAX_KEPT = 16
_RECURSION = 100_000  # tests compare long linked lists recursively
_MEMORY_BYTES = 8 << 30
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_FUTURE = 0
for _name in __future__.all_feature_names:
    _FUTURE |= getattr(__future__, _name).compiler_flag


class _ReaderLost(Exception):
    """The reader ended while it read: the status if that was the answer's doing, and what it was at."""


class Judge:
    """One jail, and the jobs judged with it, one at a time."""

    def __init__(self, jail: Jail):
        self.jail = jail
        self._compiled: dict[tuple[str, str], types.CodeType] = {}
        self._armed: Any = None
        self._foreseen: dict[str, list[bytes]] = {}
        self._kept: dict[bytes, dict[Any, Any]] = {}
        signal.signal(signal.SIGALRM, self._alarm)

    def _alarm(self, *_: Any) -> None:
        candidate, self._armed = self._armed, None
        if candidate is not None:
            candidate.stop("timeout", "over the limit by the wall clock")

    def _compile(self, source: str, what: str) -> types.CodeType:
        code = self._compiled.pop((what, source), None)
        if code is None:
            try:
                code = compile(source, f"<{what}>", "exec", 0, True, 0)
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                raise RowError(f"its {what} does not compile: {_text(error)}") from None
            if len(self._compiled) >= _MAX_COMPILED:
                del self._compiled[next(iter(self._compiled))]
        self._compiled[what, source] = code  # the last one used is the last to go
        return code

    def judge(self, job: dict[str, Any]) -> dict[str, Any]:
        """Take one verdict.

        Raises:
            RowError: the row's own code is broken.
            JailLost: the jail ended.
        """
        return self.take(job)[0]

    def take(self, job: dict[str, Any], calls: Calls | None = None) -> tuple[dict[str, Any], bytes | None]:
        """Take a verdict; return it with the compiled program, if there is one.

        Args:
            job: what to judge.
            calls: takes each call with its answer.

        Raises:
            RowError: the row's own code is broken.
            JailLost: the jail ended.
        """
        prelude = self._compile(job["prelude"], "prelude")
        test = self._compile(job["test"], "test")
        verdict: dict[str, Any] = {"code": "", "fenced": False, "parses": False, "shape": None}
        outcome, program = self._read(job, prelude.co_flags & _FUTURE, verdict)
        verdict["cpu_seconds"] = 0.0
        if program is not None:
            candidate = self._run(job, prelude, test, program, calls)
            assert candidate.outcome is not None
            outcome = candidate.outcome
            verdict["cpu_seconds"] = candidate.cpu
        verdict["status"], verdict["detail"] = outcome
        return verdict, program

    def _read(self, job: dict[str, Any], flags: int, verdict: dict[str, Any]) -> tuple[tuple[str, str], bytes | None]:
        """Have the answer read; fill in what is known of it; return how it ended or the compiled program.

        A reader that ends is asked for again once: something outside (the kernel, short of memory) may have ended it,
        and only an answer that ends two of them has itself to blame.
        """
        try:
            return self._read_once(job, flags, verdict)
        except _ReaderLost:
            self.jail.drop_reader()
        try:
            return self._read_once(job, flags, verdict)
        except _ReaderLost as lost:
            self.jail.drop_reader()
            return (lost.args[0], f"{lost.args[1]} ended the process"), None

    def _read_once(
        self, job: dict[str, Any], flags: int, verdict: dict[str, Any]
    ) -> tuple[tuple[str, str], bytes | None]:
        channel = self.jail.reader()
        channel.start_clock()
        message = (job["answer"], job["entry_point"], job["prelude"], flags, job["completes"])
        status, what = "syntax_error", "reading the answer"
        try:
            channel.write(wire.frame(marshal.dumps(message)))
            code, fenced, parses, form = wire.loads(channel.read())
            shape = None if form is None else form.split(" ")
            verdict.update(code=code, fenced=fenced, parses=parses, shape=shape)
            if not code:
                return ("nothing", "there is no code in the answer"), None
            if not parses:
                return ("syntax_error", "the code does not parse"), None
            status, what = "compile_error", "compiling the code"
            result = wire.loads(channel.read())
        except (EOFError, wire.BadBytes):
            raise _ReaderLost(status, what) from None
        except OverTime:
            self.jail.drop_reader()
            return (status, f"{what} took over {channel.limit:g} s of CPU time"), None
        if isinstance(result, str):
            return ("compile_error", result), None
        return ("", ""), result

    def foresee(self, job: dict[str, Any]) -> list[bytes]:
        """The calls that the test will probably make."""
        if job["calls"] or job["names"] or job["data"] is not None:
            return []
        source = job["test"]
        requests = self._foreseen.pop(source, None)
        if requests is None:
            seen = Foreseen()
            test = self._compile(source, "test")
            if is_plain(test):
                with contextlib.suppress(Stop), self.watched(seen, SECONDS):
                    run_blindly(test, seen)
            requests = seen.requests
            if len(self._foreseen) >= _MAX_COMPILED:
                del self._foreseen[next(iter(self._foreseen))]
        self._foreseen[source] = requests
        return requests

    def _run(
        self,
        job: dict[str, Any],
        prelude: types.CodeType,
        test: types.CodeType,
        program: bytes,
        calls: Calls | None,
    ) -> Candidate | Processes:
        space = self._space(job, prelude)
        if job["calls"]:
            return self._run_each(job, test, program, space)
        candidate = self._run_once(job, test, program, space, calls, self.foresee(job))
        if candidate.astray:
            self._foreseen[job["test"]] = []
            candidate = self._run_once(job, test, program, self._space(job, prelude), calls, [])
        return candidate

    def _space(self, job: dict[str, Any], prelude: types.CodeType) -> dict[str, Any]:
        """The test's namespace."""
        space: dict[str, Any] = {"__name__": "judge"}
        # Nothing of an earlier job may change a verdict.
        random.seed(0)
        sys.setrecursionlimit(_RECURSION)
        try:
            exec(prelude, space)
        except (Exception, SystemExit) as error:
            raise RowError(f"its prelude raised {_text(error)}") from None
        if job["data"] is not None:
            space["data"], space["kept"] = job["data"], self._keep(job)
        return space

    def _run_once(
        self,
        job: dict[str, Any],
        test: types.CodeType,
        program: bytes,
        space: dict[str, Any],
        calls: Calls | None,
        ahead: Sequence[bytes],
    ) -> Candidate:
        channel = self.jail.fork(job)
        line = Line(channel, program, job["entry_point"], ahead)
        candidate = Candidate(line, space, calls)
        if calls is not None:
            calls.clear()
        try:
            with contextlib.suppress(Stop), self.watched(candidate, job["wall_seconds"]):
                _check(job, test, candidate)
            if not line.idle:
                candidate.astray |= candidate.outcome is not None and candidate.outcome[0] == "passed"
            elif candidate.answered:
                candidate.cpu = self.jail.settle(channel)
        finally:
            channel.close()
            status = self.jail.reap()
        if candidate.cpu > channel.limit and candidate.outcome is not None and candidate.outcome[0] == "passed":
            candidate.outcome = ("timeout", f"over {channel.limit:g} s of CPU time")
        if candidate.outcome is not None and candidate.outcome[1] == ENDED:
            candidate.outcome = (candidate.outcome[0], ending(status))
        return candidate

    @contextlib.contextmanager
    def watched(self, running: Any, seconds: float) -> Iterator[None]:
        """Stop what runs after some seconds by the wall clock."""
        try:
            self._armed = running
            signal.setitimer(signal.ITIMER_REAL, seconds)
            yield
        finally:
            self._armed = None
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _run_each(self, job: dict[str, Any], test: types.CodeType, program: bytes, space: dict[str, Any]) -> Processes:
        def watch(seconds: float | None) -> None:
            self._armed = None
            signal.setitimer(signal.ITIMER_REAL, seconds or 0)
            self._armed = candidate if seconds else None

        candidate = Processes(self.jail, job, program, space, watch)
        try:
            try:
                watch(job["wall_seconds"])
                _check(job, test, candidate)
            finally:
                watch(None)
        except Stop:
            # Also where the test asked an object whose process had ended with its call.
            candidate.outcome = candidate.outcome or ("runtime_error", ENDED)
        if candidate.lost is not None:
            raise candidate.lost
        return candidate

    def _keep(self, job: dict[str, Any]) -> dict[Any, Any]:
        """What the test kept of earlier answers to the same row: expected values that take time to compute."""
        row = marshal.dumps((job["name"], job["prelude"], job["test"], job["data"]))
        key = hashlib.blake2b(row).digest()
        self._kept[key] = kept = self._kept.pop(key, {})
        if len(self._kept) > _MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        return kept


def _check(job: dict[str, Any], test: types.CodeType, candidate: Candidate | Processes) -> None:
    """Run the test."""
    space = candidate.space
    if job["entry_point"].isidentifier():
        space[job["entry_point"]] = candidate  # some tests call the function by its name
    named = 0
    try:
        if isinstance(candidate, Candidate):
            for name in job["names"]:
                space[name] = candidate.ask("name", 0, name)
                named += 1
        exec(test, space)
        if "check" not in space:
            raise RowError("its test defines no check(candidate)")
        space["check"](candidate)
        if candidate.answered == named and candidate.outcome is None:
            raise RowError("its test passes without calling the candidate")
        outcome = ("passed", "")
    except RowError:
        raise
    except CandidateError as error:
        outcome = ("runtime_error", ": ".join(map(str, error.args)))
    except AssertionError as error:
        outcome = ("failed", _assertion(error, job["test"]))
    except (NameError, ImportError, SyntaxError, SystemExit) as error:
        raise RowError(f"its test raised {_text(error)}") from None
    except Exception as error:
        # Before anything came back it can only be the test's fault. After that the values are to blame, as
        # where everything runs in one process: the program did not come to a verdict.
        if candidate.answered == 0:
            raise RowError(f"its test raised {_text(error)}") from None
        outcome = ("runtime_error", f"in the test: {_text(error)}")
    # What was settled before (an end, a timeout) holds, whatever the test made of it.
    candidate.outcome = candidate.outcome or outcome


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:300]


def _assertion(error: AssertionError, source: str) -> str:
    lines = [n for frame, n in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == "<test>"]
    text = source.splitlines()
    line = text[lines[-1] - 1].strip() if lines and lines[-1] <= len(text) else ""
    return ": ".join(filter(None, (line, str(error))))[:300]


def main(fd: int) -> None:
    """Serve the trainer's process on an inherited socket, until it closes it or ends."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # nobody but root reads its memory through /proc
    # What a test makes of the values must not take the machine's memory.
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    stream = socket.socket(fileno=fd)
    reader = stream.makefile("rb")

    def receive() -> Any:
        header = reader.read(4)
        if len(header) < 4:
            os._exit(0)
        return marshal.loads(reader.read(wire.frame_length(header)))

    def send(reply: Any) -> None:
        try:
            stream.sendall(wire.frame(marshal.dumps(reply)))
        except ConnectionError:
            os._exit(0)

    jail = Jail(receive())
    if jail.greeting is None:
        send(("unusable", jail.complaint))
        return
    send(("ready", jail.greeting))
    judge = Judge(jail)
    works: dict[str, Callable[[dict[str, Any]], Any]] = {
        "reference": partial(stopwatch.compare, judge),
        "measure": partial(stopwatch.measure, judge),
        "name": judge.judge,
    }
    while True:
        job = receive()
        try:
            kind, work = next((kind, work) for kind, work in works.items() if kind in job)
            send((kind, work(job)))
        except RowError as error:
            send(("row", str(error)))
        except JailLost:
            send(("lost", ""))
            return
