"""Saved answers as a model: a file of JSON lines, or another run's folder."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...envs.chat import message_problem
from ...envs.tool_calls.call import kind_of
from ...errors import GymError
from ...run_files import iterate_records
from .base import Finish, ModelFailure, Reply, Request
from .plain import failure_problem, finish_problem, reply_of, reply_problem

SHOWN = 5


class SavedAnswers:
    """Answers from a file of JSON lines.

    A line has `case` (or `task_id`), the id of a case, and one of `answer` (a text), `message` (an assistant message),
    `answers` or `messages` (a list, one per turn), or `replies` (as in a run folder). `sample` numbers the samples of
    a case from 0; lines without it are numbered as they come. In a run folder a later line replaces an earlier one.

    Args:
        path: the file, or a run folder of `corrgrpo-gym eval`.
        cases: ids of the cases that there are.
        concurrency: answers at once.
        limit: how many of the cases are asked, the first ones; 0 for all.

    Attributes:
        notes: what is odd about the file, for people.

    Raises:
        GymError: a line that is none of these (named), two lines for one sample, or no line for any case.
    """

    def __init__(self, path: str | Path, cases: Iterable[str], concurrency: int = 64, limit: int = 0):
        self.concurrency = concurrency
        self.path = Path(path).expanduser()
        run = self.path.is_dir()
        if run:
            self.path = self.path / "replies.jsonl"
        if not self.path.is_file():
            raise GymError(f"saved answers: there is no file {self.path} (current directory: {Path.cwd()})")
        names = list(cases)
        known = set(names)
        self._places: dict[tuple[str, int], int] = {}
        lines: dict[tuple[str, int], int] = {}
        counts: dict[str, int] = {}
        unknown: dict[str, int] = {}
        for number, offset, record in iterate_records(self.path, whole=not run):
            where = f"{self.path}:{number}"
            case = _case(record, where)
            sample = record.get("sample", counts.get(case, 0))
            if not isinstance(sample, int) or isinstance(sample, bool) or sample < 0:
                raise GymError(f"{where}: `sample` is {sample!r}, not a number from 0")
            counts[case] = counts.get(case, 0) + 1
            if case not in known:
                unknown[case] = number
                continue
            key = case, sample
            if key in lines and not run:
                raise GymError(f"{where}: sample {sample} of case {case!r} has an answer in line {lines[key]} already")
            _replies(record, where)
            if (problem := failure_problem(record.get("failure"))) is not None:
                raise GymError(f"{where}: {problem}")
            lines[key], self._places[key] = number, offset
        if not self._places:
            ours = ", ".join(map(repr, sorted(known)[:SHOWN]))
            theirs = ", ".join(map(repr, list(unknown)[:SHOWN])) or "none"
            raise GymError(f"{self.path} has no answer for any case. Cases are named {ours}; the file's: {theirs}")
        missing = len(set(names[: limit or None]) - {case for case, _ in self._places})
        self.notes = []
        if unknown:
            first = ", ".join(f"{case!r} (line {line})" for case, line in list(unknown.items())[:SHOWN])
            self.notes.append(f"{len(unknown)} cases of {self.path.name} are not in this benchmark: {first}")
        if missing:
            self.notes.append(f"{missing} cases have no answer in {self.path.name}: no figure counts them")
        self.identity: Mapping[str, Any] = {"kind": "saved", "digest": _digest(self.path)}

    async def complete(self, request: Request) -> Reply:
        """See ChatModel."""
        place = self._places.get((request.case, request.sample))
        if place is None:
            raise ModelFailure("no_answer", f"no answer for sample {request.sample} in {self.path}")
        with open(self.path, "rb") as f:
            f.seek(place)
            record = json.loads(f.readline())
        if failure := record.get("failure"):
            raise ModelFailure(failure["kind"], failure["text"])
        replies = _replies(record, str(self.path))
        if request.turn >= len(replies):
            raise ModelFailure("no_answer", f"{self.path} has {len(replies)} of the answers that this episode takes")
        return replies[request.turn]

    async def close(self) -> None:
        """See ChatModel."""


def _case(record: dict[str, Any], where: str) -> str:
    case = record.get("case", record.get("task_id"))
    if not isinstance(case, str | int) or isinstance(case, bool):
        raise GymError(f"{where}: a line of saved answers is an object with `case`, the id of a case, and `answer`")
    return str(case)


def _replies(record: dict[str, Any], where: str) -> list[Reply]:
    """The replies that a line holds, whichever way it says them."""
    if "replies" in record:
        listed = record["replies"]
        if not isinstance(listed, list):
            raise GymError(f"{where}: `replies` is {kind_of(listed)}, not a list")
        for reply in listed:
            if (problem := reply_problem(reply)) is not None:
                raise GymError(f"{where}: {problem}")
        return [reply_of(reply) for reply in listed]
    given = [record[k] for k in ("answer", "message", "answers", "messages") if k in record]
    if len(given) != 1:
        raise GymError(
            f"{where}: expected one of `answer`, `message`, `answers`, `messages`, found {len(given)} of them"
        )
    answers = given[0] if isinstance(given[0], list) else [given[0]]
    finish: Finish = record.get("finish", "stop")
    if (problem := finish_problem(finish)) is not None:
        raise GymError(f"{where}: {problem}")
    replies = []
    for answer in answers:
        message = {"role": "assistant", "content": answer} if isinstance(answer, str | None) else answer
        if isinstance(message, dict):
            message = {"role": "assistant", "content": None, **message}
        if (problem := message_problem(message, ("assistant",))) is not None:
            raise GymError(f"{where}: {problem}")
        replies.append(Reply(message, "tool_calls" if message.get("tool_calls") else finish))
    return replies


def _digest(path: Path) -> str:
    seen = hashlib.sha256()
    with open(path, "rb") as f:
        while block := f.read(1 << 20):
            seen.update(block)
    return seen.hexdigest()[:16]
