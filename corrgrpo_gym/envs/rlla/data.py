"""Where the rows come from: the embedded family, the hub (or its cache), a folder or a file; both published layouts."""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import GymError
from .. import hub
from ..chat import Message
from ..rows import read_file
from ..tool_calls import Call, parse
from .embedded import embedded_rows

REPOSITORY = "RamAnanth1/toolrl-rlla4k"
_FILE = re.compile(r"(?:rlla[_-])?(?P<split>train|test)\.(?:parquet|jsonl|jsonl\.gz)", re.I)
_INSTEAD = "Pass data=PATH (a folder with train.parquet and test.parquet) or data='embedded' to do without."
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A task.

    Attributes:
        task_id: its name.
        messages: the system message with the tools, and the dialogue so far.
        label: a right answer, in the data's dialect.
        calls: the calls of the label; none where it only responds.
        answers: what a warm start learns from; the label where there is nothing else.
    """

    task_id: str
    messages: tuple[Message, ...]
    label: str
    calls: tuple[Call, ...]
    answers: tuple[str, ...] = ()


class Loaded(NamedTuple):
    """Tasks, a note that says which data these are and why, and whether they are the embedded ones."""

    dialogues: list[Dialogue]
    note: str
    embedded: bool = False


def load_dialogues(data: str | Path | None, split: str) -> Loaded:
    """Load one split.

    Args:
        data: None or "auto" (the hub's cache, the hub, else the embedded family), "embedded", "hub", or the path of a
            folder or file.
        split: "train" or "test".

    Raises:
        GymError: data that can't be found or read, that lack the split, or that have a bad row (named).
    """
    if data == "embedded":
        return _embedded(split, 'data = "embedded"')
    if data in (None, "auto", "hub"):
        try:
            path, where = hub.fetch(REPOSITORY, f"{split}.parquet", instead=_INSTEAD)
        except hub.Unreachable as error:
            if data == "hub":
                raise
            _log.warning("rlla: %s Using the embedded tasks instead.", error)
            return _embedded(split, str(error))
        return _from_file(path, split, f"hub: {where}")
    path = Path(str(data)).expanduser()
    if not path.exists():
        raise GymError(
            f"rlla: there is no file or folder {str(data)!r}; data takes 'auto', 'embedded', 'hub' or a path to RLLA's "
            "parquet or jsonl files"
        )
    return _from_file(_split_file(path, split) if path.is_dir() else path, split, "path")


def _embedded(split: str, why: str) -> Loaded:
    dialogues = [_dialogue(row, f"{split}/{row['index']}") for row in embedded_rows(split)]
    return Loaded(dialogues, f"embedded: {len(dialogues)} tasks of the package's own family ({why})", True)


def _split_file(folder: Path, split: str) -> Path:
    for place in (folder, folder / "rlla_4k"):
        if place.is_dir():
            found = sorted(p for p in place.iterdir() if (m := _FILE.fullmatch(p.name)) and m["split"].lower() == split)
            if found:
                return max(found, key=lambda p: p.suffix == ".parquet")
    raise GymError(f"rlla: {folder} has no file of split {split!r} ({split}.parquet, rlla_{split}.jsonl or .jsonl.gz)")


def _from_file(path: Path, split: str, source: str) -> Loaded:
    dialogues: dict[str, Dialogue] = {}
    for number, row in read_file(path):
        name = f"{split}/{number - 1}"
        try:
            dialogues[name] = _dialogue(row, name)
        except (KeyError, TypeError, ValueError) as error:
            reason = f"field {error} is missing" if isinstance(error, KeyError) else error
            raise GymError(f"{path}:{number}: {reason}; fix or remove the row") from None
    if not dialogues:
        raise GymError(f"{path} has no rows")
    return Loaded(list(dialogues.values()), f"{source}: {len(dialogues)} dialogues of {path}")


def _dialogue(row: Any, name: str) -> Dialogue:
    """Check a row: `prompt` and `reward_model` as published, or `instruction`, `input` and `output`."""
    if not isinstance(row, Mapping):
        raise TypeError(f"a row is an object, not a {type(row).__name__}")
    if "prompt" in row:
        messages = tuple({"role": str(m["role"]), "content": str(m["content"])} for m in row["prompt"])
        label = row["reward_model"]["ground_truth"]
    else:
        messages = ({"role": "system", "content": row["instruction"]}, {"role": "user", "content": row["input"]})
        label = row["output"]
    for text in (*(m["content"] for m in messages), label):
        if not isinstance(text, str) or not text.strip():
            raise ValueError("a message or the label is empty, or no text")
    if not messages or messages[-1]["role"] != "user":
        raise ValueError("the prompt does not end with a user's message")
    parsed = parse(label, "tags")
    if parsed.errors:
        raise ValueError(f"the label can't be read: {parsed.errors[0]}")
    if not parsed.calls and "<response>" not in label:
        raise ValueError("the label has neither calls nor a response")
    return Dialogue(name, messages, label, parsed.calls, tuple(row.get("answers", ())))
