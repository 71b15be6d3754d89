"""The texts of a benchmark's prompts: ours, or those of a file."""

import hashlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...errors import GymError, unknown

_PLACE = re.compile(r"\{(\w+)\}")


class Texts:
    """Named texts with places such as {task}.

    Args:
        ours: the texts.
        places: names of the places in each.
        file: a TOML file with texts by name, in the place of ours; a place may be left out there, others stay as they
            are written.

    Attributes:
        source: for settings: "ours" or the file's name, with a digest of all texts.

    Raises:
        GymError: the file can't be read, or names a text that isn't there.
    """

    def __init__(self, ours: Mapping[str, str], places: Mapping[str, Sequence[str]], file: str | Path | None = None):
        self._texts, self._places, origin = dict(ours), places, "ours"
        if file is not None:
            path = Path(file).expanduser()
            try:
                given = tomllib.loads(path.read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
                raise GymError(f"the prompt file {path} can't be read as TOML with texts by name: {error}") from None
            for name, text in given.items():
                if name not in ours:
                    raise GymError(f"the prompt file {path}: {unknown('text', name, ours)}")
                if not isinstance(text, str):
                    raise GymError(f"the prompt file {path}: {name} is a {type(text).__name__}, not a text")
            self._texts |= given
            origin = path.name
        digest = hashlib.sha256(repr(sorted(self._texts.items())).encode()).hexdigest()[:12]
        self.source = f"{origin} {digest}"

    def fill(self, name: str, /, **values: str) -> str:
        """A text with its places filled; other braces stay as they are."""
        places = self._places[name]
        return _PLACE.sub(lambda m: values[m[1]] if m[1] in places else m[0], self._texts[name])
