"""Rows of data from a sequence, a function or a file (.jsonl, .jsonl.gz, .parquet), each with where it came from."""

import gzip
import importlib
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from ..errors import GymError, unknown

Rows: TypeAlias = Sequence[Mapping[str, Any]] | str | Path
Data: TypeAlias = Rows | Mapping[str, Rows] | Callable[[str], Rows]
PlacedRow: TypeAlias = tuple[str, dict[str, Any]]


def splits_of(data: Data, splits: Sequence[str] | None) -> tuple[str, ...]:
    """Return the splits that data offer: as given, else the keys of a mapping, else train (and test)."""
    if splits is not None:
        return tuple(splits)
    if isinstance(data, Mapping):
        return tuple(data)
    several = callable(data) or (isinstance(data, str | Path) and "{split}" in str(data))
    return ("train", "test") if several else ("train",)


def read_rows(data: Data, split: str, splits: tuple[str, ...]) -> list[PlacedRow]:
    """Read the rows of one split.

    Args:
        data: rows; a path (in which "{split}" stands for the split's name); rows or paths by split; or a
            function from a split's name to rows or a path.
        split: the split wanted.
        splits: those that there are.

    Returns:
        Pairs of a place ("train.jsonl:7", "row 7 of split 'train'") and a row.

    Raises:
        GymError: no such split or file, bad JSON, a row that isn't a dict, or no rows at all.
    """
    if split not in splits:
        raise GymError(unknown("split", split, splits))
    rows: Any = data
    if isinstance(data, Mapping):
        rows = data[split]
    elif callable(data):
        rows = data(split)
    if isinstance(rows, str | Path):
        path = str(rows).replace("{split}", split)
        placed = [(f"{path}:{number}", row) for number, row in read_file(path)]
    elif hasattr(rows, "__len__") and hasattr(rows, "__getitem__") and not isinstance(rows, Mapping):
        placed = [(f"row {i} of split {split!r}", rows[i]) for i in range(len(rows))]
    else:
        raise GymError(f"data of split {split!r} should be a sequence of dicts or a path, not a {type(rows).__name__}")
    for place, row in placed:
        if not isinstance(row, Mapping) or not all(isinstance(name, str) for name in row):
            raise GymError(f"{place}: a row is a dict with names of columns as keys, not {str(row)[:80]!r}")
    if not placed:
        raise GymError(f"data of split {split!r} have no rows")
    return [(place, dict(row)) for place, row in placed]


def read_file(path: str | Path) -> Iterator[tuple[int, Any]]:
    """Yield the numbers, from 1, and values of a file of JSON lines, packed by gzip or not, or of a Parquet table.

    Blank lines count but yield nothing; the values may be anything that JSON has.

    Raises:
        GymError: there is no such file, it is damaged, or a line is not JSON; the message names file and line.
    """
    path = Path(path)
    if not path.is_file():
        raise GymError(f"there is no file {path} (current directory: {Path.cwd()})")
    if path.suffix == ".parquet":
        yield from enumerate(_table(path), 1)
        return
    for number, line in enumerate(_lines(path), 1):
        if line.strip():
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise GymError(f"{path}:{number}: not JSON ({error}); the file should be JSON lines") from None
            yield number, value


def _lines(path: Path) -> Iterator[str]:
    number = 0
    try:
        with open(path, "rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
        with (gzip.open if packed else open)(path, "rt", encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):  # noqa: B007
                yield line
    except UnicodeDecodeError as error:
        raise GymError(f"{path} is not UTF-8 text after line {number} ({error.reason})") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise GymError(f"{path} is a damaged gzip file after line {number} ({error}); get it again") from None
    except OSError as error:
        raise GymError(f"{path} can't be read: {error.strerror or error}") from None


def _table(path: Path) -> list[dict[str, Any]]:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise GymError(f"reading {path} needs pyarrow: pip install pyarrow") from None
    try:
        return parquet.read_table(path).to_pylist()
    except Exception as error:  # pyarrow has many kinds
        raise GymError(f"{path} is no Parquet table: {error}") from None
