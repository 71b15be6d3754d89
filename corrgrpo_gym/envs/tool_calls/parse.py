"""The one place that finds tool calls in what a model answered.

Dialects:

- native: `tool_calls` of an assistant message, as chat completions carry them.
- tags: `<tool_call> ... </tool_call>` around JSON objects, any number, wherever line ends fall. Hermes and Qwen write
  one with `arguments` in each block, RLLA one with `parameters` a line.
- mistral: `[TOOL_CALLS]` before a JSON list, or before each `name[ARGS]{...}`.
- json: an answer that is nothing but JSON objects with a name (Llama 3: with `parameters`, after `<|python_tag|>` or
  not, several with ";" between), or a list of them.
- pythonic: an answer that is nothing but `[f(a=1), g.h(b="x")]`.

Every function here takes any text and answers in a time that grows with its length: a part that was looked at is not
looked at again, and a place that can't be read ends the search in its block.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, get_args

from ...errors import GymError, unknown
from ..chat import Message
from .call import Call, CallError, NotACall, Parsed, call_of
from .json_reader import BadJson, skip_space, value_at
from .pythonic import calls_of, is_call, looks_like_calls

Dialect: TypeAlias = Literal["auto", "tags", "mistral", "json", "pythonic"]
MAX_ERRORS = 100
OPEN, CLOSE = "<tool_call>", "</tool_call>"
_MISTRAL = "[TOOL_CALLS]"
_PYTHON_TAGS = ("<|python_tag|>", "<|python_start|>")
_AFTER_TAGS = ("<|python_end|>", "<|eom_id|>", "<|eot_id|>")
_FENCE = re.compile(r"```[\w-]*[ \t]*\n(.*)\n[ \t]*```", re.DOTALL)
_NAMED = re.compile(r'\[?\s*\{\s*"(?:name|function|type)"\s*:')
_MISTRAL_NAME = re.compile(r"\s*([^\s\[\]{}]{1,256})\s*(?:\[CALL_ID\]\s*([^\s\[\]{}]{1,64})\s*)?(?:\[ARGS\]\s*)?(?=\{)")
_Found: TypeAlias = tuple[list[Call], list[CallError], list[str]]


def parse(answer: str | Message, dialect: Dialect = "auto") -> Parsed:
    """Take an answer apart.

    Args:
        answer: a text, or an assistant message. Native calls of a message go before what its text may hold.
        dialect: how a text writes calls; `auto` goes by what it holds.

    Raises:
        GymError: there is no such dialect. An answer never raises; content that is no text counts as none, but for the
            texts of a list of parts.
    """
    if dialect not in get_args(Dialect):
        raise GymError(unknown("dialect of tool calls", dialect, get_args(Dialect)))
    if isinstance(answer, str):
        native: Any = None
        content = answer
    else:
        native = answer.get("tool_calls")
        content = _text_of(answer.get("content"))
    reasoning, rest = split_reasoning(content)
    if native:
        calls, errors = _native(native)
        return Parsed(tuple(calls), rest.strip(), tuple(errors), "native", reasoning)
    name = _dialect_of(rest) if dialect == "auto" else dialect
    if name == "none":
        return Parsed(text=rest.strip(), reasoning=reasoning)
    calls, errors, texts = _READERS[name](rest)
    if not calls and not errors:
        return Parsed(text=rest.strip(), reasoning=reasoning)
    text = " ".join(part for part in (part.strip() for part in texts) if part)
    return Parsed(tuple(calls), text, tuple(errors[:MAX_ERRORS]), name, reasoning)


def _text_of(content: Any) -> str:
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def split_reasoning(text: str) -> tuple[str, str]:
    """Take the reasoning off the front: `<think> ... </think>`, or up to `</think>` where the template had opened it.

    Returns:
        The reasoning, stripped, and the rest. Reasoning that does not end is all of the text.
    """
    start = len(text) - len(text.lstrip())
    opened = text.startswith("<think>", start)
    if not opened and text.startswith((OPEN, _MISTRAL, "{", "[", *_PYTHON_TAGS), start):
        return "", text
    inner, end, rest = text[start + 7 * opened :].partition("</think>")
    if end:
        return inner.strip(), rest
    return (inner.strip(), "") if opened else ("", text)


def _dialect_of(text: str) -> str:
    if OPEN in text:
        return "tags"
    if _MISTRAL in text:
        return "mistral"
    bare = _bare(text)
    if text.lstrip().startswith(_PYTHON_TAGS):
        return "pythonic" if looks_like_calls(bare) or is_call(bare) else "json"
    if _NAMED.match(bare):
        return "json"
    if looks_like_calls(bare) or is_call(bare):
        return "pythonic"
    return "none"


def _bare(text: str) -> str:
    """The text without a tag at its ends or a fence around all of it."""
    text = text.strip()
    for tag in _PYTHON_TAGS:
        text = text.removeprefix(tag)
    for tag in _AFTER_TAGS:
        text = text.removesuffix(tag)
    text = text.strip()
    match = _FENCE.fullmatch(text) if text.startswith("```") else None
    return match[1].strip() if match else text


def _native(calls: Any) -> tuple[list[Call], list[CallError]]:
    found: list[Call] = []
    errors: list[CallError] = []
    for number, call in enumerate(calls if isinstance(calls, list | tuple) else [calls]):
        try:
            id = call.get("id") if isinstance(call, Mapping) else None
            found.append(call_of(call, id if isinstance(id, str) else None))
        except NotACall as error:
            errors.append(CallError(str(error), number))
    return found, errors[:MAX_ERRORS]


def _tags(text: str) -> _Found:
    calls: list[Call] = []
    errors: list[CallError] = []
    texts: list[str] = []
    position = 0
    while (start := text.find(OPEN, position)) >= 0 and len(errors) < MAX_ERRORS:
        texts.append(text[position:start])
        position = _values(text, start + len(OPEN), CLOSE, calls, errors)
    texts.append(text[position:])
    return calls, errors, texts


def _values(text: str, position: int, close: str, calls: list[Call], errors: list[CallError]) -> int:
    """Read objects up to a closing mark, which inside a JSON string is none; return the place after it."""
    begin, count = position, 0
    while True:
        position = skip_space(text, position)
        if text.startswith(close, position):
            if not count:
                errors.append(_error("an empty block", begin, text))
            return position + len(close)
        if position >= len(text):
            errors.append(_error("the block does not end", begin, text))
            return position
        if text[position] in ",;" and count:
            position += 1
            continue
        count += 1
        try:
            value, position = value_at(text, position)
        except BadJson as error:
            errors.append(_error(f"not JSON: {error}", error.position, text))
            end = text.find(close, position)
            return len(text) if end < 0 else end + len(close)
        _add(value, position, calls, errors)


def _add(value: Any, position: int, calls: list[Call], errors: list[CallError]) -> None:
    for item in value if isinstance(value, list) and value else [value]:
        try:
            calls.append(call_of(item))
        except NotACall as error:
            errors.append(CallError(str(error), position))
            if len(errors) >= MAX_ERRORS:
                return


def _mistral(text: str) -> _Found:
    calls: list[Call] = []
    errors: list[CallError] = []
    texts: list[str] = []
    position = 0
    while (start := text.find(_MISTRAL, position)) >= 0 and len(errors) < MAX_ERRORS:
        texts.append(text[position:start])
        position = skip_space(text, start + len(_MISTRAL))
        try:
            match = _MISTRAL_NAME.match(text, position)
            if match:
                arguments, position = value_at(text, match.end())
                calls.append(call_of({"name": match[1], "arguments": arguments}, match[2]))
            else:
                value, position = value_at(text, position)
                _add(value, position, calls, errors)
        except BadJson as error:
            errors.append(_error(f"not JSON: {error}", error.position, text))
        except NotACall as error:
            errors.append(_error(str(error), position, text))
    texts.append(text[position:] if not errors else "")
    return calls, errors, texts


def _json(text: str) -> _Found:
    bare = _bare(text)
    calls: list[Call] = []
    errors: list[CallError] = []
    position = 0
    while position < len(bare):
        try:
            value, position = value_at(bare, position)
        except BadJson as error:
            # Values first and then words: the words are text.
            if calls and bare[position] not in "[{":
                return calls, errors, [bare[position:]]
            errors.append(_error(f"not JSON: {error}", error.position, bare))
            break
        _add(value, position, calls, errors)
        position = skip_space(bare, position)
        while position < len(bare) and bare[position] in ",;":
            position = skip_space(bare, position + 1)
    return calls, errors, []


def _pythonic(text: str) -> _Found:
    bare = _bare(text)
    try:
        return calls_of(bare), [], []
    except NotACall as error:
        return [], [_error(str(error), 0, bare)], []


def _error(reason: str, position: int, text: str) -> CallError:
    return CallError(reason, position, text[position : position + 80])


_READERS: dict[str, Callable[[str], _Found]] = {
    "tags": _tags,
    "mistral": _mistral,
    "json": _json,
    "pythonic": _pythonic,
}
