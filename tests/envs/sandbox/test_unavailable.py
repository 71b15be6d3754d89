"""Where a sandbox cannot be had: the message says why and what to do."""

# ruff: noqa: E501 - programs in texts

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from corrgrpo_gym.envs.sandbox import CodeJob, SandboxError, SandboxUnavailable, make_sandbox
from corrgrpo_gym.envs.sandbox.backends import bubblewrap
from corrgrpo_gym.errors import GymError

from .other_user import ROOT


def test_an_unknown_back_end_suggests_the_nearest():
    with pytest.raises(GymError, match="Did you mean 'bubblewrap'"):
        make_sandbox("bubblewarp")


@pytest.mark.parametrize("workers", [0, -1])
def test_workers_must_be_positive(workers):
    with pytest.raises(GymError, match=f"workers is {workers}"):
        make_sandbox(workers=workers)


def test_missing_bubblewrap_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxUnavailable, match="apt-get install bubblewrap"):
        make_sandbox()


def test_a_bubblewrap_that_cannot_be_executed_is_refused(monkeypatch, tmp_path):
    (tmp_path / "bwrap").write_text("#!/no/such/interpreter\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxUnavailable, match="No such file"):
        make_sandbox()


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (
            "echo 'bwrap: No permissions to create new namespace' >&2; exit 1",
            "No permissions to create new namespace",
        ),
        ("exit 1", "without a word"),
        ("kill -9 $$", "without a word"),
    ],
)
def test_unusable_bubblewrap_is_refused_with_its_words(monkeypatch, tmp_path, script, words):
    fake = tmp_path / "bwrap"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(SandboxUnavailable, match=words):
        make_sandbox()


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("user/max_user_namespaces", "0", "user.max_user_namespaces"),
        ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor"),
        ("", "", "bwrap --unshare-all"),
    ],
)
def test_advice_names_the_setting_that_is_in_the_way(monkeypatch, setting, value, words):
    monkeypatch.setattr(
        bubblewrap, "_setting", lambda name: value if name == setting else "1" if "clone" in name else None
    )
    monkeypatch.setattr(os.path, "exists", lambda path: False)
    text = bubblewrap.Bubblewrap().advice("bwrap: it said so")
    assert words in text
    assert "it said so" in text


def test_a_machine_without_a_filter_is_refused():
    with pytest.raises(SandboxUnavailable, match="system-call filter"):
        bubblewrap.Bubblewrap().check({"seccomp": False, "pid": 1})


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="root gives up rights")
def test_root_that_may_not_mount_is_refused_with_the_reason_or_served():
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\nfrom corrgrpo_gym.envs.sandbox import make_sandbox\n"
    code += "try:\n    make_sandbox(workers=1).close()\nexcept Exception as e:\n    print(type(e).__name__, e)\nelse:\n    print('served')"
    rights = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]
    result = subprocess.run([*rights, sys.executable, "-c", code], capture_output=True, text=True)
    reached = all(p.stat().st_mode & 1 for p in Path(os.path.realpath(sys.executable)).parents)
    assert result.stdout.startswith("served" if reached else "SandboxUnavailable"), result
    assert reached or "Permission denied" in result.stdout


@pytest.mark.parametrize("backend", ["docker", "bubblewrap"])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cpu": 1}, "unknown option of sandbox '{}' 'cpu'. Did you mean 'cpus'"),
        ({"cpus": 0}, "sandbox '{}': cpus is 0; it must be a positive number"),
        ({"memory_bytes": "4g"}, "sandbox '{}': memory_bytes is '4g'; it must be a positive number"),
        ({"memory_bytes": 1 << 20}, "sandbox '{}': memory_bytes is 1048576; one worker needs at least"),
    ],
)
def test_options_are_checked(backend, options, words):
    with pytest.raises(GymError) as caught:
        make_sandbox(backend, **options)
    assert words.format(backend) in str(caught.value)


def test_a_back_end_without_options_says_so():
    with pytest.raises(GymError, match="sandbox 'subprocess' has no options; 'image' was given"):
        make_sandbox("subprocess", image="x")


def test_a_program_that_may_take_more_than_its_worker_is_a_mistake_of_the_caller():
    job = CodeJob("t", "def f(n): return 2", "", "def check(c):\n    assert c(1) == 2", "f")
    with make_sandbox(workers=1, memory_bytes=1 << 30) as sandbox:
        with pytest.raises(
            SandboxError, match="task 't': programs may take 1073741824 bytes.*give make_sandbox memory_bytes"
        ):
            sandbox.judge(job)
