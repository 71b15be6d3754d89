"""The environment: chat observations, text actions, and a reward that is a vector.

A single-turn environment says what it asks and how it scores:

    class Echo(MultiRewardEnv):
        reward_names = ("same", "short")

        def prompt(self, task):
            return [{"role": "user", "content": self.tasks[task]}]

        def score(self, task, reply):
            text = reply["content"] or ""
            return {"same": float(text == self.tasks[task]), "short": 1 / (1 + len(text))}

    env = Echo(["say this", "say that"])

A multi-turn environment overrides `turn` in the place of `score`, and sets up an episode's state in `begin`.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import gymnasium
import numpy as np

from ..errors import GymError, unknown
from .chat import Action, ActionSpace, ChatSpace, Message, Observation, message_problem
from .rewards import Rewards, checked_names, checked_weights, reward_box, reward_vector


@dataclass(slots=True)
class Turn:
    """What one answer led to.

    Attributes:
        reward: the vector as a sequence in the order of `reward_names`, or by name; None for zeros.
        messages: the new messages only (tool results, a user's next question); none when the episode is over.
        terminated: the episode is over by the task's own rules.
        truncated: it is cut short (a limit on turns, for instance).
        info: what a person or the trainer may want to know; goes into step's info.
    """

    reward: Rewards | None = None
    messages: Sequence[Message] = ()
    terminated: bool = False
    truncated: bool = False
    info: dict[str, Any] = field(default_factory=dict)


class MultiRewardEnv(gymnasium.Env[Observation, Action]):
    """A Gymnasium environment for language models with MO-Gymnasium's convention for vector rewards.

    Subclasses set `reward_names` and override `prompt`, and `score` (single turn) or `turn` (several turns).
    `reset` and `step` stay as they are here: they check the task, the action and the vector.

    Clones share everything but the state of the episode, which lives in attributes that `begin` assigns.
    `score` and `turn` of different clones run at the same time in different threads.

    Attributes:
        reward_names: names of the K components.
        reward_ranges: (low, high) of a component by name; (0, 1) where none is given.
        nan_rewards: components that may be NaN: not scorable for this task or answer.
        reward_weights: K weights for training (the default of the configuration).
        reward_space: Box of shape (K,), float32.
        splits: the splits that there are; `split` is the one that `tasks` holds.
        tasks: the tasks of this split, by index.
        data_note: which data these are, and why ("embedded: ...").
    """

    metadata: dict[str, Any] = {"render_modes": []}
    reward_names: tuple[str, ...] = ()
    reward_ranges: Mapping[str, tuple[float, float]] = {}
    nan_rewards: frozenset[str] = frozenset()
    reward_weights: tuple[float, ...] = ()
    reset_options: tuple[str, ...] = ("task",)
    splits: tuple[str, ...] = ("train",)

    def __init__(
        self,
        tasks: Sequence[Any],
        *,
        split: str = "train",
        reward_weights: Mapping[str, float] | Iterable[float] | None = None,
        data_note: str = "",
    ) -> None:
        """Set the environment up over the tasks of one split.

        Args:
            tasks: the tasks; at least one.
            split: which of `splits` they are.
            reward_weights: K weights in the order of `reward_names`, or by name (the others keep their
                default); None keeps the class's (1 each where it has none).
            data_note: which data these are, and why.

        Raises:
            GymError: unknown split, no tasks, or names, ranges and weights that don't go together.
        """
        label = type(self).__name__
        if split not in self.splits:
            raise GymError(f"{label}: {unknown('split', split, self.splits)}")
        if len(tasks) == 0:
            raise GymError(f"{label}: split {split!r} has no tasks; check the data")
        self.split = split
        self.tasks = tasks
        self.data_note = data_note
        self.reward_names = checked_names(label, self.reward_names)
        for kind, names in (("reward_ranges", self.reward_ranges), ("nan_rewards", self.nan_rewards)):
            for name in names:
                if name not in self.reward_names:
                    raise GymError(f"{label}.{kind}: {unknown('reward', name, self.reward_names)}")
        self.nan_rewards = frozenset(self.nan_rewards)
        self.reward_weights = checked_weights(label, self.reward_names, self.reward_weights, reward_weights)
        self.reward_space = reward_box(label, self.reward_names, self.reward_ranges)
        self.observation_space = ChatSpace()
        self.action_space = ActionSpace()
        self._task: int | None = None
        self._over = False
        self._chat: list[Message] = []

    # -- what a subclass says

    def prompt(self, task: int) -> Sequence[Message]:
        """Return the messages that open the episode of task number `task`."""
        raise NotImplementedError(f"{type(self).__name__}.prompt(task) must return the first messages")

    def tools(self, task: int) -> list[dict[str, Any]]:
        """Return the JSON schemas of the tools that the model may call (none by default)."""
        return []

    def begin(self, task: int) -> None:  # noqa: B027
        """Assign the attributes that hold the state of an episode; called by every reset, before `prompt`."""

    def score(self, task: int, reply: Message) -> Rewards | tuple[Rewards, dict[str, Any]]:
        """Score the answer of a single-turn episode; `self.chat` holds all messages, the answer last.

        Args:
            task: index of the task.
            reply: assistant message; its content may be None where it holds tool calls only.

        Returns:
            The K rewards, in order or by name; or a pair of them and a dict that goes into step's info.

        Raises:
            NotScored: this answer cannot be scored now (a service is away, say); training goes on without it.
        """
        raise NotImplementedError(f"{type(self).__name__} must override score (single turn) or turn (several turns)")

    def turn(self, reply: Message) -> Turn:
        """Answer the model's message; a single-turn environment is scored and over.

        Args:
            reply: assistant message.
        """
        result = self.score(self.task, reply)
        if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
            return Turn(result[0], terminated=True, info=result[1])
        return Turn(result, terminated=True)

    def cut(self) -> Turn:
        """Say what an episode earns that is cut short from outside, by a limit on tokens or turns: nothing more."""
        return Turn(truncated=True)

    def task_id(self, i: int) -> str:
        """Return the name of task number i: its `task_id` where it has one, else the split and the number."""
        task = self.tasks[self._checked_task(i)]
        name = task.get("task_id") if isinstance(task, Mapping) else getattr(task, "task_id", None)
        return f"{self.split}/{i}" if name is None else str(name)

    def reference_answers(self, task: int) -> Sequence[str | Sequence[str]]:
        """Return right answers as the model would write them, for a warm start; () where there are none.

        In an environment of several turns an answer is the sequence of what the model says in each.
        """
        return ()

    # -- what a user calls

    @property
    def reward_dim(self) -> int:
        """K, under the name that MO-Gymnasium uses."""
        return len(self.reward_names)

    @property
    def task(self) -> int:
        """Index of the task of the running episode."""
        if self._task is None:
            raise GymError(f"{type(self).__name__}: no episode is running; call reset() first")
        return self._task

    @property
    def chat(self) -> tuple[Message, ...]:
        """All messages of the running episode: the environment's and the model's, in order."""
        return tuple(self._chat)

    def clone(self) -> Self:
        """Return an environment on the same data with an episode of its own: cheap, safe to step in a thread.

        A clone of a seeded environment is seeded from it: a program that clones in the same order repeats.
        """
        other = copy.copy(self)
        other.observation_space = copy.deepcopy(self.observation_space)
        other.action_space = copy.deepcopy(self.action_space)
        if self._np_random is not None:
            other.np_random = self._np_random.spawn(1)[0]
        other._task, other._over, other._chat = None, False, []
        return other

    def shared_options(self) -> dict[str, Any]:
        """Return options for `make` with which another split shares what is dear here, such as a sandbox."""
        return {}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: reseeds the drawing of tasks.
            options: {"task": i} names the task; without it one is drawn at random.

        Returns:
            The chat that opens the task, and {"task": i, "task_id": name, "tools": schemas}.

        Raises:
            GymError: unknown option, or a task that isn't there.
        """
        super().reset(seed=seed)
        options = dict(options or {})
        for name in options:
            if name not in self.reset_options:
                raise GymError(f"{type(self).__name__}.reset: {unknown('option', str(name), self.reset_options)}")
        wanted = options.get("task")
        task = int(self.np_random.integers(len(self.tasks))) if wanted is None else self._checked_task(wanted)
        self._task, self._over, self._chat = task, False, []
        self.begin(task)
        observation = self._said(self.prompt(task), "prompt")
        return observation, {
            "task": task,
            "task_id": self.task_id(task),
            "tools": copy.deepcopy(self.tools(task)),
        }

    def step(self, action: Action) -> tuple[Observation, np.ndarray, bool, bool, dict[str, Any]]:
        """Take the model's answer.

        Args:
            action: the text, or an assistant message. Any text is fine; bad answers earn their reward.

        Returns:
            The new messages, the rewards as float32 of shape (K,), terminated, truncated, and the info
            (`task`, `task_id` and what the environment adds).

        Raises:
            GymError: no episode is running, the action is neither a str nor an assistant message, or the
                environment itself returned a vector that breaks its declaration.
        """
        self._check_running("step")
        if isinstance(action, str):
            reply: Message = {"role": "assistant", "content": action}
        elif (problem := message_problem(action, ("assistant",))) is None:
            reply = copy.deepcopy(action)
            reply.setdefault("content", None)
        else:
            raise GymError(
                f"{type(self).__name__}.step: an action is a str or an assistant message "
                f"({{'role': 'assistant', 'content': ...}}), but {problem}"
            )
        self._chat.append(reply)
        return self._outcome(self.turn(reply))

    def truncate(self) -> tuple[Observation, np.ndarray, bool, bool, dict[str, Any]]:
        """End the running episode from outside: the model's context is used up, or its turns are.

        Returns:
            As `step`, with truncated true; the rewards are those that `cut` gives.

        Raises:
            GymError: no episode is running.
        """
        self._check_running("truncate")
        turn = self.cut()
        turn.truncated, turn.messages = True, ()
        return self._outcome(turn)

    # -- inside

    def _check_running(self, call: str) -> None:
        if self._task is None:
            raise GymError(f"{type(self).__name__}: no episode is running; call reset() first")
        if self._over:
            raise GymError(f"{type(self).__name__}: the episode is over; call reset() before the next {call}()")

    def _outcome(self, turn: Turn) -> tuple[Observation, np.ndarray, bool, bool, dict[str, Any]]:
        reward = self._vector(turn.reward)
        observation = self._said(turn.messages, "turn")
        terminated, truncated = bool(turn.terminated), bool(turn.truncated)
        self._over = terminated or truncated
        info = {"task": self.task, "task_id": self.task_id(self.task), **turn.info}
        return observation, reward, terminated, truncated, info

    def _checked_task(self, i: Any) -> int:
        if isinstance(i, bool) or not isinstance(i, int | np.integer):
            raise GymError(f"{type(self).__name__}: a task is named by its index, an int, not by {i!r}")
        if not 0 <= i < len(self.tasks):
            raise GymError(f"{type(self).__name__}: no task {i}; split {self.split!r} has 0..{len(self.tasks) - 1}")
        return int(i)

    def _said(self, messages: Sequence[Message], source: str) -> Observation:
        for message in messages:
            if (problem := message_problem(message)) is not None:
                raise GymError(f"{type(self).__name__}.{source} for {self.task_id(self.task)}: {problem}")
        # The caller gets messages of its own: what it does to them mustn't reach the task's data or the chat.
        self._chat.extend(copy.deepcopy(list(messages)))
        return tuple(copy.deepcopy(list(messages)))

    def _vector(self, rewards: Rewards | None) -> np.ndarray:
        if rewards is None:
            return np.zeros(len(self.reward_names), dtype=np.float32)
        where = f"{type(self).__name__}, task {self.task_id(self.task)}"
        return reward_vector(where, rewards, self.reward_names, self.reward_space, self.nan_rewards)
