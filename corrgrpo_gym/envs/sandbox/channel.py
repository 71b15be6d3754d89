"""The judge's end of a stream to a jailed process, which is watched by its CPU clock while it is waited for.

Runs in the trusted judge process: standard library only.
"""

import socket
import struct
import time

from . import wire

_SLICE = struct.pack("@ll", 0, 50_000)  # a timeval: how often the clock is looked at
_SETTLE_TRIES = 40
_SETTLE_SECONDS = 50e-6
_FIRST_LOOK, _LAST_LOOK = 200e-6, 20e-3  # seconds between looks at what has come
_BUFFER = 1 << 22
_READ, _LONG_READ = 1 << 16, 1 << 20
_CREDENTIALS = struct.Struct("@iII")


class OverTime(Exception):
    """The process used more CPU time than it may."""


class Channel:
    """A stream to one process.

    Attributes:
        limit: seconds of CPU time, from the last `start_clock` on, after which waiting raises OverTime.
        pid: the process id, as seen from here.
    """

    def __init__(self, limit: float):
        self._stream, self.peer = socket.socketpair()
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self._stream.setsockopt(socket.SOL_SOCKET, option, _SLICE)
        for end in (self._stream, self.peer):  # as large as the kernel admits
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
        # Before the other end can write: credentials are attached when a message is sent.
        self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.limit = limit
        self.pid = 0
        self._clock = 0
        self._base = 0.0
        self._received, self._at = b"", 0

    def close(self) -> None:
        """Close both ends."""
        self._stream.close()
        self.peer.close()

    def meet(self, seconds: float) -> None:
        """Take the first message, empty, by which the kernel vouches for the process id.

        Raises:
            EOFError: the process ended before it, or has not sent it within ``seconds``.
        """
        self.peer.close()
        stream = self._stream
        deadline = time.monotonic() + seconds
        while True:
            try:
                data, ancillary, _, _ = stream.recvmsg(4, socket.CMSG_SPACE(_CREDENTIALS.size))
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise EOFError from None
            except ConnectionResetError:
                raise EOFError from None
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
        if len(data) < 4 or not ancillary:
            raise EOFError
        self.pid = _CREDENTIALS.unpack(ancillary[0][2])[0]
        if self.pid <= 0:  # would be this process's own clock
            raise EOFError
        # The clock of another process: what clock_getcpuclockid(3) computes.
        self._clock = (~self.pid << 3) | 2
        self.start_clock()

    def start_clock(self) -> None:
        """Count CPU time from now on."""
        self._base = time.clock_gettime(self._clock)

    def used(self) -> float:
        """Seconds of CPU time that the process has used since `start_clock`, all its threads together."""
        return time.clock_gettime(self._clock) - self._base

    def settle(self, states: str = "SDTZX", tries: int = _SETTLE_TRIES) -> bool:
        """Wait a moment until the process is off the CPU, so that its clock is exact.

        The kernel adds to the clock when a process leaves the CPU and, of one that is running, at the next
        tick only, up to 10 ms late: longer than most programs run. After its last answer a process goes to
        sleep in a read.

        Returns:
            Whether it has left the CPU, and has no other threads, of which nothing is known.
        """
        for _ in range(tries):
            try:
                with open(f"/proc/{self.pid}/stat", "rb", buffering=0) as file:
                    fields = file.read(1024).rpartition(b")")[2].split()
            except OSError:
                return False
            if fields[0].decode() in states:
                return int(fields[17]) <= 1
            time.sleep(_SETTLE_SECONDS)
        return False

    def check(self) -> None:
        """Look at the clock.

        Raises:
            OverTime: the CPU time is used up.
        """
        if self.used() > self.limit:
            raise OverTime

    def _more(self, size: int = 0) -> bytes:
        """Wait for bytes; ``size``: how many are missing."""
        while True:
            try:
                part = self._stream.recv(min(max(size, _READ), _LONG_READ))
            except BlockingIOError:
                self.check()
                continue
            except ConnectionResetError:
                part = b""
            if not part:
                self.check()  # the kernel's own limit may have ended it
                raise EOFError
            return part

    @property
    def pending(self) -> bool:
        """Whether something has been received that is not read yet."""
        return self._at < len(self._received)

    def read(self) -> bytes:
        """Read one message.

        Raises:
            EOFError: the process ended.
            OverTime: its CPU time is used up.
            BadBytes: the message is too large.
        """
        begin = self._at + 4
        if begin > len(self._received):
            self._fill(4)
            begin = 4
        size = wire.frame_length(self._received, begin - 4)
        end = begin + size
        if end > len(self._received):
            if size > wire.MAX_FRAME:
                raise wire.BadBytes("a message is too large")
            self._fill(4 + size)
            begin, end = 4, 4 + size
        self._at = end
        return self._received[begin:end]

    def _fill(self, n: int) -> None:
        """Have at least ``n`` bytes that are not read yet, waiting for them."""
        parts = [self._received[self._at :]]
        missing = n - len(parts[0])
        while missing > 0:
            try:
                part = self._stream.recv(min(max(missing, _READ), _LONG_READ))
            except BlockingIOError:
                self.check()
                continue
            except ConnectionResetError:
                part = b""
            if not part:
                self.check()  # the kernel's own limit may have ended it
                raise EOFError
            parts.append(part)
            missing -= len(part)
        self._received, self._at = b"".join(parts), 0

    def write(self, data: bytes) -> None:
        """Send framed messages.

        Raises:
            EOFError: the process ended.
            OverTime: its CPU time is used up before it has read them.
        """
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._stream.send(rest) :]
            except BlockingIOError:
                self.check()
            except (BrokenPipeError, ConnectionResetError):
                self.check()
                raise EOFError from None

    def burst(self, data: bytes, count: int) -> list[bytes]:
        """Send framed messages ahead, and return the ``count`` messages that come back.

        Looks only now and then for what has come: a process that wakes nobody and waits for nobody runs through, which
        is what its time should be taken of.

        Raises:
            EOFError: the process ended.
            OverTime: its CPU time is used up.
            BadBytes: a message is too large, or more has come.
        """
        rest, messages = memoryview(data), list[bytes]()
        parts, have, size = list[bytes](), 0, 4
        pause = _FIRST_LOOK
        while True:
            try:
                while rest:
                    rest = rest[self._stream.send(rest, socket.MSG_DONTWAIT) :]
            except BlockingIOError:
                pass
            except (BrokenPipeError, ConnectionResetError):
                rest = rest[:0]  # what it has sent before its end is still to be read
            part = self._glance()
            if part:
                parts.append(part)
                have += len(part)
            if have >= size:
                self._received, self._at, parts = b"".join(parts), 0, []
                while len(messages) < count and (size := self._needed()) <= have:
                    messages.append(self.read())
                    have -= size
                parts.append(self._received[self._at :])
            self.check()
            if len(messages) == count:
                if have:
                    raise wire.BadBytes("more answers than calls")
                return messages
            if not part:
                time.sleep(pause)
                pause = min(pause * 1.5, _LAST_LOOK)

    def _needed(self) -> int:
        """How many bytes the next message takes, as far as what has been received tells.

        Raises:
            BadBytes: it is too large.
        """
        if self._at + 4 > len(self._received):
            return 4
        size = wire.frame_length(self._received, self._at)
        if size > wire.MAX_FRAME:
            raise wire.BadBytes("a message is too large")
        return 4 + size

    def _glance(self) -> bytes:
        """Receive what has come, if anything."""
        try:
            part = self._stream.recv(_LONG_READ, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return b""
        except ConnectionResetError:
            part = b""
        if not part:
            self.check()
            raise EOFError
        return part
