"""Things done as a user without rights, where the tests run as root."""

import contextlib
import ctypes
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import corrgrpo_gym
from corrgrpo_gym.envs.sandbox import CodeJob, Timing, Verdict, launch

ROOT = Path(corrgrpo_gym.__file__).parents[1]
UID = 12345

_SERVER = """
import os, pickle, sys
assert os.getuid() == {uid}
from corrgrpo_gym.envs.sandbox import make_sandbox
out, sys.stdout = sys.stdout.buffer, sys.stderr
with make_sandbox("bubblewrap", workers=1) as sandbox:
    reply = sandbox.gaps
    while True:
        out.write(pickle.dumps(reply)); out.flush()
        try:
            method, arguments, options = pickle.load(sys.stdin.buffer)
        except EOFError:
            break
        try:
            reply = getattr(sandbox, method)(*arguments, **options)
        except Exception as error:
            reply = error
"""


def become() -> None:
    """Give up rights; what of the interpreter the user may not reach is bound where it was."""
    closed = {f"/{Path(p).parts[1]}" for p in (sys.executable, os.path.realpath(sys.executable), str(ROOT))}
    closed = {folder for folder in closed if not os.stat(folder).st_mode & 0o001}
    libc = ctypes.CDLL(None, use_errno=True)
    libc.unshare(launch._CLONE_NEWNS)
    libc.mount(b"none", b"/", None, launch._MS_REC | launch._MS_PRIVATE, None)
    for folder in closed:
        inside = [
            (name, os.open(f"{folder}/{name}", os.O_PATH))
            for name in os.listdir(folder)
            if os.path.isdir(f"{folder}/{name}")
        ]
        libc.mount(b"tmpfs", folder.encode(), b"tmpfs", 0, b"mode=755")
        for name, fd in inside:
            os.mkdir(f"{folder}/{name}")
            libc.mount(f"/proc/self/fd/{fd}".encode(), f"{folder}/{name}".encode(), None, launch._MS_BIND, None)
            os.close(fd)
    os.setgroups([])
    os.setgid(UID)
    os.setuid(UID)


def start(code: str, **options: Any) -> "subprocess.Popen[bytes]":
    """Start Python code as the other user."""
    code = f"import sys; sys.path[:0] = {[str(ROOT), *[p for p in sys.path if p.endswith('-packages')]]!r}\n{code}"
    return subprocess.Popen(
        [sys.executable, "-P", "-c", code], preexec_fn=become, stdout=subprocess.PIPE, cwd="/", **options
    )


class UsersSandbox:
    """A sandbox in a process of the other user, which judges for this one."""

    backend = "bubblewrap"

    def __init__(self, server: "subprocess.Popen[bytes]"):
        self._server = server
        self.gaps = self._reply()

    def _reply(self) -> Any:
        reply = pickle.load(self._server.stdout)  # type: ignore[arg-type]
        if isinstance(reply, Exception):
            raise reply
        return reply

    def _ask(self, method: str, *arguments: Any, **options: Any) -> Any:
        self._server.stdin.write(pickle.dumps((method, arguments, options)))  # type: ignore[union-attr]
        self._server.stdin.flush()  # type: ignore[union-attr]
        return self._reply()

    def judge(self, job: CodeJob) -> Verdict:
        """As `Sandbox.judge`."""
        return self._ask("judge", job)

    def compare(self, job: CodeJob, reference: str, **options: Any) -> Timing:
        """As `Sandbox.compare`."""
        return self._ask("compare", job, reference, **options)


@contextlib.contextmanager
def sandbox() -> Iterator[UsersSandbox]:
    """A sandbox 'bubblewrap' of a user without rights."""
    environment = {**os.environ, "SECRET_TOKEN": "x"}
    server = start(_SERVER.format(uid=UID), stdin=subprocess.PIPE, env=environment)
    try:
        yield UsersSandbox(server)
    finally:
        server.communicate()
