"""Benchmarks of several files: where these are, and what is in them."""

import gzip
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..envs.rows import read_file
from ..errors import GymError


@dataclass(frozen=True, slots=True)
class Layout:
    """How a benchmark is published.

    Attributes:
        name: of the benchmark, and of its folder in a directory of data sets.
        folder: where its files are in a clone of the repository.
        address: of that repository.
    """

    name: str
    folder: str
    address: str


class Files:
    """The files of one benchmark under a path.

    Args:
        layout: how they are published.
        data: a folder that holds them, a directory of data sets, or a clone of the repository.

    Attributes:
        note: where they are.

    Raises:
        GymError: no path is given, or there is no such folder.
    """

    def __init__(self, layout: Layout, data: str | Path | None):
        self._layout = layout
        how = f"git clone {layout.address} and pass the clone (or its {layout.folder}/) with --data"
        if data in (None, "auto", "hub", "embedded"):
            raise GymError(f"{layout.name}: the data are on no hub. Get them with {how}")
        self._root = Path(str(data)).expanduser()
        if not self._root.is_dir():
            here = f"(current directory: {Path.cwd()})"
            raise GymError(f"{layout.name}: there is no folder {str(data)!r} {here}. Get the data with {how}")
        self.note = str(self._root)
        self._seen: dict[str, str] = {}

    def find(self, name: str) -> Path:
        """The path of a file, packed by gzip or not.

        Raises:
            GymError: it is in none of the places where it could be.
        """
        for folder in (self._root, self._root / self._layout.name, self._root / self._layout.folder):
            for suffix in ("", ".gz"):
                path = folder / (name + suffix)
                if path.is_file():
                    self._seen[name] = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
                    return path
        held = ", ".join(sorted(p.name for p in self._root.iterdir())[:12]) or "nothing"
        raise GymError(
            f"{self._layout.name}: {self._root} holds neither {name}[.gz] nor a folder {self._layout.name} or "
            f"{self._layout.folder} with it; it holds {held}"
        )

    @property
    def digest(self) -> str:
        """A digest of all files that were found."""
        return hashlib.sha256(repr(sorted(self._seen.items())).encode()).hexdigest()[:16]

    def rows(self, name: str, fields: Sequence[str]) -> list[dict[str, Any]]:
        """Rows of a file of JSON lines.

        Args:
            name: of the file.
            fields: that a row must have, as texts or lists of texts.

        Raises:
            GymError: it isn't there or damaged, or a row lacks a field; the message names it.
        """
        path = self.find(name)
        return [checked(row, fields, f"{path}:{number}") for number, row in read_file(path)]

    def text(self, name: str) -> str:
        """The text of a file.

        Raises:
            GymError: it isn't there or damaged.
        """
        path = self.find(name)
        try:
            packed = path.read_bytes()
            return (gzip.decompress(packed) if packed[:2] == b"\x1f\x8b" else packed).decode("utf-8-sig")
        except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
            raise GymError(f"{path} is damaged ({error}); get it again") from None

    def json(self, name: str) -> Any:
        """The value that a JSON file holds.

        Raises:
            GymError: it isn't there, damaged, or not JSON.
        """
        try:
            return json.loads(self.text(name))
        except (ValueError, RecursionError) as error:
            raise GymError(f"{self.find(name)} is not JSON ({error}); get it again") from None

    def names(self, folder: str) -> list[str]:
        """Names of the files in a folder, sorted, without ".gz".

        Raises:
            GymError: there is no such folder.
        """
        for place in (self._root, self._root / self._layout.name, self._root / self._layout.folder):
            if (place / folder).is_dir():
                return sorted({p.name.removesuffix(".gz") for p in (place / folder).iterdir() if p.is_file()})
        raise GymError(f"{self._layout.name}: {self._root} holds no folder {folder}")


def checked(row: Any, fields: Sequence[str], place: str) -> dict[str, Any]:
    """A row that has some fields.

    Raises:
        GymError: it is no object, or a field is missing, empty or of another kind; the message begins with `place`.
    """
    if not isinstance(row, Mapping):
        raise GymError(f"{place}: a row is a JSON object, not {str(row)[:80]!r}")
    for field in fields:
        if field not in row:
            raise GymError(f"{place}: field {field!r} is missing (it has {', '.join(map(str, row))})")
        value = row[field]
        texts = value if isinstance(value, list) else [value]
        if not texts or not all(isinstance(t, str) and t for t in texts):
            raise GymError(f"{place}: field {field!r} is {str(value)[:60]!r}, not a text or a list of texts")
    return dict(row)
