"""A data set and reward functions make a single-turn environment.

def correct(answer, target):
return float(answer.strip() == target)

def brief(answer):
return 1 / (1 + len(answer))

rows = [{"prompt": f"{a} + {b} =", "target": str(a + b)} for a in range(10) for b in range(10)]
env = SingleTurnEnv(rows, [correct, Reward(brief, weight=0.1)], reference="target")
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

from ..errors import GymError, NotScored, unknown
from . import background
from .base import MultiRewardEnv
from .chat import Message, message_problem
from .reward_functions import Reward, as_rewards, check_row
from .rows import Data, read_rows, splits_of


class SingleTurnEnv(MultiRewardEnv):
    """One question, one answer, K reward functions.

    Attributes:
        rewards: the reward functions with their declarations.
    """

    def __init__(
        self,
        data: Data,
        rewards: Iterable[Reward | Callable[..., Any]] | Mapping[str, Reward | Callable[..., Any]],
        *,
        prompt: str | Callable[[dict[str, Any]], str | Sequence[Message]] = "prompt",
        system: str | None = None,
        reference: str | None = None,
        split: str = "train",
        splits: Sequence[str] | None = None,
        reward_weights: Mapping[str, float] | Iterable[float] | None = None,
        data_note: str = "",
    ) -> None:
        """Read and check the data of one split.

        Args:
            data: rows (a sequence of dicts), a path to .jsonl or .jsonl.gz ("{split}" in it stands for the
                split), either by split in a dict, or a function from a split's name to either.
            rewards: reward functions, or `Reward`s, in a list or by name; see `Reward` for what they may
                take.
            prompt: the column that holds the question, a text or a list of messages; or a function from a
                row to one.
            system: a system message in front.
            reference: the column that holds the right answer, or a list of right answers, for a warm start.
            split: which split to hold; `with_split` gives the others.
            splits: names of the splits; by default the keys of a dict, "train" and "test" of a function or
                of a path with "{split}", else "train".
            reward_weights: weights in the place of those declared, in order or by name.
            data_note: which data these are, and why.

        Raises:
            GymError: unreadable data, a bad row (named), or reward functions that ask for what rows don't
                have.
        """
        self.rewards = as_rewards(rewards)
        self.reward_names = tuple(r.name for r in self.rewards)
        self.reward_ranges = {r.name: (r.low, r.high) for r in self.rewards}
        self.reward_weights = tuple(r.weight for r in self.rewards)
        self.nan_rewards = frozenset(r.name for r in self.rewards if r.nan)
        self.splits = splits_of(data, splits)
        self._data, self._prompt, self._system, self._reference = data, prompt, system, reference
        # Shared by clones, so that each split is read and checked once.
        self._read: dict[str, list[dict[str, Any]]] = {}
        super().__init__(self._tasks_of(split), split=split, reward_weights=reward_weights, data_note=data_note)

    def with_split(self, split: str) -> Self:
        """Return an environment like this one on the tasks of another split."""
        other = self.clone()
        other.tasks, other.split = self._tasks_of(split), split
        return other

    def prompt(self, task: int) -> list[Message]:
        """Return the system message, where there is one, and the question."""
        return self._messages(self.tasks[task])

    def reference_answers(self, task: int) -> tuple[str, ...]:
        """Return the reference column of the task as a tuple."""
        if self._reference is None:
            return ()
        answers = self.tasks[task][self._reference]
        return (answers,) if isinstance(answers, str) else tuple(answers)

    def score(self, task: int, reply: Message) -> list[float]:
        """Call the reward functions, the async ones at the same time.

        Raises:
            GymError: a function raised, or returned what it doesn't declare; it names function and task.
        """
        row = self.tasks[task]
        answer = reply["content"] or ""
        results: list[Any] = []
        for r in self.rewards:
            # Each call gets copies: what a function does to its arguments mustn't reach the next one.
            given = {
                "answer": answer,
                "messages": [dict(m) for m in self.chat],
                "reply": dict(reply),
                "task": dict(row),
            }
            try:
                results.append(r.function(**r.arguments(given, row)))
            except Exception as error:
                results.append(error)
        waiting = [i for i, result in enumerate(results) if inspect.isawaitable(result)]
        if waiting:
            for i, result in zip(waiting, background.gather([results[i] for i in waiting]), strict=True):
                results[i] = result
        where = f"task {self.task_id(task)}"
        for r, result in zip(self.rewards, results, strict=True):
            if isinstance(result, NotScored):
                raise result
            if isinstance(result, BaseException):
                raised = f"raised {type(result).__name__}: {result}"
                raise GymError(
                    f"{r.label} {raised} for {where} and the answer {_short(answer)}; it must score any text"
                ) from result
        return [r.value(result, where) for r, result in zip(self.rewards, results, strict=True)]

    def _tasks_of(self, split: str) -> list[dict[str, Any]]:
        if split not in self._read:
            placed = read_rows(self._data, split, self.splits)
            ids: dict[Any, str] = {}
            for place, row in placed:
                check_row(self.rewards, row, place)
                self._check_prompt(row, place)
                self._check_reference(row, place)
                name = row.get("task_id")
                if name is not None and ids.setdefault(str(name), place) != place:
                    raise GymError(f"{place}: task_id {name!r} is that of {ids[str(name)]} too")
            self._read[split] = [row for _, row in placed]
        return self._read[split]

    def _messages(self, row: dict[str, Any]) -> list[Message]:
        asked = self._prompt(dict(row)) if callable(self._prompt) else row[self._prompt]
        messages = [{"role": "user", "content": asked}] if isinstance(asked, str) else list(asked)
        return messages if self._system is None else [{"role": "system", "content": self._system}, *messages]

    def _check_prompt(self, row: dict[str, Any], place: str) -> None:
        if not callable(self._prompt) and self._prompt not in row:
            raise GymError(f"{place}: prompt: {unknown('column', self._prompt, row)}")
        try:
            messages = self._messages(row)
        except Exception as error:
            what = "the prompt function raised" if callable(self._prompt) else "the prompt is no text or chat:"
            raise GymError(f"{place}: {what} {type(error).__name__}: {error}") from error
        for message in messages:
            if (problem := message_problem(message)) is not None:
                raise GymError(f"{place}: prompt: {problem}")
        if not any(m["role"] != "system" for m in messages):
            raise GymError(f"{place}: the prompt has no messages")

    def _check_reference(self, row: dict[str, Any], place: str) -> None:
        if self._reference is None:
            return
        if self._reference not in row:
            raise GymError(f"{place}: reference: {unknown('column', self._reference, row)}")
        answers = row[self._reference]
        listed = [answers] if isinstance(answers, str) else answers
        if not isinstance(listed, list | tuple) or not all(isinstance(a, str) for a in listed):
            raise GymError(f"{place}: reference {_short(answers)} is neither a text nor a list of texts")


def _short(value: Any, limit: int = 80) -> str:
    text = repr(value[: limit + 1]) if isinstance(value, str) else repr(value)
    return text if len(text) <= limit + 2 else text[:limit] + "..."
