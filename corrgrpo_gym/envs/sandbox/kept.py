"""The judge's hold on a container: asks the keeper inside to start and end jailed processes.

Runs in the trusted judge process: standard library only.
"""

import marshal
import socket
from typing import Any

from . import wire
from .launch import LaunchError

_SECONDS = 60.0


class Kept:
    """A process in the container."""

    def __init__(self, keeper: "Keeper", pid: int):
        self._keeper, self._pid = keeper, pid

    def kill(self) -> None:
        """End it with `communicate`."""

    def communicate(self) -> tuple[None, bytes]:
        """End it; return nothing, and what it complained of."""
        try:
            return None, str(self._keeper.ask(("end", self._pid))[1]).encode()
        except LaunchError as error:
            return None, str(error).encode()


class Keeper:
    """The connection to the first process of a container."""

    def __init__(self, fd: int):
        self._socket = socket.socket(fileno=fd)
        self._socket.settimeout(_SECONDS)

    def start(self, spec: dict[str, Any], what: str, control: socket.socket) -> Kept:
        """Start the ``what`` command of ``spec``, with the control socket as its file descriptor ``{fd}``.

        Raises:
            LaunchError: it does not start.
        """
        kind, detail = self.ask(("start", (spec[what], spec["env"])), control.fileno())
        if kind != "started":
            raise LaunchError(str(detail))
        return Kept(self, detail)

    def ask(self, request: Any, *fds: int) -> tuple[str, Any]:
        """Make a request; return the reply.

        Raises:
            LaunchError: there is none.
        """
        data = wire.frame(marshal.dumps(request))
        try:
            socket.send_fds(self._socket, [data[:4]], fds)
            self._socket.sendall(data[4:])
            return marshal.loads(self._read(wire.frame_length(self._read(4))))
        except (OSError, EOFError) as error:
            raise LaunchError(f"the container does not answer: {error or 'it ended'}") from None

    def _read(self, n: int) -> bytes:
        parts = []
        while n:
            part = self._socket.recv(n)
            if not part:
                raise EOFError
            parts.append(part)
            n -= len(part)
        return b"".join(parts)
