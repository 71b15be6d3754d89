"""The first process of a container: starts the jailed processes that the judge asks for, and ends with it.

It handles nothing of an answer's. Its end, when the judge's socket closes, is the end of everything in the
container.

Runs inside the container: standard library only.
"""

import ctypes
import json
import marshal
import os
import socket
import subprocess
import sys
from typing import Any

from .. import wire

SOCKET = "/channel/socket"
TOKEN = "SANDBOX_TOKEN"
_PR_SET_DUMPABLE = 4
_COMPLAINT_BYTES = 2000
_STATUS = ("Seccomp", "NoNewPrivs", "CapEff", "CapBnd")


def _confinement() -> dict[str, str]:
    """What the kernel says about this process."""
    with open("/proc/self/status") as file:
        fields = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    return {name: fields.get(name, "") for name in _STATUS}


class Keeper:
    """Serves requests of the judge on its socket."""

    def __init__(self, control: socket.socket):
        self._control = control
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def run(self) -> None:
        """Serve until the judge closes the socket."""
        while True:
            (what, detail), fds = self._receive()
            reply = self._start(detail, fds) if what == "start" else self._end(detail)
            for fd in fds:
                os.close(fd)
            self._control.sendall(wire.frame(marshal.dumps(reply)))

    def _receive(self) -> tuple[Any, list[int]]:
        data, fds, _, _ = socket.recv_fds(self._control, 4, 1)
        if len(data) < 4:
            os._exit(0)
        length = wire.frame_length(data)
        parts = []
        while length:
            part = self._control.recv(length)
            if not part:
                os._exit(0)
            parts.append(part)
            length -= len(part)
        return marshal.loads(b"".join(parts)), fds

    def _start(self, detail: tuple[list[str], dict[str, str]], fds: list[int]) -> tuple[str, Any]:
        command, environment = detail
        if not fds:
            return "failed", "no file descriptor arrives in the container"
        command = [part.replace("{fd}", str(fds[0])).replace("{python}", sys.executable) for part in command]
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=environment,
                cwd="/",
                pass_fds=fds,
            )
        except (OSError, subprocess.SubprocessError) as error:
            return "failed", str(error)
        self._children[child.pid] = child
        return "started", child.pid

    def _end(self, pid: int) -> tuple[str, Any]:
        child = self._children.pop(pid)
        child.kill()
        return "ended", child.communicate()[1][-_COMPLAINT_BYTES:].decode("utf-8", "replace")


def main(_: int) -> None:
    """Connect to the judge and serve it."""
    token = os.environ.pop(TOKEN)
    confinement = _confinement()
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    control = socket.socket(socket.AF_UNIX)
    try:
        control.connect(SOCKET)
    except OSError as error:
        sys.exit(f"the judge's socket cannot be reached from the container: {error}")
    control.sendall(wire.frame(json.dumps({"token": token, **confinement}).encode()))
    Keeper(control).run()
