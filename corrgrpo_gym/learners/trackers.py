"""Trackers: where metrics go besides the run folder."""

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from ..errors import GymError
from .config import TrainConfig


class Tracker(Protocol):
    """Receives the metrics of each step."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take the metrics of a step; called once per step, in order."""

    def close(self) -> None:
        """Flush; the run is over or interrupted."""


class TensorBoard:
    """Writes event files to RUN/tensorboard."""

    def __init__(self, path: Path, config: TrainConfig, resume: bool):
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(path / "tensorboard"))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """See Tracker."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """See Tracker."""
        self._writer.close()


class WandB:
    """Sends metrics to Weights & Biases, under the run folder's name."""

    def __init__(self, path: Path, config: TrainConfig, resume: bool):
        import wandb

        self._run: Any = wandb.init(
            project="corrgrpo-gym",
            name=path.name,
            id=path.name,
            dir=str(path),
            resume="allow" if resume else None,
            config=config.model_dump(mode="json"),
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """See Tracker."""
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        """See Tracker."""
        self._run.finish()


TRACKERS: dict[str, Callable[[Path, TrainConfig, bool], Tracker]] = {"tensorboard": TensorBoard, "wandb": WandB}


def check_trackers(names: Sequence[str]) -> None:
    """Raise GymError if a tracker's package is not installed, without importing it."""
    for name in names:
        if find_spec(name) is None:
            raise _missing(name)


def open_trackers(names: Sequence[str], path: Path, config: TrainConfig, resume: bool) -> list[Tracker]:
    """Open the trackers that the configuration names.

    Raises:
        GymError: If a tracker's package is not installed; the message says how to install it.
    """
    opened: list[Tracker] = []
    for name in names:
        try:
            opened.append(TRACKERS[name](path, config, resume))
        except ImportError as e:
            for tracker in opened:
                tracker.close()
            raise _missing(name) from e
    return opened


def _missing(name: str) -> GymError:
    return GymError(f"track names {name}, which is not installed: pip install 'corrgrpo-gym[{name}]'")
