"""Control groups for jails: limits on memory, processes and CPU of one worker's jail as a whole.

Version 1, where each controller has a hierarchy of its own, and version 2, where processes are only in groups
that share nothing out: there, the group is made beside the one that this process is in.
"""

import contextlib
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from . import owner

_PREFIX = "corrgrpo-gym-jail:"
_CONTROLLERS = ("memory", "pids", "cpu")
_PERIOD = 100_000
_CLEAR_SECONDS = 5.0
_numbers = itertools.count()


class Unusable(Exception):
    """No groups can be made here; the text says why."""


@dataclass(frozen=True)
class Hierarchy:
    """Where groups are made.

    Attributes:
        folder: the group in which they are made.
        controllers: what they limit.
        version: 1 or 2.
        top: where the hierarchy is mounted.
    """

    folder: Path
    controllers: tuple[str, ...]
    version: int
    top: Path = field(default=Path("/nowhere"), compare=False)


@dataclass(frozen=True)
class Limits:
    """Of a group as a whole."""

    memory_bytes: int
    pids: int
    cpus: float


def _mounts(proc: Path) -> Iterator[tuple[str, Path, str, str]]:
    for line in (proc / "mountinfo").read_text().splitlines():
        left, right = line.split(" - ")
        root, point = left.split()[3:5]
        kind, _, options = right.split()[:3]
        if kind in ("cgroup", "cgroup2"):
            yield root, Path(point.replace("\\040", " ")), kind, options


def _below(root: str, own: str) -> str | None:
    """The path of a group below what is mounted, or None where the mount does not show it."""
    relative = os.path.relpath(own, root)
    return None if relative.startswith("..") else relative


def hierarchies(proc: Path = Path("/proc/self")) -> list[Hierarchy]:
    """Find where groups with every controller can be made.

    Raises:
        Unusable: a controller is nowhere.
    """
    try:
        groups = [line.split(":", 2) for line in (proc / "cgroup").read_text().splitlines()]
        mounts = list(_mounts(proc))
    except OSError as error:
        raise Unusable(f"cgroups cannot be found: {error}") from None
    found: list[Hierarchy] = []
    missing = set(_CONTROLLERS)
    for root, point, kind, options in mounts:
        names = options.split(",") if kind == "cgroup" else [""]
        own = next((path for _, listed, path in groups if set(listed.split(",")) & set(names)), None)
        place = None if own is None else _below(root, own)
        if place is None:
            continue
        folder = point / place
        if kind == "cgroup2":
            if (folder / "cgroup.type").exists():  # not the machine's root, where processes may stay
                folder = folder.parent
                if place == ".":
                    continue
            names = _words(folder / "cgroup.controllers")
        served = tuple(name for name in _CONTROLLERS if name in names and name in missing)
        if served:
            found.append(Hierarchy(folder, served, 1 if kind == "cgroup" else 2, point))
            missing -= set(served)
    if missing:
        raise Unusable(f"no cgroup with {', '.join(sorted(missing))} is shown here")
    return found


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []


def _settings(hierarchy: Hierarchy, limits: Limits) -> list[tuple[str, str, bool]]:
    """Files, what to write to them, and whether they must be there."""
    quota = max(int(limits.cpus * _PERIOD), 1000)
    memory, pids = str(limits.memory_bytes), str(limits.pids)
    by_controller: dict[str, list[tuple[str, str, bool]]] = {"pids": [("pids.max", pids, True)]}
    if hierarchy.version == 1:
        by_controller["memory"] = [
            ("memory.limit_in_bytes", memory, True),
            ("memory.memsw.limit_in_bytes", memory, False),
        ]
        by_controller["cpu"] = [("cpu.cfs_period_us", str(_PERIOD), True), ("cpu.cfs_quota_us", str(quota), True)]
    else:
        by_controller["memory"] = [("memory.max", memory, True), ("memory.swap.max", "0", False)]
        by_controller["cpu"] = [("cpu.max", f"{quota} {_PERIOD}", True)]
    return [setting for controller in hierarchy.controllers for setting in by_controller[controller]]


class Group:
    """The groups of one jail, one in each hierarchy.

    Args:
        where: from `hierarchies`.
        limits: of the jail.

    Attributes:
        entrances: files to which a process that joins writes 0.

    Raises:
        Unusable: they cannot be made.
    """

    def __init__(self, where: list[Hierarchy], limits: Limits):
        self._folders: list[Path] = []
        name = f"{_PREFIX}{owner.mine()}:{next(_numbers)}"
        try:
            for hierarchy in where:
                _hand_down(hierarchy)
                folder = hierarchy.folder / name
                folder.mkdir()
                self._folders.append(folder)
                for file, value, needed in _settings(hierarchy, limits):
                    if needed or (folder / file).exists():
                        (folder / file).write_text(value)
        except OSError as error:
            self.remove()
            raise Unusable(f"{error.filename}: {error.strerror}") from None
        self.entrances = [str(folder / "cgroup.procs") for folder in self._folders]

    def prove(self) -> None:
        """See that processes can join.

        Raises:
            Unusable: they cannot.
        """
        script = 'for file; do echo 0 > "$file" || exit 1; done'
        result = subprocess.run(["/bin/sh", "-c", script, "sh", *self.entrances], capture_output=True, text=True)
        if result.returncode:
            raise Unusable(f"processes cannot join: {result.stderr.strip()}")

    def remove(self) -> None:
        """End what is left in the groups, and remove them."""
        for folder in self._folders:
            _clear(folder)
        self._folders = []


def _hand_down(hierarchy: Hierarchy) -> None:
    """See that groups below have the controllers."""
    if hierarchy.version == 2:
        file = hierarchy.folder / "cgroup.subtree_control"
        lacking = [name for name in hierarchy.controllers if name not in _words(file)]
        if lacking:
            file.write_text(" ".join(f"+{name}" for name in lacking))


def _clear(folder: Path) -> None:
    deadline = time.monotonic() + _CLEAR_SECONDS
    while True:
        for pid in _words(folder / "cgroup.procs"):
            with contextlib.suppress(OSError):
                os.kill(int(pid), signal.SIGKILL)
        try:
            folder.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > deadline:
                return  # the next start tries again
        time.sleep(0.01)


def sweep(where: list[Hierarchy]) -> None:
    """Remove groups whose owners are gone, also those made in other groups than this process is in."""
    for top in {hierarchy.top for hierarchy in where}:
        for folder, folders, _ in os.walk(top):
            for name in [name for name in folders if name.startswith(_PREFIX)]:
                folders.remove(name)
                with contextlib.suppress(ValueError):
                    if owner.is_gone(name.removeprefix(_PREFIX).rsplit(":", 1)[0]):
                        _clear(Path(folder, name))
