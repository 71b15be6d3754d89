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
import statistics
import sys
import traceback
import types
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from . import timing, wire
from .channel import OverTime
from .jails import Jail, JailLost
from .processes import Processes
from .remote import ENDED, Candidate, CandidateError, Line, RowError, Stop, ending
from .repetitions import Calls, Repeatable, Untimed, playback, repeat

_MAX_COMPILED = 64
_MAX_KEPT = 16
_LONG_SECONDS = 1.0  # runs of this much together are precise enough
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
        self._jail = jail
        self._compiled: dict[tuple[str, str], types.CodeType] = {}
        self._armed: Any = None
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
        return self._take(job)[0]

    def _take(self, job: dict[str, Any], calls: Calls | None = None) -> tuple[dict[str, Any], bytes | None]:
        """Take a verdict; return it with the compiled program, if there is one."""
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

    def measure(self, job: dict[str, Any]) -> dict[str, Any]:
        """Time the answer as it is when it is judged, and the harness's share of that.

        Raises:
            RowError: the row's own code is broken.
            JailLost: the jail ended.
        """
        calls: Calls = []
        verdict, program = self._take(job, calls)
        if verdict["status"] != "passed" or program is None:
            return {"problem": f"{verdict['status']}: {verdict['detail']}"}
        requests = [request for request, _ in calls]
        side = Repeatable(job, program, [answer for _, answer in calls])
        harness = playback(job, calls)
        own, shares = [verdict["cpu_seconds"]], list[float]()
        try:
            while len(shares) < job["measure"] and sum(own) < _LONG_SECONDS:
                shares.append(repeat(self._jail, harness, requests, self._watched, ahead=False))
                own.append(repeat(self._jail, side, requests, self._watched, ahead=False))
        except Untimed as reason:
            return {"problem": f"it {reason}"}
        share = statistics.median(shares) if shares else 0.0
        return {"seconds": statistics.median(own), "harness_seconds": share}

    def compare(self, job: dict[str, Any]) -> dict[str, Any]:
        """Time the answer against the reference, on the calls that the test makes of the reference.

        Raises:
            RowError: the row's own code is broken.
            JailLost: the jail ended.
        """
        sides: dict[str, Repeatable] = {}
        calls: Calls = []
        for side in ("candidate", "reference"):
            calls = []
            own = job if side == "candidate" else {**job, **job["reference"]}
            verdict, program = self._take(own, calls)
            if verdict["status"] != "passed" or program is None:
                return {"problem": f"the {side} does not pass ({verdict['status']}: {verdict['detail']})"}
            sides[side] = Repeatable(own, program, [answer for _, answer in calls])
        if len(sides["candidate"].answers) != len(calls):
            return {"problem": "the test's calls depend on what is answered"}
        sides["harness"] = playback(job, calls)
        requests = [request for request, _ in calls]

        def run(side: timing.Side) -> float:
            try:
                return repeat(self._jail, sides[side], requests, self._watched)
            except Untimed as reason:
                raise Untimed(f"the {side} {reason}") from None

        try:
            return asdict(timing.compare(run, job["spend"]))
        except Untimed as reason:
            return {"problem": str(reason)}

    def _read(self, job: dict[str, Any], flags: int, verdict: dict[str, Any]) -> tuple[tuple[str, str], bytes | None]:
        """Have the answer read; fill in what is known of it; return how it ended or the compiled program.

        A reader that ends is asked for again once: something outside (the kernel, short of memory) may have ended it,
        and only an answer that ends two of them has itself to blame.
        """
        try:
            return self._read_once(job, flags, verdict)
        except _ReaderLost:
            self._jail.drop_reader()
        try:
            return self._read_once(job, flags, verdict)
        except _ReaderLost as lost:
            self._jail.drop_reader()
            return (lost.args[0], f"{lost.args[1]} ended the process"), None

    def _read_once(
        self, job: dict[str, Any], flags: int, verdict: dict[str, Any]
    ) -> tuple[tuple[str, str], bytes | None]:
        channel = self._jail.reader()
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
            self._jail.drop_reader()
            return (status, f"{what} took over {channel.limit:g} s of CPU time"), None
        if isinstance(result, str):
            return ("compile_error", result), None
        return ("", ""), result

    def _run(
        self,
        job: dict[str, Any],
        prelude: types.CodeType,
        test: types.CodeType,
        program: bytes,
        calls: Calls | None,
    ) -> Candidate | Processes:
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
        if job["calls"]:
            return self._run_each(job, test, program, space)
        channel = self._jail.fork(job)
        candidate = Candidate(Line(channel, program, job["entry_point"]), space, calls)
        try:
            with self._watched(candidate, job["wall_seconds"]):
                _check(job, test, candidate)
        except Stop:
            pass
        finally:
            if candidate.answered:
                candidate.cpu = self._jail.settle(channel)
            channel.close()
            status = self._jail.reap()
        if candidate.cpu > channel.limit and candidate.outcome is not None and candidate.outcome[0] == "passed":
            candidate.outcome = ("timeout", f"over {channel.limit:g} s of CPU time")
        if candidate.outcome is not None and candidate.outcome[1] == ENDED:
            candidate.outcome = (candidate.outcome[0], ending(status))
        return candidate

    @contextlib.contextmanager
    def _watched(self, running: Any, seconds: float) -> Iterator[None]:
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

        candidate = Processes(self._jail, job, program, space, watch)
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
    works = {"reference": judge.compare, "measure": judge.measure, "name": judge.judge}
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
