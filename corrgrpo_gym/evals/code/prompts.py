"""Prompt templates: ours, or a file's."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from ...envs.chat import Message
from ...errors import GymError

_PLACE = re.compile(r"\{(\w+)\}")


class Template:
    """A prompt with places such as {question}, ours or a file's.

    Attributes:
        text: the template.
        source: for settings: "ours" or the file's name, with a digest.
    """

    def __init__(self, ours: str, places: Sequence[str], file: str | Path | None, needed: str) -> None:
        """Take our text, or a file's.

        Args:
            ours: our text.
            places: names that may stand in braces.
            file: a file with another text; all of it is one user message.
            needed: the place that a text must have.

        Raises:
            GymError: the file can't be read, or lacks the place.
        """
        self.text, origin = ours, "ours"
        if file is not None:
            path = Path(file).expanduser()
            try:
                self.text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise GymError(f"the prompt file {path} can't be read: {error}") from None
            origin = path.name
            if "{" + needed + "}" not in self.text:
                known = ", ".join("{" + place + "}" for place in places)
                raise GymError(f"the prompt file {path} has no {{{needed}}} in it; the places to fill are {known}")
        self._places = frozenset(places)
        self.source = f"{origin} {hashlib.sha256(self.text.encode()).hexdigest()[:12]}"

    def fill(self, **values: str) -> tuple[Message, ...]:
        """One user message with the places filled; other braces stay as they are."""

        def value(match: re.Match[str]) -> str:
            return values[match[1]] if match[1] in self._places else match[0]

        return ({"role": "user", "content": _PLACE.sub(value, self.text)},)
