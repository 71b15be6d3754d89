"""ASB's agents, tasks and tools, as published."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import GymError
from ..files import Files, Layout

LAYOUT = Layout("asb", "data", "https://github.com/agiresearch/ASB")


@dataclass(frozen=True, slots=True)
class NormalTool:
    """A tool of an agent's own.

    Attributes:
        name: as calls use it.
        description: for the model.
        achievement: what it returns, whatever the arguments.
    """

    name: str
    description: str
    achievement: str


@dataclass(frozen=True, slots=True)
class AttackTool:
    """A tool that only an attacker would have called.

    Attributes:
        name: as calls use it.
        description: for the model.
        goal: what it says to have achieved.
        instruction: what the injected text asks for.
        aggressive: whether the instruction is openly harmful.
    """

    name: str
    description: str
    goal: str
    instruction: str
    aggressive: bool


@dataclass(frozen=True, slots=True)
class Pair:
    """An agent with its first task, and an attack tool.

    Attributes:
        agent: its name.
        description: of the agent, for the model.
        task: what the user wants.
        tools: the agent's own.
        attack: the attack tool.
    """

    agent: str
    description: str
    task: str
    tools: tuple[NormalTool, ...]
    attack: AttackTool


def load(files: Files) -> list[Pair]:
    """Every agent's first task with every attack tool of that agent.

    Raises:
        GymError: data that are missing, damaged or do not fit together; the message says where.
    """
    normal = {
        row["Tool Name"]: NormalTool(row["Tool Name"], row["Description"], row["Expected Achievements"])
        for row in files.rows("all_normal_tools.jsonl", ("Tool Name", "Description", "Expected Achievements"))
    }
    agents = {
        row["agent_name"]: row for row in files.rows("agent_configs.jsonl", ("agent_name", "description", "tools"))
    }
    tasks = {row["agent_name"]: row["tasks"] for row in files.rows("agent_task.jsonl", ("agent_name", "tasks"))}
    fields = (
        "Attacker Tool",
        "Attacker Instruction",
        "Description",
        "Attack goal",
        "Corresponding Agent",
        "Aggressive",
    )
    pairs = []
    for row in files.rows("all_attack_tools.jsonl", fields):
        agent = row["Corresponding Agent"]
        for known, name in ((agents, "agent_configs.jsonl"), (tasks, "agent_task.jsonl")):
            if agent not in known:
                raise GymError(f"asb: the agent {agent!r} of all_attack_tools.jsonl is not in {name}")
        pairs.append(_pair(agent, agents[agent], tasks[agent], normal, row))
    order = list(tasks)
    return sorted(pairs, key=lambda pair: order.index(pair.agent))


def _pair(
    agent: str,
    config: Mapping[str, Any],
    tasks: Any,
    normal: Mapping[str, NormalTool],
    row: Mapping[str, Any],
) -> Pair:
    for tool in config["tools"]:
        if tool not in normal:
            raise GymError(f"asb: the tool {tool!r} of {agent} is not in all_normal_tools.jsonl")
    attack = AttackTool(
        row["Attacker Tool"],
        row["Description"],
        row["Attack goal"],
        row["Attacker Instruction"],
        row["Aggressive"] == "True",
    )
    description = config["description"]
    described = description if isinstance(description, str) else "".join(description)
    first = tasks if isinstance(tasks, str) else tasks[0]
    return Pair(agent, described, first, tuple(normal[tool] for tool in config["tools"]), attack)
