"""What the model is told of its tools and of their results, and how it writes calls.

- `tools="prompt"`: the system message describes the tools and asks for calls in <tool_call> tags, one JSON object each,
  with `name` and `arguments`, as Hermes and Qwen models write them; results come in a user message, in <tool_response>
  tags. Every chat template and endpoint can do this.
- `tools="native"`: the schemas go to the chat template or endpoint, and results come in tool messages.

Calls are read in all forms that `tool_calls.parse` knows, either way.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..chat import Message
from ..tool_calls import Call, parse
from . import upstream
from .suites import Suite
from .tools import CALLS

TOOLS = ("prompt", "native")
_PROMPT = """{system}

# Tools

You can call these tools. Each line describes one:
<tools>
{schemas}
</tools>

To call a tool, write its name and its arguments as a JSON object between tags, like this:
<tool_call>
{{"name": "the_tool", "arguments": {{"some_parameter": "its value"}}}}
</tool_call>
{number} What a tool returns comes in the next message, between <tool_response> tags. When nothing is left to be \
called, answer the user without a call."""
_ONE = "Make one call at a time."
_SEVERAL = "You may make several calls in one message, each between tags of its own."
UNREAD = "The call can't be read: {reason}. Write one JSON object with name and arguments."
NOT_MADE = "This call was not made: one call at a time."
TOO_MANY = f"This call was not made: at most {CALLS} calls in one message."


@dataclass(frozen=True, slots=True)
class Asked:
    """A call that an answer holds.

    Attributes:
        call: None where it can't be read.
        error: why not.
        id: of a native call.
    """

    call: Call | None
    error: str = ""
    id: str | None = None


@lru_cache(maxsize=1)
def system_message() -> str:
    """The system message that the package has for agents."""
    import yaml

    return str(yaml.safe_load((upstream.folder() / "data/system_messages.yaml").read_text())["default"])


def opening(suite: Suite, prompt: str, system: str, native: bool, several: bool) -> list[Message]:
    """The chat that opens an episode.

    Args:
        suite: whose tools there are.
        prompt: what the user wants.
        system: the system message without the tools.
        native: the tools are described elsewhere.
        several: whether an answer may hold more than one call.
    """
    if not native:
        schemas = "\n".join(json.dumps(schema["function"]) for schema in suite.schemas)
        system = _PROMPT.format(system=system.rstrip(), schemas=schemas, number=_SEVERAL if several else _ONE)
    return [{"role": "system", "content": system}, {"role": "user", "content": prompt}]


def read(reply: Message) -> tuple[list[Asked], str]:
    """The calls of an answer, in order, and its text."""
    parsed = parse(reply)
    native = reply.get("tool_calls")
    if not native:
        asked = [Asked(call) for call in parsed.calls]
        return [*asked, *(Asked(None, str(error)) for error in parsed.errors)], parsed.text
    asked = []
    for raw in native:
        one = parse({"role": "assistant", "content": None, "tool_calls": [raw]})
        id = raw.get("id") if isinstance(raw.get("id"), str) else None
        asked.append(Asked(one.calls[0], id=id) if one.calls else Asked(None, str(one.errors[0]), id))
    return asked, parsed.text


def answers(asked: Sequence[Asked], texts: Sequence[str], native: bool) -> list[Message]:
    """The messages that tell results.

    Native calls with an id are answered by it, which endpoints insist on; others in the way of `tools`.

    Args:
        asked: the calls.
        texts: what each is told.
        native: results come in tool messages.
    """
    messages: list[Message] = []
    boxes: list[str] = []
    for one, text in zip(asked, texts, strict=True):
        name: Mapping[str, Any] = {"name": one.call.name} if one.call else {}
        if one.id is not None:
            messages.append({"role": "tool", "tool_call_id": one.id, "content": text, **name})
        elif native:
            messages.append({"role": "tool", "content": text, **name})
        else:
            boxes.append(f"<tool_response>\n{text}\n</tool_response>")
    return [*messages, {"role": "user", "content": "\n".join(boxes)}] if boxes else messages


def written(calls: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Calls as a model writes them in text."""
    boxes = (
        f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n</tool_call>"
        for name, arguments in calls
    )
    return "\n".join(boxes)


def as_native(calls: Sequence[tuple[str, Mapping[str, Any]]], turn: int) -> Message:
    """Calls as an endpoint returns them."""
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": f"call_{turn}_{i}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)},
            }
            for i, (name, arguments) in enumerate(calls)
        ],
    }
