"""Starts a jail's first process from the judge; as root, under another user id.

Runs in the judge process, which has one thread and little memory: standard library only.
"""

import contextlib
import ctypes
import os
import socket
import subprocess
from typing import Any

_CLONE_NEWNS = 0x20000
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_STAGE = "/tmp"
_CAP_SYS_ADMIN = 21


class LaunchError(Exception):
    """The command could not be started; the text says why."""


def start(spec: dict[str, Any], what: str, control: socket.socket) -> "subprocess.Popen[bytes]":
    """Start the ``what`` command of ``spec``, with the control socket as its file descriptor ``{fd}``.

    ``spec["mounts"]`` are (source, destination) pairs that the jail shows read-only; ``{mounts}`` in the
    command stands for their arguments. With ``spec["uid"]`` the process runs under that user and group id; as
    another user may not reach the sources or the command (under a closed /root, say), they are first bound to
    a directory of a private mount namespace that it can reach. It joins the control groups of ``spec["cgroups"]``
    first.

    Raises:
        LaunchError: it does not start.
    """
    uid = spec["uid"]
    mounts = [tuple(pair) for pair in spec["mounts"]]
    program, *rest = spec[what]
    staging = uid is not None and bool(mounts) and _may_mount()
    sources = [program, *(source for source, _ in mounts)]
    if staging:
        program = f"{_STAGE}/0"
        mounts = [(f"{_STAGE}/{i}", target) for i, (_, target) in enumerate(mounts, 1)]
    command = [program]
    for part in rest:
        if part == "{mounts}":
            command += [word for source, target in mounts for word in ("--ro-bind", source, target)]
        else:
            command.append(part.replace("{fd}", str(control.fileno())))

    def become() -> None:
        for entrance in spec.get("cgroups", ()):
            with open(entrance, "w") as file:
                file.write("0")
        if uid is None:
            return
        if staging:
            _stage(sources)
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)

    complaints, writer = os.pipe()
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=writer,
            env=spec["env"],
            cwd="/",
            pass_fds=[control.fileno()],
            preexec_fn=become,
        )
    except (OSError, subprocess.SubprocessError) as error:
        os.close(writer)
        with open(complaints, "rb") as file:
            text = file.read(2000).decode("utf-8", "replace").strip()
        raise LaunchError(text or str(error)) from None
    os.close(writer)
    process.stderr = open(complaints, "rb")
    return process


def _may_mount() -> bool:
    with open("/proc/self/status") as file:
        rights = next(int(line.split()[1], 16) for line in file if line.startswith("CapEff:"))
    return bool(rights >> _CAP_SYS_ADMIN & 1)


def _stage(sources: list[str]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)

    def checked(result: int, what: str) -> None:
        if result:
            code = ctypes.get_errno()
            with contextlib.suppress(OSError):
                os.write(2, f"{what}: {os.strerror(code)}\n".encode())
            raise OSError(code, what)

    checked(libc.unshare(_CLONE_NEWNS), "unshare")
    checked(libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "mount private")
    # Opened first, because a source may lie under the directory that is covered next.
    opened = [os.open(source, os.O_PATH) for source in sources]
    folders = [os.path.isdir(source) for source in sources]
    checked(libc.mount(b"tmpfs", _STAGE.encode(), b"tmpfs", 0, b"mode=755"), "mount tmpfs")
    for i, (fd, folder) in enumerate(zip(opened, folders, strict=True)):
        target = f"{_STAGE}/{i}"
        if folder:
            os.mkdir(target)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
        checked(libc.mount(f"/proc/self/fd/{fd}".encode(), target.encode(), None, _MS_BIND, None), f"bind {i}")
        os.close(fd)
