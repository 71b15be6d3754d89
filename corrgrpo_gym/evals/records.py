"""The files of an evaluation: what was asked for, every reply as it came, every score."""

import fcntl
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

from ..envs.tool_calls.call import kind_of
from ..errors import GymError, NotScored
from ..run_files import CannotWrite, append_records, drop_torn_line, iterate_records, lock, write_text
from .benchmark import Score
from .metrics import Sample
from .models.base import ModelFailure, Reply
from .models.plain import failure_problem, reply_of, reply_problem

REPLIES, SCORES, CONFIG, FACTS, SUMMARY, LOG = (
    "replies.jsonl", "scores.jsonl", "config.toml", "run.json", "summary.json", "log.txt",
)  # fmt: skip
# Characters of why something has no score.
MOST_WORDS = 2000
Key: TypeAlias = tuple[str, int]
EvalRecord: TypeAlias = dict[str, Any]


class EvalFolder:
    """A run folder of an evaluation, taken by this process.

    replies.jsonl has a line for each sample that was generated or failed; a later line of a sample replaces an earlier
    one. scores.jsonl has a line for each score. Nothing but the places of the lines is held in memory.

    Attributes:
        replied: where in replies.jsonl the replies of a sample are.
        failed: kind of failure of the samples that failed.
        scored: samples that have their score.
        unscored: why those that were answered have none, as `not_scored_record`.
        samples: their values, for figures.
    """

    def __init__(self, path: Path):
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = lock(path)
        except OSError as e:
            raise GymError(f"cannot write the run folder {path}: {e.strerror}. Give another --out") from e
        self.replied: dict[Key, int] = {}
        self.failed: dict[Key, str] = {}
        self.scored: set[Key] = set()
        self.unscored: dict[Key, EvalRecord] = {}
        self.samples: dict[Key, Sample] = {}
        self.log = logging.getLogger(f"corrgrpo_gym.eval.{path}")
        self.log.setLevel(logging.INFO)
        self.log.propagate = False
        self.log.handlers.clear()
        try:
            self._read()
        except BaseException:
            self.close()
            raise

    def _read(self) -> None:
        path = self.path
        for number, offset, record in iterate_records(path / REPLIES):
            check(reply_line_problem(record), path / REPLIES, number, "its sample is asked again")
            self._index(offset, record)
        self._read_scores()
        for name in (REPLIES, SCORES):
            drop_torn_line(path / name)

    def begin(self, config: str, facts: Mapping[str, Any]) -> None:
        """Write what is evaluated, before the first sample."""
        self.write(FACTS, json.dumps(facts, indent=2) + "\n")
        self.write(CONFIG, config)

    def go_on(self, config: str, facts: Mapping[str, Any]) -> None:
        """Write what is evaluated from now on."""
        self.write(CONFIG, config)
        self.write(FACTS, json.dumps(facts, indent=2) + "\n")

    def facts(self) -> dict[str, Any]:
        """What `begin` wrote."""
        return read_facts(self.path)

    def write(self, name: str, text: str) -> None:
        """Write a small file whole."""
        try:
            write_text(self.path / name, text)
        except OSError as e:
            raise cannot_write(self.path / name, self.path, e) from e

    def note(self, text: str) -> None:
        """Add a line to log.txt; a full disk makes it shorter, nothing else."""
        if not self.log.handlers:
            handler = _LogFile(self.path / LOG, encoding="utf-8", delay=True)
            handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
            self.log.addHandler(handler)
        self.log.info("%s", text)

    def add_replies(
        self, key: Key, replies: Sequence[Reply], seconds: float, failure: ModelFailure | None = None
    ) -> EvalRecord:
        """Append what a sample was answered, or why it was not."""
        record: EvalRecord = {
            "case": key[0],
            "sample": key[1],
            "replies": [reply_record(r) for r in replies],
            "seconds": round(seconds, 4),
            "failure": {"kind": failure.kind, "text": str(failure)} if failure else None,
        }
        self._index(self._append(REPLIES, record), record)
        return record

    def add_score(self, sample: Sample, number: int, score: Score) -> None:
        """Append the score of a sample."""
        record = score_record(sample, number, score)
        self._append(SCORES, record)
        self._count(record)

    def add_not_scored(self, key: Key, error: Exception) -> None:
        """Append why a sample has no score (yet)."""
        record = not_scored_record(key, error)
        self._append(SCORES, record)
        self._count(record)

    def replies(self, key: Key) -> list[Reply]:
        """The replies of a sample, from the file."""
        with open(self.path / REPLIES, "rb") as f:
            f.seek(self.replied[key])
            return [reply_of(r) for r in json.loads(f.readline())["replies"]]

    def latest(self) -> Iterator[EvalRecord]:
        """The records of replies that count: the last one of each sample, in the order of the file."""
        for _, offset, record in iterate_records(self.path / REPLIES):
            if self.replied.get((record["case"], record["sample"])) == offset:
                yield record

    def replace_scores(self, temporary: Path) -> None:
        """Put a file of new scores in the place of the old one, whole."""
        try:
            with open(temporary, "rb") as f:
                os.fsync(f.fileno())
            os.replace(temporary, self.path / SCORES)
        except OSError as e:
            raise cannot_write(self.path / SCORES, self.path, e) from e
        self.scored.clear()
        self.unscored.clear()
        self.samples.clear()
        self._read_scores()

    def close(self) -> None:
        """Close the log and let others write."""
        for handler in self.log.handlers:
            handler.close()
        self.log.handlers.clear()
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        self._lock.close()

    def _append(self, name: str, record: EvalRecord) -> int:
        path = self.path / name
        try:
            offset = path.stat().st_size if path.exists() else 0
            append_records(path, [record])
        except OSError as e:
            raise cannot_write(path, self.path, e) from e
        return offset

    def _index(self, offset: int, record: EvalRecord) -> None:
        key = record["case"], record["sample"]
        self.replied[key] = offset
        self.failed.pop(key, None)
        if record["failure"]:
            self.failed[key] = record["failure"]["kind"]

    def _read_scores(self) -> None:
        for number, _, record in iterate_records(self.path / SCORES):
            check(score_line_problem(record), self.path / SCORES, number, "its sample is scored again")
            self._count(record)

    def _count(self, record: EvalRecord) -> None:
        key = record["case"], record["sample"]
        if "values" in record:
            self.scored.add(key)
            self.unscored.pop(key, None)
            self.samples[key] = sample_of(record)
        else:
            self.unscored[key] = record


class _LogFile(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        pass


def read_facts(run: Path) -> dict[str, Any]:
    """What an evaluation wrote of itself: `benchmark`, `model`, `version`, `config`; `scored` after `rescore`.

    Raises:
        GymError: it can't be read, or is something else.
    """
    try:
        facts = json.loads((run / FACTS).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as e:
        raise GymError(f"{run / FACTS} cannot be read ({e}): this is no evaluation, or it was edited") from e
    known = isinstance(facts, dict) and all(isinstance(facts.get(key), dict) for key in ("benchmark", "model"))
    if not known or not all(isinstance(facts.get(key, {}), dict) for key in ("scored", "config")):
        raise GymError(f"{run / FACTS} does not hold what an evaluation writes there: was it edited?")
    return facts


def cannot_write(file: Path, run: Path, error: OSError) -> CannotWrite:
    """The error that names the file and says how to go on."""
    return CannotWrite(
        f"cannot write {file}: {error.strerror or error}. Every sample before it is saved: make room, then "
        f"`corrgrpo-gym eval --resume {run}`"
    )


def check(problem: str | None, file: Path, number: int, then: str) -> None:
    """Raise the error that names a line of a run's file that is not what was written there."""
    if problem is not None:
        raise GymError(f"{file}, line {number}: {problem}. Was the file edited? Mend that line, or remove it: {then}")


def reply_line_problem(record: EvalRecord) -> str | None:
    """Say what keeps a line of replies.jsonl from being one; None where nothing does."""
    if (problem := _key_problem(record)) is not None:
        return problem
    if "failure" not in record:
        return "`failure` is missing"
    if not isinstance(replies := record.get("replies"), list):
        return f"`replies` is {kind_of(replies)}, not a list"
    problems = [failure_problem(record["failure"]), *(reply_problem(reply, whole=True) for reply in replies)]
    return next((problem for problem in problems if problem is not None), None)


def score_line_problem(record: EvalRecord) -> str | None:
    """The same for scores.jsonl."""
    if (problem := _key_problem(record)) is not None:
        return problem
    for key in ("cluster", "group", "not_scored", "error"):
        if key in record and not isinstance(record[key], str):
            return f"`{key}` is {kind_of(record[key])}, not a text"
    values = record.get("values")
    if values is None and "not_scored" in record:
        return None
    if not isinstance(values, dict):
        return f"`values` is {kind_of(values)}, not an object"
    for key, value in values.items():
        if value is not None and not (isinstance(value, int | float) and abs(value) < float("inf")):
            return f"the value of {key!r} is {kind_of(value)}, not a finite number or null"
    return None


def _key_problem(record: EvalRecord) -> str | None:
    if not isinstance(record.get("case"), str):
        return "`case` is not the id of a case"
    sample = record.get("sample")
    whole = isinstance(sample, int) and not isinstance(sample, bool) and sample >= 0
    return None if whole else f"`sample` is {sample!r}, not a number from 0"


def reply_record(reply: Reply) -> EvalRecord:
    """A reply as plain data."""
    usage = {k: v for k, v in asdict(reply.usage).items() if v is not None}
    return {"message": reply.message, "finish": reply.finish, "usage": usage, "notes": list(reply.notes)}


def score_record(sample: Sample, number: int, score: Score) -> EvalRecord:
    """A line of scores.jsonl. Cluster and group stand in it where they say something."""
    record: EvalRecord = {"case": sample.case, "sample": number, "values": dict(sample.values)}
    if sample.cluster != sample.case:
        record["cluster"] = sample.cluster
    if sample.group:
        record["group"] = sample.group
    return record | ({"detail": dict(score.detail)} if score.detail else {})


def not_scored_record(key: Key, error: Exception) -> EvalRecord:
    """A line of scores.jsonl for what has no score; `error` stands in it where the scorer itself is at fault."""
    record: EvalRecord = {"case": key[0], "sample": key[1]}
    if isinstance(error, NotScored):
        return record | {"not_scored": str(error)[:MOST_WORDS]}
    words = f"the scorer failed: {type(error).__name__}: {error}"
    return record | {"not_scored": words[:MOST_WORDS], "error": type(error).__name__}


def sample_of(record: EvalRecord) -> Sample:
    """What figures need of a line of scores.jsonl."""
    return Sample(record["case"], record.get("cluster") or record["case"], record.get("group", ""), record["values"])
