"""The judge's hold on its jailed processes.

Runs in the trusted judge process: standard library only.
"""

import hashlib
import marshal
import socket
import subprocess
from typing import Any

from . import launch, wire
from .channel import Channel
from .kept import Keeper, Kept

_MAX_PRELUDES = 64
_MEET_SECONDS = 30.0
_READ_SECONDS = 5.0
_KILL_TRIES = 100


class JailLost(Exception):
    """The jail is not there any more."""


class Jail:
    """The two jailed processes of a worker: one reads answers, one forks a process for each program."""

    def __init__(self, spec: dict[str, Any]):
        self._spec = spec
        self._start = Keeper(spec["keeper"]).start if "keeper" in spec else launch.start
        self._sent: set[str] = set()
        self._control, theirs = socket.socketpair()
        self._reader: Channel | None = None
        self._reader_process: subprocess.Popen[bytes] | Kept | None = None
        self.greeting: dict[str, Any] | None = None
        self.complaint = ""
        try:
            with theirs:
                zygote = self._start(spec, "zygote", theirs)
        except launch.LaunchError as error:
            self.complaint = str(error)
            return
        try:
            self.greeting = self._listen()
        except JailLost:
            zygote.kill()
            self.complaint = zygote.communicate()[1].decode("utf-8", "replace")[-2000:].strip()
        else:
            self._zygote = zygote
            if "keeper" in spec:
                self._prove()

    def _prove(self) -> None:
        """See that processes in a container can be timed, which needs one kernel and their ids."""
        try:
            self.reader().used()
        except JailLost:
            self.complaint = "its processes do not answer on the sockets passed to them, or have no ids here"
        except OSError as error:
            self.complaint = f"the CPU clocks of its processes cannot be read: {error}"
        if self.complaint:
            self.greeting = None

    def _listen(self) -> Any:
        def exactly(n: int) -> bytes:
            data = b""
            while len(data) < n:
                try:
                    part = self._control.recv(n - len(data))
                except ConnectionError:
                    part = b""
                if not part:
                    raise JailLost
                data += part
            return data

        return marshal.loads(exactly(wire.frame_length(exactly(4))))

    def _tell(self, request: Any, *fds: int) -> None:
        data = wire.frame(marshal.dumps(request))
        try:
            if not fds:
                self._control.sendall(data)
            else:
                socket.send_fds(self._control, [data[:4]], fds)
                self._control.sendall(data[4:])
        except ConnectionError:
            raise JailLost from None

    def fork(self, job: dict[str, Any], streams: tuple[int, ...] = ()) -> Channel:
        """Start a process that has run the prelude and waits for the program.

        Args:
            job: prelude and limits.
            streams: file descriptors for its standard input and output; none for nothing.

        Raises:
            JailLost: there is no such process.
        """
        prelude = job["prelude"]
        key = hashlib.sha256(prelude.encode("utf-8", "surrogatepass")).hexdigest()
        forget = key not in self._sent and len(self._sent) >= _MAX_PRELUDES
        if forget:
            self._sent.clear()
        channel = Channel(job["cpu_seconds"])
        try:
            source = None if key in self._sent else prelude
            self._tell((forget, key, source, job["memory_bytes"], job["cpu_seconds"]), channel.peer.fileno(), *streams)
            self._sent.add(key)
            channel.meet(_MEET_SECONDS)
        except EOFError:
            channel.close()
            raise JailLost from None
        except BaseException:
            channel.close()
            raise
        return channel

    def settle(self, channel: Channel) -> float:
        """Return the CPU seconds that the process has used up to now, to the microsecond."""
        if not channel.settle():
            # It runs on, or other threads of it may: end it first, which its clock then holds, too.
            self._tell("kill")
            for _ in range(_KILL_TRIES):
                if channel.settle("ZX"):
                    break
        return channel.used()

    def reap(self) -> int | None:
        """End the program's process, and all that it may have started; return its wait status."""
        self._tell(None)
        return self._listen()

    def reader(self) -> Channel:
        """Return the stream to the process that reads answers, started where there is none.

        Raises:
            JailLost: it does not start.
        """
        if self._reader is None:
            channel = self._reader = Channel(_READ_SECONDS)
            try:
                self._reader_process = self._start(self._spec, "reader", channel.peer)
                channel.meet(_MEET_SECONDS)
            except (launch.LaunchError, EOFError):
                raise JailLost from None
        return self._reader

    def drop_reader(self) -> None:
        """End the process that reads answers."""
        if self._reader is not None and self._reader_process is not None:
            self._reader.close()
            self._reader_process.kill()
            self._reader_process.communicate()
        self._reader = None
