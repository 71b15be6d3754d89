"""Requests to a program's process and its answers, as bytes.

Waking two processes for each call takes longer than most calls. So requests that are known beforehand are sent ahead:
one, and when that is answered two, then four: a program whose first answers are wrong has not been asked much more.
The process answers them in order, each by its number, and what is asked is compared with what was sent.

Runs in the trusted judge process: standard library only.
"""

import marshal
import os
from collections.abc import Sequence

from . import wire
from .channel import Channel, OverTime

Calls = list[tuple[bytes, bytes]]  # requests with their answers

_AHEAD_BYTES = 1 << 16  # what a socket takes without being read, on any Linux


class Astray(BaseException):
    """Other requests were sent ahead than are made: the process has answered what nobody asked, and is of no use."""


class Line:
    """The line to one process.

    Args:
        channel: the stream to it.
        code: the compiled program. It is sent along with the first request; its loading counts as its own time.
        entry_point: what requests call in it.
        ahead: the requests that will probably be made first.

    Attributes:
        cpu: seconds of CPU time until the last answer.
    """

    def __init__(self, channel: Channel, code: bytes, entry_point: str, ahead: Sequence[bytes] = ()):
        self.channel = channel
        self.cpu = 0.0
        self._first: bytes | None = wire.frame(marshal.dumps((code, entry_point)))
        self._ahead = ahead
        self._begun = self._done = int.from_bytes(os.urandom(6), "little")  # numbers of the last request and answer
        self._made = self._sent = 0  # of those ahead
        self._turn = 1

    @property
    def idle(self) -> bool:
        """Whether the process has answered all that it was sent."""
        return self._begun == self._done

    def ask(self, request: bytes) -> bytes:
        """Return the answer to a request.

        Raises:
            EOFError: the process ended.
            OverTime: its CPU time is used up.
            BadBytes: what came is no answer to this request.
            Astray: others were sent ahead.
        """
        if self._made < len(self._ahead) and request == self._ahead[self._made]:
            if self.idle:
                self._send(self._next())
            self._made += 1
        elif self.idle:
            self._ahead = ()
            self._send([request])
        else:
            raise Astray
        channel = self.channel
        waits = not channel.pending
        try:
            answer = channel.read()
        except BaseException:
            self.cpu = channel.used()
            raise
        if waits:  # what it answered before was looked at then
            self.cpu = channel.used()
            if self.cpu > channel.limit:
                raise OverTime
        return self._checked(answer)

    def ask_all(self, requests: Sequence[bytes]) -> list[bytes]:
        """Send requests all at once, and return the answers.

        Raises:
            EOFError: the process ended.
            OverTime: its CPU time is used up.
            BadBytes: what came are not the answers to these requests.
        """
        channel = self.channel
        try:
            answers = channel.burst(self._framed(requests), len(requests))
        finally:
            self.cpu = channel.used()
        if self.cpu > channel.limit:
            raise OverTime
        return [self._checked(answer) for answer in answers]

    def _next(self) -> list[bytes]:
        """The requests that go ahead in this turn."""
        turn: list[bytes] = []
        size = 0
        for request in self._ahead[self._sent : self._sent + self._turn]:
            size += len(request)
            if turn and size > _AHEAD_BYTES:
                break
            turn.append(request)
        self._sent += len(turn)
        self._turn *= 2
        return turn

    def _framed(self, requests: Sequence[bytes]) -> bytes:
        frames = []
        if self._first is not None:
            frames.append(self._first)
            self._first = None
            self.channel.start_clock()
        for request in requests:
            self._begun += 1
            frames.append(wire.frame(self._begun.to_bytes(wire.NONCE, "little") + request))
        return b"".join(frames)

    def _send(self, requests: Sequence[bytes]) -> None:
        try:
            self.channel.write(self._framed(requests))
        except BaseException:
            self.cpu = self.channel.used()
            raise

    def _checked(self, answer: bytes) -> bytes:
        self._done += 1
        if not answer.startswith(self._done.to_bytes(wire.NONCE, "little")):
            raise wire.BadBytes("an answer to another call")
        return answer[wire.NONCE :]
