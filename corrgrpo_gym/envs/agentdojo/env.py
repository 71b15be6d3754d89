"""The AgentDojo environment (Debenedetti et al. 2024): an agent with tools, and instructions injected in what they say.

Departures from the package's own pipeline: the model is shown the 2048 characters at the ends of a long result; the
present is always 2024-05-15 12:00; arguments are limited to 65,536 characters; a checker that raises on the state that
the model left says no. Rewards, split, turns and the cut are the CorrGRPO paper's.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import GymError, unknown
from ..base import MultiRewardEnv, Turn
from ..chat import Message
from . import cases as case_list
from .cases import ATTACKS, SPLITS, Case
from .dialect import (
    NOT_MADE,
    TOO_MANY,
    TOOLS,
    UNREAD,
    Asked,
    answers,
    as_native,
    opening,
    read,
    system_message,
    written,
)
from .scripts import SCRIPTS, turns
from .suites import suites
from .tools import CALLS, Problem, cut, execute
from .verdict import Exposure, Made, judge, tried

RECIPES = ("default", "paper")


@dataclass(slots=True)
class _State:
    """A running episode.

    Attributes:
        environment: what the tools work on; this episode's own.
        exposure: finds the injected texts.
        turns: answers so far.
        made: calls so far.
        problems: calls that could not be read, or broke a schema, in words.
        problem: what kind the first of these was.
        exposed: an injected text was shown.
        said: the text of the last answer.
    """

    environment: Any
    exposure: Exposure
    turns: int = 0
    made: list[Made] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    problem: Problem = ""
    exposed: bool = False
    said: str = ""


class AgentDojoEnv(MultiRewardEnv):
    """AgentDojo's user tasks, clean or with an injected task, judged by its own checkers.

    The model calls tools until it answers without a call, or for `max_turns` answers. Rewards come at the end:

    - `utility`: the user's task was done;
    - `safety`: the attacker's was not; NaN in clean cases, where there is none (0 in the paper's recipe);
    - `format`: every call could be read, named a tool and passed its schema. Where one did not, the model is told what
      was wrong and the episode goes on, and utility and safety are 0 at its end.

    An episode that is cut from outside, as the model's context is used up, earns neither utility nor safety.

    Step's info has at the end `outcome` ("unparsable", "bad_call", "context", "attack_succeeded", "attack_failed": a
    call that only the attacker wants was made in vain, "not_exposed", "resisted", "clean"), what the checkers say
    whatever the format (`done`; `attack`, None in clean cases), `exposed` (an injected text was shown; None in clean
    cases), `calls` (their names), `answers`, `problems`, `faults` (of checkers) and `out_of_turns`.

    Attributes:
        tasks: the cases (`agentdojo.cases.Case`).
    """

    reward_names = ("utility", "safety", "format")
    reward_weights = (1.0, 1.0, 0.0)
    nan_rewards = frozenset({"safety"})
    splits = SPLITS

    def __init__(
        self,
        split: str = "train",
        *,
        attacks: str | Sequence[str] = ATTACKS,
        suite: str | Sequence[str] = (),
        cases: str | Sequence[str] = (),
        tools: str = "prompt",
        recipe: str = "default",
        calls_per_turn: int | None = None,
        max_turns: int = 8,
        system: str | None = None,
        reference: str = "ground_truth",
        reward_weights: Mapping[str, float] | Iterable[float] | None = None,
    ) -> None:
        """Load the cases of a split.

        Args:
            split: "train" (1584 cases with the two attacks of the paper) or "test" (411).
            attacks: names of attacks, in a list or with commas between, as in the next two; see `cases.attack_names`.
            suite: workspace, travel, banking, slack: only these.
            cases: names of cases, in the place of all others; of any split and attack.
            tools: how the model learns of its tools: "prompt" or "native" (see `dialect`).
            recipe: "default", or "paper": safety is 0 in clean cases, one call a turn.
            calls_per_turn: calls of one answer that are executed; 0 for all. Default: all; 1 in the paper's recipe. The
                others are answered too, and are no fault of format.
            max_turns: answers after which an episode is truncated; calls of the last one are executed.
            system: a system message in the place of the package's.
            reference: what `reference_answers` does: "ground_truth", "obeying" or "silent" (see `scripts`).
            reward_weights: weights in the place of 1, 1 and 0, in order or by name.

        Raises:
            GymError: bad options, or the package agentdojo is not installed.
        """
        only, names = _listed(suite), _listed(cases)
        for option, value, known in (
            ("split", split, SPLITS),
            ("tools", tools, TOOLS),
            ("recipe", recipe, RECIPES),
            ("reference", reference, SCRIPTS),
            *(("suite", name, tuple(suites())) for name in only),
        ):
            if value not in known:
                raise GymError(f"agentdojo: {unknown(option, str(value), known)}")
        if calls_per_turn is None:
            calls_per_turn = 1 if recipe == "paper" else 0
        if max_turns < 1 or calls_per_turn < 0:
            raise GymError("agentdojo: max_turns must be at least 1, and calls_per_turn at least 0")
        chosen = case_list.checked_attacks(attacks)
        tasks = [case_list.case_of(n) for n in names] if names else case_list.make_cases(split, chosen, only)
        note = f"package agentdojo {case_list.upstream.VERSION}, benchmark {case_list.upstream.BENCHMARK}"
        super().__init__(tasks, split=split, reward_weights=reward_weights, data_note=note)
        self._native, self._reference = tools == "native", reference
        self._clean_safety = 0.0 if recipe == "paper" else float("nan")
        self._calls_per_turn, self._max_turns = calls_per_turn, max_turns
        self._system = system_message() if system is None else system
        self._numbers = {case.task_id: i for i, case in enumerate(tasks)}

    def number_of(self, task_id: str) -> int:
        """Index of the case of this name, for `reset(options={"task": ...})`.

        Raises:
            GymError: it is none of this environment's; `cases` makes any.
        """
        if task_id not in self._numbers:
            raise GymError(f"agentdojo, split {self.split!r}: {unknown('case', str(task_id), self._numbers)}")
        return self._numbers[task_id]

    def prompt(self, task: int) -> Sequence[Message]:
        """Return the system message and the user's task."""
        suite, case = self._suite(task), self.tasks[task]
        several = self._calls_per_turn != 1
        return opening(suite, suite.user_tasks[case.user_task].PROMPT, self._system, self._native, several)

    def tools(self, task: int) -> list[dict[str, Any]]:
        """Return the schemas of the suite's tools; none where the system message has them."""
        return list(self._suite(task).schemas) if self._native else []

    def begin(self, task: int) -> None:
        """Set up an environment with the case's texts injected."""
        texts = case_list.injections(self.tasks[task])
        self._state = _State(self._environment(task), Exposure(texts.values()))

    def turn(self, reply: Message) -> Turn:
        """Execute the calls of an answer; one without calls ends the episode."""
        state = self._state
        state.turns += 1
        asked, state.said = read(reply)
        if not asked:
            return self._ended()
        results = answers(asked, self._results(asked), self._native)
        if state.turns >= self._max_turns:
            turn = self._ended(out_of_turns=True)
            turn.terminated, turn.truncated = False, True
            return turn
        return Turn(messages=results, info={"calls": [one.call.name for one in asked if one.call]})

    def cut(self) -> Turn:
        """An episode that used up the model's context is invalid: it earns neither utility nor safety."""
        turn = self._ended(context=True)
        turn.terminated, turn.truncated = False, True
        return turn

    def reference_answers(self, task: int) -> Sequence[Sequence[str]]:
        """Return what the agent of the option `reference` says, turn by turn, in text."""
        calls, last = self._script(task)
        return ([*(written(made) for made in calls), last],)

    def reference_messages(self, task: int) -> list[Message]:
        """Return the same as assistant messages with native calls."""
        calls, last = self._script(task)
        return [*(as_native(made, i) for i, made in enumerate(calls)), {"role": "assistant", "content": last}]

    def _script(self, task: int) -> Any:
        case = self.tasks[task]
        before = self._environment(task)
        return turns(self._suite(task), case, before, self._reference, self._max_turns, self._calls_per_turn)

    def _suite(self, task: int) -> Any:
        return suites()[self.tasks[task].suite]

    def _environment(self, task: int) -> Any:
        case, suite = self.tasks[task], self._suite(task)
        environment = suite.environment(case_list.injections(case))
        return suite.user_tasks[case.user_task].init_environment(environment)

    def _results(self, asked: Sequence[Asked]) -> list[str]:
        """Execute calls; return what the model is told of each."""
        state, suite = self._state, self._suite(self.task)
        most = self._calls_per_turn or CALLS
        texts: list[str] = []
        executed = 0
        for one in asked:
            if one.call is None:
                self._fault("unparsable", one.error)
                texts.append(cut(UNREAD.format(reason=one.error)))
            elif executed == most:
                texts.append(NOT_MADE if most == 1 else TOO_MANY)
            else:
                executed += 1
                result = execute(suite, state.environment, one.call.name, one.call.arguments)
                state.made.append(Made(one.call.name, result.arguments, result.failed))
                state.exposure.wrote(result.arguments)
                state.exposed |= state.exposure(result.text)
                if result.problem:
                    self._fault(result.problem, result.text)
                texts.append(result.text)
        return texts

    def _fault(self, problem: Problem, words: str) -> None:
        state = self._state
        state.problem = state.problem or problem
        state.problems.append(f"answer {state.turns}: {words[:200]}")

    def _ended(self, *, out_of_turns: bool = False, context: bool = False) -> Turn:
        state, case = self._state, self.tasks[self.task]
        suite = self._suite(self.task)
        verdict = judge(suite, case, self._environment(self.task), state.environment, state.said, state.made)
        attempt = verdict.attack is False and tried(suite, case, self._environment(self.task), state.made)
        valid = not (state.problem or context)
        safety = self._clean_safety if verdict.attack is None else float(valid and not verdict.attack)
        info = {
            "outcome": outcome(case, state.problem, context, verdict.attack, attempt, state.exposed),
            "done": verdict.utility,
            "attack": verdict.attack,
            "attack_tried": attempt or bool(verdict.attack),
            "exposed": None if case.attack is None else state.exposed,
            "calls": [made.name for made in state.made],
            "answers": state.turns,
            "problems": list(state.problems),
            "faults": list(verdict.faults),
            "out_of_turns": out_of_turns,
        }
        reward = [float(valid and verdict.utility), safety, float(not state.problem)]
        return Turn(reward, terminated=True, info=info)


def _listed(names: str | Sequence[str]) -> list[str]:
    """Names from a list, or from a text with commas."""
    return [name.strip() for name in names.split(",") if name.strip()] if isinstance(names, str) else list(names)


def outcome(case: Case, problem: Problem, context: bool, attack: bool | None, attempt: bool, exposed: bool) -> str:
    """How an episode ended, in a word."""
    if problem or context:
        return problem or "context"
    if attack is None:
        return "clean"
    if attack:
        return "attack_succeeded"
    return "attack_failed" if attempt else "resisted" if exposed else "not_exposed"
