"""What every back end answers: where a worker's jail runs, and whether it confines as it should."""

import contextlib
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ....errors import GymError, unknown
from .gaps import Gap

# Limits on a jail as a whole; each program's own are much lower.
JAIL_BYTES = 8 << 30
LEAST_BYTES = 1 << 30
HARNESS_BYTES = 512 << 20  # what is not for a program
PIDS = 80  # 64 threads of a program, and the processes of the harness


@dataclass
class Place:
    """Where one worker's jail runs.

    Attributes:
        spec: what the judge is told, to start it.
        fds: file descriptors that the judge inherits; closed here once it has them.
        clear: removes what is left after the jail's end; called once.
    """

    spec: dict[str, Any]
    fds: tuple[int, ...] = ()
    clear: Callable[[], None] = field(default=lambda: None)

    def handed_over(self) -> None:
        """Close what the judge has inherited."""
        for fd in self.fds:
            with contextlib.suppress(OSError):
                os.close(fd)
        self.fds = ()

    def close(self) -> None:
        """Clear up, after the judge's end."""
        self.handed_over()
        clear, self.clear = self.clear, lambda: None
        clear()


class Backend:
    """A way to start jails. The keyword arguments of ``__init__`` are the options that users can give.

    Attributes:
        name: what users call it.
    """

    name: ClassVar[str]

    def place(self, uid: int) -> Place:
        """Make the place for one worker.

        Args:
            uid: a user id that nothing else on the machine has, to run under where this process may choose.

        Raises:
            SandboxUnavailable: it cannot be had here.
        """
        raise NotImplementedError

    def check(self, greeting: dict[str, Any]) -> None:
        """Refuse a jail that started but does not confine as it should.

        Raises:
            SandboxUnavailable: it does not.
        """

    def gaps(self) -> tuple[Gap, ...]:
        """What it does not confine on this machine; complete after the first `check`."""
        raise NotImplementedError

    def advice(self, complaint: str) -> str:
        """Turn what a jail's command wrote into what to do."""
        text = f"sandbox {self.name!r} does not start on this machine: {complaint or 'it ended without a word'}\n"
        return text + "Report this, with the text above."

    def close(self) -> None:
        """Let go of what all workers shared."""

    @property
    def memory_bytes(self) -> int | None:
        """Limit on the memory of one worker's jail as a whole, where it has one."""
        return None


def configured(kind: type[Backend], options: dict[str, Any]) -> Backend:
    """Make a back end with a user's options.

    Raises:
        GymError: there is no such option, or its value is of no use.
    """
    known = [name for name in inspect.signature(kind).parameters if kind.__init__ is not object.__init__]
    for name in options:
        if name not in known:
            if not known:
                raise GymError(f"sandbox {kind.name!r} has no options; {name!r} was given")
            raise GymError(unknown(f"option of sandbox {kind.name!r}", name, known))
    return kind(**options)


def positive(backend: str, **values: float) -> None:
    """Check options that are amounts.

    Raises:
        GymError: one is not a positive number.
    """
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise GymError(f"sandbox {backend!r}: {name} is {value!r}; it must be a positive number")


def fits(backend: str, limit: int) -> None:
    """Check a jail's memory against what its parts may take.

    Raises:
        GymError: it is too small.
    """
    if limit < LEAST_BYTES:
        raise GymError(f"sandbox {backend!r}: memory_bytes is {limit}; one worker needs at least {LEAST_BYTES}")
