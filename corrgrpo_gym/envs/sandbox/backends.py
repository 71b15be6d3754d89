"""How a jail is started: by bubblewrap, or as a plain process with limits."""

import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

from . import runtime
from .job import SandboxUnavailable

_HERE = Path(__file__).resolve().parent
_FLAGS = ["-s", "-S", "-P", "-B"]  # like -I, but the hash seed, in a cleared environment, counts
_THREADS_COUNTED_PER_NAMESPACE = (5, 14)
_MODULES = ("envs/extract.py", "envs/extract_forms.py", "envs/sandbox/wire.py", "envs/sandbox/values.py")
_HARNESS = "/harness"

# Imports one module of the package without running the packages' own __init__ files, which need more than is
# there; before it, the extra packages, from their folders.
_START = """
import importlib, importlib.util, sys, types
root, extra, name, argument = sys.argv[1:5]
for item in extra.split(":") if extra else ():
    package = item.rsplit("/", 1)[1]
    spec = importlib.util.spec_from_file_location(
        package, item + "/__init__.py", submodule_search_locations=[item])
    sys.modules[package] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[package])
for package in ("corrgrpo_gym", "corrgrpo_gym.envs", "corrgrpo_gym.envs.sandbox"):
    module = sys.modules[package] = types.ModuleType(package)
    module.__path__ = [root + "/" + package.replace(".", "/")]
importlib.import_module("corrgrpo_gym.envs.sandbox." + name).main(*map(int, argument.split(",")))
"""


def _environment() -> dict[str, str]:
    """Nothing of the user's, but for where the interpreter's own libraries are."""
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    return {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "LC_ALL": "C.UTF-8", **kept}


def judge_command(fd: int) -> tuple[list[str], dict[str, str]]:
    """Return the judge process's command and environment."""
    extra = ":".join(source for source, _ in runtime.files()[2])
    root = str(_HERE.parents[2])
    return [runtime.interpreter(), *_FLAGS, "-c", _START, root, extra, "judge", str(fd)], _environment()


def _jailed(module: str, root: str, extra: str, argument: str) -> list[str]:
    return [runtime.interpreter(), *_FLAGS, "-c", _START, root, extra, f"jail.{module}", argument]


def subprocess_spec(uid: int) -> dict[str, Any]:
    """How the judge starts plain processes: limits and the system-call filter, but files can be read."""
    extra = ":".join(source for source, _ in runtime.files()[2])
    root = str(_HERE.parents[2])
    return {
        "zygote": _jailed("zygote", root, extra, "{fd},0"),
        "reader": _jailed("reader", root, extra, "{fd}"),
        "mounts": [],
        "uid": None,
        "env": _environment(),
    }


def bubblewrap_spec(uid: int) -> dict[str, Any]:
    """How the judge starts a jail under bubblewrap.

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
    single, library, extra = runtime.files()
    mounts: list[tuple[str, str]] = [(os.path.realpath(path), path) for path in single]
    package = _HERE.parents[1]
    for name in [*_MODULES, *(f"envs/sandbox/jail/{p.name}" for p in sorted((_HERE / "jail").glob("*.py")))]:
        mounts.append((str(package / name), f"{_HARNESS}/corrgrpo_gym/{name}"))
    mounts += [(source, f"{_HARNESS}/site/{name}") for source, name in extra]
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
    site = ":".join(f"{_HARNESS}/site/{name}" for _, name in extra)
    return {
        "zygote": command + _jailed("zygote", _HARNESS, site, f"{{fd}},{int(_counts_threads())}"),
        "reader": command + _jailed("reader", _HARNESS, site, "{fd}"),
        "mounts": mounts,
        "uid": uid if os.geteuid() == 0 else None,
        "env": _environment(),
    }


def _counts_threads() -> bool:
    """Older kernels count a user's threads over all namespaces, so that a limit would hit on other work."""
    version = platform.release().split(".")
    numbers = tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in version[:2])
    return os.geteuid() == 0 or numbers >= _THREADS_COUNTED_PER_NAMESPACE


def check(backend: str, greeting: dict[str, Any]) -> None:
    """Refuse a jail that started but does not confine as it should.

    Raises:
        SandboxUnavailable: it has no system-call filter, or is not in a process namespace of its own.
    """
    if backend == "bubblewrap" and not (greeting["seccomp"] and greeting["pid"] == 1):
        raise SandboxUnavailable(
            f"sandbox 'bubblewrap': no system-call filter for this machine ({platform.machine()}); x86_64 "
            "and aarch64 have one"
        )


def advice(backend: str, complaint: str) -> str:
    """Turn what a jail's command wrote into what to do."""
    text = f"sandbox {backend!r} does not start on this machine: {complaint or 'it ended without a word'}\n"
    if backend != "bubblewrap":
        return text + "Report this, with the text above."
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
    return text + "\n".join(f"- {hint}" for hint in hints)


def _setting(name: str) -> str | None:
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return None
