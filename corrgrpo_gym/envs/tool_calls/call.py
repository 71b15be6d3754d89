"""What parsing a model's answer gives: calls, text, and errors, told apart."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool.

    Attributes:
        name: the tool's, as the model wrote it.
        arguments: JSON values by name.
        id: what a native call is answered by.
    """

    name: str
    arguments: dict[str, Any]
    id: str | None = None


@dataclass(frozen=True, slots=True)
class CallError:
    """Something that was meant as a call and can't be read as one.

    Attributes:
        reason: why, for people.
        position: where in the text, in characters; of a native call its number.
        excerpt: what stands there, up to 80 characters.
    """

    reason: str
    position: int
    excerpt: str = ""

    def __str__(self) -> str:
        return f"{self.reason} (at {self.position}{f': {self.excerpt!r}' if self.excerpt else ''})"


@dataclass(frozen=True, slots=True)
class Parsed:
    """An answer, taken apart.

    Attributes:
        calls: in the order of the answer, repeated ones repeated.
        text: what is neither call nor reasoning, stripped.
        errors: what was meant as a call and isn't one. No calls and no errors: the model made no call.
        dialect: how the calls were written; "none" where there is no sign of one.
        reasoning: what stood in <think>, stripped.
    """

    calls: tuple[Call, ...] = ()
    text: str = ""
    errors: tuple[CallError, ...] = ()
    dialect: str = "none"
    reasoning: str = ""


class NotACall(ValueError):
    """A value that can't be a call; the message says why."""


def call_of(value: Any, id: str | None = None) -> Call:
    """Turn {"name": ..., "arguments" or "parameters": {...}} into a call.

    Arguments that are a text are decoded, once.

    Raises:
        NotACall: it has another shape.
    """
    from .json_reader import MAX_DEPTH, BadJson, deeper_than, whole

    if not isinstance(value, Mapping):
        raise NotACall(f"a call is an object with a name, not {kind_of(value)}")
    inner = value.get("function")
    if isinstance(inner, Mapping):  # the form of chat completions, written out as text
        value = inner
    name = value.get("name", inner if isinstance(inner, str) else None)  # small Llamas write {"function": "f"}
    if not isinstance(name, str) or not name.strip():
        raise NotACall("the call has no name" if name is None else f"the name is {kind_of(name)}, not a text")
    key = next((key for key in ("arguments", "parameters") if key in value), None)
    if key is None:
        raise NotACall(f"the call of {name[:40]!r} has no arguments")
    arguments = value[key]
    if isinstance(arguments, str):
        try:
            arguments = whole(arguments) if arguments.strip() else {}
        except BadJson as error:
            raise NotACall(f"the arguments of {name[:40]!r} are a text that is not JSON: {error}") from None
    elif arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise NotACall(f"the arguments of {name[:40]!r} are {kind_of(arguments)}, not an object")
    if any(not isinstance(key, str) for key in arguments) or deeper_than(arguments, MAX_DEPTH):
        raise NotACall(f"the arguments of {name[:40]!r} have keys that are no texts, or more than {MAX_DEPTH} levels")
    return Call(name, arguments, id)


def kind_of(value: Any) -> str:
    """What JSON calls a value's type, with an article."""
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number" if isinstance(value, int | float) else f"a {type(value).__name__}")
