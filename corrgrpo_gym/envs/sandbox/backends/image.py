"""The image that containers run: this interpreter's own files, or a user's image, with the harness in it."""

import hashlib
import io
import os
import stat
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

from .. import runtime
from .commands import HARNESS, harness

LABEL = "corrgrpo-gym.sandbox"
_REPOSITORY = "corrgrpo-gym-sandbox"
# Of the standard library's folder: what no answer needs.
_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idlelib", "ensurepip", "turtledemo", "lib2to3"}
_building = threading.Lock()  # one at a time, so that two pools of a process do not build the same

Files = list[tuple[str, str]]


def ensure(client: Any, given: str | None) -> str:
    """Return the id of the image to run, made where there is none yet.

    Args:
        client: the engine's.
        given: a user's image, with a ``python3`` of 3.11 or newer; None for this interpreter's files.
    """
    with _building:
        base = str(client.images.get(given).id) if given is not None else _interpreter(client)
        files = list(_walk(harness()))
        name = f"{_REPOSITORY}:{_digest(files, base)}"
        return _existing(client, name) or _with_harness(client, base, files, name)


def _existing(client: Any, name: str) -> str | None:
    found = client.images.list(name=name)
    return str(found[0].id) if found else None


def _interpreter(client: Any) -> str:
    single = [(os.path.realpath(path), path) for path in runtime.files()[0]]
    files = list(_walk(single))
    name = f"{_REPOSITORY}:python-{_digest(files)}"
    if found := _existing(client, name):
        return found
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        _pack(files, file)
        file.flush()
        repository, tag = name.split(":")
        client.api.import_image_from_file(file.name, repository, tag, changes=[f"LABEL {LABEL}=image"])
    return str(client.images.get(name).id)


def _with_harness(client: Any, base: str, files: Files, name: str) -> str:
    container = client.containers.create(base, ["none"], network_disabled=True, labels={LABEL: "image"})
    try:
        with tempfile.TemporaryFile() as file:
            _pack(files, file)
            file.seek(0)
            container.put_archive("/", file)
        repository, tag = name.split(":")
        return str(container.commit(repository, tag, changes=[f"LABEL {LABEL}=image"]).id)
    finally:
        container.remove(force=True)


def _walk(pairs: Files) -> Iterator[tuple[str, str]]:
    """Every file of files and folders, with its place."""
    for source, target in pairs:
        if not os.path.isdir(source):
            yield source, target
            continue
        for folder, folders, names in os.walk(source, followlinks=False):
            folders[:] = sorted(f for f in folders if f not in _LEFT_OUT and not f.startswith("config-"))
            for name in sorted(names):
                path = os.path.join(folder, name)
                if os.path.isfile(path) and not name.endswith((".a", ".opt-1.pyc", ".opt-2.pyc")):
                    yield path, os.path.join(target, os.path.relpath(path, source))


def _digest(files: Files, *more: str) -> str:
    digest = hashlib.sha256(" ".join((HARNESS, *more)).encode())
    for source, target in files:
        digest.update(f"\0{target}\0{_mode(source)}\0".encode())
        with open(source, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:24]


def _mode(path: str) -> int:
    """Everyone may read; who made the file on this machine does not matter."""
    return 0o755 if os.stat(path).st_mode & stat.S_IXUSR else 0o644


def _pack(files: Files, out: Any) -> None:
    made: set[str] = set()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for source, target in files:
            parts = target.strip("/").split("/")
            for depth in range(1, len(parts)):
                folder = "/".join(parts[:depth])
                if folder not in made:
                    made.add(folder)
                    entry = tarfile.TarInfo(folder)
                    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                    tar.addfile(entry)
            with open(source, "rb") as file:
                data = file.read()
            entry = tarfile.TarInfo("/".join(parts))
            entry.size, entry.mode = len(data), _mode(source)
            entry.mtime = int(os.stat(source).st_mtime)  # compiled modules name their source's
            tar.addfile(entry, io.BytesIO(data))
