"""API-Bank's way of writing calls, `[Name(key='value', ...)]`, and its dialogues as RLLA writes them."""

import ast
import json
import re
from collections.abc import Sequence
from importlib import resources
from typing import Any

from ...envs.tool_calls import Call, parse
from ...envs.tool_calls.json_reader import BadJson, whole

# All repetitions are possessive: a text of nothing but spaces is gone through once.
_CALL = re.compile(r"\[\s*+(\w++)\s*+\(")
_KEY = re.compile(r"\s*+,?+\s*+(\w++)\s*+=\s*+")
# A value ends at its quote where the next argument or the end of the call follows: some values hold quotes themselves.
_ENDS = {q: re.compile(rf"{q}(?=\s*+(?:,\s*+\w++\s*+=|\)))") for q in "'\""}
_CLOSE = re.compile(r"\s*+,?+\s*+\)")
_BARE = re.compile(r"[^,()'\"]*")
_LITERAL = re.compile(r"\s*[\[{]")
_SIMPLE = re.compile(r"""[\s\[\]{}:,]|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?|True|False|None""")
MAX_LITERAL = 10_000
_LINE = re.compile(r"(User|AI|API-Request|API|Generate API Request): ?(.*)")


def calls_of(text: str) -> list[Call]:
    """Read every call of a text; what can't be read as one is passed over.

    Python that is right goes before API-Bank's own way, whose texts may hold quotes that nothing escapes.
    """
    exact = parse(text.strip().removeprefix("API-Request:"), "pythonic")
    if exact.calls and not exact.errors:
        return list(exact.calls)
    calls = []
    position = 0
    while match := _CALL.search(text, position):
        arguments, position = _arguments(text, match.end())
        if arguments is not None:
            calls.append(Call(match[1], arguments))
    return calls


def _arguments(text: str, position: int) -> tuple[dict[str, Any] | None, int]:
    arguments: dict[str, Any] = {}
    while match := _KEY.match(text, position):
        position = match.end()
        quote = text[position : position + 1]
        if quote in _ENDS and quote:
            end = _ENDS[quote].search(text, position + 1)
            if end is None:
                return None, len(text)
            arguments[match[1]] = text[position + 1 : end.start()]
            position = end.end()
        else:
            bare = _BARE.match(text, position)
            assert bare is not None
            arguments[match[1]] = bare[0].strip()
            position = bare.end()
    closed = _CLOSE.match(text, position)
    return (arguments, closed.end()) if closed else (None, position)


def plain(value: Any) -> Any:
    """Turn a text that is a list or dict, in JSON or in Python, into one; all else stays."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if not isinstance(value, str) or len(value) > MAX_LITERAL or not _LITERAL.match(value):
        return value
    try:
        return whole(value)
    except BadJson:
        pass
    if _SIMPLE.sub("", value) or max(_depths(value)) > 20:
        return value
    try:
        read = ast.literal_eval(value.strip())
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return value
    return read if isinstance(read, list | dict) else value


def _depths(text: str) -> list[int]:
    depth, seen = 0, [0]
    for character in text:
        depth += (character in "[{") - (character in "]}")
        seen.append(depth)
    return seen


def turns_of(dialogue: str) -> list[tuple[str, str]]:
    """The turns of API-Bank's `input`: (speaker, text), lines without a speaker belonging to the one before."""
    turns: list[tuple[str, str]] = []
    for line in dialogue.splitlines():
        match = _LINE.match(line)
        if match:
            turns.append((match[1], match[2]))
        elif turns:
            turns[-1] = (turns[-1][0], f"{turns[-1][1]}\n{line}")
    return [(who, said.strip()) for who, said in turns if who != "Generate API Request"]


def as_rlla(tools: Sequence[dict[str, Any]], turns: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """The system message of RLLA with these tools, and the dialogue as its history."""
    parts = []
    for who, said in turns:
        if who == "User":
            parts.append(f"<user> {said} </user>")
        elif who == "AI":
            parts.append(f"<response> {said} </response>")
        else:
            request, _, result = said.partition("->")
            lines = "\n".join(rlla_call(call) for call in calls_of(request))
            parts.append(f"<tool_call>\n{lines}\n</tool_call>\n<obs> {result.strip()} </obs>")
    listed = "\n".join(
        f"{number}. Name: {t['name']}\nDescription: {t['description']}\nParameters: {json.dumps(parameters_of(t))}"
        for number, t in enumerate(tools, 1)
    )
    template = resources.files(__package__).joinpath("rlla_system.txt").read_text()
    return template.replace("{tools}", listed), "**Dialogue Records History**\n" + "\n".join(parts)


def parameters_of(tool: dict[str, Any]) -> dict[str, Any]:
    """Parameters as RLLA lists them: description, type and default of each."""
    return {
        name: {"description": about.get("description", ""), "type": about.get("type", ""), "default": ""}
        for name, about in tool["input_parameters"].items()
    }


def rlla_call(call: Call) -> str:
    """A call as a line of RLLA."""
    return json.dumps({"name": call.name, "parameters": plain(call.arguments)}, ensure_ascii=False)


def rlla_answer(calls: Sequence[Call]) -> str:
    """An answer in RLLA's dialect."""
    lines = "\n".join(map(rlla_call, calls))
    return f"<think> A tool is needed here. </think>\n<tool_call>\n{lines}\n</tool_call>"
