"""Rows of data from a sequence, a function, a .jsonl or .jsonl.gz file, each with the place it came from."""

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
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
        placed = _read_file(Path(str(rows).replace("{split}", split)))
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


def _read_file(path: Path) -> list[tuple[str, Any]]:
    if not path.is_file():
        raise GymError(f"there is no file {path} (current directory: {Path.cwd()})")
    placed = []
    number = 0
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    placed.append((f"{path}:{number}", json.loads(line)))
    except json.JSONDecodeError as error:
        raise GymError(f"{path}:{number}: not JSON: {error}") from error
    except (UnicodeDecodeError, EOFError, OSError) as error:
        raise GymError(f"{path}: can't be read after line {number}: {error}") from error
    return placed
