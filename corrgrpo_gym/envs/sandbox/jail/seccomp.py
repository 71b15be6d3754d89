"""A system-call filter for candidate programs, assembled here so that nothing has to be installed.

It is an allow-list: pure computation, reading files, and threads. Everything else does not exist (ENOSYS), so
that libraries fall back as they do on an old kernel: no processes, no programs, no sockets, no signals, no
tracing, no namespaces, no keyrings, no io_uring, no writing to files.

Runs inside the jail: standard library only.
"""

import ctypes
import platform
import struct

# name: (x86_64, aarch64); -1: does not exist there.
_CALLS = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "fstat": (5, 80),
    "lseek": (8, 62),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "pread64": (17, 67),
    "readv": (19, 65),
    "writev": (20, 66),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "dup": (32, 23),
    "nanosleep": (35, 101),
    "getpid": (39, 172),
    "exit": (60, 93),
    "uname": (63, 160),
    "fcntl": (72, 25),
    "getcwd": (79, 17),
    "readlinkat": (267, 78),
    "gettimeofday": (96, 169),
    "getrusage": (98, 165),
    "sysinfo": (99, 179),
    "times": (100, 153),
    "getuid": (102, 174),
    "getgid": (104, 176),
    "geteuid": (107, 175),
    "getegid": (108, 177),
    "getppid": (110, 173),
    "sigaltstack": (131, 132),
    "gettid": (186, 178),
    "futex": (202, 98),
    "sched_getaffinity": (204, 123),
    "getdents64": (217, 61),
    "restart_syscall": (219, 128),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "exit_group": (231, 94),
    "newfstatat": (262, 79),
    "set_robust_list": (273, 99),
    "getrandom": (318, 278),
    "statx": (332, 291),
    "rseq": (334, 293),
    "faccessat2": (439, 439),
    "faccessat": (269, 48),
    "dup3": (292, 24),
    "pipe2": (293, 59),
    "poll": (7, -1),
    "ppoll": (271, 73),
    "stat": (4, -1),
    "lstat": (6, -1),
    "access": (21, -1),
    "readlink": (89, -1),
    "arch_prctl": (158, -1),
    "time": (201, -1),
    "dup2": (33, -1),
}
NAMES = tuple(_CALLS)
_CLONE = (56, 220)
_OPENAT = (257, 56)
_IOCTL = (16, 29)
_SOCKETS = {"sendto": (44, 206), "recvfrom": (45, 207)}
_PRLIMIT = (302, 261)

_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

_ALLOW = 0x7FFF0000
_KILL_PROCESS = 0x80000000
_EPERM = 0x00050000 | 1
_ENOSYS = 0x00050000 | 38

_CLONE_THREAD = 0x00010000
_WRITING = 0o1 | 0o2 | 0o100 | 0o1000  # O_WRONLY, O_RDWR, O_CREAT, O_TRUNC
_IOCTLS = (0x5401, 0x5451, 0x5450)  # TCGETS (isatty), FIOCLEX, FIONCLEX

_LOAD, _JEQ, _JSET, _RETURN = 0x20, 0x15, 0x45, 0x06
_NR, _ARCH, _ARG0 = 0, 4, 16

_PR_SET_SECCOMP = 22
_MODE_FILTER = 2
_PR_SET_NO_NEW_PRIVS = 38


def supported() -> bool:
    """Whether this machine's system-call numbers are known here."""
    return platform.machine() in _MACHINES


def _op(code: int, k: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("<HBBI", code, yes, no, k)


def assemble(machine: str, sockets: bool) -> bytes:
    """Return the filter's BPF program; ``sockets``: an open socket may be used (none can be made)."""
    column, arch = _MACHINES[machine]
    code = [
        _op(_LOAD, _ARCH),
        _op(_JEQ, arch, 1, 0),
        _op(_RETURN, _KILL_PROCESS),  # another ABI's numbers would mean other calls
        _op(_LOAD, _NR),
    ]
    for numbers in (*_CALLS.values(), *(_SOCKETS.values() if sockets else ())):
        if numbers[column] >= 0:
            code += [_op(_JEQ, numbers[column], 0, 1), _op(_RETURN, _ALLOW)]
    # Each block is entered for one call only, loads an argument and returns.
    tests: list[tuple[tuple[int, int], int, list[bytes]]] = [
        (_CLONE, 0, [_op(_JSET, _CLONE_THREAD, 0, 1), _op(_RETURN, _ALLOW), _op(_RETURN, _EPERM)]),
        (_OPENAT, 2, [_op(_JSET, _WRITING, 0, 1), _op(_RETURN, _EPERM), _op(_RETURN, _ALLOW)]),
        (_PRLIMIT, 0, [_op(_JEQ, 0, 0, 1), _op(_RETURN, _ALLOW), _op(_RETURN, _EPERM)]),
        (
            _IOCTL,
            1,
            [part for n in _IOCTLS for part in (_op(_JEQ, n, 0, 1), _op(_RETURN, _ALLOW))] + [_op(_RETURN, _ENOSYS)],
        ),
    ]
    for numbers, argument, body in tests:
        block = [_op(_LOAD, _ARG0 + 8 * argument), *body]
        code += [_op(_JEQ, numbers[column], 0, len(block)), *block]
    code.append(_op(_RETURN, _ENOSYS))
    return b"".join(code)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


class Filter:
    """The filter, prepared before the fork so that one system call is left to do after it."""

    def __init__(self, sockets: bool = False) -> None:
        code = assemble(platform.machine(), sockets)
        self._program = ctypes.byref(_Program(len(code) // 8, code))
        self._prctl = ctypes.CDLL(None).prctl
        self._prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)

    def apply(self) -> None:
        """Confine the calling process, for good.

        Raises:
            OSError: the kernel refuses.
        """
        if self._prctl(_PR_SET_SECCOMP, _MODE_FILTER, self._program, 0, 0):
            raise OSError("the kernel refuses the system-call filter")
