"""The pool of workers, and the sandbox that a user sees."""

import itertools
import os
import queue
import random
import threading
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

from . import backends
from .backends.base import HARNESS_BYTES
from .job import CodeJob, SandboxError, Verdict, VerdictLost
from .timing import Measured, Timing
from .worker import Worker, WorkerLost

_FIRST_UID = 1_000_000_000
_TRIES = 2
_REFERENCE_CPU = 60.0


class _Pool:
    """What a sandbox's finalizer needs, apart from the sandbox."""

    def __init__(self, backend: backends.Backend) -> None:
        self.owner = os.getpid()
        self.backend = backend
        self.closed = False
        self.workers: set[Worker] = set()
        # Workers get a signal when the thread that started them ends, so one thread that lives as long as the
        # pool starts them all.
        self.starter = ThreadPoolExecutor(1, thread_name_prefix="sandbox-starter")

    def close(self) -> None:
        if self.closed or os.getpid() != self.owner:
            return
        self.closed = True
        for worker in list(self.workers):
            worker.close()
        self.workers.clear()
        self.starter.shutdown()
        self.backend.close()


class Sandbox:
    """Runs untrusted programs and takes verdicts. Made by `make_sandbox`; thread-safe; a context manager.

    Workers are started when they are first needed, and end with this process, however it ends.
    """

    def __init__(self, backend: backends.Backend, workers: int):
        self.backend = backend.name
        self.workers = workers
        self._uids = itertools.count(_FIRST_UID + random.SystemRandom().randrange(1_000_000_000))
        self._pool = _Pool(backend)
        self._finalizer = weakref.finalize(self, self._pool.close)
        # Last in, first out: a warm worker before one that is not started.
        self._idle: queue.LifoQueue[Worker | None] = queue.LifoQueue()
        for _ in range(workers):
            self._idle.put(None)
        self._lock = threading.Lock()
        try:
            first = self._start()
        except BaseException:
            self.close()
            raise
        self._idle.get()
        self._idle.put(first)

    def _start(self) -> Worker:
        worker = self._pool.starter.submit(self._make, next(self._uids)).result()
        with self._lock:
            if not self._pool.closed:
                self._pool.workers.add(worker)
                return worker
        worker.close()
        raise WorkerLost("the sandbox is closed")

    def _make(self, uid: int) -> Worker:
        backend = self._pool.backend
        return Worker(backend, backend.place(uid))

    def _drop(self, worker: Worker) -> None:
        with self._lock:
            self._pool.workers.discard(worker)
        worker.close()

    def _check_open(self, job: CodeJob) -> None:
        if self._pool.closed or os.getpid() != self._pool.owner:
            raise SandboxError(
                f"task {job.name!r}: the sandbox is closed, or belongs to the process that this one was "
                "forked from; make one here with make_sandbox()"
            )
        limit = self._pool.backend.memory_bytes
        if limit is not None and job.memory_bytes + HARNESS_BYTES > limit:
            raise SandboxError(
                f"task {job.name!r}: programs may take {job.memory_bytes} bytes, and a worker of this sandbox {limit}; "
                f"give make_sandbox memory_bytes={job.memory_bytes + HARNESS_BYTES} or more"
            )

    def judge(self, job: CodeJob) -> Verdict:
        """Take the verdict on one answer; waits for a free worker.

        Raises:
            VerdictLost: a worker was lost twice on this job.
            SandboxError: the row's own code is broken, or the sandbox is closed. A bad program never raises.
        """
        verdict = self._ask(job, lambda worker: worker.judge(job))
        shape = verdict.pop("shape")
        return Verdict(shape=None if shape is None else tuple(shape), **verdict)

    def measure(self, job: CodeJob, runs: int = 5) -> Measured:
        """Time an answer as `judge` does, over several runs of which each has a process of its own.

        Args:
            job: the answer with its tests.
            runs: how many times its calls are repeated, and those of the program that does nothing; fewer where they
                take over a second together.

        Raises:
            VerdictLost: a worker was lost twice on this job.
            SandboxError: the row's own code is broken, the sandbox is closed, or calls have a process each.
        """
        _check_timed(job)
        return Measured(**self._ask(job, lambda worker: worker.measure(job, runs)))

    def compare(
        self, job: CodeJob, reference: str, reference_cpu_seconds: float | None = None, spend: float = 60.0
    ) -> Timing:
        """Time an answer against another to the same task; waits for a free worker.

        Both are judged first; then the calls that the test made are repeated, in rounds of one or more fresh processes
        for each (see `timing`). Takes about a second for programs of up to 10 ms, and eight runs or more of
        each, but for those of many seconds.

        Args:
            job: the answer with its tests.
            reference: the other answer, the unit.
            reference_cpu_seconds: its limit for one run; default: 60, or the job's where that is more.
            spend: CPU seconds after which a ranking is left undecided, but not before 3 rounds.

        Returns:
            The timing; with a `problem` and no figures where a side does not pass or answers otherwise when it runs
            again.

        Raises:
            VerdictLost: a worker was lost twice on this job.
            SandboxError: the row's own code is broken, the sandbox is closed, or calls have a process each.
        """
        _check_timed(job)
        limit = max(job.cpu_seconds, _REFERENCE_CPU) if reference_cpu_seconds is None else reference_cpu_seconds
        return Timing(**self._ask(job, lambda worker: worker.compare(job, reference, limit, spend)))

    def _ask(self, job: CodeJob, work: Callable[[Worker], tuple[str, Any]]) -> Any:
        """Have a worker do its work, and another one if that is lost."""
        self._check_open(job)
        worker = self._idle.get()
        try:
            reason = ""
            for _ in range(_TRIES):
                self._check_open(job)
                try:
                    if worker is None:
                        worker = self._start()
                    kind, detail = work(worker)
                except BaseException as error:
                    # Also where Ctrl-C breaks in: what is still to come from this worker is not for the next
                    # job.
                    if worker is not None:
                        self._drop(worker)
                        worker = None
                    self._check_open(job)
                    if not isinstance(error, WorkerLost):
                        raise
                    reason = str(error)
                    continue
                if kind == "row":
                    raise SandboxError(f"task {job.name!r}: the data row is broken: {detail}")
                return detail
            raise VerdictLost(
                f"task {job.name!r}: the sandbox lost its worker {_TRIES} times: {reason}. The verdict is "
                "unknown; if this happens again, look at the machine's memory and at the answer"
            )
        finally:
            self._idle.put(worker)

    @property
    def gaps(self) -> tuple[backends.Gap, ...]:
        """What the back end does not confine on this machine."""
        return self._pool.backend.gaps()

    def close(self) -> None:
        """End all workers. Verdicts that are being taken fail."""
        self._finalizer()

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _check_timed(job: CodeJob) -> None:
    if job.calls or not job.entry_point:
        raise SandboxError(f"task {job.name!r}: only functions whose calls share a process can be timed")


def make_sandbox(backend: str = backends.DEFAULT, workers: int | None = None, **options: Any) -> Sandbox:
    """Make a sandbox.

    Args:
        backend: ``bubblewrap``; ``docker``; or, by name only, ``subprocess``, which limits but does not isolate.
        workers: how many programs run at once; default: the number of CPUs.
        options: of the back end. All but ``subprocess``: ``memory_bytes`` and ``cpus``, limits on each worker's jail as
            a whole. ``docker``: ``image`` (default: this interpreter's own files) and ``runtime``.

    Raises:
        SandboxUnavailable: the back end cannot be used here; another is never taken in its place.
        GymError: there is no such option, or a value is of no use.
    """
    if workers is None:
        workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if workers < 1:
        raise SandboxError(f"workers is {workers}; a sandbox needs at least 1")
    made = backends.make(backend, options)
    if backend == "subprocess":
        warnings.warn(
            "sandbox 'subprocess' DOES NOT ISOLATE: programs that a model wrote run as your user and can "
            "read your files. Use 'bubblewrap' unless every program is trusted.",
            stacklevel=2,
        )
    return Sandbox(made, workers)
