"""Bytes between the processes: frames, and a reader for plain values that is safe on hostile bytes.

Values are written by ``marshal`` (version 2), which is fast, exact about types and refuses everything that is
not plain data. ``marshal.loads`` must never see bytes of an untrusted process, so those are read by `loads`
below: pure Python, bounds-checked, plain data only.

Runs in the trusted judge and inside the jail: standard library only.
"""

import marshal
import struct
from typing import Any

MAX_FRAME = 32 << 20
NONCE = 8  # bytes that begin a request to a program, and its answer
MAX_DEPTH = 1000
MARSHAL_VERSION = 2

_LENGTH = struct.Struct("<I")
_INT = struct.Struct("<i")
_FLOAT = struct.Struct("<d")
_COMPLEX = struct.Struct("<dd")


class BadBytes(ValueError):
    """The bytes are not a plain value: truncated, too deep, or of a kind that is not admitted."""


def dumps(value: Any) -> bytes:
    """Write a plain value.

    Raises:
        ValueError: it holds something that is not exactly a plain type, or nests deeper than marshal goes.
    """
    return marshal.dumps(value, MARSHAL_VERSION)


def frame(body: bytes) -> bytes:
    """Return ``body`` behind its length."""
    return _LENGTH.pack(len(body)) + body


def frame_length(data: bytes, start: int = 0) -> int:
    """Return the body length that 4 bytes announce."""
    return _LENGTH.unpack_from(data, start)[0]


class _Reader:
    """One pass over the bytes of one value."""

    __slots__ = ("data", "end", "pos")

    def __init__(self, data: bytes, pos: int):
        self.data = data
        self.pos = pos
        self.end = len(data)

    def count(self, width: int = 1) -> int:
        """Read a size; ``width`` is the least number of bytes that one item takes."""
        (n,) = _INT.unpack_from(self.data, self.pos)
        self.pos += 4
        if n < 0 or n * width > self.end - self.pos:
            raise BadBytes("a size exceeds the message")
        return n

    def read(self, depth: int) -> Any:
        data, pos = self.data, self.pos
        tag = data[pos]
        self.pos = pos = pos + 1
        if tag == 105:  # i
            self.pos = pos + 4
            return _INT.unpack_from(data, pos)[0]
        if tag == 91 or tag == 40:  # [ (
            items = self.items(depth)
            return items if tag == 91 else tuple(items)
        if tag == 117:  # u
            n = self.count()
            start, self.pos = self.pos, self.pos + n
            return data[start : start + n].decode("utf-8", "surrogatepass")
        if tag == 78:  # N
            return None
        if tag == 84:  # T
            return True
        if tag == 70:  # F
            return False
        if tag == 103:  # g
            self.pos = pos + 8
            return _FLOAT.unpack_from(data, pos)[0]
        return self.rare(tag, depth)

    def items(self, depth: int) -> list[Any]:
        n = self.count()
        if depth >= MAX_DEPTH:
            raise BadBytes("nested too deeply")
        data, pos = self.data, self.pos
        # Long runs of small ints and of floats are what answers mostly are. All tags in step means that each
        # item begins where the one before ends, so the whole run can be unpacked at once.
        if n > 4:
            tag = data[pos]
            if tag == 105 and data[pos : pos + 5 * n : 5] == b"i" * n and pos + 5 * n <= self.end:
                self.pos = pos + 5 * n
                return list(struct.unpack_from("<" + "xi" * n, data, pos))
            if tag == 103 and data[pos : pos + 9 * n : 9] == b"g" * n and pos + 9 * n <= self.end:
                self.pos = pos + 9 * n
                return list(struct.unpack_from("<" + "xd" * n, data, pos))
        read, depth = self.read, depth + 1
        return [read(depth) for _ in range(n)]

    def rare(self, tag: int, depth: int) -> Any:
        data, pos = self.data, self.pos
        if tag == 108:  # l: digits of 15 bits, least first
            (n,) = _INT.unpack_from(data, pos)
            self.pos = pos + 4 + 2 * abs(n)
            if self.pos > self.end or n == 0:
                raise BadBytes("a size exceeds the message")
            digits = struct.unpack_from(f"<{abs(n)}H", data, pos + 4)
            if max(digits) > 0x7FFF:
                raise BadBytes("a digit is out of range")
            value = int("".join([f"{d:015b}" for d in reversed(digits)]), 2)
            return -value if n < 0 else value
        if tag == 123:  # {
            if depth >= MAX_DEPTH:
                raise BadBytes("nested too deeply")
            table = {}
            while data[self.pos] != 48:  # 0 closes it
                key = self.read(depth + 1)
                table[key] = self.read(depth + 1)
            self.pos += 1
            return table
        if tag == 60:  # <
            return set(self.items(depth))
        if tag == 62:  # >
            return frozenset(self.items(depth))
        if tag == 115:  # s
            n = self.count()
            start, self.pos = self.pos, self.pos + n
            return data[start : start + n]
        if tag == 121:  # y
            self.pos = pos + 16
            return complex(*_COMPLEX.unpack_from(data, pos))
        if tag == 46:  # .
            return Ellipsis
        raise BadBytes(f"kind {tag} is not admitted")


def loads(data: bytes, start: int = 0) -> Any:
    """Read one plain value from untrusted bytes, which must hold exactly that.

    Raises:
        BadBytes: they do not.
    """
    reader = _Reader(data, start)
    try:
        value = reader.read(0)
    except BadBytes:
        raise
    # Truncated; bytes that are not UTF-8; a list as a key.
    except (
        IndexError,
        struct.error,
        ValueError,
        TypeError,
        RecursionError,
        MemoryError,
        OverflowError,
    ) as error:
        raise BadBytes(f"malformed: {type(error).__name__}") from None
    if reader.pos != len(data):
        raise BadBytes("bytes are left over")
    return value
