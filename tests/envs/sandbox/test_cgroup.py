"""Control groups of jails: made where they can be, with the limits, and gone afterwards."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from corrgrpo_gym.envs.sandbox import CodeJob, SandboxUnavailable, make_sandbox
from corrgrpo_gym.envs.sandbox.backends import cgroup, owner

RIGHT = CodeJob("a task", "def f(n): return n + 1", "", "def check(c):\n    assert c(1) == 2", "f")
LIMITS = cgroup.Limits(memory_bytes=3 << 30, pids=70, cpus=1.5)
root = pytest.mark.skipif(os.geteuid() != 0, reason="another user's groups may not be delegated")


OTHERS = set()  # of sandboxes that tests before have open


def groups():
    """Every group of this process's that a test here has made."""
    mark = f"{cgroup._PREFIX}{owner.mine()}:"
    found = [f for h in cgroup.hierarchies() for f in h.folder.iterdir() if f.name.startswith(mark)]
    return [f for f in found if f not in OTHERS]


@pytest.fixture(autouse=True)
def others():
    OTHERS.clear()
    OTHERS.update(groups())


def setting(name):
    return [(f / name).read_text().strip() for f in groups() if (f / name).exists()]


@root
def test_a_jail_is_in_groups_with_limits_that_go_with_it():
    with make_sandbox("bubblewrap", workers=1, memory_bytes=3 << 30, cpus=1.5) as sandbox:
        assert "group" not in {gap.attack for gap in sandbox.gaps}
        assert sandbox.judge(RIGHT).status == "passed"
        inside = {pid for folder in groups() for pid in (folder / "cgroup.procs").read_text().split()}
        commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in inside]
        assert any(b"jail.zygote" in c for c in commands)
        assert any(b"jail.reader" in c for c in commands)
        assert str(os.getpid()) not in inside
        assert {*setting("memory.limit_in_bytes"), *setting("memory.max")} == {str(3 << 30)}
        assert setting("pids.max") == ["80"]
        assert {*setting("cpu.cfs_quota_us"), *setting("cpu.max")} & {"150000", "150000 100000"}
    assert groups() == []


@root
def test_a_lost_workers_groups_go_and_the_next_ones_are_new():
    with make_sandbox("bubblewrap", workers=1) as sandbox:
        before = groups()
        (worker,) = sandbox._pool.workers
        worker._process.kill()
        assert sandbox.judge(RIGHT).status == "passed"
        assert len(groups()) == len(before)
        assert not set(groups()) & set(before)
    assert groups() == []


@root
def test_what_a_killed_owner_left_is_swept_and_ended():
    where = cgroup.hierarchies()
    pid = os.fork()
    if pid == 0:
        try:
            group = cgroup.Group(where, LIMITS)
            sleeper = subprocess.Popen(["sleep", "600"])
            for entrance in group.entrances:
                Path(entrance).write_text(str(sleeper.pid))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    left = [f for h in where for f in h.folder.glob(f"{cgroup._PREFIX}*.{pid}.*")]
    assert len(left) == len(where)
    (sleeper,) = {p for f in left for p in (f / "cgroup.procs").read_text().split()}
    with make_sandbox("bubblewrap", workers=1):
        pass
    assert not any(f.exists() for f in left)
    deadline = time.monotonic() + 10
    while (state := _state(sleeper)) not in (None, "Z") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert state in (None, "Z")


def _state(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


@root
def test_a_group_of_this_process_is_not_swept():
    group = cgroup.Group(where := cgroup.hierarchies(), LIMITS)
    try:
        cgroup.sweep(where)
        assert groups()
    finally:
        group.remove()
    assert groups() == []


@pytest.fixture
def machine(tmp_path):
    """Write /proc/self of a made-up machine with groups below ``tmp_path``."""

    def write(groups, *mounts):
        (tmp_path / "cgroup").write_text("\n".join(groups))
        lines = [f"30 23 0:28 {at} {tmp_path}/{to} rw - {kind} {kind} rw,{options}" for at, to, kind, options in mounts]
        (tmp_path / "mountinfo").write_text("\n".join(["22 1 8:1 / / rw - ext4 /dev/sda rw", *lines]))
        return tmp_path

    return write


def test_version_1_has_a_hierarchy_for_each_controller(machine):
    proc = machine(
        ["3:memory:/a/b", "2:cpu,cpuacct:/a", "1:pids:/", "0::/x"],
        ("/", "memory", "cgroup", "memory"), ("/a", "cpu", "cgroup", "cpu,cpuacct"), ("/", "pids", "cgroup", "pids"),
    )  # fmt: skip
    assert [(h.folder.relative_to(proc), h.controllers, h.version) for h in cgroup.hierarchies(proc)] == [
        (Path("memory/a/b"), ("memory",), 1),
        (Path("cpu"), ("cpu",), 1),
        (Path("pids"), ("pids",), 1),
    ]


def test_in_version_2_the_group_is_made_beside_this_processs_with_the_controllers_handed_down(machine):
    proc = machine(["0::/user/app/me"], ("/", "all", "cgroup2", "nsdelegate"))
    (proc / "all/user/app/me").mkdir(parents=True)
    (proc / "all/user/app/me/cgroup.type").write_text("domain\n")
    (proc / "all/user/app/cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (proc / "all/user/app/cgroup.subtree_control").write_text("memory\n")
    (where,) = cgroup.hierarchies(proc)
    assert where == cgroup.Hierarchy(proc / "all/user/app", ("memory", "pids", "cpu"), 2)
    group = cgroup.Group([where], LIMITS)
    assert (where.folder / "cgroup.subtree_control").read_text() == "+pids +cpu"
    (folder,) = (f for f in where.folder.iterdir() if f.name.startswith(cgroup._PREFIX))
    assert {f.name: f.read_text() for f in folder.iterdir()} == {
        "memory.max": str(3 << 30),
        "pids.max": "70",
        "cpu.max": "150000 100000",
    }
    assert group.entrances == [str(folder / "cgroup.procs")]


@pytest.mark.parametrize(
    ("groups", "mounts"),
    [
        ([], []),
        (["0::/"], [("/", "all", "cgroup2", "")]),  # a container with groups of its own: nothing is beside it
        (["0::/other"], [("/mine", "all", "cgroup2", "")]),
        (["1:memory:/"], [("/", "memory", "cgroup", "memory")]),
    ],
)
def test_without_a_place_for_every_controller_there_are_none(machine, groups, mounts):
    proc = machine(groups, *mounts)
    (proc / "all").mkdir()
    (proc / "all/cgroup.type").write_text("domain\n")
    with pytest.raises(cgroup.Unusable, match="no cgroup with .*pids.* is shown here"):
        cgroup.hierarchies(proc)


def test_groups_that_may_not_be_made_are_a_declared_gap(monkeypatch, tmp_path):
    monkeypatch.setattr(cgroup, "hierarchies", lambda: [cgroup.Hierarchy(tmp_path / "none", ("memory",), 1)])
    with make_sandbox("bubblewrap", workers=1) as sandbox:
        assert sandbox.judge(RIGHT).status == "passed"
        (gap,) = (gap for gap in sandbox.gaps if gap.attack == "group")
    assert "No such file" in gap.what


def test_groups_that_nothing_may_join_are_a_declared_gap(monkeypatch, tmp_path):
    monkeypatch.setattr(cgroup, "hierarchies", lambda: [cgroup.Hierarchy(tmp_path, ("memory",), 1)])
    monkeypatch.setattr(cgroup, "_CLEAR_SECONDS", 0.0)
    make = cgroup.Group.__init__

    def shut(self, *args):
        make(self, *args)
        for entrance in self.entrances:
            os.mkdir(entrance)

    monkeypatch.setattr(cgroup.Group, "__init__", shut)
    with make_sandbox("bubblewrap", workers=1) as sandbox:
        (gap,) = (gap for gap in sandbox.gaps if gap.attack == "group")
    assert "cannot join" in gap.what


@root
def test_groups_that_went_away_are_an_error_and_no_silent_downgrade(monkeypatch):
    with make_sandbox("bubblewrap", workers=1) as sandbox:
        gone = [cgroup.Hierarchy(Path("/nowhere"), ("memory",), 1)]
        monkeypatch.setattr(sandbox._pool.backend, "_hierarchies", gone)
        (worker,) = sandbox._pool.workers
        worker._process.kill()
        with pytest.raises(SandboxUnavailable, match="cgroups could be made before, but not now"):
            sandbox.judge(RIGHT)
