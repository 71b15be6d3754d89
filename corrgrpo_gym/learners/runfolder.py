"""The one place that writes a run folder."""

import logging
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..errors import GymError
from ..run_files import CannotWrite, append_records, lock, read_records, write_text
from .config import TrainConfig, to_toml
from .rollouts import Group

__all__ = ["CannotWrite", "RunFolder", "cannot_write", "read_records", "rollout_records", "write_text"]

START, NEW_START = "start", ".start.new"
STREAMS = ("metrics.jsonl", "rollouts.jsonl", "timings.jsonl")


class RunFolder:
    """A run's files: config.toml, log.txt, checkpoints/, and streams of JSON lines that only grow.

    metrics.jsonl holds what a repeated run repeats; clocks go to timings.jsonl. Use `create` or `open`.
    """

    def __init__(self, path: Path):
        self.path = path
        self.log = logging.getLogger(f"corrgrpo_gym.run.{path}")
        self.log.setLevel(logging.INFO)
        self.log.propagate = False
        self.log.handlers.clear()
        self._lock = lock(path)
        handler = _LogFile(path / "log.txt", encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        self.log.addHandler(handler)

    @classmethod
    def create(cls, path: Path, config: TrainConfig) -> "RunFolder":
        """Begin a new run folder.

        Raises:
            GymError: If there is a run already, or the folder cannot be written.
        """
        if (path / "config.toml").exists():
            raise GymError(
                f"{path} holds a run already: go on with it by `corrgrpo-gym train --resume {path}`, "
                "or give another --out"
            )
        try:
            (path / "checkpoints").mkdir(parents=True, exist_ok=True)
            write_text(path / "config.toml", to_toml(config))
            return cls(path)
        except OSError as e:
            raise GymError(f"cannot write the run folder {path}: {e.strerror}. Give another --out") from e

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Open an existing run folder."""
        if not (path / "config.toml").is_file():
            raise GymError(f"{path} is not a run folder: it has no config.toml")
        try:
            (path / "checkpoints").mkdir(exist_ok=True)
            return cls(path)
        except OSError as e:
            raise GymError(f"cannot write the run folder {path}: {e.strerror}") from e

    def write_config(self, config: TrainConfig) -> None:
        """Write config.toml anew."""
        try:
            write_text(self.path / "config.toml", to_toml(config))
        except OSError as e:
            raise cannot_write(self.path / "config.toml", self.path, e) from e

    def append(self, stream: str, records: Iterable[dict[str, Any]]) -> None:
        """Append records to a stream and hand them to the operating system."""
        try:
            append_records(self.path / stream, records)
        except OSError as e:
            raise cannot_write(self.path / stream, self.path, e) from e

    def offsets(self) -> dict[str, int]:
        """Length of each stream in bytes; that much is on the disk then, as a checkpoint counts on it."""
        lengths = dict.fromkeys(STREAMS, 0)
        for stream in STREAMS:
            path = self.path / stream
            if path.exists():
                try:
                    with open(path, "rb") as f:
                        os.fsync(f.fileno())
                        lengths[stream] = f.seek(0, os.SEEK_END)
                except OSError as e:
                    raise cannot_write(path, self.path, e) from e
        return lengths

    def truncate(self, offsets: dict[str, int]) -> list[str]:
        """Cut the streams back to where they were at a checkpoint.

        Returns:
            The streams that are shorter than they were: somebody cut or removed them.
        """
        before = self.offsets()
        for stream in STREAMS:
            if before[stream] > offsets.get(stream, 0):
                os.truncate(self.path / stream, offsets.get(stream, 0))
        return [stream for stream in STREAMS if before[stream] < offsets.get(stream, 0)]

    def remove_if_empty(self) -> None:
        """Remove a folder to which nothing of a run has been written yet, so that its name is free again."""
        if any((self.path / s).exists() for s in (*STREAMS, START)) or any((self.path / "checkpoints").iterdir()):
            return
        self.close()
        shutil.rmtree(self.path / NEW_START, ignore_errors=True)
        for name in ("config.toml", "log.txt", ".lock"):
            (self.path / name).unlink(missing_ok=True)
        (self.path / "checkpoints").rmdir()
        if not any(self.path.iterdir()):
            self.path.rmdir()

    def close(self) -> None:
        """Close the log and let others write."""
        for handler in self.log.handlers:
            handler.close()
        self.log.handlers.clear()
        self._lock.close()


class _LogFile(logging.FileHandler):
    """A log that a full disk makes shorter, not a traceback: what matters is written elsewhere, with errors."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        pass


def cannot_write(file: Path, run: Path, error: Exception) -> CannotWrite:
    """The error that names the file and says how to go on."""
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return CannotWrite(
        f"cannot write {file}: {why}. Nothing before the last checkpoint is lost: "
        f"make room, then `corrgrpo-gym train --resume {run}`"
    )


def rollout_records(
    step: int, split: str, groups: Sequence[Group], names: Sequence[str], advantages: Any | None
) -> Iterable[dict[str, Any]]:
    """One record per rollout: what was asked, answered, earned."""
    for g, group in enumerate(groups):
        for j, r in enumerate(group.rollouts):
            yield {
                "step": step,
                "split": split,
                "group": g,
                "sample": j,
                "task": group.task,
                "task_id": group.task_id,
                "messages": [*r.messages, *r.said],
                "reward": dict(zip(names, r.reward.tolist(), strict=True)),
                "advantage": None if advantages is None else float(advantages[g][j]),
                "prompt_tokens": len(group.prompt),
                "completion_tokens": sum(r.sampled),
                "environment_tokens": len(r.ids) - sum(r.sampled),
                "turns": r.turns,
                "finish": r.finish,
                "version": r.version,
            }
