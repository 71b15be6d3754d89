"""The commands of the processes that take part: the interpreter with one module of the package."""

import os
from pathlib import Path

from .. import runtime

PACKAGE = Path(__file__).resolve().parents[3]  # the folder corrgrpo_gym
HARNESS = "/harness"  # where jails with files of their own have the package's modules
FLAGS = ["-s", "-S", "-P", "-B"]  # like -I, but the hash seed, in a cleared environment, counts
_MODULES = ("envs/extract.py", "envs/extract_forms.py", "envs/sandbox/wire.py", "envs/sandbox/values.py")

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


def environment(libraries: bool = True) -> dict[str, str]:
    """Nothing of the user's, but for where the interpreter's own libraries are."""
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if libraries and name in os.environ}
    return {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "LC_ALL": "C.UTF-8", **kept}


def module(name: str, argument: str, python: str, root: str, extra: str) -> list[str]:
    """The command that runs ``main`` of a module of this package with comma-separated whole numbers."""
    return [python, *FLAGS, "-c", _START, root, extra, name, argument]


def on_host(name: str, argument: str) -> list[str]:
    """The command with this machine's own files."""
    extra = ":".join(source for source, _ in runtime.files()[2])
    return module(name, argument, runtime.interpreter(), str(PACKAGE.parent), extra)


def in_jail(name: str, argument: str, python: str) -> list[str]:
    """The command with the files below `HARNESS`."""
    extra = ":".join(f"{HARNESS}/site/{name}" for _, name in runtime.files()[2])
    return module(name, argument, python, HARNESS, extra)


def harness() -> list[tuple[str, str]]:
    """Pairs of a file or folder here and its place below `HARNESS` in a jail."""
    names = [*_MODULES, *(f"envs/sandbox/jail/{p.name}" for p in sorted((PACKAGE / "envs/sandbox/jail").glob("*.py")))]
    pairs = [(str(PACKAGE / name), f"{HARNESS}/corrgrpo_gym/{name}") for name in names]
    return pairs + [(source, f"{HARNESS}/site/{name}") for source, name in runtime.files()[2]]


def judge_command(fd: int) -> tuple[list[str], dict[str, str]]:
    """Return the judge process's command and environment."""
    return on_host("judge", str(fd)), environment()
