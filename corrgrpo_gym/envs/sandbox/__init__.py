"""A sandbox for programs that a model wrote, and verdicts that they cannot forge.

`make_sandbox` gives a `Sandbox`, whose `judge` turns a `CodeJob` into a `Verdict`. Three kinds of processes
take part:

- The user's (trainer's), which runs nothing of the model's or the data's (`pool`, `worker`).
- A judge per worker (`judge`, `remote`, `channel`): trusted. It holds the data's test and the expected
  values, calls the program through a proxy, and compares the values that come back.
- Jailed ones (`jail/`), started by the judge (`launch`, `jails`): one that reads answers and compiles them,
  and one that forks a fresh process for each program and ends everything in its namespace after it.

What comes out of a jail is plain data by a reader that is safe on hostile bytes (`wire`, `values`); never
pickle. A program can write what it likes to its stream: the most that it achieves is a value, which is
compared like any other. Its CPU time is read from the kernel's clock of its process, from outside.

What `bubblewrap` gives: namespaces of its own for users, processes, network, IPC, host name, and for each
program users, processes and IPC once more; a read-only root with the interpreter, its standard library and
`sortedcontainers` only, and no writable place; a list of allowed system calls (no processes, programs, sockets,
signals, writing); limits on memory, CPU time, threads, descriptors; as root, another user id first, and where
control groups can be made, limits on memory, processes and CPUs of each jail as a whole. `docker` has the system
calls and limits in a container for each worker, with a second list of system calls around the whole container.
`subprocess` has the limits and the system calls only: files of the machine can be read. What each one does not
confine is data (`backends.gaps`), which `corrgrpo-gym doctor` shows and the tests go by.
"""

from .job import CodeJob, SandboxError, SandboxUnavailable, Verdict, VerdictLost
from .lazy import LazySandbox
from .pool import Sandbox, make_sandbox
from .timing import Measured, Timing

__all__ = [
    "CodeJob",
    "LazySandbox",
    "Measured",
    "Sandbox",
    "SandboxError",
    "SandboxUnavailable",
    "Timing",
    "Verdict",
    "VerdictLost",
    "make_sandbox",
]
