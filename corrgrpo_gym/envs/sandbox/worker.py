"""One worker, as the user's process sees it: a judge process with its jail at the other end of a socket."""

import contextlib
import marshal
import os
import signal
import socket
import subprocess
import time
from typing import Any

from . import wire
from .backends import Backend, Place
from .backends.commands import judge_command
from .job import CodeJob, SandboxError, SandboxUnavailable
from .timing import LOOKS

_START_SECONDS = 120.0
_GRACE_SECONDS = 30.0
_CLOSE_SECONDS = 1.0
_TEXTS = ("name", "answer", "prelude", "test", "entry_point")


class WorkerLost(Exception):
    """The worker ended, or does not answer; it is of no more use."""


class Worker:
    """A judge process, started and ready.

    Args:
        backend: what says whether the jail is as it should be.
        place: where the jail runs; cleared up with the worker.

    Raises:
        SandboxUnavailable: the jail does not start on this machine.
        SandboxError: the judge does not start.
    """

    def __init__(self, backend: Backend, place: Place):
        self._place = place
        self._stream, theirs = socket.socketpair()
        with theirs:
            command, environment = judge_command(theirs.fileno())
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env=environment,
                    cwd="/",
                    pass_fds=[theirs.fileno(), *place.fds],
                    start_new_session=True,  # Ctrl-C is for the trainer, which then closes the pool
                )
            except OSError as error:
                self._stream.close()
                place.close()
                raise SandboxError(f"sandbox {backend.name!r}: cannot start its judge process: {error}") from None
        place.handed_over()
        try:
            kind, detail = self._exchange(place.spec, _START_SECONDS)
            if kind != "ready":
                raise SandboxUnavailable(backend.advice(str(detail)))
            backend.check(detail)
        except WorkerLost as error:
            self.close()
            raise SandboxError(f"sandbox {backend.name!r}: its judge process did not start: {error}") from None
        except BaseException:
            self.close()
            raise

    def judge(self, job: CodeJob) -> tuple[str, Any]:
        """Return the kind ("verdict", "row") of the judge's reply, and the reply.

        Raises:
            WorkerLost: there is no reply.
        """
        return self._ask(_message(job), job.wall_seconds * max(1, job.calls))

    def measure(self, job: CodeJob, runs: int) -> tuple[str, Any]:
        """Have an answer timed; return the kind ("measure", "row") of the reply, and the reply.

        Raises:
            WorkerLost: there is no reply.
        """
        return self._ask({**_message(job), "measure": int(runs)}, (2 * runs + 1) * job.wall_seconds)

    def compare(self, job: CodeJob, reference: str, reference_cpu_seconds: float, spend: float) -> tuple[str, Any]:
        """Have an answer timed against another; return the kind ("reference", "row") of the reply, and the reply.

        Raises:
            WorkerLost: there is no reply.
        """
        message = _message(job)
        wall_seconds = job.wall_seconds * max(1.0, reference_cpu_seconds / job.cpu_seconds)
        message["reference"] = {
            "answer": str.__str__(reference),
            "cpu_seconds": float(reference_cpu_seconds),
            "wall_seconds": wall_seconds,
        }
        message["spend"] = float(spend)
        # What the rounds may take at the very most; they are far from it.
        return self._ask(message, 3 * LOOKS[-1] * wall_seconds)

    def _ask(self, message: dict[str, Any], seconds: float) -> tuple[str, Any]:
        kind, detail = self._exchange(message, seconds + _GRACE_SECONDS)
        if kind == "lost":
            raise WorkerLost("its jail ended")
        return kind, detail

    def _exchange(self, message: dict[str, Any], seconds: float) -> tuple[str, Any]:
        deadline = time.monotonic() + seconds
        try:
            self._stream.settimeout(seconds)
            self._stream.sendall(wire.frame(marshal.dumps(message)))
            # The judge is trusted, so marshal may read what it writes.
            return marshal.loads(self._read(wire.frame_length(self._read(4, deadline)), deadline))
        except TimeoutError:
            raise WorkerLost(f"it did not answer in {seconds:g} s") from None
        except (OSError, EOFError):
            raise WorkerLost("its process ended") from None

    def _read(self, n: int, deadline: float) -> bytes:
        parts = []
        while n:
            self._stream.settimeout(max(deadline - time.monotonic(), 0.001))
            part = self._stream.recv(min(n, 1 << 20))
            if not part:
                raise EOFError
            parts.append(part)
            n -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """End the judge, and with it the jail."""
        with contextlib.suppress(OSError):
            self._stream.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits in it
        self._stream.close()
        try:
            self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._place.close()


def _message(job: CodeJob) -> dict[str, Any]:
    return {
        **{name: str.__str__(getattr(job, name)) for name in _TEXTS},
        "cpu_seconds": float(job.cpu_seconds),
        "wall_seconds": float(job.wall_seconds),
        "memory_bytes": int(job.memory_bytes),
        "calls": int(job.calls),
        "completes": bool(job.completes),
        "names": [str.__str__(name) for name in job.names],
        "data": job.data,
    }
