"""The first process inside a jail: forks a fresh process for each program and clears up after it.

It never sees a candidate's code or answer, so the processes that it forks start with nothing of earlier
programs in their memory. As process 1 of its namespace it cannot be signalled from inside, and everything
ends when it ends.

Runs inside the jail: standard library only.
"""

import contextlib
import ctypes
import gc
import importlib
import marshal
import os
import resource
import signal
import socket
import struct
import sys
import types
import warnings
from typing import Any

from .. import wire
from . import seccomp
from .prepare import prepare
from .program import Program
from .streams import confine_streams

# What preludes and answers import, loaded once here instead of in every program.
_PRELOAD = (
    "abc array bisect cmath collections contextlib copy dataclasses datetime decimal enum fractions "
    "functools heapq itertools json math numbers operator queue random re statistics string struct sys "
    "textwrap threading time typing sortedcontainers"
).split()
_MAX_PRELUDES = 64
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_THREADS = 64


def _limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))


def _common_limits(threads: bool) -> None:
    """What holds for this process and every program alike."""
    _limit(resource.RLIMIT_NOFILE, 32)
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_MEMLOCK, 0)
    _limit(resource.RLIMIT_MSGQUEUE, 0)
    _limit(resource.RLIMIT_SIGPENDING, 64)
    if threads:
        _limit(resource.RLIMIT_NPROC, _THREADS)


def _address_space() -> int:
    """Bytes of address space in use, found by trial because no /proc is mounted here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    low, high = 0, 1 << 34
    import mmap

    while high - low > 1 << 20:
        middle = (low + high) // 2
        resource.setrlimit(resource.RLIMIT_AS, (middle, hard))
        try:
            mmap.mmap(-1, 4096).close()
            high = middle
        except OSError:
            low = middle
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    return high


# The fork of the C library alone. Python's own also runs what modules registered for after a fork; in a
# process of one thread there is nothing for that to put right, and it would write to a third of the memory
# that is shared. The generator of `random` is then in the same state in every program, which makes verdicts
# repeatable.
_libc = ctypes.PyDLL(None)
_fork = _libc.fork

_CLONE = {"x86_64": 56, "aarch64": 220}
_OWN = 0x10000000 | 0x20000000 | 0x08000000  # namespaces for users, processes, IPC
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITIES_3 = struct.pack("@Ii", 0x20080522, 0)
_NO_CAPABILITIES = bytes(24)


def _fork_apart() -> int:
    """Fork into namespaces of its own, with the system call itself.

    That leaves the C library's record of the thread's id as it was, which is right where this process and the new one
    are both process 1 of their namespaces.
    """
    machine = os.uname().machine
    pid = _libc.syscall(_CLONE[machine], _OWN | signal.SIGCHLD, 0, 0, 0, 0)
    # The first process of a user namespace begins with every capability in it.
    if pid == 0 and _libc.syscall(_CAPSET[machine], _CAPABILITIES_3, _NO_CAPABILITIES):
        os._exit(1)
    return pid


def _can_fork_apart() -> bool:
    """Whether the kernel gives this process namespaces for each program."""
    if os.getpid() != 1 or os.uname().machine not in _CLONE:
        return False
    pid = _fork_apart()
    if pid == 0:
        os._exit(0)
    return pid > 0 and os.waitpid(pid, 0)[1] == 0


class Zygote:
    """Serves fork and reap requests of the judge on the control socket."""

    def __init__(self, control: socket.socket):
        self._control = control
        self._preludes: dict[str, tuple[types.ModuleType, types.CodeType]] = {}
        self._filter = seccomp.Filter() if seccomp.supported() else None
        self._baseline = _address_space()
        self._child = 0
        self._apart = _can_fork_apart()
        self._fork = _fork_apart if self._apart else _fork

    def _receive(self) -> tuple[Any, list[int]]:
        data, fds, _, _ = socket.recv_fds(self._control, 4, 3)
        if len(data) < 4:
            os._exit(0)  # the judge is gone
        length = wire.frame_length(data)
        parts = []
        while length:
            part = self._control.recv(min(length, 1 << 20))
            if not part:
                os._exit(0)
            parts.append(part)
            length -= len(part)
        return marshal.loads(b"".join(parts)), fds

    def run(self) -> None:
        """Serve until the judge closes the socket."""
        greeting = {"seccomp": self._filter is not None, "pid": os.getpid(), "apart": self._apart}
        self._control.sendall(wire.frame(marshal.dumps(greeting)))
        while True:
            request, fds = self._receive()
            if request is None:
                self._control.sendall(wire.frame(marshal.dumps(self._reap())))
                continue
            if request == "kill":
                if self._child > 0:
                    os.kill(self._child, signal.SIGKILL)
                continue
            forget, key, source, memory_bytes, cpu_seconds = request
            if forget:
                self._preludes.clear()
            if source is not None:
                self._preludes[key] = prepare(source)
                gc.freeze()
            self._child = self._fork()
            if self._child < 0:
                os._exit(1)  # the judge finds the jail lost
            if self._child == 0:
                self._become(fds, *self._preludes[key], memory_bytes, cpu_seconds)
            for fd in fds:
                os.close(fd)

    def _become(
        self,
        fds: list[int],
        module: types.ModuleType,
        prelude: types.CodeType,
        memory_bytes: int,
        cpu_seconds: float,
    ) -> None:
        try:
            os.close(self._control.fileno())
            channel, *streams = fds
            for standard, fd in enumerate(streams):
                os.dup2(fd, standard)
                os.close(fd)
            limit = self._baseline + memory_bytes
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            limit = int(cpu_seconds) + 2  # a backstop: the judge watches the clock
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
            if self._filter is not None:
                self._filter.apply()
            Program(channel, module, bool(streams)).run(prelude)
        finally:
            os._exit(0)

    def _reap(self) -> int | None:
        """End every process but this one; return the program's wait status."""
        status = None
        if os.getpid() == 1:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            # Strays that were handed to process 1 are waited for as well.
            while True:
                try:
                    pid, code = os.waitpid(-1, 0)
                except ChildProcessError:
                    break
                if pid == self._child:
                    status = code
        elif self._child > 0:
            os.kill(self._child, signal.SIGKILL)
            status = os.waitpid(self._child, 0)[1]
            # Whatever it left behind was handed to this process.
            while strays := _children():
                for pid in strays:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
        self._child = 0
        return status


def _children() -> list[int]:
    """Ids of the children of this process, as far as /proc tells."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return []  # as nearly always
    found = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, IndexError):
            if name.isdigit():
                with open(f"/proc/{name}/stat") as file:
                    if int(file.read().rpartition(")")[2].split()[1]) == os.getpid():
                        found.append(int(name))
    return found


def main(fd: int, threads: bool) -> None:
    """Run the zygote on an inherited control socket."""
    control = socket.socket(fileno=fd)
    for name in _PRELOAD:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    warnings.simplefilter("ignore")
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _common_limits(threads)
    zygote = Zygote(control)
    confine_streams()
    sys.argv = [""]
    gc.disable()
    gc.collect()
    gc.freeze()  # so that collections in the children do not touch, and copy, what they share
    zygote.run()
