"""A candidate that has a fresh process for each call: a function's, or a script's with its standard streams.

Runs in the trusted judge process: standard library only.
"""

import contextlib
import fcntl
import marshal
import os
import select
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from . import wire
from .channel import Channel, OverTime
from .jails import Jail, JailLost
from .line import Line
from .remote import ENDED, INTRUDED, Candidate, CandidateError, RowError, Stop, ending, exception

OUTPUT_BYTES = 32 << 20
_SLICE_MS = 50
_SEALS = fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


class Processes:
    """Calls one program, each time in a process that has seen no other call.

    Args:
        jail: where they are forked.
        job: the job, whose limits hold for each call.
        program: the compiled program.
        space: the namespace of the judge's prelude.
        watch: called with seconds, to be stopped by `stop` after them by the wall clock, or with None.

    Attributes:
        outcome: (status, detail) once the verdict no longer depends on the test.
        answered: how many calls came back.
        cpu: seconds of CPU time of all processes.
        lost: why the jail is of no more use.
    """

    def __init__(
        self,
        jail: Jail,
        job: dict[str, Any],
        program: bytes,
        space: dict[str, Any],
        watch: Callable[[float | None], None],
    ):
        self._jail, self._job, self._program, self._watch = jail, job, program, watch
        self._left = job["calls"]
        self.space = space
        self.outcome: tuple[str, str] | None = None
        self.answered = 0
        self.cpu = 0.0
        self.lost: JailLost | None = None

    def stop(self, status: str, detail: str) -> NoReturn:
        """Settle the verdict, if it is not settled yet, and unwind."""
        if self.outcome is None:
            self.outcome = (status, detail)
        raise Stop

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Make a call.

        Raises:
            CandidateError: the program raised.
            Stop: it ended, ran out of time, or did not answer properly.
            RowError: the test makes more calls than the job says.
        """
        if self.outcome is not None:
            raise Stop
        if self._left == 0:
            raise RowError(f"its test makes over {self._job['calls']} calls")
        self._left -= 1
        # Nothing may break in where the jail is half told or half heard.
        self._watch(None)
        try:
            return self._function(args, kwargs) if self._job["entry_point"] else self._script(*args)
        except JailLost as lost:
            self.lost = lost
            raise Stop from None
        finally:
            self._watch(self._job["wall_seconds"])

    def _function(self, args: Any, kwargs: Any) -> Any:
        channel = self._jail.fork(self._job)
        candidate = Candidate(Line(channel, self._program, self._job["entry_point"]), self.space)
        try:
            with self._watched():
                return candidate(*args, **kwargs)
        finally:
            status = self._finish(channel, candidate.cpu)
            self.answered += candidate.answered
            # An object of its own that it returned can be asked no more.
            gone = ("runtime_error", "its process is over")
            outcome, candidate.outcome = candidate.outcome, candidate.outcome or gone
            if outcome is not None and outcome[1] == ENDED:
                outcome = (outcome[0], ending(status))
            self.outcome = self.outcome or outcome

    def _script(self, text: str) -> str:
        """Run the script on a standard input; return its standard output."""
        with contextlib.ExitStack() as files:
            with _input(text) as stdin:
                output, writer = os.pipe()
                files.callback(os.close, output)
                try:
                    channel = self._jail.fork(self._job, (stdin, writer))
                finally:
                    os.close(writer)
            written: list[bytes] = []
            problem: tuple[str, str] | CandidateError | None = None
            used = 0.0
            try:
                with self._watched():
                    try:
                        channel.start_clock()
                        channel.write(wire.frame(marshal.dumps((self._program, ""))))
                        whole = _drain(output, channel, written)
                        if whole:
                            problem = exception(channel.read())
                        else:
                            problem = ("failed", f"it wrote over {OUTPUT_BYTES} bytes")
                    except EOFError:
                        pass
                    except OverTime:
                        problem = ("timeout", f"over {channel.limit:g} s of CPU time")
                    except wire.BadBytes as error:
                        problem = ("runtime_error", f"{INTRUDED}: {error}")
                    used = channel.used()
            finally:
                status = self._finish(channel, used)
            if problem is None and status != 0:
                problem = ("runtime_error", ending(status))
        if isinstance(problem, tuple):
            self.stop(*problem)
        self.answered += 1
        if problem is not None:
            raise problem
        return b"".join(written).decode("utf-8", "replace")

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            self._watch(self._job["wall_seconds"])
            yield
        finally:
            self._watch(None)

    def _finish(self, channel: Channel, used: float) -> int | None:
        """End the process; return its wait status."""
        try:
            used = max(used, self._jail.settle(channel))
            self.cpu += used
            if used > channel.limit and self.outcome is None:
                self.outcome = ("timeout", f"over {channel.limit:g} s of CPU time")
        finally:
            channel.close()
        return self._jail.reap()


@contextlib.contextmanager
def _input(text: str) -> Iterator[int]:
    """A file that holds a text, and that nobody can change."""
    fd = os.memfd_create("stdin", os.MFD_ALLOW_SEALING)
    try:
        data = memoryview(text.encode("utf-8", "surrogatepass"))
        while data:
            data = data[os.write(fd, data) :]
        fcntl.fcntl(fd, *_SEALS)
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd
    finally:
        os.close(fd)


def _drain(fd: int, channel: Channel, written: list[bytes]) -> bool:
    """Read a pipe to its end, under the clock of the channel's process; whether it was not too much.

    Raises:
        OverTime: the CPU time of the process is used up.
    """
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    left = OUTPUT_BYTES
    while True:
        if not poll.poll(_SLICE_MS):
            channel.check()
            continue
        part = os.read(fd, 1 << 16)
        if not part:
            return True
        written.append(part)
        left -= len(part)
        if left < 0:
            return False
        # One that writes without pause is looked at as well.
        if channel.used() > channel.limit:
            raise OverTime
