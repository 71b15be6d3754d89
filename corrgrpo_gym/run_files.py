"""The files of a run folder: JSON lines that only grow, files that are whole or absent, one writer at a time."""

import errno
import fcntl
import json
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from .errors import GymError


class CannotWrite(GymError):
    """A full disk or the like; the run can go on when that is mended."""


def lock(path: Path) -> IO[str]:
    """Take a folder for this process; the lock ends with the file, or with the process, however that ends.

    Raises:
        GymError: Another process has it.
    """
    file = open(path / ".lock", "w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as e:
        if e.errno in (errno.EWOULDBLOCK, errno.EACCES):
            file.close()
            raise GymError(f"another process is writing to the run folder {path}: wait for it, or stop it") from None
        # A file system without locks: then there is none.
    return file


def write_text(path: Path, text: str) -> None:
    """Write a file so that it is whole or not there at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "w", encoding="utf-8") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())
    os.replace(temporary, path)


def append_records(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """Append records to a stream, one JSON line each, and hand them to the operating system.

    Where that fails half-way the file is cut back to what it was.

    Raises:
        OSError: A full disk or the like.
    """
    text = "".join(json.dumps(plain(r), ensure_ascii=True) + "\n" for r in records)
    with open(path, "a", encoding="ascii") as f:
        length = f.seek(0, os.SEEK_END)
        try:
            f.write(text)
            f.flush()
        except OSError:
            os.truncate(path, length)
            raise


def iterate_records(path: Path, *, whole: bool = False) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Line numbers from 1, byte offsets, and records of a stream, one at a time.

    The stream may be a live one: an unfinished last line is left out.

    Args:
        path: the file; one that is not there has no records.
        whole: nobody is writing to it: a last line without a line end counts, and empty lines are left out.

    Raises:
        GymError: the file cannot be read, or a line is not a JSON object; the message names it.
    """
    if not path.exists():
        return
    offset = 0
    try:
        with open(path, "rb") as f:
            for number, line in enumerate(f, 1):
                if not line.endswith(b"\n") and not whole:
                    # Zeros are what a machine that lost its power leaves.
                    if line.lstrip(b"\0")[:1] not in (b"", b"{"):
                        raise _damaged(path, number, "is not JSON")
                    return
                if not whole or line.strip():
                    yield number, offset, _object(path, number, line)
                offset += len(line)
    except OSError as e:
        raise GymError(f"cannot read {path}: {e.strerror or e}") from e


def _object(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as e:
        raise _damaged(path, number, f"is not JSON ({e})") from e
    except RecursionError:
        raise _damaged(path, number, "is nested too deep") from None
    if not isinstance(record, dict):
        raise _damaged(path, number, f"is a JSON {type(record).__name__}, not an object")
    return record


def _damaged(path: Path, number: int, what: str) -> GymError:
    return GymError(f"{path}, line {number} {what}: was the file edited? Mend or remove that line")


def read_records(path: Path) -> list[dict[str, Any]]:
    """All records of a stream; see `iterate_records`."""
    return [record for _, _, record in iterate_records(path)]


def drop_torn_line(path: Path) -> bool:
    """Cut off a last line that a killed process did not finish; whether there was one."""
    if not path.is_file():
        return False
    with open(path, "rb+") as f:
        end = f.seek(0, os.SEEK_END)
        keep = end
        while keep:
            start = max(0, keep - 65536)
            f.seek(start)
            newline = f.read(keep - start).rfind(b"\n")
            if newline >= 0:
                keep = start + newline + 1
                break
            keep = start
        if keep < end:
            f.truncate(keep)
    return keep < end


def plain(value: Any) -> Any:
    """The value as strict JSON: numbers that are not finite become null."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
