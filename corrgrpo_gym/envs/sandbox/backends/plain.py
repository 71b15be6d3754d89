"""Back end ``subprocess``: plain processes with limits and the system-call filter. Files can be read."""

from .base import Backend, Place
from .commands import environment, on_host
from .gaps import PLAIN, Gap


class Plain(Backend):
    """The last resort, by name only."""

    name = "subprocess"

    def place(self, uid: int) -> Place:
        """Return how the judge starts plain processes."""
        return Place(
            {
                "zygote": on_host("jail.zygote", "{fd},0"),
                "reader": on_host("jail.reader", "{fd}"),
                "mounts": [],
                "uid": None,
                "env": environment(),
            }
        )

    def gaps(self) -> tuple[Gap, ...]:
        """Nearly everything."""
        return PLAIN
