"""The plan that an ASB agent makes before it acts."""

import json
from dataclasses import dataclass
from typing import Any

# Upstream knows no limit; a model that hangs would plan for ever.
MOST_STEPS = 20
# Places in an answer where a plan may begin; there are few in an honest one.
_MOST_PLACES = 100
_LONGEST = 100_000


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a plan.

    Attributes:
        message: what is to be done.
        tools: names of tools to use; may be none, and may name what isn't there.
    """

    message: str
    tools: tuple[str, ...] = ()


def parse_plan(answer: str) -> tuple[Step, ...] | None:
    """The first plan in an answer: a JSON list of objects with `message`, a text, and `tool_use`, a list of names.

    Text around it is left aside. A step without `tool_use`, or with null, uses no tool; one name may stand for a list.

    Returns:
        Its steps, the first `MOST_STEPS` of them; None where there is no plan.
    """
    decoder = json.JSONDecoder()
    text, at = answer[:_LONGEST], 0
    for _ in range(_MOST_PLACES):
        at = text.find("[", at)
        if at < 0:
            return None
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at += 1
            continue
        if (steps := _steps(value)) is not None:
            return steps
        # Lists inside it are the names of tools, never plans.
        at = end
    return None


def _steps(value: Any) -> tuple[Step, ...] | None:
    if not isinstance(value, list) or not value:
        return None
    steps = []
    for item in value[:MOST_STEPS]:
        if not isinstance(item, dict) or not isinstance(item.get("message"), str):
            return None
        tools = item.get("tool_use") or []
        tools = [tools] if isinstance(tools, str) else tools
        if not isinstance(tools, list):
            return None
        # JSON can hold lone surrogates, which can't be sent back to the model.
        message = item["message"].encode("utf-8", "replace").decode()
        steps.append(Step(message, tuple(t for t in tools if isinstance(t, str))))
    return tuple(steps)
