"""Replies as the plain data that files hold, which somebody may have written by hand."""

from typing import Any, get_args

from ...envs.chat import message_problem
from ...envs.tool_calls.call import kind_of
from .base import Finish, Reply, Usage

FINISHES = get_args(Finish)
_TOKENS = ("prompt", "completion", "reasoning")


def reply_problem(record: Any, *, whole: bool = False) -> str | None:
    """Say what keeps plain data from being a reply; None where nothing does.

    Args:
        record: what should have `message`, and may have `finish`, `usage` and `notes`.
        whole: all of them must be there, as in a run folder.
    """
    if not isinstance(record, dict):
        return f"a reply is an object, not {kind_of(record)}"
    for key in ("message", "finish", "usage", "notes") if whole else ("message",):
        if key not in record:
            return f"a reply has no `{key}`"
    if (problem := message_problem(record["message"], ("assistant",))) is not None:
        return problem
    usage, notes = record.get("usage", {}), record.get("notes", [])
    if not isinstance(usage, dict):
        return f"`usage` is {kind_of(usage)}, not an object"
    for key, value in usage.items():
        if key not in _TOKENS:
            return f"`usage` has {key!r}, which is none of {', '.join(_TOKENS)}"
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            return f"`usage` has {value!r} for {key}, not a number of tokens"
    if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
        return "`notes` is not a list of texts"
    return finish_problem(record.get("finish", "stop"))


def finish_problem(finish: Any) -> str | None:
    """The same for why an answer ended."""
    if isinstance(finish, str) and finish in FINISHES:
        return None
    return f"`finish` is {str(finish)[:40]!r}, not one of {', '.join(FINISHES)}"


def failure_problem(failure: Any) -> str | None:
    """The same for a failure, null where there was none."""
    if failure is None or (
        isinstance(failure, dict) and all(isinstance(failure.get(key), str) for key in ("kind", "text"))
    ):
        return None
    return "`failure` is not null, nor an object with `kind` and `text`"


def reply_of(record: dict[str, Any]) -> Reply:
    """The reply that plain data without a problem are."""
    return Reply(
        record["message"],
        record.get("finish", "stop"),
        Usage(**record.get("usage", {})),
        tuple(record.get("notes", ())),
    )
