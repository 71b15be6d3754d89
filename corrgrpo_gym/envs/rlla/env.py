"""The environment of tool-call answers: one dialogue, one answer, four rewards."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base import MultiRewardEnv
from ..chat import Message
from .data import Dialogue, load_dialogues
from .rewards import RANGES, REWARD_NAMES, rewards


class RllaEnv(MultiRewardEnv):
    """RLLA-4K: which tools to call with which parameters, or what to respond (see `rewards`).

    Step's info has the `label`.
    """

    reward_names = REWARD_NAMES
    reward_ranges = RANGES
    splits = ("train", "test")

    def __init__(
        self,
        split: str = "train",
        data: str | Path | None = None,
        *,
        strict_reference: bool = False,
        reward_weights: Mapping[str, float] | Iterable[float] | None = None,
    ) -> None:
        """Load a split.

        Args:
            split: "train" or "test".
            data: None or "auto" (the hub's cache, the hub, else the embedded tasks), "embedded", "hub", or the path of
                a folder or file of RLLA.
            strict_reference: score as the reference code does, where it differs (see `rewards`).
            reward_weights: four numbers, in order or by name; 1 each by default, as in ToolRL and the paper.

        Raises:
            GymError: bad options or data.
        """
        loaded = load_dialogues(data, split)
        super().__init__(loaded.dialogues, split=split, reward_weights=reward_weights, data_note=loaded.note)
        self._strict = strict_reference

    def prompt(self, task: int) -> Sequence[Message]:
        """Return the system message and the dialogue."""
        return self.tasks[task].messages

    def score(self, task: int, reply: Message) -> tuple[dict[str, float], dict[str, Any]]:
        """Compare the answer with the label."""
        dialogue: Dialogue = self.tasks[task]
        return rewards(reply, dialogue.label, dialogue.calls, self._strict), {"label": dialogue.label}

    def reference_answers(self, task: int) -> Sequence[str]:
        """Return the label; for an embedded task imperfect answers, most of them without the last parameter."""
        dialogue: Dialogue = self.tasks[task]
        return dialogue.answers or (dialogue.label,)
