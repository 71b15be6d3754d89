"""HumanEval+ and MBPP+ (Liu et al. 2023): many more inputs, whose answers a right solution gives.

A row has `base_input` and `plus_input`, lists of arguments, and `canonical_solution`. The expected value of an input is
what that solution returns; it is computed in the judge's process and kept there for later answers to the row. A value
is right if it equals the expected one; floats (one, or a flat list of them) within 1e-6, and where the row has an
`atol`, within that, relative 1e-7 in both cases. A few tasks have rules of their own (`RULES`), as upstream.

The inputs of MBPP+ are JSON, which has no tuples, sets or complex numbers. Upstream restores them by a table of task
ids; here the row's own `assertion` restores them, as it holds the base inputs as Python literals: what is a tuple there
at some place is one at that place in every input.
"""

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...envs.sandbox import CodeJob, Verdict
from ..benchmark import Score
from ..data import parsed
from .base import score_of

MEMORY_BYTES = 4 << 30  # as upstream: some inputs have long answers
# Inputs that are left out: their answers have 6 to 130 million items, more than the sandbox hands over.
LEFT_OUT = {"Mbpp/255": {85, 86, 90, 96, 100}}
# By entry point: the rule in `TEST` that says what is right.
RULES = {
    "humaneval": {"find_zero": "root"},
    "mbpp": {
        **dict.fromkeys(
            (
                "similar_elements",
                "find_char_long",
                "common_in_nested_lists",
                "extract_singly",
                "larg_nnum",
                "intersection_array",
                "find_dissimilar",
                "Diff",
            ),
            "set",
        ),
        **dict.fromkeys(("check_str", "text_match_three", "text_starta_endb"), "found"),
        "are_equivalent": "any",
        "sum_div": "or_zero",
        "surface_Area": "pyramid",
        "digit_distance_nums": "digits",
    },
}

# Runs in the judge; `data` and `kept` are the sandbox's (see CodeJob).
TEST = """
import copy, math

RELATIVE = 1e-7

def pyramid(base, height):
    return round(base**2 + 2 * base * math.hypot(base / 2, height))

def digits(a, b):
    a, b = str(a), str(b)
    width = max(len(a), len(b))
    return sum(abs(int(x) - int(y)) for x, y in zip(a.zfill(width), b.zfill(width)))

def floats(value):
    return isinstance(value, float) or isinstance(value, (list, tuple)) and all(isinstance(v, float) for v in value)

def close(out, wanted, atol):
    if isinstance(wanted, (list, tuple)):
        alike = isinstance(out, (list, tuple)) and len(out) == len(wanted)
        return alike and all(close(o, w, atol) for o, w in zip(out, wanted))
    if not isinstance(wanted, (int, float, complex)) or not isinstance(out, (int, float, complex)):
        return out == wanted
    return out == wanted or abs(out - wanted) <= atol + RELATIVE * abs(wanted)

def right(args, out, wanted):
    rule, atol = data["rule"], data["atol"]
    if rule == "root":
        return abs(sum(c * math.pow(out, i) for i, c in enumerate(args[0]))) <= atol
    if rule == "set":
        return set(out) == set(wanted)
    if rule == "found":
        return out == (wanted is not None) if isinstance(out, bool) else (wanted is not None) == (out is not None)
    if out == wanted or rule == "any" or rule == "or_zero" and out == 0:
        return True
    if rule == "pyramid" and abs(out - pyramid(*args)) <= atol or rule == "digits" and out == digits(*args):
        return True
    if atol == 0 and floats(wanted):
        atol = 1e-6
    return atol != 0 and type(out) == type(wanted) and close(out, wanted, atol)

def check(candidate):
    if "reference" not in kept:
        space = {"__name__": "reference"}
        exec(compile(data["solution"], "<reference>", "exec", dont_inherit=True), space)
        kept.update(reference=space[data["entry_point"]], wanted=[])
    wanted = kept["wanted"]
    for i, args in enumerate(data["inputs"]):
        if i == len(wanted):
            wanted.append(kept["reference"](*copy.deepcopy(args)))
        assert right(args, candidate(*args), wanted[i]), f"input {i}"
"""


def test_data(benchmark: str, row: Mapping[str, Any], solution: str, inputs: Sequence[Any]) -> dict[str, Any]:
    """What `TEST` needs.

    Args:
        benchmark: "humaneval" or "mbpp".
        row: of the data set.
        solution: code that defines the entry point.
        inputs: lists of arguments.
    """
    entry_point = row["entry_point"]
    return {
        "entry_point": entry_point,
        "solution": solution,
        "atol": float(row["atol"]),
        "rule": RULES[benchmark].get(entry_point, ""),
        "inputs": list(inputs),
    }


def inputs_of(row: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """The base inputs and the further ones, as JSON holds them.

    Raises:
        KeyError, ValueError: they are missing, or not lists of arguments.
    """
    both = []
    for field in ("base_input", "plus_input"):
        inputs = row[field] or []  # MBPP+ has {} for none
        if not isinstance(inputs, list) or not all(isinstance(args, list) for args in inputs):
            raise ValueError(f"field {field!r} is not a list of lists of arguments")
        both.append(inputs)
    if not both[0]:
        raise ValueError("field 'base_input' has no inputs")
    return both[0], both[1]


def restored(row: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """The same with the types that JSON lacks, by the literals of the row's `assertion`.

    Raises:
        KeyError, ValueError: as `inputs_of`, or the assertion doesn't fit the base inputs.
    """
    base, plus = inputs_of(row)
    out = LEFT_OUT.get(row["task_id"], ())
    plus = [args for i, args in enumerate(plus) if i not in out]
    try:
        asserts = [s for s in parsed(row["assertion"]).body if isinstance(s, ast.Assert)]
    except SyntaxError as error:
        raise ValueError(f"its assertion doesn't parse ({error})") from None
    calls = [
        node
        for statement in asserts
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == row["entry_point"]
    ]
    if len(calls) != len(base):
        raise ValueError(f"its assertion calls {row['entry_point']} {len(calls)} times, and base_input has {len(base)}")
    kinds: dict[tuple[Any, ...], set[type]] = {}
    for call, args in zip(calls, base, strict=True):
        for i, (node, value) in enumerate(zip(call.args, args, strict=False)):
            try:
                _compare(ast.literal_eval(node), value, (i,), kinds)
            except ValueError:  # an expression such as 14 * 14 says nothing about types
                continue
    return [_restore_all(args, kinds) for args in base], [_restore_all(args, kinds) for args in plus]


def _compare(literal: Any, value: Any, place: tuple[Any, ...], kinds: dict[tuple[Any, ...], set[type]]) -> None:
    kinds.setdefault(place, set()).add(type(literal))
    if isinstance(literal, list | tuple) and isinstance(value, list):
        for a, b in zip(literal, value, strict=False):
            _compare(a, b, (*place, ""), kinds)
    elif isinstance(literal, dict) and isinstance(value, dict):
        for a, b in zip(literal.values(), value.values(), strict=False):
            _compare(a, b, (*place, ""), kinds)


def _restore_all(args: Sequence[Any], kinds: Mapping[tuple[Any, ...], set[type]]) -> list[Any]:
    return [_restore(value, (i,), kinds, [list]) for i, value in enumerate(args)]


def _restore(
    value: Any, place: tuple[Any, ...], kinds: Mapping[tuple[Any, ...], set[type]], around: Sequence[type]
) -> Any:
    """Restore a value; `around` are the kinds of the sequences that it stands in, the innermost last."""
    known = kinds.get(place, set())
    if isinstance(value, dict):
        return {key: _restore(v, (*place, ""), kinds, [list]) for key, v in value.items()}
    if isinstance(value, list):
        sequences = known & {list, tuple, set}
        # Deeper than the base inputs go: where those nest tuples in tuples, as before; else as JSON has it.
        nested = sequences or set(around[-2:]) if around[-2:] == [tuple, tuple] else sequences
        kind = next(iter(nested)) if len(nested) == 1 else list
        return kind(_restore(v, (*place, ""), kinds, [*around, kind]) for v in value)
    if isinstance(value, str) and len(place) == 1 and known and known <= {int, float, complex}:
        for number in (float, complex):
            try:
                return number(value)
            except ValueError:
                continue
    return value


def score(judge: Callable[[CodeJob, str], Verdict], job: CodeJob, more: dict[str, Any] | None, reference: str) -> Score:
    """Score a program by the base inputs, and, where those are right, by the further ones.

    Args:
        judge: from a job and a right answer to a verdict.
        job: on the base inputs.
        more: `test_data` of the further ones; None where there are none.
        reference: a right answer.
    """
    verdict = judge(job, reference)
    base = float(verdict.status == "passed")
    if base and more is not None:
        verdict = judge(replace(job, name=f"{job.name}+", data=more), reference)
    return score_of(verdict, passed_base=base)
