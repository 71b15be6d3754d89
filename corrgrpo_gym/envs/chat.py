"""Chats as Gymnasium spaces: what an environment shows (a tuple of messages) and what it is answered (text).

A message is a dict with a `role` and a `content`, as in the chat templates of Hugging Face tokenizers and in
the chat endpoints: an assistant message may carry `tool_calls`, a tool message `tool_call_id` and `name`.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import gymnasium
import numpy as np

Message: TypeAlias = dict[str, Any]
Observation: TypeAlias = tuple[Message, ...]
Action: TypeAlias = str | Message

ROLES = ("system", "developer", "user", "assistant", "tool")
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789 \n.,:()<>`#"


def message_problem(message: Any, roles: Sequence[str] = ROLES) -> str | None:
    """Say what keeps `message` from being a chat message, or None where it is one.

    Only the structure is looked at: any text is fine, whatever it holds.

    Args:
        message: what should be a dict with `role` (one of `roles`), `content` (a str; None or absent only in
            an assistant message) and, in an assistant message, `tool_calls` (a list of dicts).
        roles: the roles that may stand here.
    """
    if not isinstance(message, dict):
        return f"a message is a dict with role and content, this is a {type(message).__name__}"
    role = message.get("role")
    if role not in roles:
        return f"role is {role!r}, not one of {', '.join(roles)}"
    content = message.get("content")
    if content is None and role != "assistant":
        return f"the {role} message has no content"
    if content is not None and not isinstance(content, str):
        return f"content is a {type(content).__name__}, not a str"
    calls = message.get("tool_calls")
    if calls is not None and not (isinstance(calls, list | tuple) and all(isinstance(c, dict) for c in calls)):
        return "tool_calls is not a list of dicts"
    return None


class _Space(gymnasium.Space[Any]):
    """What the two spaces share: no shape, no dtype, equality by settings, random text."""

    max_length: int

    @property
    def is_np_flattenable(self) -> bool:
        """Text has no fixed number of dimensions: never flattenable."""
        return False

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self).get("max_length") == vars(other).get("max_length")

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.max_length))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(max_length={self.max_length})"

    def _text(self) -> str:
        length = int(self.np_random.integers(0, self.max_length + 1))
        return "".join(_LETTERS[i] for i in self.np_random.integers(0, len(_LETTERS), length))


class ChatSpace(_Space):
    """Tuples of chat messages, of any length and any text.

    Args:
        max_length: longest text, in characters, that `sample` draws. It doesn't bound what is contained.
        seed: of `sample`, as in every Gymnasium space.
    """

    def __init__(self, max_length: int = 64, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(seed=seed)
        self.max_length = max_length

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> Observation:
        """Draw one to three messages of random text; `mask` and `probability` have no meaning here."""
        roles = ("system", "user", "assistant", "tool")
        count = int(self.np_random.integers(1, 4))
        return tuple(
            {"role": roles[int(self.np_random.integers(len(roles)))], "content": self._text()} for _ in range(count)
        )

    def contains(self, x: Any) -> bool:
        """Whether x is a tuple of chat messages (an empty one is: nothing new was said)."""
        return isinstance(x, tuple) and all(message_problem(m) is None for m in x)


class ActionSpace(_Space):
    """What a model answers: a text, or an assistant message (where it made native tool calls).

    Args:
        max_length: longest text, in characters, that `sample` draws. It doesn't bound what is contained.
        seed: of `sample`, as in every Gymnasium space.
    """

    def __init__(self, max_length: int = 64, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(seed=seed)
        self.max_length = max_length

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> str:
        """Draw a random text; `mask` and `probability` have no meaning here."""
        return self._text()

    def contains(self, x: Any) -> bool:
        """Whether x is a str or an assistant message."""
        return isinstance(x, str) or message_problem(x, ("assistant",)) is None
