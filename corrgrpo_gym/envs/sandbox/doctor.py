"""Which back ends work on this machine, found out by judging with each, and what each does not confine."""

import textwrap
import warnings
from dataclasses import dataclass

from ...errors import GymError
from . import backends
from .job import CodeJob
from .pool import make_sandbox

_TEST = "def check(candidate):\n    assert candidate(20) == 21\n"
_PROGRAMS = {"def f(n):\n    return n + 1": "passed", "def f(n):\n    return n": "failed"}
_USES = {
    "docker": "containers, by name",
    "bubblewrap": "the default",
    "subprocess": "last resort, by name only: DOES NOT ISOLATE",
}


@dataclass(frozen=True)
class Finding:
    """About one back end.

    Attributes:
        backend: its name.
        problem: why it cannot be used here and what to do; empty where it can.
        gaps: what it does not confine here, where it can be used.
    """

    backend: str
    problem: str
    gaps: tuple[backends.Gap, ...] = ()


def examine(backend: str) -> Finding:
    """Start a worker of a back end and have a right and a wrong program judged."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sandbox = make_sandbox(backend, workers=1)
        with sandbox:
            for code, expected in _PROGRAMS.items():
                verdict = sandbox.judge(CodeJob("doctor", code, "", _TEST, "f"))
                if verdict.status != expected:
                    return Finding(backend, f"it starts, but misjudges: {verdict.status} ({verdict.detail})")
            return Finding(backend, "", sandbox.gaps)
    except GymError as error:
        return Finding(backend, str(error).removeprefix(f"sandbox {backend!r}").lstrip(": "))


SHARED_KERNEL = (
    "All of them share this machine's kernel: a hole in it is a hole in each. Where that is not enough, run the whole "
    "training in a virtual machine."
)


def describe(finding: Finding, width: int = 80) -> str:
    """Return a finding as text of a width in columns."""
    state = "not usable" if finding.problem else "usable"
    lines = [f"{finding.backend}: {state} ({_USES[finding.backend]})"]
    for part in finding.problem.splitlines():
        lines += wrapped(part, width, "  ")
    if not finding.problem:
        lines += ["  Does not confine:" if finding.gaps else "  No known gaps."]
    for gap in finding.gaps:
        lines += wrapped(f"- {gap.what}.", width, "  ")
        lines += wrapped(f"Better: {gap.better}.", width, "    ")
    return "\n".join(lines)


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Break a text into lines."""
    hang = "  " if text.startswith("- ") else ""
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent + hang,
        break_long_words=False,
        break_on_hyphens=False,
    )
