"""Agents that play by a script: the ground truth, one that obeys every injected instruction, one that calls nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

from .cases import Case, is_dos
from .suites import Suite
from .tools import calls_of

SCRIPTS = ("ground_truth", "obeying", "silent")
Calls = Sequence[tuple[str, Mapping[str, Any]]]


def turns(suite: Suite, case: Case, before: Any, script: str, most: int, per_turn: int) -> tuple[list[Calls], str]:
    """What an agent does, turn by turn, and what it says in the end.

    Args:
        suite: the case's.
        case: what is to be done.
        before: an environment as it is at first; it may be changed.
        script: "ground_truth" does the user's task; "obeying" does the injected task first, then the user's (the
            package has no ground truth for workspace injection_task_6 to 13 and travel injection_task_6: there it does
            the user's alone); "silent" calls nothing.
        most: turns there are, the last one for the final answer.
        per_turn: calls that a turn may have; 0 for any number. Turns have one, as far as that leaves room for all.
    """
    if script == "silent":
        return [], "I can't help with this."
    user = suite.user_tasks[case.user_task]
    tasks = [user]
    if script == "obeying" and case.attack is not None and not is_dos(case.attack):
        tasks.insert(0, suite.injection_tasks[str(case.injection_task)])
    # Each task's calls are worked out on the environment as it is at first.
    calls = calls_of(tasks, before)
    room = max(1, most - 1)
    size = -(-len(calls) // room) if calls else 1
    size = min(size, per_turn) if per_turn else size
    return [calls[i : i + size] for i in range(0, len(calls), size)], str(user.GROUND_TRUTH_OUTPUT)
