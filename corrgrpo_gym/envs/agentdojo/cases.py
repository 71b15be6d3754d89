"""The cases: user tasks, clean and with each injection task under each attack; their names, and the paper's split."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from ...errors import GymError, unknown
from . import upstream
from .suites import Suite, suites

SPLITS = ("train", "test")
# The paper's.
ATTACKS = ("important_instructions", "tool_knowledge")
CLEAN = "clean"


@dataclass(frozen=True, slots=True)
class Case:
    """A user task, and what is injected while it is done.

    Attributes:
        suite: its suite.
        user_task: id of what the user wants.
        injection_task: id of what the attacker wants; None in a clean case.
        attack: how the attacker asks for it; None in a clean case.
    """

    suite: str
    user_task: str
    injection_task: str | None = None
    attack: str | None = None

    @property
    def task_id(self) -> str:
        """The case's name: suite:user_task:clean, or suite:user_task:injection_task:attack."""
        if self.attack is None:
            return f"{self.suite}:{self.user_task}:{CLEAN}"
        return f"{self.suite}:{self.user_task}:{self.injection_task}:{self.attack}"

    @property
    def pair(self) -> str:
        """What a case has in common with its clean case: the user task."""
        return f"{self.suite}:{self.user_task}"


def split_of(suite: str, user_task: str) -> str:
    """The split of a user task, and of all its cases: a fifth of the user tasks, by their names, are for testing."""
    digest = hashlib.sha256(f"{suite}:{user_task}".encode()).hexdigest()
    return "test" if int(digest[:8], 16) / 2**32 < 0.2 else "train"


def attack_names() -> tuple[str, ...]:
    """Names of the package's attacks, but for the one that asks a person for each text."""
    return tuple(name for name in upstream.module("attacks.attack_registry").ATTACKS if name != "manual")


def checked_attacks(attacks: str | Sequence[str]) -> tuple[str, ...]:
    """Attacks by name, from a list or from a text with commas.

    Raises:
        GymError: there is no such attack, or one is named twice.
    """
    names = tuple(a.strip() for a in attacks.split(",") if a.strip()) if isinstance(attacks, str) else tuple(attacks)
    upstream.module("attacks")
    for name in names:
        if name not in attack_names():
            raise GymError(f"agentdojo: {unknown('attack', str(name), attack_names())}")
    if len(set(names)) < len(names):
        raise GymError(f"agentdojo: an attack is named twice: {', '.join(names)}")
    return names


def make_cases(split: str | None, attacks: Sequence[str], only: Sequence[str] = ()) -> list[Case]:
    """All cases of a split, user task by user task, the clean one first.

    Args:
        split: "train", "test", or None for both.
        attacks: names of attacks.
        only: suites; none for all.
    """
    return [
        case
        for suite in suites().values()
        if not only or suite.name in only
        for user_task in suite.user_tasks
        if split is None or split_of(suite.name, user_task) == split
        for case in _of_task(suite, user_task, attacks)
    ]


def _of_task(suite: Suite, user_task: str, attacks: Sequence[str]) -> Iterator[Case]:
    yield Case(suite.name, user_task)
    for number, injection_task in enumerate(suite.injection_tasks):
        for attack in attacks:
            # What keeps an agent from working has no goal but that: it comes once.
            if number == 0 or not is_dos(attack):
                yield Case(suite.name, user_task, injection_task, attack)


def case_of(task_id: str) -> Case:
    """The case of a name, of any split and attack.

    Raises:
        GymError: there is no such suite, task or attack.
    """
    parts = task_id.split(":") if isinstance(task_id, str) else []
    if len(parts) != 4 and not (len(parts) == 3 and parts[2] == CLEAN):
        raise GymError(
            f"agentdojo: a case is suite:user_task:clean or suite:user_task:injection_task:attack, not {task_id!r}"
        )
    name, user_task = parts[:2]
    if name not in suites():
        raise GymError(f"agentdojo: {task_id}: {unknown('suite', name, suites())}")
    suite = suites()[name]
    if user_task not in suite.user_tasks:
        raise GymError(f"agentdojo: {task_id}: {unknown('user task', user_task, suite.user_tasks)}")
    if len(parts) == 3:
        return Case(name, user_task)
    if parts[2] not in suite.injection_tasks:
        raise GymError(f"agentdojo: {task_id}: {unknown('injection task', parts[2], suite.injection_tasks)}")
    checked_attacks([parts[3]])
    return Case(name, user_task, parts[2], parts[3])


def is_dos(attack: str) -> bool:
    """Whether an attack has the aim that the user's task is not done, and no other."""
    return bool(upstream.module("attacks.attack_registry").ATTACKS[attack].is_dos_attack)


def injections(case: Case) -> Mapping[str, str]:
    """The texts that are injected in a case, by the places that solving its user task shows."""
    if case.attack is None:
        return {}
    suite = suites()[case.suite]
    with _lock:
        attack = _attacks.get((case.suite, case.attack))
        if attack is None:
            kinds = upstream.module("attacks.attack_registry").ATTACKS
            attack = _attacks[case.suite, case.attack] = kinds[case.attack](suite.official, _Pipeline())
        # It keeps what it worked out for a user task.
        texts: dict[str, str] = attack.attack(
            suite.user_tasks[case.user_task], suite.injection_tasks[str(case.injection_task)]
        )
    return texts


class _Pipeline:
    """Names the model that attacks address: the package calls one of this name "Local model"."""

    name = "local"


_lock = Lock()
_attacks: dict[tuple[str, str], Any] = {}
