"""Calls of the suites' tools: what they are given, and what the model is told of their results."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..tool_calls import parse
from ..tool_calls.json_reader import MAX_DEPTH, deeper_than
from .suites import Suite

# Characters of a result that the model sees.
RESULT = 2048
# Characters of a call's arguments as JSON; checkers compare texts in a time that grows with the square of their length.
ARGUMENTS = 1 << 16
# Calls of one answer that are executed at most.
CALLS = 32

Problem = Literal["", "unparsable", "bad_call"]


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a call.

    Attributes:
        text: what the model is told, cut.
        problem: "bad_call" where there is no such tool, or the arguments break its schema.
        failed: it did nothing, for that or any other reason.
        arguments: what the tool was given.
    """

    text: str
    problem: Problem = ""
    failed: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict)


def execute(suite: Suite, environment: Any, name: str, arguments: Mapping[str, Any]) -> Result:
    """Call a tool; whatever the model gives it, nothing is raised.

    Errors are told to the model in the words of the package's own runtime.

    Args:
        suite: whose tools there are.
        environment: what they work on.
        name: of the tool.
        arguments: JSON values; texts that hold a list become lists first, as in the package.
    """
    function = suite.functions.get(name)
    if function is None:
        return Result(cut(f"Invalid tool {name} provided."), "bad_call", failed=True)
    given: dict[str, Any] = {}
    try:
        if deeper_than(arguments, MAX_DEPTH):
            raise ValueError(f"the arguments are nested deeper than {MAX_DEPTH} levels")
        if len(json.dumps(arguments)) > ARGUMENTS:
            raise ValueError(f"the arguments are longer than {ARGUMENTS} characters")
        given = clean({key: value if (items := as_list(value)) is None else items for key, value in arguments.items()})
        values = function.parameters.model_validate(given).model_dump()
    except Exception as error:
        return Result(cut(f"{type(error).__name__}: {error}"), "bad_call", True, given)
    try:
        dependencies = {key: d.extract_dep_from_env(environment) for key, d in function.dependencies.items()}
        return Result(cut(as_text(function.run(**values, **dependencies))), arguments=given)
    except Exception as error:
        return Result(cut(f"{type(error).__name__}: {error}"), failed=True, arguments=given)


def as_list(value: Any) -> list[Any] | None:
    """The list that a text holds as Python or JSON writes it; None for anything else."""
    if not isinstance(value, str) or not value.lstrip().startswith("["):
        return None
    # The one parser of calls reads literals, and vets them before.
    calls = parse(f"[f(x={value.strip()})]", "pythonic").calls
    if len(calls) == 1 and list(calls[0].arguments) == ["x"] and isinstance(calls[0].arguments["x"], list):
        return calls[0].arguments["x"]
    return None


def as_text(result: Any) -> str:
    """What a tool returned, as the package writes it: objects and lists as YAML, everything else as Python does."""
    import yaml

    if hasattr(result, "model_dump"):
        return yaml.safe_dump(result.model_dump()).strip()
    if isinstance(result, list):
        items = [item.model_dump() if hasattr(item, "model_dump") else str(item) for item in result]
        return yaml.safe_dump(items).strip()
    return str(result)


def cut(text: str, length: int = RESULT) -> str:
    """Take the middle out of a text that is too long; what is left is `length` characters, the note on it included."""
    if len(text) <= length:
        return clean(text)
    note = f"\n[... {len(text) - length} characters and this note's are left out ...]\n"
    tail = (length - len(note)) // 2
    return clean(text[: length - len(note) - tail] + note + text[len(text) - tail :])


def clean(value: Any) -> Any:
    """JSON values whose texts can be written anywhere: lone surrogates, which JSON can hold and UTF-8 cannot, go."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    return [clean(item) for item in value] if isinstance(value, list) else value


def calls_of(tasks: Sequence[Any], environment: Any) -> list[tuple[str, dict[str, Any]]]:
    """The ground truth of tasks, one after the other: names and arguments of calls."""
    return [(call.function, dict(call.args)) for task in tasks for call in task.ground_truth(environment)]
