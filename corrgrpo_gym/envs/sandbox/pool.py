"""The pool of workers, and the sandbox that a user sees."""

import contextlib
import itertools
import marshal
import os
import queue
import random
import signal
import socket
import subprocess
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from types import TracebackType
from typing import Any

from ...errors import unknown
from . import backends, wire
from .job import CodeJob, SandboxError, SandboxUnavailable, Verdict

_START_SECONDS = 120.0
_GRACE_SECONDS = 30.0
_FIRST_UID = 1_000_000_000

_SPECS: dict[str, Callable[[int], dict[str, Any]]] = {
    "bubblewrap": backends.bubblewrap_spec,
    "subprocess": backends.subprocess_spec,
}


class _Lost(Exception):
    """The worker ended, or does not answer."""


class _Worker:
    """One judge process, and its jail, as the trainer's process sees it."""

    def __init__(self, spec: dict[str, Any]):
        ours, theirs = socket.socketpair()
        self._stream = ours
        with theirs:
            command, environment = backends.judge_command(theirs.fileno())
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=environment,
                cwd="/",
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for the trainer, which then closes the pool
            )
        try:
            kind, detail = self._exchange(spec, _START_SECONDS)
        except _Lost:
            self.close()
            raise
        if kind != "ready":
            self.close()
            raise SandboxUnavailable(str(detail))
        self.greeting = detail

    def judge(self, job: CodeJob) -> tuple[str, Any]:
        """Return (kind, detail) of the judge's reply."""
        return self._exchange(asdict(job), job.wall_seconds + _GRACE_SECONDS)

    def _exchange(self, message: dict[str, Any], seconds: float) -> tuple[str, Any]:
        deadline = time.monotonic() + seconds
        try:
            self._stream.settimeout(seconds)
            self._stream.sendall(wire.frame(marshal.dumps(message)))
            return marshal.loads(self._read(wire.frame_length(self._read(4, deadline)), deadline))
        except TimeoutError:
            raise _Lost("it did not answer in time") from None
        except (OSError, EOFError):
            raise _Lost("its process ended") from None

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
        """End the judge and its jail."""
        self._stream.close()
        try:
            self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class _Pool:
    """What a sandbox's finalizer needs, apart from the sandbox."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.closed = False
        self.workers: set[_Worker] = set()
        # Workers get a signal when the thread that started them ends, so one thread that lives as long as the pool
        # starts them all.
        self.starter = ThreadPoolExecutor(1, thread_name_prefix="sandbox-starter")

    def close(self) -> None:
        if self.closed or os.getpid() != self.owner:
            return
        self.closed = True
        for worker in list(self.workers):
            worker.close()
        self.workers.clear()
        self.starter.shutdown()


class Sandbox:
    """Runs untrusted programs and takes verdicts. Made by `make_sandbox`; thread-safe; a context manager.

    Workers are started when they are first needed, and end with this process, however it ends.
    """

    def __init__(self, backend: str, workers: int):
        self.backend = backend
        self.workers = workers
        self._uids = itertools.count(_FIRST_UID + random.SystemRandom().randrange(1_000_000_000))
        self._pool = _Pool()
        self._finalizer = weakref.finalize(self, self._pool.close)
        # Last in, first out: a warm worker before one that is not started.
        self._idle: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        for _ in range(workers):
            self._idle.put(None)
        self._lock = threading.Lock()
        first = self._start()
        self._idle.get()
        self._idle.put(first)

    def _start(self) -> _Worker:
        spec = _SPECS[self.backend](next(self._uids))
        try:
            worker = self._pool.starter.submit(_Worker, spec).result()
        except SandboxUnavailable as error:
            raise SandboxUnavailable(_advice(self.backend, str(error))) from None
        with self._lock:
            self._pool.workers.add(worker)
        return worker

    def _drop(self, worker: _Worker) -> None:
        with self._lock:
            self._pool.workers.discard(worker)
        worker.close()

    def judge(self, job: CodeJob) -> Verdict:
        """Take the verdict on one answer; waits for a free worker.

        Raises:
            SandboxError: the row's own code is broken, or a worker was lost twice on this job. A bad program never
                raises.
        """
        if self._pool.closed or os.getpid() != self._pool.owner:
            raise SandboxError(
                f"task {job.name!r}: the sandbox is closed, or belongs to the process that this one was forked from; "
                "make one here with make_sandbox()"
            )
        worker = self._idle.get()
        try:
            for _ in range(2):
                try:
                    if worker is None:
                        worker = self._start()
                    kind, detail = worker.judge(job)
                    if kind == "lost":
                        raise _Lost("its jail ended")
                except _Lost as error:
                    reason = str(error)
                    if worker is not None:
                        self._drop(worker)
                        worker = None
                    continue
                if kind == "row":
                    raise SandboxError(f"task {job.name!r}: the data row is broken: {detail}")
                form = detail.pop("shape")
                return Verdict(shape=None if form is None else tuple(form), **detail)
            raise SandboxError(f"task {job.name!r}: the sandbox lost its worker twice: {reason}")
        finally:
            self._idle.put(worker)

    def close(self) -> None:
        """End all workers. Verdicts that are being taken fail."""
        self._finalizer()

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _advice(backend: str, complaint: str) -> str:
    text = f"sandbox {backend!r} does not start here: {complaint or 'it ended without a word'}."
    return text


def make_sandbox(backend: str = "bubblewrap", workers: int | None = None) -> Sandbox:
    """Make a sandbox.

    Args:
        backend: ``bubblewrap``, or, by name only, ``subprocess``, which limits but does not isolate.
        workers: how many programs run at once; default: the number of CPUs.

    Raises:
        SandboxUnavailable: the back end cannot be used here; another is never taken in its place.
    """
    if backend not in _SPECS:
        raise SandboxUnavailable(unknown("sandbox", backend, _SPECS))
    if workers is None:
        workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if workers < 1:
        raise SandboxError(f"workers is {workers}; a sandbox needs at least 1")
    if backend == "subprocess":
        warnings.warn(
            "sandbox 'subprocess' DOES NOT ISOLATE: programs written by the model run as your user and can read your "
            "files. Use 'bubblewrap' unless every program is trusted.",
            stacklevel=2,
        )
    return Sandbox(backend, workers)
