"""The one place that writes a run folder."""

import json
import logging
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import GymError
from .config import TrainConfig, to_toml
from .rollouts import Group

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
        handler = logging.FileHandler(path / "log.txt", encoding="utf-8")
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
            raise GymError(f"cannot write the run folder {path}: {e.strerror}: give another --out") from e

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Open an existing run folder."""
        if not (path / "config.toml").is_file():
            raise GymError(f"{path} is not a run folder: it has no config.toml")
        (path / "checkpoints").mkdir(exist_ok=True)
        return cls(path)

    def append(self, stream: str, records: Iterable[dict[str, Any]]) -> None:
        """Append records to a stream and hand them to the operating system."""
        text = "".join(json.dumps(_plain(r), ensure_ascii=True) + "\n" for r in records)
        try:
            with open(self.path / stream, "a", encoding="ascii") as f:
                f.write(text)
        except OSError as e:
            raise GymError(
                f"cannot write {self.path / stream}: {e.strerror}. Nothing before the last checkpoint is lost: "
                f"make room, then `corrgrpo-gym train --resume {self.path}`"
            ) from e

    def offsets(self) -> dict[str, int]:
        """Length of each stream in bytes."""
        return {s: (self.path / s).stat().st_size if (self.path / s).exists() else 0 for s in STREAMS}

    def truncate(self, offsets: dict[str, int]) -> None:
        """Cut the streams back to where they were at a checkpoint."""
        for stream in STREAMS:
            path = self.path / stream
            if path.exists():
                os.truncate(path, min(path.stat().st_size, offsets.get(stream, 0)))

    def read(self, stream: str) -> list[dict[str, Any]]:
        """All records of a stream; null becomes NaN in none of them."""
        path = self.path / stream
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def close(self) -> None:
        """Close the log."""
        for handler in self.log.handlers:
            handler.close()
        self.log.handlers.clear()


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
                "messages": [*r.messages, {"role": "assistant", "content": r.answer}],
                "reward": dict(zip(names, r.reward.tolist(), strict=True)),
                "advantage": None if advantages is None else float(advantages[g][j]),
                "prompt_tokens": len(group.prompt),
                "completion_tokens": len(r.completion.ids),
                "finish": r.completion.finish,
            }


def write_text(path: Path, text: str) -> None:
    """Write a file so that it is whole or not there at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "w", encoding="utf-8") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())
    os.replace(temporary, path)


def _plain(value: Any) -> Any:
    """The value as strict JSON: numbers that are not finite become null."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
