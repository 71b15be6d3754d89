"""A container engine of the tests' own, or the machine's where these tests have no rights to start one."""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

_SECONDS = 60.0
_MISSING = (
    "the tests of sandbox 'docker' need an engine: as root, install docker.io (scripts/setup.sh does, with the dev "
    "extras); as another user, have one running and its socket in reach"
)


@contextlib.contextmanager
def running() -> Iterator[Any]:
    """A client of an engine that DOCKER_HOST names meanwhile; without one, tests fail."""
    if os.geteuid() == 0 and shutil.which("dockerd"):
        with _own() as host:
            before = os.environ.get("DOCKER_HOST")
            os.environ["DOCKER_HOST"] = host
            try:
                with contextlib.closing(docker.from_env()) as client:
                    yield client
            finally:
                if before is None:
                    del os.environ["DOCKER_HOST"]
                else:
                    os.environ["DOCKER_HOST"] = before
        return
    try:
        client = docker.from_env()
    except docker.errors.DockerException as error:
        pytest.fail(f"{_MISSING} ({error})")
    with contextlib.closing(client):
        yield client


@contextlib.contextmanager
def _own() -> Iterator[str]:
    folder = Path(tempfile.mkdtemp(prefix="engine-"))
    host = f"unix://{folder}/socket"
    command = [
        *("dockerd", "--bridge=none", "--iptables=false", "--ip6tables=false"),
        *("--exec-opt", "native.cgroupdriver=cgroupfs", "--storage-driver", _storage(folder)),
        *("--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec", "--pidfile", f"{folder}/pid"),
        *("--host", host),
    ]
    with open(folder / "log", "w") as log:
        engine = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + _SECONDS
        while True:
            with contextlib.suppress(docker.errors.DockerException):
                with contextlib.closing(docker.DockerClient(base_url=host)) as client:
                    client.ping()
                break
            if engine.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the engine does not start:\n{(folder / 'log').read_text()[-3000:]}")
            time.sleep(0.1)
        yield host
    finally:
        engine.terminate()
        engine.wait(_SECONDS)
        shutil.rmtree(folder, ignore_errors=True)


def _storage(folder: Path) -> str:
    """overlay2, but for where the folder lies on an overlay itself (tests in a container)."""
    kinds = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True).stdout
    return "vfs" if "overlay" in kinds else "overlay2"
