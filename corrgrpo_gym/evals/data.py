"""A benchmark's file: where it is (a path, the hub or its cache, another tool's cache), and its rows."""

import ast
import hashlib
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ..envs import hub
from ..envs.rows import read_file
from ..errors import GymError

T = TypeVar("T")


class Source(NamedTuple):
    """Where a benchmark's data are published.

    Attributes:
        folder: name of the folder that they have in a directory of data sets.
        files: names of the file, without ".gz", as published.
        repository: of the hub.
        hub_file: the file's path there; None where the hub has no such file.
        cache: folders where other tools keep the file.
        address: where to get it by hand.
    """

    folder: str
    files: tuple[str, ...]
    repository: str = ""
    hub_file: str | None = None
    cache: tuple[str, ...] = ()
    address: str = ""


def find(name: str, source: Source, data: str | Path | None) -> tuple[Path, str]:
    """Find the file.

    Args:
        name: the benchmark's, for messages.
        source: where its data are published.
        data: None, "auto" or "hub": other tools' caches, the hub's cache, the hub; or the path of the file, of a folder
            that holds it, or of a folder of data sets.

    Returns:
        The path, and a note that says which data these are.

    Raises:
        GymError: it is nowhere, or the path has no such file.
    """
    if data not in (None, "auto", "hub"):
        path = Path(str(data)).expanduser()
        if not path.exists():
            raise GymError(f"{name}: there is no file or folder {str(data)!r} (current directory: {Path.cwd()})")
        if path.is_file():
            return path, f"{path}"
        found = _in_folders((path, path / source.folder), source.files)
        if found is None:
            held = ", ".join(sorted(p.name for p in path.iterdir())[:12]) or "nothing"
            raise GymError(f"{name}: {path} holds none of {_names(source)}; it holds {held}")
        return found, f"{found}"
    found = _in_folders([Path(folder).expanduser() for folder in source.cache], source.files)
    if found is not None:
        return found, f"{found}"
    instead = f"Get {source.files[0]} from {source.address} and pass its path with --data."
    if source.hub_file is None:
        raise GymError(f"{name}: the data are in none of {', '.join(source.cache)}. {instead}")
    path, where = hub.fetch(source.repository, source.hub_file, instead=instead)
    return path, f"hub: {where}"


def digest(path: Path) -> str:
    """A digest of a file, for the settings of a run."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def parsed_rows(path: Path, parse: Callable[[Mapping[str, Any]], T], name: Callable[[T], str]) -> dict[str, T]:
    """Read and check all rows of a file.

    Args:
        path: of JSON lines or a table.
        parse: from a row to a task; raises KeyError, TypeError or ValueError where the row is bad.
        name: a task's id.

    Raises:
        GymError: it can't be read, is empty, or has a bad or repeated row; the message names it.
    """
    tasks: dict[str, T] = {}
    for number, row in read_file(path):
        place = f"{path}:{number}"
        if not isinstance(row, Mapping):
            raise GymError(f"{place}: a row is a JSON object, not {str(row)[:80]!r}")
        label = next((f" ({row[key]})" for key in ("task_id", "question_id") if key in row), "")
        try:
            task = parse(row)
        except KeyError as error:
            raise GymError(f"{place}{label}: field {error} is missing (it has {', '.join(map(str, row))})") from None
        except (TypeError, ValueError) as error:
            raise GymError(f"{place}{label}: {error}; fix or remove the row") from None
        if name(task) in tasks:
            raise GymError(f"{place}: the id {name(task)!r} is that of an earlier row")
        tasks[name(task)] = task
    if not tasks:
        raise GymError(f"{path} has no rows; it should have one JSON object a line")
    return tasks


def text(row: Mapping[str, Any], field: str, *, blank: bool = False) -> str:
    """A field that is a text.

    Raises:
        KeyError: it is missing.
        ValueError: it is none, or empty.
    """
    value = row[field]
    if not isinstance(value, str):
        raise ValueError(f"field {field!r} is a {type(value).__name__}, not a text")
    if not blank and not value.strip():
        raise ValueError(f"field {field!r} is empty")
    return value.replace("\r\n", "\n")


def parsed(code: str) -> ast.Module:
    """The syntax tree of code of a row; its odd escapes are nobody's concern.

    Raises:
        SyntaxError, ValueError: it does not parse.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(code)


def _in_folders(folders: Sequence[Path], names: Sequence[str]) -> Path | None:
    for folder in folders:
        for name in names:
            for suffix in ("", ".gz"):
                if (path := folder / (name + suffix)).is_file():
                    return path
    return None


def _names(source: Source) -> str:
    return ", ".join(f"{name}[.gz]" for name in source.files)


def digest_of(rows: Any) -> str:
    """A digest of plain data."""
    return hashlib.sha256(json.dumps(rows).encode("utf-8", "surrogatepass")).hexdigest()[:16]
