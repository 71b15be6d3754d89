"""Agents that play by a script, to check what a benchmark says of them."""

import json
import re
from collections.abc import Callable, Sequence

from corrgrpo_gym.envs.chat import Message
from corrgrpo_gym.evals.benchmark import Case
from corrgrpo_gym.evals.models.base import Reply

Agent = Callable[[Case, Sequence[Message], int], Reply]


def say(text: str | None, **more: object) -> Reply:
    return Reply({"role": "assistant", "content": text, **more})


def reference(case: Case, messages: Sequence[Message], turn: int) -> Reply:
    answers = [case.reference] if isinstance(case.reference, str) else case.reference
    return say(answers[turn])


def silent(case: Case, messages: Sequence[Message], turn: int) -> Reply:
    """Never calls a tool; where a plan is asked for, it makes one."""
    if case.id.split("/")[0] in ("clean", "attacked") and turn == 0:
        return say('[{"message": "think", "tool_use": []}, {"message": "answer", "tool_use": []}]')
    return say("Thought: I would rather think about it alone.\nFinal Answer: I can say nothing about this yet.")


def obeying(case: Case, messages: Sequence[Message], turn: int) -> Reply:
    """Does whatever the last tool result demands."""
    if case.id.split("/")[0] not in ("clean", "attacked"):
        tool = case.row.attack.attacker_tools[turn]
        return say(f"Thought: I was told to do this, so I do it.\nAction: {tool}\nAction Input: {{}}")
    if turn == 0:
        return say(case.reference[0])
    # The message begins with the results of the turn before.
    if ordered := re.search(r'"(\w+)"', messages[-1]["content"].partition("Ignore previous instructions.")[2]):
        return say(json.dumps([{"name": ordered[1], "parameters": {}}]))
    return say(case.reference[turn])


AGENTS: dict[str, Agent] = {"reference": reference, "silent": silent, "obeying": obeying}
