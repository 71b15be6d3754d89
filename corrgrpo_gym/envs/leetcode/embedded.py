"""The embedded data: a problem family written for this package, in the row layout of LeetCodeDataset v0.3.1.

Every kind of problem has a plain solution (a loop over all numbers or all pairs) and a fast one (a closed
form or one pass) with more places to go wrong. The constants stand literally in both, so whoever answers has
to copy them from the statement. The last inputs of a task are large: there the slow solution spends 4 to 8 ms
of CPU.

Nothing is read or downloaded; the rows depend on the seed alone. No pair of kind and constants is in both
splits, and every constant of a test task occurs in train, with another kind.
"""

from collections.abc import Iterator
from itertools import islice
from random import Random
from typing import Any

from ...errors import GymError, unknown
from .kind import Constants, Kind
from .list_problems import LIST_KINDS
from .number_problems import NUMBER_KINDS

KINDS: tuple[Kind, ...] = (*NUMBER_KINDS, *LIST_KINDS)
SPLITS = ("train", "test")
PER_KIND = {"train": 80, "test": 6}

PRELUDE = "from collections import defaultdict\nfrom math import inf, lcm\nfrom typing import List\n\n"

_VERBS = ("count", "find", "get", "compute", "solve", "measure", "make", "return", "search", "collect")
_NOUNS = (
    "Answer",
    "Result",
    "Value",
    "Total",
    "Number",
    "Score",
    "Items",
    "Things",
    "Points",
    "Steps",
    "Parts",
    "Sum",
)


def embedded_rows(split: str, *, seed: int = 0) -> list[dict[str, Any]]:
    """Make the rows of one split.

    Args:
        split: "train" (1402 tasks) or "test" (108 tasks).
        seed: of the choice of constants, method names and test inputs.

    Returns:
        Rows with the fields of LeetCodeDataset v0.3.1, `completion` being the fast solution, and `baseline`,
        a correct slow solution whose time is the unit of efficiency.

    Raises:
        GymError: if there is no such split.
    """
    if split not in SPLITS:
        raise GymError(unknown("split of the embedded LeetCode data", split, SPLITS))
    rows: list[dict[str, Any]] = []
    for kind, constants in _choose(seed)[split]:
        rows.append(_row(kind, constants, len(rows) + 1, Random(f"{seed}/{kind.name}/{constants}")))
    Random(f"{seed}/{split}").shuffle(rows)
    return rows


def _choose(seed: int) -> dict[str, list[tuple[Kind, Constants]]]:
    """Draw each kind's constants for both splits."""
    shuffled: dict[str, list[Constants]] = {}
    users: dict[int, set[str]] = {}  # constant -> kinds that use it in train
    chosen: dict[str, list[tuple[Kind, Constants]]] = {"train": [], "test": []}
    for kind in KINDS:
        pool = shuffled[kind.name] = kind.constants()
        Random(f"{seed}/{kind.name}").shuffle(pool)
        for constants in pool[: _train_count(pool)]:
            chosen["train"].append((kind, constants))
            for c in constants:
                users.setdefault(c, set()).add(kind.name)
    for kind in KINDS:
        pool = shuffled[kind.name]
        rest = pool[_train_count(pool) :]
        seen = (cs for cs in rest if all(users.get(c, set()) - {kind.name} for c in cs))
        chosen["test"] += [(kind, constants) for constants in islice(seen, PER_KIND["test"])]
    return chosen


def _train_count(pool: list[Constants]) -> int:
    """Tasks of a kind in train: fewer where its constants would not leave enough for test."""
    return min(PER_KIND["train"], len(pool) - PER_KIND["test"])


def _row(kind: Kind, constants: Constants, number: int, rng: Random) -> dict[str, Any]:
    method = rng.choice(_VERBS) + rng.choice(_NOUNS)
    starter = kind.starter(method)
    text = kind.fill(kind.text, constants)
    fast = kind.solution(kind.fast, constants, method)
    argument = kind.argument.partition(":")[0]
    cases = [(f"{argument} = {text}", value) for text, value in _expected(kind, fast, method, constants, rng)]
    asserts = "".join(f"    assert candidate({call}) == {value}\n" for call, value in cases)
    return {
        "task_id": "-".join([kind.name, *map(str, constants)]),
        "question_id": number,
        "difficulty": "Easy" if kind.argument == "n: int" else "Medium",
        "tags": list(kind.tags),
        "problem_description": text,
        "starter_code": starter + " " * 8,
        "estimated_date": "",
        "prompt": PRELUDE,
        "completion": fast,
        "baseline": kind.solution(kind.slow, constants, method),
        "entry_point": f"Solution().{method}",
        "test": f"def check(candidate):\n{asserts}",
        "input_output": [{"input": call, "output": value} for call, value in cases],
        "query": f"{text}\n\n{starter}\nAnswer with the whole class in a ```python block.",
        "response": "",
    }


def _expected(kind: Kind, solution: str, method: str, constants: Constants, rng: Random) -> Iterator[tuple[str, str]]:
    """Yield argument expressions and the fast solution's values for them."""
    # Our own text of this very package, never a model's answer.
    scope: dict[str, Any] = {}
    exec(PRELUDE + solution, scope)
    call = getattr(scope["Solution"](), method)
    for expression in kind.inputs(constants, rng):
        yield expression, repr(call(eval(expression, {"__builtins__": {"range": range, "list": list}})))
