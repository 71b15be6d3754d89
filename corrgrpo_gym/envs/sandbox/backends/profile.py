"""The system calls of a whole container, as the engine takes them.

An allow-list again: what programs may call (`jail.seccomp`), and what the runtime that starts the container
and the harness in it call besides. There is none for mounting, namespaces, keyrings, tracing, io_uring, BPF,
modules, clocks or other users' processes. Each program has the stricter list of its own on top.
"""

import json
from typing import Any

from ..jail import seccomp

_HARNESS = (
    "accept4 bind capget capset chdir clone close_range connect dup epoll_create1 epoll_ctl epoll_pwait "
    "epoll_wait eventfd2 execve fadvise64 fchdir fork fstatfs getdents getegid geteuid getgid getgroups "
    "getpeername getpgid getpgrp getpid getppid getpriority getresgid getresuid getrlimit getsid getsockname "
    "getsockopt getuid ioctl kill listen membarrier mincore openat openat2 open pipe prctl prlimit64 pselect6 "
    "pwrite64 pwritev preadv readlinkat recvfrom recvmsg rt_sigpending rt_sigqueueinfo rt_sigsuspend "
    "rt_sigtimedwait sched_getparam sched_getscheduler seccomp select sendmsg sendto set_tid_address setgid "
    "setgroups setitimer setresgid setresuid setrlimit setsid setsockopt setuid shutdown sigaltstack socket "
    "socketpair statfs tgkill timer_create timer_delete timer_settime umask vfork wait4 waitid"
).split()
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEW*: cgroup, host name, IPC, user, process, network, mount
_UNIX = 1
_ENOSYS = 38


def profile() -> str:
    """Return the profile as the engine's JSON."""
    free = sorted(({*seccomp.NAMES, *_HARNESS}) - {"clone", "socket", "socketpair"})
    none_new = {"index": 0, "value": _NEW_NAMESPACES, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}
    local = {"index": 0, "value": _UNIX, "op": "SCMP_CMP_EQ"}
    rules: list[dict[str, Any]] = [
        {"names": free, "action": "SCMP_ACT_ALLOW", "args": []},
        {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [none_new]},
        {"names": ["socket", "socketpair"], "action": "SCMP_ACT_ALLOW", "args": [local]},
        # Its flags are in memory, where no filter can look; libraries fall back to clone.
        {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": _ENOSYS, "args": []},
    ]
    return json.dumps(
        {
            "defaultAction": "SCMP_ACT_ERRNO",
            "defaultErrnoRet": _ENOSYS,
            "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"],
            "syscalls": rules,
        }
    )
