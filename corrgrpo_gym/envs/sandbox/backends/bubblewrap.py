"""Back end ``bubblewrap``: namespaces, a root of the interpreter's files only, the system-call filter."""

import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

from .. import runtime
from ..job import SandboxUnavailable
from . import cgroup
from .base import JAIL_BYTES, PIDS, Backend, Place, fits, positive
from .commands import environment, harness, in_jail
from .gaps import UNCOUNTED, UNPARTED, Gap, ungrouped

_THREADS_COUNTED_PER_NAMESPACE = (5, 14)


class Bubblewrap(Backend):
    """The default: works on Linux without rights, and with more limits as root.

    Args:
        memory_bytes: limit on each worker's jail as a whole, where control groups can be made.
        cpus: how many CPUs each worker's jail may use, likewise.

    Attributes:
        unlimited: why jails as a whole have no limits here; empty where they have.
    """

    name = "bubblewrap"

    def __init__(self, memory_bytes: int = JAIL_BYTES, cpus: float = 1.0) -> None:
        positive(self.name, memory_bytes=memory_bytes, cpus=cpus)
        fits(self.name, memory_bytes)
        self._memory_bytes = int(memory_bytes)
        self._limits = cgroup.Limits(self._memory_bytes, PIDS, cpus)
        self._hierarchies: list[cgroup.Hierarchy] = []
        self.unlimited = ""
        self._apart = False
        try:
            self._hierarchies = cgroup.hierarchies()
            cgroup.sweep(self._hierarchies)
            group = cgroup.Group(self._hierarchies, self._limits)
            try:
                group.prove()
            finally:
                group.remove()
        except cgroup.Unusable as reason:
            self.unlimited = str(reason)

    @property
    def memory_bytes(self) -> int:
        """Limit on the memory of one worker's jail."""
        return self._memory_bytes

    def place(self, uid: int) -> Place:
        """Return how the judge starts a jail under bubblewrap.

        Args:
            uid: the user id for the jail where this process is root: inside a user namespace that root made,
                every user is root outside.

        Raises:
            SandboxUnavailable: bubblewrap is not installed, or this is not a machine it works on.
        """
        if not sys.platform.startswith("linux"):
            raise SandboxUnavailable(
                f"sandbox 'bubblewrap': it works on Linux only, and this is {sys.platform}. Run inside a Linux "
                "virtual machine, or ask by name for sandbox 'subprocess', which does not isolate"
            )
        found = shutil.which("bwrap")
        if found is None:
            raise SandboxUnavailable(
                "sandbox 'bubblewrap': the program bwrap is not installed. Install the package bubblewrap "
                "(apt-get install bubblewrap, dnf install bubblewrap, pacman -S bubblewrap, apk add bubblewrap)"
            )
        single, library, _ = runtime.files()
        hidden = [
            word
            for folder in ("site-packages", "dist-packages")
            if os.path.isdir(os.path.join(library, folder))
            for word in ("--tmpfs", os.path.join(library, folder))
        ]
        command = [
            found,
            *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"),
            *("--unshare-cgroup-try", "--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL"),
            *("--uid", "65534", "--gid", "65534", "--hostname", "sandbox"),
            "{mounts}",
            *hidden,
            *("--dir", "/dev", "--dev-bind", "/dev/null", "/dev/null"),
            *("--dev-bind", "/dev/urandom", "/dev/urandom", "--remount-ro", "/", "--chdir", "/", "--"),
        ]
        python = runtime.interpreter()
        group = None if self.unlimited else self._group()
        return Place(
            {
                "cgroups": group.entrances if group else [],
                "zygote": command + in_jail("jail.zygote", f"{{fd}},{int(_counts_threads())}", python),
                "reader": command + in_jail("jail.reader", "{fd}", python),
                "mounts": [(os.path.realpath(path), path) for path in single] + harness(),
                "uid": uid if os.geteuid() == 0 else None,
                "env": environment(),
            },
            clear=group.remove if group else lambda: None,
        )

    def _group(self) -> cgroup.Group:
        try:
            return cgroup.Group(self._hierarchies, self._limits)
        except cgroup.Unusable as reason:
            raise SandboxUnavailable(
                f"sandbox 'bubblewrap': cgroups could be made before, but not now: {reason}"
            ) from None

    def check(self, greeting: dict[str, Any]) -> None:
        """Refuse a jail without a system-call filter, or not in a process namespace of its own."""
        if not (greeting["seccomp"] and greeting["pid"] == 1):
            raise SandboxUnavailable(
                f"sandbox 'bubblewrap': no system-call filter for this machine ({platform.machine()}); x86_64 "
                "and aarch64 have one"
            )

        self._apart = bool(greeting["apart"])

    def gaps(self) -> tuple[Gap, ...]:
        """What depends on rights and the kernel."""
        found = [ungrouped(self.unlimited)] if self.unlimited else []
        found += [] if _counts_threads() or not self.unlimited else [UNCOUNTED]
        return tuple(found + ([] if self._apart else [UNPARTED]))

    def advice(self, complaint: str) -> str:
        """Name the setting that is in the way."""
        text = f"sandbox 'bubblewrap' does not start on this machine: {complaint or 'it ended without a word'}\n"
        return text + "\n".join(f"- {hint}" for hint in _hints())


def _hints() -> list[str]:
    hints = []
    if (value := _setting("user/max_user_namespaces")) == "0":
        hints.append("user namespaces are off: sudo sysctl -w user.max_user_namespaces=10000")
    if _setting("kernel/unprivileged_userns_clone") == "0":
        hints.append("user namespaces are off for users: sudo sysctl -w kernel.unprivileged_userns_clone=1")
    if _setting("kernel/apparmor_restrict_unprivileged_userns") == "1":
        hints.append(
            "AppArmor keeps user namespaces from programs without a profile: give /usr/bin/bwrap a profile "
            "that allows userns, or sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
        )
    if not hints and os.path.exists("/.dockerenv"):
        hints.append(
            "inside a Docker container, start it with --security-opt seccomp=unconfined --security-opt "
            "apparmor=unconfined --security-opt systempaths=unconfined"
        )
    if not hints:
        hints.append(
            f"check that this works: bwrap --unshare-all --ro-bind / / true (user.max_user_namespaces is {value})"
        )
    return hints


def _counts_threads() -> bool:
    """Older kernels count a user's threads over all namespaces, so that a limit would hit on other work."""
    version = platform.release().split(".")
    numbers = tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in version[:2])
    return os.geteuid() == 0 or numbers >= _THREADS_COUNTED_PER_NAMESPACE


def _setting(name: str) -> str | None:
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return None
