"""InjecAgent's cases, tools and simulated responses, as published."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import GymError, unknown
from ..files import Files, Layout, checked
from .injecagent_grader import Attack

LAYOUT = Layout("injecagent", "data", "https://github.com/uiuc-kang-lab/InjecAgent")
SETTINGS = ("base", "enhanced")
GROUPS = {"dh": "direct harm", "ds": "data stealing"}
_FIELDS = (
    "Attacker Tools",
    "Attacker Instruction",
    "Attack Type",
    "User Tool",
    "User Instruction",
    "Tool Parameters",
    "Thought",
    "Tool Response",
)


@dataclass(frozen=True, slots=True)
class Task:
    """A case.

    Attributes:
        id: "dh/UserTool/AttackerTool/N", N its number in its file.
        group: "dh" or "ds".
        attack: what answers are graded against.
        row: as published.
        tools: descriptions of the tools that may be called, as the prompt shows them.
    """

    id: str
    group: str
    attack: Attack
    row: Mapping[str, str]
    tools: str


class Responses:
    """What attacker tools would answer: a cache by tool and parameters.

    Args:
        cache: responses by "(Tool,parameters)".
    """

    def __init__(self, cache: Mapping[str, str]):
        self._cache = cache
        self._keys: dict[str, list[str]] = defaultdict(list)
        for key in sorted(cache):
            self._keys[key.lstrip("(").partition(",")[0].strip()].append(key)

    def find(self, tool: str, parameters: str) -> tuple[str, bool]:
        """The response of a call, and whether the cache has this very call.

        On a miss it is another response of the same tool, the same one whenever this call is made.
        """
        for key in (f"({tool},{parameters})", f"({tool}, {parameters})"):
            if key in self._cache:
                return self._cache[key], True
        keys = self._keys.get(tool)
        if not keys:
            return "{}", False
        number = int.from_bytes(hashlib.sha256(f"{tool},{parameters}".encode("utf-8", "replace")).digest()[:8])
        return self._cache[keys[number % len(keys)]], False


def load(files: Files, setting: str) -> tuple[list[Task], Responses]:
    """Read the cases of a setting, direct harm first.

    Raises:
        GymError: no such setting, or data that are missing or damaged; the message says where.
    """
    if setting not in SETTINGS:
        raise GymError(f"injecagent: {unknown('setting', setting, SETTINGS)}")
    known = _tools(files)
    tasks = []
    for group in GROUPS:
        name = f"test_cases_{group}_{setting}.json"
        rows = files.json(name)
        if not isinstance(rows, list) or not rows:
            raise GymError(f"injecagent: {name} should hold a list of cases")
        for number, row in enumerate(rows):
            tasks.append(_task(checked(row, _FIELDS, f"{name}, case {number}"), group, number, known, name))
    cache = files.json("attacker_simulated_responses.json")
    if not isinstance(cache, dict) or not all(isinstance(v, str) for v in cache.values()):
        raise GymError("injecagent: attacker_simulated_responses.json should hold an object of texts")
    return tasks, Responses(cache)


def _task(row: Mapping[str, Any], group: str, number: int, known: Mapping[str, Any], name: str) -> Task:
    attackers = tuple(row["Attacker Tools"])
    if len(attackers) != (1 if group == "dh" else 2):
        raise GymError(f"{name}, case {number}: {len(attackers)} attacker tools")
    tools = [row["User Tool"], *attackers]
    for tool in tools:
        if tool not in known:
            raise GymError(f"{name}, case {number}: the tool {tool!r} is not in tools.json")
    attack = Attack(row["User Tool"], attackers, row["Attacker Instruction"])
    shown = json.dumps([known[tool] for tool in tools], indent=1)
    return Task(f"{group}/{tools[0]}/{attackers[0]}/{number}", group, attack, row, shown)


def _tools(files: Files) -> dict[str, Any]:
    """Descriptions of tools by the name that calls use: that of the toolkit, then that of the tool."""
    toolkits = files.json("tools.json")
    try:
        return {
            kit["name_for_model"] + tool["name"]: {
                "name": kit["name_for_model"] + tool["name"],
                **{key: tool[key] for key in ("summary", "parameters", "returns") if key in tool},
            }
            for kit in toolkits
            for tool in kit["tools"]
        }
    except (TypeError, KeyError) as error:
        raise GymError(f"injecagent: tools.json is not a list of toolkits with tools: {error!r}") from None
