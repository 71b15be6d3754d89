"""JSON out of a model's text: one value at a time, from a given place, and never an exception but BadJson."""

import json
import math
import re
from typing import Any

MAX_DEPTH = 64
_SPACE = re.compile(r"[ \t\n\r]*")


class BadJson(ValueError):
    """The text is not JSON there, or holds what JSON has no place for; `position` says where it went wrong."""

    def __init__(self, reason: str, position: int):
        super().__init__(reason)
        self.position = position


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON value")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text[:20])


_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)


def skip_space(text: str, position: int) -> int:
    """Return the place of the next character that is not white space."""
    match = _SPACE.match(text, position)
    assert match is not None
    return match.end()


def value_at(text: str, position: int) -> tuple[Any, int]:
    """Read the value that begins at a place.

    Of keys that an object repeats the last counts, as everywhere.

    Returns:
        The value, and the place after it.

    Raises:
        BadJson: there is none, it is nested deeper than 64 levels, or a number is too long or too large to convert.
    """
    try:
        value, end = _DECODER.raw_decode(text, position)
    except json.JSONDecodeError as error:
        raise BadJson(error.msg, error.pos) from None
    except (RecursionError, MemoryError):
        raise BadJson(f"nested deeper than {MAX_DEPTH} levels", position) from None
    except ValueError as error:
        raise BadJson(str(error).partition(";")[0], position) from None
    if deeper_than(value, MAX_DEPTH):
        raise BadJson(f"nested deeper than {MAX_DEPTH} levels", position)
    return value, end


def whole(text: str) -> Any:
    """Read a text that is one JSON value.

    Raises:
        BadJson: it is not, or something follows.
    """
    value, end = value_at(text, skip_space(text, 0))
    end = skip_space(text, end)
    if end < len(text):
        raise BadJson("something follows the value", end)
    return value


def deeper_than(value: Any, depth: int) -> bool:
    """Whether lists and dicts are nested deeper than this; without recursion."""
    level = [value]
    for _ in range(depth):
        level = [
            item
            for outer in level
            if isinstance(outer, dict | list)
            for item in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(item, dict | list)
        ]
        if not level:
            return False
    return True
