"""BFCL's rules for whether calls are right (Berkeley Function Calling Leaderboard v4, Python, single turn).

A parameter's possible values are a list; "" among them means that it may be left out. Texts are compared without case,
spaces and the characters , . / - _ * ^, and with one kind of quote; so are those in a list or a dict, but none deeper.
A whole number will do for a float, but not inside a list; otherwise a value must have the type that the function's
description says, or that of the possible values where these differ from it (a variable of the question is then meant).
The order of parallel calls does not count. Where upstream's code takes "" for an empty list, or leaves the types inside
a list unchecked because of it, so does this.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...envs.tool_calls import Call

_IGNORED = re.compile(r"[ ,./\-_*^]")
_TYPES = {
    "string": str, "integer": int, "float": float, "number": float, "boolean": bool, "array": list, "tuple": list,
    "dict": dict, "object": dict, "any": str,
}  # fmt: skip
_NESTED = ("array", "tuple")

Possible = Mapping[str, Sequence[Any]]


def wrong(calls: Sequence[Call], gold: Sequence[Mapping[str, Possible]], functions: Sequence[Mapping[str, Any]]) -> str:
    """Say what is wrong with calls; empty where they are right.

    Args:
        calls: the answer's.
        gold: one mapping a call: the function's name, and the possible values of its parameters.
        functions: descriptions of the functions.
    """
    if len(calls) != len(gold):
        return f"{len(calls)} calls, not {len(gold)}"
    described = {function["name"]: function["parameters"] for function in functions}
    left = list(calls)
    for wanted in gold:
        ((name, possible),) = wanted.items()
        reasons = []
        for i, call in enumerate(left):
            reason = _wrong_call(call, name, possible, described[name])
            if not reason:
                del left[i]  # by its place: True equals 1, so one call may equal another that is wrong
                break
            reasons.append(reason)
        else:
            return "; ".join(reasons)[:500]
    return ""


def _wrong_call(call: Call, name: str, possible: Possible, parameters: Mapping[str, Any]) -> str:
    # Endpoints allow no dots in names of tools.
    if call.name != name and call.name != name.replace(".", "_"):
        return f"{call.name[:60]!r} is called, not {name!r}"
    for required in parameters.get("required", ()):
        if required not in call.arguments:
            return f"{name}: {required!r} is missing"
    for key, value in call.arguments.items():
        if key not in parameters["properties"] or key not in possible:
            return f"{name}: there is no {key[:60]!r}"
        if reason := _wrong_value(value, possible[key], parameters["properties"][key]):
            return f"{name}: {key!r} {reason}"
    for key, values in possible.items():
        if key not in call.arguments and "" not in values:
            return f"{name}: {key!r} is missing"
    return ""


def _as_float(number: int) -> float:
    """A whole number as a float; one that no float can be becomes infinite, which is no possible value."""
    return float(number) if abs(number) < 2**1000 else math.inf


def _wrong_value(value: Any, possible: Sequence[Any], about: Mapping[str, Any]) -> str:
    kind = _TYPES[about["type"]]
    nested = _TYPES.get(about.get("items", {}).get("type", "")) if about["type"] in _NESTED else None
    if kind is float and type(value) is int:
        value = _as_float(value)
    reason, variable = _wrong_type(value, possible, kind, nested)
    if reason:
        return reason
    if not variable:
        if kind is dict:
            return _wrong_dict(value, possible)
        if kind is list and nested is dict:
            return _wrong_dicts(value, possible)
        if kind is str:
            return "" if _plain(value) in map(_plain, possible) else f"is {value!r}"
        if kind is list:
            return "" if list(map(_plain, value)) in [list(map(_plain, v)) for v in possible] else f"is {value!r}"
    return "" if value in possible else f"is {value!r}"


def _wrong_type(value: Any, possible: Sequence[Any], kind: type, nested: type | None) -> tuple[str, bool]:
    """Whether the type is wrong, and whether the value stands for a variable."""
    given = next((type(v) for v in possible if v != ""), None)
    variable = given is not None and given is not kind
    if type(value) is kind:
        if nested is None or not isinstance(value, list):
            return "", variable
        for item in possible:
            if not isinstance(item, list) or not any(_wrong_type(v, item, nested, None)[0] for v in value):
                return "", variable
        return f"holds what is no {nested.__name__}", False
    if variable and type(value) is given:
        return "", True
    return f"is no {kind.__name__}", False


def _wrong_dict(value: Mapping[str, Any], possible: Sequence[Any]) -> str:
    return "" if any(_fits(value, wanted) for wanted in possible if isinstance(wanted, dict)) else f"is {value!r}"


def _fits(value: Any, wanted: Mapping[str, Sequence[Any]]) -> bool:
    if not isinstance(value, dict):
        return False
    for key, item in value.items():
        if key not in wanted or _plain(item) not in map(_plain, _values(wanted[key])):
            return False
    return all(key in value or "" in _values(values) for key, values in wanted.items())


def _values(values: Any) -> list[Any]:
    """The possible values; some rows give one without a list around it, deep in a dict."""
    return values if isinstance(values, list) else [values]


def _wrong_dicts(value: Sequence[Any], possible: Sequence[Any]) -> str:
    if not value and "" in possible:  # upstream compares lengths, and that of "" is 0
        return ""
    for wanted in possible:
        if isinstance(wanted, list) and len(wanted) == len(value):
            if all(_fits(v, w) for v, w in zip(value, wanted, strict=True)):
                return ""
    return f"is {value!r}"


def _plain(value: Any) -> Any:
    return _IGNORED.sub("", value).lower().replace("'", '"') if isinstance(value, str) else value


def first_right(gold: Sequence[Mapping[str, Possible]], functions: Sequence[Mapping[str, Any]]) -> list[Call]:
    """Calls with the first possible value of each parameter that the function's description has.

    What may be left out and has no other value is left out, but for what the description requires.
    """
    described = {function["name"]: function["parameters"] for function in functions}
    calls = []
    for wanted in gold:
        ((name, possible),) = wanted.items()
        about = described[name]
        arguments = _first({key: values for key, values in possible.items() if key in about["properties"]})
        missing = [key for key in about.get("required", ()) if key not in arguments and "" in possible.get(key, ())]
        calls.append(Call(name, arguments | dict.fromkeys(missing, "")))
    return calls


def _first(possible: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    found = {}
    for key, values in possible.items():
        chosen = next((v for v in _values(values) if v != ""), None)
        if chosen is not None or None in _values(values):
            found[key] = _concrete(chosen)
    return found


def _concrete(value: Any) -> Any:
    if isinstance(value, dict):
        return _first(value)
    if isinstance(value, list):
        return [_first(v) if isinstance(v, dict) else v for v in value]
    return value
