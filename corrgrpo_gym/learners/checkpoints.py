"""Checkpoints: complete, written at once or not at all, each one a Hugging Face folder."""

import os
import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from ..errors import GymError
from .policy import Policy
from .runfolder import cannot_write

STATE = "trainer.pt"
CONFIG = "run.toml"  # the configuration that it was made with
_NAME = re.compile(r"step-(\d{6,})")


class Checkpoints:
    """The checkpoints/ folder of a run: `step-000020`, ..., and the link `best`.

    Args:
        folder: The run's checkpoints/ folder.
        keep: Latest checkpoints that survive pruning.
    """

    def __init__(self, folder: Path, keep: int = 2):
        self.folder = folder
        self.keep = keep

    def recover(self) -> None:
        """Clear up after a process that was killed while it wrote. Only for the one that writes from now on."""
        for old in self.folder.glob(".old-*"):  # killed in the middle of a swap: the old one is still whole
            place = self.folder / old.name.removeprefix(".old-")
            if not place.exists():
                os.replace(old, place)
        for leftover in [*self.folder.glob(".new-*"), *self.folder.glob(".old-*")]:
            if leftover.is_dir():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink()

    def path(self, step: int) -> Path:
        """Folder of a step's checkpoint."""
        return self.folder / f"step-{step:06d}"

    def steps(self) -> list[int]:
        """Steps with a complete checkpoint, in order."""
        if not self.folder.is_dir():
            return []
        found = (_NAME.fullmatch(p.name) for p in self.folder.iterdir() if (p / STATE).is_file())
        return sorted(int(m[1]) for m in found if m)

    @property
    def best(self) -> int | None:
        """Step of the best checkpoint."""
        link = self.folder / "best"
        match = _NAME.fullmatch(os.readlink(link)) if link.is_symlink() else None
        return int(match[1]) if match else None

    def save(self, step: int, policy: Policy, state: dict[str, Any], best: int | None, config: str) -> Path:
        """Write a checkpoint: first beside, then in its place by one rename.

        Args:
            step: Finished steps.
            policy: Its weights and tokenizer are written.
            state: What else `load` must give back.
            best: Step of the best checkpoint, this one included; None where none counts as such.
            config: The configuration as TOML, kept beside the weights.

        Raises:
            GymError: If it cannot be written; the checkpoints before it stay.
        """
        place, new = self.path(step), self.folder / f".new-{step:06d}"
        try:
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir()
            policy.save(new)
            torch.save(state, new / STATE)
            (new / CONFIG).write_text(config)
            _sync(new)
            if place.exists():
                # The same step again (its validation has been added): swap through a name that no reader takes.
                old = self.folder / f".old-{place.name}"
                os.replace(place, old)
                os.replace(new, place)
                shutil.rmtree(old, ignore_errors=True)
            else:
                os.replace(new, place)
            self.link(best)
            _sync_folder(self.folder)
        except (OSError, RuntimeError, SafetensorError) as e:
            # safetensors and torch report a full disk as errors of their own.
            shutil.rmtree(new, ignore_errors=True)
            raise cannot_write(place, self.folder.parent, e) from e
        self._prune()
        return place

    def load(self, step: int) -> dict[str, Any]:
        """The trainer's state of a checkpoint.

        Raises:
            GymError: The file is damaged; the message says how to go on from the checkpoint before.
        """
        path = self.path(step)
        try:
            return torch.load(path / STATE, map_location="cpu", weights_only=True)
        except (OSError, EOFError, RuntimeError, ValueError, KeyError, pickle.UnpicklingError) as e:
            raise GymError(
                f"the checkpoint {path} is damaged ({STATE}: {type(e).__name__}). Remove that folder, and --resume "
                "goes on from the checkpoint before it, or from the beginning"
            ) from e

    def link(self, step: int | None) -> None:
        """Let `best` point to this step's checkpoint, or to none."""
        link, temporary = self.folder / "best", self.folder / ".new-best"
        if step is None:
            link.unlink(missing_ok=True)
        elif step != self.best:
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(self.path(step).name)
            os.replace(temporary, link)

    def _prune(self) -> None:
        for step in self.steps()[: -self.keep]:
            if step != self.best:
                # Renamed first: a half-deleted folder must not look like a checkpoint.
                doomed = self.folder / f".new-doomed-{step:06d}"
                os.replace(self.path(step), doomed)
                shutil.rmtree(doomed, ignore_errors=True)


def _sync(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_file():
            with open(path, "rb") as f:
                os.fsync(f.fileno())
    _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
