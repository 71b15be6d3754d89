"""Containers: how they are confined, start, are lost and replaced, and end. What programs meet in them is in the
conformance tests, which are the same for all back ends."""

# ruff: noqa: E501 - programs in texts

import gc
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from corrgrpo_gym.envs.leetcode import LeetCodeEnv
from corrgrpo_gym.envs.sandbox import CodeJob, SandboxError, SandboxUnavailable, make_sandbox
from corrgrpo_gym.envs.sandbox.backends import docker as backend
from corrgrpo_gym.envs.sandbox.backends import image, owner

from .other_user import ROOT

RIGHT = CodeJob("a task", "def f(n): return n + 1", "", "def check(c):\n    assert c(1) == 2", "f")
MEMORY = 3 << 30
SLOW = CodeJob("slow", "def f(n):\n    while 1: pass", "", "def check(c):\n    c(1)", "f", cpu_seconds=30)


def containers(engine, label=f"{image.LABEL}=worker"):
    return engine.containers.list(all=True, filters={"label": label}, ignore_removed=True)


def own(engine):
    """Those of the fixture `one`, by its memory: the conformance tests' may be there as well."""
    return [c for c in containers(engine) if c.attrs["HostConfig"]["Memory"] == MEMORY]


def until(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


@pytest.fixture(scope="module")
def one(engine):
    with make_sandbox("docker", workers=1, memory_bytes=MEMORY, cpus=1.5) as sandbox:
        yield sandbox


def test_the_container_is_hardened(engine, one):
    (container,) = own(engine)
    host, config = container.attrs["HostConfig"], container.attrs["Config"]
    assert host["NetworkMode"] == "none"
    assert host["ReadonlyRootfs"] is True
    assert host["Memory"] == host["MemorySwap"] == MEMORY
    assert host["NanoCpus"] == 1_500_000_000
    assert 64 <= host["PidsLimit"] <= 128
    assert host["CapDrop"] == ["ALL"]
    assert not host["CapAdd"]
    assert host["Privileged"] is False
    assert host["IpcMode"] == "none"
    assert list(host["Tmpfs"]) == ["/tmp"]
    assert {"noexec", "nosuid", "nodev", "size=16m"} <= set(host["Tmpfs"]["/tmp"].split(","))
    assert [(m["Destination"], m["RW"]) for m in container.attrs["Mounts"]] == [("/channel", False)]
    assert "no-new-privileges:true" in host["SecurityOpt"]
    (profile,) = (o.removeprefix("seccomp=") for o in host["SecurityOpt"] if o.startswith("seccomp="))
    allowed = {n for r in json.loads(profile)["syscalls"] if r["action"] == "SCMP_ACT_ALLOW" for n in r["names"]}
    denied = (
        "io_uring_setup keyctl add_key request_key unshare setns clone3 mount ptrace bpf userfaultfd perf_event_open"
    )
    assert not allowed & set(denied.split())
    user, group = map(int, config["User"].split(":"))
    assert user == group >= 1_000_000_000


# Beyond what programs may do: as if one had got past its own list of system calls.
PROBE = """
import ctypes, errno, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    ctypes.set_errno(0)
    return errno.errorcode.get(ctypes.get_errno()) if libc.syscall(number, *args) < 0 else "done"
for name, number, *args in (
    ("unshare", 272, 0x10000000), ("setns", 308, 0, 0), ("mount", 165, 0, 0, 0, 0, 0), ("ptrace", 101, 0, 0, 0, 0),
    ("keyctl", 250, 0, 0), ("add_key", 248, 0, 0, 0, 0, 0), ("request_key", 249, 0, 0, 0, 0), ("bpf", 321, 0, 0, 0),
    ("io_uring_setup", 425, 1, 0), ("userfaultfd", 323, 0), ("perf_event_open", 298, 0, 0, -1, -1, 0), ("clone3", 435, 0, 0),
    ("clone", 56, 0x10000000 | 17, 0, 0, 0, 0), ("process_vm_readv", 310, 1, 0, 0, 0, 0, 0), ("chroot", 161, b"/"), ("memfd_create", 319, b"x", 0),
):
    print(name, call(number, *args))
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK, socket.AF_PACKET, 38):
    try:
        socket.socket(family, socket.SOCK_RAW if family == socket.AF_NETLINK else socket.SOCK_STREAM); print(family, "done")
    except OSError as error:
        print(int(family), errno.errorcode[error.errno])
for path in ("/x", "/harness/x", "/root/x", "/channel/x", "/proc/sys/kernel/hostname", "/sys/x"):
    try:
        open(path, "w").write("x"); print(path, "done")
    except OSError as error:
        print(path, "refused")
try:
    with open("/tmp/x", "w") as file:
        for _ in range(64): file.write("x" * 2**20)
    print("/tmp done")
except OSError as error:
    print("/tmp", errno.errorcode[error.errno])
print("mem", sum(os.access(f"/proc/{p}/mem", os.R_OK) for p in os.listdir("/proc") if p.isdigit() and int(p) != os.getpid()))
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of x86_64")
def test_the_containers_own_list_of_system_calls_holds(engine, one):
    (container,) = own(engine)
    python = container.attrs["Config"]["Entrypoint"][0]
    code, output = container.exec_run([python, "-I", "-c", PROBE])
    lines = dict(line.split(maxsplit=1) for line in output.decode().splitlines())
    assert code == 0, output
    assert lines.pop("/tmp") == "ENOSPC"
    assert lines.pop("mem") == "0"
    assert len(lines) == 27
    assert set(lines.values()) <= {"ENOSYS", "EPERM", "refused"}, lines


def test_close_leaves_nothing(engine):
    memory = MEMORY + 2**20

    def mine():
        """By their memory: other tests' containers come and go."""
        return {c.id for c in containers(engine) if c.attrs["HostConfig"]["Memory"] == memory}

    temporary = set(os.listdir("/tmp"))
    with make_sandbox("docker", workers=2, memory_bytes=memory) as sandbox:
        with ThreadPoolExecutor(2) as pool:
            assert [v.status for v in pool.map(sandbox.judge, [RIGHT] * 6)] == ["passed"] * 6
        assert len(mine()) == 2
        # Not even while it runs, so that a killed trainer leaves none.
        assert not [n for n in set(os.listdir("/tmp")) - temporary if n.startswith("corrgrpo-gym-sandbox")]
    assert not mine()
    with pytest.raises(SandboxError, match="closed"):
        sandbox.judge(RIGHT)


def test_close_leaves_no_descriptors_open(engine):
    gc.collect()  # connections to the engine are closed with their objects
    files = len(os.listdir("/proc/self/fd"))
    with make_sandbox("docker", workers=2) as sandbox, ThreadPoolExecutor(2) as pool:
        assert [v.status for v in pool.map(sandbox.judge, [RIGHT] * 6)] == ["passed"] * 6
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= files


def test_the_image_is_made_once(engine):
    names = {tag for i in engine.images.list() for tag in i.tags}
    with make_sandbox("docker", workers=1):
        assert {tag for i in engine.images.list() for tag in i.tags} == names


def test_a_killed_container_is_replaced_and_its_job_judged(engine, one):
    (container,) = own(engine)
    container.kill()
    assert one.judge(RIGHT).status == "passed"
    assert [c.id for c in own(engine)] != [container.id]


def test_a_container_that_is_killed_during_a_job_is_retried(engine, one):
    assert one.judge(RIGHT).status == "passed"
    (container,) = own(engine)
    with ThreadPoolExecutor(1) as pool:
        job = CodeJob("slow", SLOW.answer, "", SLOW.test, "f", cpu_seconds=1.0)
        verdict = pool.submit(one.judge, job)
        time.sleep(0.3)
        container.kill()
        assert verdict.result(60).status == "timeout"


def test_a_reader_that_is_killed_is_replaced_in_the_same_container(engine, one):
    assert one.judge(RIGHT).status == "passed"
    (container,) = own(engine)

    def readers():
        top = container.top(ps_args="-o pid")
        pids = {row[top["Titles"].index("PID")] for row in top["Processes"]}
        return {int(pid) for pid in pids if b"jail.reader" in Path(f"/proc/{pid}/cmdline").read_bytes()}

    (reader,) = before = readers()
    os.kill(reader, signal.SIGKILL)
    assert one.judge(RIGHT).status == "passed"
    assert [c.id for c in own(engine)] == [container.id]
    assert len(readers()) == 1
    assert readers() != before


def test_closing_while_a_job_runs_ends_it_with_an_error(engine):
    sandbox = make_sandbox("docker", workers=1)
    with ThreadPoolExecutor(1) as pool:
        verdict = pool.submit(sandbox.judge, SLOW)
        time.sleep(0.3)
        sandbox.close()
        with pytest.raises(SandboxError, match="closed"):
            verdict.result(30)


PARENT = """
import os, signal, sys, threading, time
sys.path.insert(0, {root!r})
from corrgrpo_gym.envs.sandbox import CodeJob, make_sandbox
sandbox = make_sandbox("docker", workers=1)
job = CodeJob("slow", "def f(n):\\n    while 1: pass", "", "def check(c):\\n    c(1)", "f", cpu_seconds=60)
if {busy}:
    threading.Thread(target=sandbox.judge, args=(job,), daemon=True).start()
    time.sleep(0.5)
print("ready", flush=True)
{then}
"""


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("then", ["os.kill(os.getpid(), signal.SIGKILL)", "sys.exit(0)"])
def test_containers_end_and_go_with_the_trainer(engine, then, busy):
    before = {c.id for c in containers(engine)}
    code = PARENT.format(root=str(ROOT), then=then, busy=busy)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.stdout == "ready\n", result.stderr
    assert until(lambda: {c.id for c in containers(engine)} <= before)


def test_a_container_that_was_never_started_is_removed_by_the_next_start(engine, one):
    assert one.judge(RIGHT).status == "passed"
    (container,) = own(engine)
    dead = ".".join([*owner.mine().split(".")[:3], "1"])
    left = engine.containers.create(container.image.id, ["x"], labels={image.LABEL: "worker", backend._OWNER: dead})
    with make_sandbox("docker", workers=1):
        assert left.id not in {c.id for c in containers(engine)}
        assert container.id in {c.id for c in containers(engine)}


def test_containers_of_owners_that_live_stay(engine, one):
    """And those whose owner cannot be told."""
    assert one.judge(RIGHT).status == "passed"
    (container,) = own(engine)
    other = engine.containers.create(container.image.id, labels={image.LABEL: "worker", backend._OWNER: "who knows"})
    try:
        with make_sandbox("docker", workers=1):
            assert {container.id, other.id} <= {c.id for c in containers(engine)}
    finally:
        other.remove(force=True)


def test_owners_are_told_from_later_processes_of_the_same_id():
    name = owner.mine()
    boot, namespace, pid, start = name.split(".")
    assert not owner.is_gone(name)
    assert owner.is_gone(f"{boot}.{namespace}.{pid}.{int(start) - 1}")
    assert owner.is_gone(f"{'0' * len(boot)}.{namespace}.{pid}.{start}")
    assert not owner.is_gone(f"{boot}.1.{pid}.1")  # in another namespace, which cannot be seen from here


def test_a_users_own_image(engine, one):
    """One with a python3 on its path and a package that programs may then import."""
    (container,) = own(engine)
    python = container.attrs["Config"]["Entrypoint"][0]
    base = engine.containers.create(container.image.id, ["none"])
    try:
        base.put_archive("/", _archive("opt/own/numbers_of_mine.py", b"ANSWER = 42\n"))
        path = f"{os.path.dirname(python)}:/usr/bin"
        name = os.path.basename(python)
        # The path has no python3 in every build of Python, so a link gives it the name.
        base.put_archive("/", _archive("usr/bin/python3", link=os.path.join(os.path.dirname(python), name)))
        base.commit("own", "image", changes=[f"ENV PATH={path}"])
    finally:
        base.remove(force=True)
    code = "import sys\nsys.path.append('/opt/own')\ndef f(n):\n    import numbers_of_mine\n    return numbers_of_mine.ANSWER"
    job = CodeJob("t", code, "", "def check(c):\n    assert c(1) == 42", "f")
    with make_sandbox("docker", workers=1, image="own:image") as sandbox:
        assert sandbox.judge(job).status == "passed"


def _archive(name, data=b"", link=None):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = len(data), 0o755
        if link:
            entry.type, entry.linkname = tarfile.SYMTYPE, link
        tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def test_an_environment_takes_it_by_name(engine):
    with LeetCodeEnv(data="embedded", sandbox="docker", workers=1) as env:
        env.reset(seed=0, options={"task": 0})
        reward = env.step(env.reference_answers(0)[0])[1]
        assert env.sandbox.backend == "docker"
        assert reward[0] > 0


# Where it cannot be had.


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"image": "no-such-image:here"}, "docker pull"),
        ({"runtime": "no-such-runtime"}, "no-such-runtime"),
    ],
)
def test_what_the_engine_refuses_is_said(engine, options, words):
    before = {c.id for c in containers(engine)}
    with pytest.raises(SandboxUnavailable, match=words):
        make_sandbox("docker", workers=1, **options)
    assert {c.id for c in containers(engine)} == before


def test_an_image_without_python_says_so(engine):
    engine.api.import_image_from_data(_archive("x", b"x"), "empty", "image")
    with pytest.raises(SandboxUnavailable, match="python3"):
        make_sandbox("docker", workers=1, image="empty:image")
    assert not [c for c in containers(engine) if c.status == "created"]


def test_a_missing_engine_says_how_to_get_one(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    with pytest.raises(SandboxUnavailable, match="apt-get install docker.io"):
        make_sandbox("docker", workers=1)


@pytest.mark.parametrize("host", ["tcp://10.1.2.3:2375", "ssh://me@there", "https://there:2376"])
def test_an_engine_elsewhere_is_refused_at_once(monkeypatch, host):
    monkeypatch.setenv("DOCKER_HOST", host)
    with pytest.raises(SandboxUnavailable, match="an engine on another machine.*Unset DOCKER_HOST"):
        make_sandbox("docker", workers=1)


def test_an_engine_at_an_address_of_this_machine_is_asked(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    with pytest.raises(SandboxUnavailable, match="Connection refused"):
        make_sandbox("docker", workers=1)


def test_folders_of_killed_owners_are_swept(engine, monkeypatch, tmp_path):
    monkeypatch.setattr(backend.tempfile, "tempdir", str(tmp_path))
    boot, namespace, pid, start = owner.mine().split(".")
    dead = f"{boot}.{namespace}.{pid}.{int(start) - 1}"
    gone, mine, other = (tmp_path / f"{backend._FOLDER}{name}-abc" for name in (dead, owner.mine(), "who knows"))
    for folder in (gone, mine, other):
        (folder / "channel").mkdir(parents=True)
    with make_sandbox("docker", workers=1):
        assert {folder.exists() for folder in (mine, other)} == {True} and not gone.exists()


def test_a_missing_package_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(SandboxUnavailable, match=r"pip install 'corrgrpo-gym\[docker\]'"):
        make_sandbox("docker", workers=1)


def test_an_engine_that_ignores_the_profile_is_refused(engine, monkeypatch):
    monkeypatch.setattr(backend, "profile", lambda: "unconfined")
    with pytest.raises(SandboxUnavailable, match="does not confine the container: Seccomp is '0'"):
        make_sandbox("docker", workers=1)
    assert not [c for c in containers(engine) if c.status == "created"]


def test_a_container_that_cannot_reach_the_judge_is_refused_with_its_words(engine, monkeypatch):
    """As where the engine is on another machine, or in a virtual one."""
    monkeypatch.setattr(backend, "_CONNECT_SECONDS", 20.0)
    monkeypatch.setattr(backend, "_listen", lambda folder, listen=backend._listen: _elsewhere(listen, folder))
    with pytest.raises(SandboxUnavailable, match="cannot be reached from the container"):
        make_sandbox("docker", workers=1)


def _elsewhere(listen, folder):
    made = listen(folder)
    os.unlink(f"{folder}/channel/socket")
    return made


def test_processes_without_ids_or_clocks_here_are_refused(engine, monkeypatch):
    """As where a kernel of its own is between (gVisor), or this process is in another container."""
    command = backend.in_jail
    monkeypatch.setattr(backend, "in_jail", lambda name, *rest: ["/none"] if "reader" in name else command(name, *rest))
    with pytest.raises(SandboxUnavailable, match="cannot be judged from outside"):
        make_sandbox("docker", workers=1)
