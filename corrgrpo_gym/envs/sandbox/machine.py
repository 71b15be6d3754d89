"""What a time was measured on and how: times of one machine say nothing of another one's."""

import functools
import os
import platform
from pathlib import Path

from .timing import METHOD


@functools.cache
def fingerprint(backend: str) -> dict[str, str | int]:
    """Return what a program's CPU time depends on besides the program: times under different ones don't compare.

    Args:
        backend: the sandbox's.
    """
    return {
        "cpu": _cpu(),
        "cpus": os.cpu_count() or 1,
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "sandbox": backend,
        "method": METHOD,
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    facts = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)
    named = {name.strip(): value.strip() for name, value in facts.items()}
    # The frequency is not the machine's alone: it changes from moment to moment.
    known = [named[name] for name in ("model name", "CPU implementer", "CPU part", "stepping") if name in named]
    return " ".join([platform.machine(), *known])
