"""From the body of a chat completion, as endpoints send it, to a reply."""

import json
from typing import Any

from ...envs.chat import Message
from ...envs.tool_calls.json_reader import MAX_DEPTH, deeper_than
from .base import Finish, Reply, Usage

_FINISHES: dict[str, Finish] = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "end_turn": "stop",
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "refusal": "content_filter",
}


class NoReply(Exception):
    """The body holds no answer; another request may get one."""


def parse_reply(body: Any, notes: tuple[str, ...] = ()) -> Reply:
    """Read the first choice of a chat completion or of a plain completion.

    Content in parts is joined; tool calls stay as they were sent, but for arguments that came as an object (they become
    JSON text) and ids that are missing; reasoning in a field of its own goes to `reasoning_content`; what stands in
    <think> tags stays in the content.

    Raises:
        NoReply: it is no completion, or one without choices.
    """
    if not isinstance(body, dict):
        raise NoReply(f"the body is a JSON {type(body).__name__}, not an object")
    choices = body.get("choices")
    if not isinstance(choices, list):
        raise NoReply(f"the body has no choices: {json.dumps(body)[:200]}")
    if not choices or not isinstance(choices[0], dict):
        raise NoReply("empty choices")
    choice, said = choices[0], list(notes)
    if len(choices) > 1:
        said.append(f"{len(choices)} choices where one was asked for")
    given = choice.get("message")
    if not isinstance(given, dict):
        if not isinstance(choice.get("text"), str):
            raise NoReply("a choice without a message")
        given = {"content": choice["text"]}
    message: Message = {"role": "assistant"}
    content, reasoning, refusal = _content(given.get("content"), said)
    message["content"] = content
    for key in ("reasoning_content", "reasoning"):
        if not reasoning and given.get(key):
            reasoning = _text(given[key])
    if reasoning:
        message["reasoning_content"] = _clean(reasoning, said)
    refusal = _text(given["refusal"]) if given.get("refusal") else refusal
    if refusal:
        message["refusal"] = _clean(refusal, said)
        said.append("refusal")
    if calls := _calls(given, said):
        message["tool_calls"] = calls
    elif content is None and not refusal:
        said.append("no content")
    return Reply(message, _finish(choice, said), _usage(body.get("usage")), tuple(said))


def _content(content: Any, notes: list[str]) -> tuple[str | None, str, str]:
    """Content, reasoning and refusal out of what stands in `content`."""
    if content is None or isinstance(content, str):
        return (content if content is None else _clean(content, notes)), "", ""
    if not isinstance(content, list):
        notes.append(f"content is a JSON {type(content).__name__}")
        return _clean(_text(content), notes), "", ""
    text, reasoning, refusal = [], [], []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else "text"
        if kind in ("reasoning", "thinking"):
            reasoning.append(_text(part.get(kind) or part.get("text") or ""))
        elif kind == "refusal":
            refusal.append(_text(part.get("refusal", "")))
        elif isinstance(part, dict) and "text" not in part:
            notes.append(f"a content part of type {str(kind)[:40]!r} is left out")
        else:
            text.append(_text(part["text"] if isinstance(part, dict) else part))
    return (_clean("".join(text), notes) if text else None), "".join(reasoning), "".join(refusal)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _clean(text: str, notes: list[str]) -> str:
    """Text that can be sent back: lone surrogates, which JSON can hold and UTF-8 cannot, are replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        notes.append("lone surrogates replaced")
        return text.encode(errors="replace").decode()
    return text


def _calls(given: dict[str, Any], notes: list[str]) -> list[dict[str, Any]]:
    calls = given.get("tool_calls")
    if not calls and isinstance(given.get("function_call"), dict):
        calls = [{"function": given["function_call"]}]
        notes.append("function_call instead of tool_calls")
    if not isinstance(calls, list):
        return []
    out = []
    for i, call in enumerate(calls):
        if not isinstance(call, dict):
            notes.append("a tool call that is no object is left out")
            continue
        # What a call holds besides is not ours to keep, however deep it is.
        call = {"type": "function", **{key: call[key] for key in ("id", "type", "function") if key in call}}
        call["id"] = call.get("id") or f"call_{i}"
        function = call.get("function")
        if isinstance(function, dict):
            call["function"] = {key: function[key] for key in ("name", "arguments") if key in function}
            if not isinstance(function.get("arguments"), str | None):
                call["function"]["arguments"] = _text(function["arguments"])
                notes.append("arguments of a tool call as an object")
        if deeper_than(call, MAX_DEPTH):
            notes.append("a tool call nested too deep is left out")
            continue
        out.append(call)
    return out


def _finish(choice: dict[str, Any], notes: list[str]) -> Finish:
    reason = choice.get("finish_reason")
    finish = _FINISHES.get(reason.lower(), "unknown") if isinstance(reason, str) else "unknown"
    if finish == "unknown":
        notes.append(f"finish reason {str(reason)[:40]!r}")
    return finish


def _usage(usage: Any) -> Usage:
    if not isinstance(usage, dict):
        return Usage()
    details = usage.get("completion_tokens_details")
    reasoning = details.get("reasoning_tokens") if isinstance(details, dict) else None
    return Usage(_count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")), _count(reasoning))


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None
