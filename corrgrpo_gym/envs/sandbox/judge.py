"""The trusted process of one worker: runs the data's tests against the candidate in its jail, and takes the verdict.

The expected values and the comparison are here, in memory that the candidate's process cannot reach. This process is
not the trainer's: test code, though trusted, is still code from a data set.

Standard library only: it is started without the package's dependencies.
"""

import contextlib
import ctypes
import hashlib
import marshal
import os
import random
import signal
import socket
import sys
import traceback
import types
from typing import Any

from . import launch, remote, wire
from .remote import Candidate, CandidateError, Stop

_MAX_COMPILED = 256
_MAX_PRELUDES = 64
_RECURSION = 20_000
_PR_SET_PDEATHSIG = 1


class RowError(Exception):
    """The data's own code is broken."""


class JailLost(Exception):
    """The jail is not there any more."""


class Judge:
    """One jail, and the jobs judged with it, one at a time."""

    def __init__(self, spec: dict[str, Any]):
        self._compiled: dict[tuple[str, str], types.CodeType] = {}
        self._sent: set[str] = set()
        self._armed = False
        self._candidate: Candidate | None = None
        signal.signal(signal.SIGALRM, self._alarm)
        ours, theirs = socket.socketpair()
        self._control = ours
        self._jail = launch.start(spec, theirs)
        theirs.close()
        self.greeting: dict[str, Any] | None = None
        with contextlib.suppress(JailLost):
            self.greeting = self._listen()

    def complaint(self) -> str:
        """What the jail's command wrote before it gave up."""
        self._jail.kill()
        return self._jail.communicate()[1].decode("utf-8", "replace")[-2000:].strip()

    # -- the jail

    def _listen(self) -> Any:
        def exactly(n: int) -> bytes:
            data = b""
            while len(data) < n:
                try:
                    part = self._control.recv(n - len(data))
                except ConnectionError:
                    part = b""
                if not part:
                    raise JailLost
                data += part
            return data

        return marshal.loads(exactly(wire.frame_length(exactly(4))))

    def _tell(self, request: Any, fd: int | None = None) -> None:
        data = wire.frame(marshal.dumps(request))
        try:
            if fd is not None:
                socket.send_fds(self._control, [data[:4]], [fd])
                self._control.sendall(data[4:])
            else:
                self._control.sendall(data)
        except ConnectionError:
            raise JailLost from None

    def _fork(self, job: dict[str, Any], fd: int) -> None:
        key = hashlib.sha256(job["prelude"].encode("utf-8", "surrogatepass")).hexdigest()
        forget = key not in self._sent and len(self._sent) >= _MAX_PRELUDES
        if forget:
            self._sent.clear()
        source = None if key in self._sent else job["prelude"]
        self._sent.add(key)
        self._tell((forget, key, source, job["memory_bytes"], job["cpu_seconds"]), fd)

    # -- the trusted side

    def _compile(self, source: str, what: str) -> types.CodeType:
        code = self._compiled.get((what, source))
        if code is None:
            if len(self._compiled) >= _MAX_COMPILED:
                self._compiled.clear()
            try:
                code = compile(source, f"<{what}>", "exec", 0, True, 0)
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                raise RowError(f"its {what} does not compile: {type(error).__name__}: {error}") from None
            self._compiled[what, source] = code
        return code

    def _alarm(self, *_: Any) -> None:
        if self._armed and self._candidate is not None:
            self._armed = False
            self._candidate.stop("timeout", "over the limit by the wall clock")

    def judge(self, job: dict[str, Any]) -> dict[str, Any]:
        """Take one verdict.

        Raises:
            RowError: the row's own code is broken.
            JailLost: the jail ended.
        """
        prelude = self._compile(job["prelude"], "prelude")
        test = self._compile(job["test"], "test")
        ours, theirs = remote.open_stream()
        with ours:
            with theirs:
                self._fork(job, theirs.fileno())
            space: dict[str, Any] = {"__name__": "judge"}
            candidate = self._candidate = Candidate(ours, job["cpu_seconds"], space)
            verdict: dict[str, Any] = {
                "code": "", "fenced": False, "parses": False, "shape": None, "cpu_seconds": 0.0,
            }  # fmt: skip
            self._armed = True
            signal.setitimer(signal.ITIMER_REAL, job["wall_seconds"])
            try:
                try:
                    self._run(job, prelude, test, candidate, verdict)
                finally:
                    self._armed = False
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except Stop:
                pass
            finally:
                self._candidate = None
                status = self._reap()
        assert candidate.outcome is not None
        verdict["status"], verdict["detail"] = candidate.outcome
        verdict["cpu_seconds"] = candidate.cpu
        if verdict["detail"] == "ended":
            verdict["detail"] = _ending(status)
        return verdict

    def _reap(self) -> int | None:
        self._tell(None)
        return self._listen()

    def _run(
        self,
        job: dict[str, Any],
        prelude: types.CodeType,
        test: types.CodeType,
        candidate: Candidate,
        verdict: dict[str, Any],
    ) -> None:
        try:
            candidate.meet()
            candidate.write(marshal.dumps((job["answer"], job["entry_point"])))
        except EOFError:
            raise JailLost from None
        self._prepare(candidate, verdict)
        self._test(job, prelude, test, candidate)

    @staticmethod
    def _prepare(candidate: Candidate, verdict: dict[str, Any]) -> None:
        """Take the reports that come before any candidate code."""
        try:
            code, fenced, parses, form = wire.loads(candidate.read())
        except EOFError:
            candidate.stop("syntax_error", "reading the code ended the process")
        verdict.update(
            code=code, fenced=fenced, parses=parses, shape=None if form is None else form.split(" ")
        )
        if not code:
            candidate.stop("nothing", "no code in the answer")
        if not parses:
            candidate.stop("syntax_error", "the code does not parse")
        try:
            problem = wire.loads(candidate.read())
        except EOFError:
            candidate.stop("compile_error", "compiling the code ended the process")
        if problem is not None:
            candidate.stop("compile_error", problem)

    @staticmethod
    def _test(
        job: dict[str, Any], prelude: types.CodeType, test: types.CodeType, candidate: Candidate
    ) -> None:
        space = candidate.space
        # Nothing of an earlier job may change a verdict.
        random.seed(0)
        sys.setrecursionlimit(_RECURSION)
        try:
            exec(prelude, space)
        except Exception as error:
            raise RowError(f"its prelude raised {_text(error)}") from None
        if job["entry_point"].isidentifier():
            space[job["entry_point"]] = candidate  # some tests call the function by its name
        try:
            exec(test, space)
            check = space.get("check")
            if check is None:
                raise RowError("its test defines no check(candidate)")
            check(candidate)
        except CandidateError as error:
            candidate.outcome = candidate.outcome or ("runtime_error", ": ".join(map(str, error.args))[:300])
        except AssertionError as error:
            candidate.outcome = candidate.outcome or ("failed", _assertion(error, job["test"]))
        except (NameError, ImportError, SyntaxError) as error:
            raise RowError(f"its test raised {_text(error)}") from None
        except Exception as error:
            # Before any value came back it can only be the test's fault; after that, the value is to blame, as it is
            # where everything runs in one process: the program did not come to a verdict.
            if candidate.returned == 0:
                raise RowError(f"its test raised {_text(error)}") from None
            candidate.outcome = candidate.outcome or ("runtime_error", f"in the test: {_text(error)}")
        if candidate.outcome is None:
            if candidate.returned == 0:
                raise RowError("its test never calls the candidate")
            candidate.outcome = ("passed", "")


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:300]


def _assertion(error: AssertionError, source: str) -> str:
    lines = [n for frame, n in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == "<test>"]
    text = source.splitlines()
    return text[lines[-1] - 1].strip()[:300] if lines and lines[-1] <= len(text) else ""


def _ending(status: int | None) -> str:
    if status is None:
        return "the process ended"
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"the process was ended by {signal.Signals(-code).name}"
        return f"the process was ended by signal {-code}"
    return f"the process exited with status {code}"


def main(fd: int) -> None:
    """Serve the trainer's process on an inherited socket, until it closes it or ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
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

    judge = Judge(receive())
    if judge.greeting is None:
        send(("unusable", judge.complaint()))
        return
    send(("ready", judge.greeting))
    while True:
        job = receive()
        try:
            send(("verdict", judge.judge(job)))
        except RowError as error:
            send(("row", str(error)))
        except JailLost:
            send(("lost", ""))
            return
