"""Workers: how they start, are lost and replaced, and end."""

# ruff: noqa: E501 - programs in texts

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import corrgrpo_gym
from corrgrpo_gym.envs.sandbox import (
    CodeJob,
    SandboxError,
    VerdictLost,
    make_sandbox,
)

ROOT = Path(corrgrpo_gym.__file__).parents[1]
RIGHT = CodeJob("a task", "def f(n): return n + 1", "", "def check(c):\n    assert c(1) == 2", "f")
SLOW = CodeJob("slow", "def f(n):\n    while 1: pass", "", "def check(c):\n    c(1)", "f", cpu_seconds=30)
NODES = ["bwrap", "jail.zygote", "jail.reader", "judge"]


def processes(session_or_parent):
    """Ids of all processes of the workers below a process (zombies included), by their parents."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
    found, level = set(), {session_or_parent}
    while level:
        level = {pid for pid, parent in parents.items() if parent in level}
        found |= level
    return found


def gone(pids, seconds=20.0):
    """Wait until no process of ``pids`` is left, zombies of other parents aside."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        left = set()
        for pid in pids:
            try:
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if state not in "ZX":
                left.add(pid)
        if not left:
            return True
        time.sleep(0.05)
    return False


def worker(sandbox):
    (one,) = sandbox._pool.workers
    return one


def test_close_leaves_nothing():
    gc.collect()  # what other tests left
    before = processes(os.getpid())
    files = len(os.listdir("/proc/self/fd"))
    temporary = set(os.listdir("/tmp"))
    sandbox = make_sandbox(workers=2)
    with ThreadPoolExecutor(2) as pool:
        assert [v.status for v in pool.map(sandbox.judge, [RIGHT] * 6)] == ["passed"] * 6
    during = processes(os.getpid()) - before
    assert len(during) >= 5
    sandbox.close()
    sandbox.close()
    assert gone(during)
    assert processes(os.getpid()) <= before  # no zombies either
    assert len(os.listdir("/proc/self/fd")) == files
    assert not [name for name in set(os.listdir("/tmp")) - temporary if "sandbox" in name]
    with pytest.raises(SandboxError, match="closed"):
        sandbox.judge(RIGHT)


def test_a_sandbox_that_is_forgotten_is_closed():
    sandbox = make_sandbox(workers=1)
    pid = worker(sandbox)._process.pid
    del sandbox
    gc.collect()
    assert gone({pid})


def test_judging_from_many_threads():
    jobs = [
        CodeJob(
            f"task {i}",
            f"def f(n): return n + {i % 5}",
            "",
            f"def check(c):\n    assert c({i}) == {i} + {i % 5}",
            "f",
        )
        for i in range(60)
    ]
    wrong = [CodeJob("w", "def f(n): return 0", "", RIGHT.test, "f")] * 20
    with make_sandbox(workers=2) as sandbox, ThreadPoolExecutor(8) as pool:
        statuses = [v.status for v in pool.map(sandbox.judge, jobs + wrong)]
    assert statuses == ["passed"] * 60 + ["failed"] * 20


def test_workers_outlive_the_threads_that_needed_them_first():
    with make_sandbox(workers=2) as sandbox:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(sandbox.judge, [RIGHT] * 4))
        pids = {w._process.pid for w in sandbox._pool.workers}
        time.sleep(0.2)
        assert sandbox.judge(RIGHT).status == "passed"
        assert {w._process.pid for w in sandbox._pool.workers} == pids


def test_a_lost_worker_is_replaced_and_its_job_judged():
    with make_sandbox(workers=1) as sandbox:
        for victim in ("judge", "jail"):
            pid = worker(sandbox)._process.pid
            if victim == "jail":
                pid = min(processes(pid))
            os.kill(pid, signal.SIGKILL)
            assert sandbox.judge(RIGHT).status == "passed"
        assert len(sandbox._pool.workers) == 1


def test_a_worker_lost_during_a_job_is_retried_once_then_an_error():
    with make_sandbox(workers=1) as sandbox, ThreadPoolExecutor(1) as pool:
        for kills in (1, 2):
            job = SLOW if kills == 2 else CodeJob("slow", SLOW.answer, "", SLOW.test, "f", cpu_seconds=1.5)
            verdict = pool.submit(sandbox.judge, job)
            old = None
            for _ in range(kills):
                deadline = time.monotonic() + 30
                while time.monotonic() < deadline:
                    pids = {w._process.pid for w in list(sandbox._pool.workers)} - {old}
                    if pids and len(processes(min(pids))) >= 5:
                        break
                    time.sleep(0.02)
                old = min(pids)
                os.kill(old, signal.SIGKILL)
            if kills == 1:
                assert verdict.result(60).status == "timeout"
            else:
                with pytest.raises(VerdictLost, match=r"'slow'.*lost its worker 2 times.*unknown"):
                    verdict.result(60)
        assert sandbox.judge(RIGHT).status == "passed"


def test_closing_while_a_job_runs_ends_it_with_an_error():
    sandbox = make_sandbox(workers=1)
    with ThreadPoolExecutor(1) as pool:
        verdict = pool.submit(sandbox.judge, SLOW)
        time.sleep(0.3)
        sandbox.close()
        with pytest.raises(SandboxError, match="closed"):
            verdict.result(30)


@pytest.fixture
def ctrl_c():
    """Python's own handler: a shell starts what runs in the background with Ctrl-C ignored, as CI may."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_in_the_middle_leaves_the_sandbox_usable():
    with make_sandbox(workers=1) as sandbox:
        timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            sandbox.judge(SLOW)
        timer.join()
        assert sandbox.judge(RIGHT).status == "passed"


PARENT = """
import os, signal, sys, threading, time
sys.path.insert(0, {root!r})
from corrgrpo_gym.envs.sandbox import CodeJob, make_sandbox
sandbox = make_sandbox(workers=1)
job = CodeJob("slow", "def f(n):\\n    while 1: pass", "", "def check(c):\\n    c(1)", "f", cpu_seconds=60)
threading.Thread(target=sandbox.judge, args=(job,), daemon=True).start()
time.sleep(0.5)
print("ready", flush=True)
{then}
"""


@pytest.mark.parametrize(
    "then",
    [
        "time.sleep(60)",
        "os.kill(os.getpid(), signal.SIGKILL)",
        "os._exit(0)",
        "sys.exit(0)",
        "os.fork() or time.sleep(3); os._exit(0)",
    ],
)
def test_workers_end_with_their_parent_in_the_middle_of_a_job(then):
    code = PARENT.format(root=str(ROOT), then=then)
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout.readline() == "ready\n"
    pids = processes(parent.pid)
    assert len(pids) >= 5 or then != "time.sleep(60)"
    if then == "time.sleep(60)":
        os.kill(parent.pid, signal.SIGKILL)
    parent.wait(30)
    parent.stdout.close()
    assert gone(pids)


def test_an_idle_worker_ends_with_its_parent():
    code = PARENT.format(root=str(ROOT), then="time.sleep(60)").replace(
        "threading.Thread(target=sandbox.judge", "(lambda **k: threading.Thread())(target=0"
    )
    code = code.replace(", daemon=True).start()", ")").replace("args=(job,)", "args=0")
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout.readline() == "ready\n"
    pids = processes(parent.pid)
    assert len(pids) >= 3
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait(30)
    parent.stdout.close()
    assert gone(pids)


def test_a_forked_child_may_not_use_it():
    with make_sandbox(workers=1) as sandbox:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                sandbox.judge(RIGHT)
            except SandboxError as error:
                os.write(writer, str(error).encode())
            finally:
                os._exit(0)
        os.close(writer)
        os.waitpid(pid, 0)
        assert b"forked" in os.read(reader, 1000)
        os.close(reader)
        assert sandbox.judge(RIGHT).status == "passed"


def readers():
    """Ids of the processes below this one that read answers in jails."""
    found = []
    for pid in processes(os.getpid()):
        try:
            if b"jail.reader" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
        except OSError:
            continue
    return found


def test_a_reader_that_is_killed_from_outside_costs_no_right_answer_its_reward():
    """As the kernel does when memory runs out."""
    with make_sandbox(workers=1) as sandbox:
        assert sandbox.judge(RIGHT).status == "passed"
        killed = readers()
        assert killed
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        assert sandbox.judge(RIGHT).status == "passed"
        assert not set(readers()) & set(killed)


def test_keys_that_collide_end_neither_the_worker_nor_the_run():
    answer = """
class Int(int):
    def __hash__(self): return id(self)
def f(n): return {Int(k * (2**61 - 1)) for k in range(100_000)}
"""
    with make_sandbox(workers=1) as sandbox:
        before = processes(os.getpid())
        job = CodeJob("a task", answer, "", "def check(c):\n    assert c(1) == {1}", "f", wall_seconds=2)
        verdict = sandbox.judge(job)
        assert verdict.status in ("failed", "runtime_error"), verdict
        assert sandbox.judge(RIGHT).status == "passed"
        assert before <= processes(os.getpid())
