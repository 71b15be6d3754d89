"""Names of processes that stay theirs, so that what a killed one left behind can be told and cleared."""

import os
from pathlib import Path


def _started(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None


def _world() -> tuple[str, str]:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return boot, os.readlink("/proc/self/ns/pid").strip("pid:[]")


def mine() -> str:
    """Name this process: by boot, process namespace, process id and start."""
    pid = os.getpid()
    return ".".join((*_world(), str(pid), str(_started(pid))))


def is_gone(name: str) -> bool:
    """Whether the process of a name has ended. One that cannot be seen from here counts as there."""
    boot, namespace, pid, start = name.split(".")
    if (boot, namespace) != _world():
        return boot != _world()[0]
    return _started(int(pid)) != start
