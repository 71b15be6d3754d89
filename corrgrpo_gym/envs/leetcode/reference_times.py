"""Times of references, kept between runs: each is measured once on a machine.

One small file each, named by what the time depends on: the machine, how it was measured, the row's code. Several
processes may measure the same one; the last one's stays.
"""

import hashlib
import json
import math
from pathlib import Path

from ...cache import cache_folder, keep, read_kept
from ..sandbox import Measured
from ..sandbox.machine import fingerprint
from .problem import Problem

_FOLDER, _SOUND_FOLDER = "reference-times", "sound-references"
_LONGEST = 1e6


def kept_time(problem: Problem, backend: str) -> Measured | None:
    """Return the time of a problem's baseline as measured on this machine; None if it hasn't been, or is damaged."""
    kept = read_kept(_path(problem, backend))
    seconds, harness = kept.get("seconds"), kept.get("harness_seconds")
    if kept.get("machine") != fingerprint(backend) or not (_is_time(seconds) and _is_time(harness)):
        return None
    assert isinstance(seconds, float) and isinstance(harness, float)
    return Measured(seconds, harness) if 0.0 < seconds else None


def keep_time(problem: Problem, backend: str, measured: Measured) -> None:
    """Keep a measured time."""
    facts = {"task_id": problem.task_id, "seconds": measured.seconds, "harness_seconds": measured.harness_seconds}
    keep(_path(problem, backend), {**facts, "machine": fingerprint(backend)})


def is_known_sound(problem: Problem, backend: str) -> bool:
    """Whether a problem's baseline was seen to pass its tests on this machine."""
    kept = read_kept(_path(problem, backend, _SOUND_FOLDER))
    return kept.get("sound") is True or kept_time(problem, backend) is not None


def keep_sound(problem: Problem, backend: str) -> None:
    """Keep that it passes."""
    keep(_path(problem, backend, _SOUND_FOLDER), {"task_id": problem.task_id, "sound": True})


def _path(problem: Problem, backend: str, folder: str = _FOLDER) -> Path:
    parts = [fingerprint(backend), problem.prelude, problem.baseline, problem.test, problem.entry_point]
    text = json.dumps(parts, sort_keys=True)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return cache_folder() / folder / digest[:2] / f"{digest[2:]}.json"


def _is_time(value: object) -> bool:
    return type(value) is float and math.isfinite(value) and 0.0 <= value <= _LONGEST
