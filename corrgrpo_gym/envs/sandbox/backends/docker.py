"""Back end ``docker``: one hardened container for each worker, started through an engine's API.

The judge stays outside. A keeper, the container's first process, connects to its socket, over which the judge
passes the sockets of the jailed processes; the kernel vouches for their process ids, by which their clocks
are read.
"""

import contextlib
import importlib
import json
import os
import secrets
import selectors
import shutil
import socket
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .. import runtime, wire
from ..jail.keeper import SOCKET, TOKEN
from ..job import SandboxUnavailable
from . import image as images
from . import owner
from .base import JAIL_BYTES, PIDS, Backend, Place, fits, positive
from .commands import environment, in_jail
from .gaps import OWN, SHARED, Gap
from .profile import profile

_OWNER = f"{images.LABEL}.owner"
_NAME = "sandbox 'docker'"
_NOBODY = 65534
_FOLDER = "corrgrpo-gym-sandbox-"
_HERE = ("localhost", "127.0.0.1", "::1")
_CONNECT_SECONDS = 60.0
_API_SECONDS = 60
_HELLO_BYTES = 4096


class Docker(Backend):
    """Containers.

    Args:
        image: one with a ``python3`` of 3.11 or newer, whose modules programs can then import; default: an image of
            this interpreter's own files, made when it is first needed.
        runtime: the engine's OCI runtime, such as ``crun``; default: the engine's.
        memory_bytes: limit on each worker's container.
        cpus: how many CPUs each worker's container may use.
    """

    name = "docker"

    def __init__(
        self, image: str | None = None, runtime: str | None = None, memory_bytes: int = JAIL_BYTES, cpus: float = 1.0
    ) -> None:
        positive(self.name, memory_bytes=memory_bytes, cpus=cpus)
        fits(self.name, memory_bytes)
        self._given, self._runtime, self._memory_bytes, self._cpus = image, runtime, int(memory_bytes), cpus
        self._lock = threading.Lock()
        self._client: Any = None
        self._image = ""
        self._own_users = True

    @property
    def memory_bytes(self) -> int:
        """Limit on the memory of one worker's container."""
        return self._memory_bytes

    def place(self, uid: int) -> Place:
        """Start a container and wait until its keeper has connected.

        Raises:
            SandboxUnavailable: there is no engine, or its containers do not confine as they should.
        """
        try:
            with self._lock:
                if self._client is None:
                    self._open()
            return self._start(uid if self._own_users else _NOBODY)
        except SandboxUnavailable:
            raise
        except Exception as error:  # the SDK's, those of its transport, the system's
            raise SandboxUnavailable(_explain(error)) from None

    def _open(self) -> None:
        try:
            docker = importlib.import_module("docker")
        except ImportError:
            raise SandboxUnavailable(
                f"{_NAME}: the package docker is not installed: pip install 'corrgrpo-gym[docker]'"
            ) from None
        _check_here(os.environ.get("DOCKER_HOST", ""))
        client = docker.from_env(timeout=_API_SECONDS)
        try:
            options = client.info()["SecurityOptions"] or []
            if not any("seccomp" in option for option in options):
                raise SandboxUnavailable(f"{_NAME}: this engine has no seccomp; its kernel needs CONFIG_SECCOMP_FILTER")
            # Engines that map users know few of them.
            self._own_users = not any("rootless" in option or "userns" in option for option in options)
            _sweep(client)
            _sweep_folders()
            self._image = images.ensure(client, self._given)
        except BaseException:
            client.close()
            raise
        self._client = client

    def _start(self, uid: int) -> Place:
        folder = tempfile.mkdtemp(prefix=f"{_FOLDER}{owner.mine()}-")
        token = secrets.token_hex(16)
        container = None
        try:
            with _listen(folder) as listener:
                container = self._create(uid, f"{folder}/channel", token)
                # Taken before the start, as the container is gone with its end.
                output = container.attach_socket(params={"stdout": 1, "stderr": 1, "stream": 1})
                with contextlib.closing(output):
                    container.start()
                    stream = _meet(listener, output, token)
        except BaseException:
            _remove(container)
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        python = "{python}"
        spec = {
            "keeper": stream.fileno(),
            "zygote": in_jail("jail.zygote", f"{{fd}},{int(self._own_users)}", python),
            "reader": in_jail("jail.reader", "{fd}", python),
            "env": environment(libraries=self._given is None),
        }
        return Place(spec, (stream.detach(),), lambda: _remove(container))

    def _create(self, uid: int, folder: str, token: str) -> Any:
        python = runtime.interpreter() if self._given is None else "python3"
        types = importlib.import_module("docker.types")
        libraries = environment(libraries=self._given is None)
        return self._masked(
            self._image,
            entrypoint=in_jail("jail.keeper", "0", python),
            command=[],
            environment={**libraries, TOKEN: token},
            working_dir="/",
            user=f"{uid}:{uid}",
            hostname="sandbox",
            auto_remove=True,
            labels={images.LABEL: "worker", _OWNER: owner.mine()},
            network_mode="none",
            ipc_mode="none",
            read_only=True,
            tmpfs={"/tmp": "rw,noexec,nosuid,nodev,size=16m,mode=1777"},
            mounts=[types.Mount("/channel", folder, type="bind", read_only=True)],
            mem_limit=self._memory_bytes,
            memswap_limit=self._memory_bytes,
            nano_cpus=int(self._cpus * 1e9),
            pids_limit=PIDS,
            ulimits=[types.Ulimit(name="core", soft=0, hard=0), types.Ulimit(name="nofile", soft=256, hard=256)],
            cap_drop=["ALL"],
            security_opt=["no-new-privileges:true", f"seccomp={profile()}"],
            log_config=types.LogConfig(type="none"),
            runtime=self._runtime,
        )

    def _masked(self, image: str, **options: Any) -> Any:
        """Create a container that does not show the machine's figures; the SDK has no option for that."""
        config = importlib.import_module("docker.models.containers")._create_container_args(
            {"image": image, "version": self._client.api._version, **options}
        )
        config["host_config"]["MaskedPaths"] = [*_figures(), "/sys", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf"]
        return self._client.containers.get(self._client.api.create_container(**config)["Id"])

    def check(self, greeting: dict[str, Any]) -> None:
        """Refuse containers whose programs have no system-call filter."""
        if not greeting["seccomp"]:
            raise SandboxUnavailable(f"{_NAME}: no system-call filter for this machine; x86_64 and aarch64 have one")

    def gaps(self) -> tuple[Gap, ...]:
        """What containers show and share."""
        return OWN, SHARED

    def advice(self, complaint: str) -> str:
        """Say what the container's parts need."""
        return (
            f"{_NAME}: the container starts, but its programs cannot be judged from outside: {complaint}\n"
            "- The judge passes sockets into the container and reads its processes' CPU clocks, so both need one "
            "kernel and this process needs the engine's process namespace: no virtual machine or gVisor in between, "
            "and not from inside another container without --pid=host"
        )

    def close(self) -> None:
        """Close the connection to the engine."""
        with self._lock:
            if self._client is not None:
                self._client.close()


def _figures() -> list[str]:
    """What is in /proc besides processes."""
    own = ("self", "thread-self")
    return [f"/proc/{name}" for name in os.listdir("/proc") if not name.isdigit() and name not in own]


def _listen(folder: str) -> socket.socket:
    """Listen in a folder that the container sees. Others on this machine cannot reach what is around it."""
    inner = f"{folder}/channel"
    os.mkdir(inner)
    os.chmod(inner, 0o711)
    listener = socket.socket(socket.AF_UNIX)
    fd = os.open(inner, os.O_PATH)
    try:
        path = f"/proc/self/fd/{fd}/{Path(SOCKET).name}"  # a long name would not fit an address
        listener.bind(path)
        os.chmod(path, 0o666)
    finally:
        os.close(fd)
    listener.listen(1)
    return listener


def _said(data: bytes) -> str:
    """What a container wrote: its stream is in frames, each of 8 bytes and a text."""
    text = b""
    while len(data) > 8:
        size = int.from_bytes(data[4:8], "big")
        text, data = text + data[8 : 8 + size], data[8 + size :]
    return text.decode("utf-8", "replace").strip()[-2000:]


def _meet(listener: socket.socket, output: Any, token: str) -> socket.socket:
    """Wait for the keeper, and see how it is confined.

    Raises:
        SandboxUnavailable: it does not come, or is not confined.
    """
    said = b""
    deadline = time.monotonic() + _CONNECT_SECONDS
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(output, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select(max(deadline - time.monotonic(), 0))}
            if listener in ready:
                break
            part = os.read(output.fileno(), 4096) if ready else b""
            said += part
            if not part:
                reason = _said(said) if ready else f"it hangs: {_said(said)}"
                raise SandboxUnavailable(
                    f"{_NAME}: the container does not connect: {reason}\n"
                    "- The engine must be on this machine and share its kernel (no virtual machine, no gVisor); with "
                    "an image of your own, that needs a python3 of 3.11 or newer"
                )
    stream, _ = listener.accept()
    try:
        stream.settimeout(_CONNECT_SECONDS)
        size = wire.frame_length(_exactly(stream, 4))
        hello = json.loads(_exactly(stream, min(size, _HELLO_BYTES)))
        if not secrets.compare_digest(str(hello.get("token")), token):
            raise SandboxUnavailable(f"{_NAME}: another process connected in the container's place")
        wanted = {"Seccomp": "2", "NoNewPrivs": "1", "CapEff": "0" * 16, "CapBnd": "0" * 16}
        for field, value in wanted.items():
            if hello.get(field) != value:
                raise SandboxUnavailable(
                    f"{_NAME}: the engine does not confine the container: {field} is {hello.get(field)!r} in it, not "
                    f"{value!r}. Use an engine and runtime that honour seccomp profiles, cap_drop and no-new-privileges"
                )
        stream.settimeout(None)
    except BaseException:
        stream.close()
        raise
    return stream


def _exactly(stream: socket.socket, n: int) -> bytes:
    data = b""
    while len(data) < n:
        part = stream.recv(n - len(data))
        if not part:
            raise SandboxUnavailable(f"{_NAME}: the container ended as it started")
        data += part
    return data


def _remove(container: Any) -> None:
    if container is not None:
        with contextlib.suppress(Exception):  # it may be gone, and so may the engine
            container.remove(force=True, v=True)


def _sweep(client: Any) -> None:
    """Remove containers whose owners are gone."""
    for container in client.containers.list(all=True, filters={"label": _OWNER}, ignore_removed=True):
        try:
            gone = owner.is_gone(container.labels[_OWNER])
        except ValueError:
            continue
        if gone:
            _remove(container)


def _sweep_folders() -> None:
    """Remove sockets' folders whose owners were killed while a container started."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*"):
        try:
            mine = folder.lstat().st_uid == os.geteuid()
            gone = mine and owner.is_gone(folder.name.removeprefix(_FOLDER).rpartition("-")[0])
        except (OSError, ValueError):
            continue
        if gone:
            shutil.rmtree(folder, ignore_errors=True)


def _check_here(host: str) -> None:
    """See that the engine's address is one of this machine.

    Raises:
        SandboxUnavailable: it is another's, whose containers could not reach the judge.
    """
    address = urlsplit(host)
    if address.scheme in ("", "unix") or (address.scheme in ("tcp", "http", "https") and address.hostname in _HERE):
        return
    raise SandboxUnavailable(
        f"{_NAME}: DOCKER_HOST is {host!r}, an engine on another machine. Containers must share this machine's kernel: "
        "the judge passes sockets into them and reads their processes' CPU clocks. Unset DOCKER_HOST for the engine "
        "here (unix:///var/run/docker.sock), or run corrgrpo-gym on that machine"
    )


def _explain(error: Exception) -> str:
    text = " ".join(str(error).split())[:600]
    if "Permission denied" in text or "PermissionError" in text:
        hint = "add your user to the group docker (whose members can do what root can), or use a rootless engine"
    elif type(error).__name__ == "ImageNotFound":
        hint = "pull the image first: docker pull IMAGE"
    elif type(error).__module__.startswith("docker") and type(error).__name__ != "DockerException":
        hint = "look at the engine's log (journalctl -u docker)"
    else:
        hint = (
            "install and start an engine (apt-get install docker.io; systemctl start docker), or name a running one in "
            "DOCKER_HOST"
        )
    return f"{_NAME}: the engine does not serve: {text}\n- {hint}"
