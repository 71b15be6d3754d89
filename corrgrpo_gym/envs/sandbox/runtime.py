"""Which files a Python interpreter needs, so that a jail can hold just these."""

import functools
import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from .job import SandboxUnavailable

# What answers may import besides the standard library.
EXTRA_PACKAGES = ("sortedcontainers",)

# Loads every extension module of the standard library, then lists the shared objects by the names under which
# the loader looked for them.
_PROBE = """
import ctypes, importlib, json, pathlib, sysconfig
folder = pathlib.Path(sysconfig.get_path("platstdlib")) / "lib-dynload"
for file in sorted(folder.glob("*.so")) if folder.is_dir() else ():
    name = file.name.split(".")[0]
    if not name.startswith(("_test", "xx", "_xx", "_ctypes_test", "_tkinter")):
        try:
            importlib.import_module(name)
        except Exception:
            pass
class Info(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]
names = []
@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Info), ctypes.c_size_t, ctypes.c_void_p)
def visit(info, size, data):
    names.append((info.contents.name or b"").decode())
    return 0
ctypes.CDLL(None).dl_iterate_phdr(visit, None)
print(json.dumps([n for n in names if n.startswith("/")]))
"""


@functools.cache
def interpreter() -> str:
    """Path of the base interpreter (outside any virtual environment), with links resolved."""
    return os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)


@functools.cache
def files() -> tuple[tuple[str, ...], str, tuple[tuple[str, str], ...]]:
    """Find what the interpreter needs.

    Returns:
        Paths of single files and folders, the standard library's folder, and (source, name) of each extra
        package.

    Raises:
        SandboxUnavailable: the interpreter cannot be examined.
    """
    command = [interpreter(), "-I", "-S", "-B", "-c", _PROBE]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        shared = json.loads(result.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise SandboxUnavailable(
            f"cannot examine the Python interpreter {interpreter()} for the sandbox: {error}"
        ) from None
    base = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix, "installed_base": sys.base_prefix}
    libraries = {os.path.realpath(sysconfig.get_path(kind, vars=base)): None for kind in ("stdlib", "platstdlib")}
    folders = tuple(sysconfig.get_path(kind, vars=base) for kind in ("stdlib", "platstdlib"))
    inside = tuple(libraries)
    single = [path for path in shared if not os.path.realpath(path).startswith(inside)]
    if os.path.exists("/etc/ld.so.cache"):
        single.append("/etc/ld.so.cache")
    extra = []
    for name in EXTRA_PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec and spec.origin:
            extra.append((str(Path(spec.origin).parent), name))
    return (interpreter(), *dict.fromkeys([*folders, *single])), folders[0], tuple(extra)
