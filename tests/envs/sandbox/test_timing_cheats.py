"""Cheats against the stopwatch: each must look no faster than the honest program that it imitates.

The honest program works for about 10 ms in three calls. A cheat that saves its work would take under a tenth of that,
so the line is drawn at half: far from both on any machine.
"""

# ruff: noqa: E501 - programs in texts

import re

import pytest

from corrgrpo_gym.envs.sandbox import CodeJob

EVERYWHERE = True  # see conftest
WORK = """
def work(n):
    total = 0
    for i in range(60_000):
        total = (total + i * n) % 9973
    return total
"""
HONEST = WORK + "def f(n): return work(n)\n"
VALUES = {n: sum(i * n for i in range(60_000)) % 9973 for n in (3, 5, 8)}
TEST = "def check(candidate):\n" + "".join(f"    assert candidate({n}) == {v}\n" for n, v in VALUES.items())
# `old` is what an earlier process may have left; `keep` leaves it.
CACHE = """
def f(n):
    try:
        known = old(n)
        if known is not None: return int(known)
    except Exception: pass
    value = work(n)
    try: keep(n, value)
    except Exception: pass
    return value
"""

# Keep results for the next repetition.
KEPT = {
    "in its module": "known = {}\nold = known.get\nkeep = known.__setitem__",
    "on sys": "import sys\nsys.known = getattr(sys, 'known', {})\nold = sys.known.get\nkeep = sys.known.__setitem__",
    "on a module of the harness": """
import sys
module = next((m for n, m in sorted(sys.modules.items()) if n.endswith('.wire')), sys)
module.known = getattr(module, 'known', {})
old, keep = module.known.get, module.known.__setitem__""",
    "on builtins": "import builtins\nbuiltins.known = getattr(builtins, 'known', {})\nold = builtins.known.get\nkeep = builtins.known.__setitem__",
    "in the environment": "import os\nold = lambda n: os.environ.get(f'known{n}')\nkeep = lambda n, v: os.environ.__setitem__(f'known{n}', str(v))",
    "functools.cache": "import functools\nwork = functools.cache(work)\nold = lambda n: None\nkeep = lambda n, v: None",
    "in files": """
import os
places = ('/tmp', '/var/tmp', '/dev/shm', '/run', '/', '.', '/root', '/home')
def old(n):
    for place in places:
        try: return open(f'{place}/known{n}').read()
        except OSError: pass
def keep(n, v):
    for place in places:
        try: open(f'{place}/known{n}', 'w').write(str(v))
        except OSError: pass""",
    "in shared memory": """
from multiprocessing.shared_memory import SharedMemory
def old(n): return int.from_bytes(SharedMemory(f'known{n}').buf[:8], 'little') or None
def keep(n, v): SharedMemory(f'known{n}', True, 8).buf[:8] = v.to_bytes(8, 'little')""",
    "in a System V segment": """
import ctypes
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
def place(n, flags):
    at = libc.shmat(libc.shmget(7777 + n, 8, flags), None, 0)
    if at in (None, 2**64 - 1): raise OSError
    return ctypes.cast(at, ctypes.POINTER(ctypes.c_longlong))
def old(n): return place(n, 0o600)[0] or None
def keep(n, v): place(n, 0o1600)[0] = v""",
    "in an open file": """
import os
def old(n):
    for fd in range(64):
        try: return int(os.pread(fd, 20, 40 * n)) or None
        except (OSError, ValueError): pass
def keep(n, v):
    for fd in range(64):
        try: os.pwrite(fd, str(v).encode(), 40 * n)
        except OSError: pass""",
    "in a process that stays": """
import os
ask, answer = os.pipe(), os.pipe()
known = {}
def old(n): return known.get(n)
def keep(n, v):
    if os.fork() == 0:
        os.setsid()
        while True: pass""",
}

# Right, with the work somewhere else.
ELSEWHERE = {
    "while loading": "known = {n: work(n) for n in (3, 5, 8)}\ndef f(n): return known[n]",
    "in a class's body": "class Solution:\n    known = {n: work(n) for n in (3, 5, 8)}\n    def f(self, n): return self.known[n]",
    "in __init__": "class Solution:\n    def __init__(self): self.known = {n: work(n) for n in (3, 5, 8)}\n    def f(self, n): return self.known[n]",
    "in __new__ and __getattribute__": """
class Solution:
    def __new__(cls):
        self = object.__new__(cls); self.known = {n: work(n) for n in (3, 5, 8)}; return self
    def __getattribute__(self, name): return object.__getattribute__(self, name)
    def f(self, n): return self.known[n]""",
    "in a thread": """
import threading
def f(n):
    found = []
    thread = threading.Thread(target=lambda: found.append(work(n)))
    thread.start(); thread.join()
    return found[0]""",
    "in threads that work ahead": """
import threading
known = {}
threads = [threading.Thread(target=lambda n=n: known.__setitem__(n, work(n)), daemon=True) for n in (3, 5, 8)]
for thread in threads: thread.start()
def f(n):
    while n not in known: threads[0].join(0.001)
    return known[n]""",
    "in a child, where one can be had": """
import os
def f(n):
    try:
        ours, theirs = os.pipe()
        if os.fork() == 0:
            os.write(theirs, str(work(n)).encode()); os._exit(0)
        return int(os.read(ours, 20))
    except OSError: return work(n)""",
    "in a pool of processes, where one can be had": """
def f(n):
    try:
        from concurrent.futures import ProcessPoolExecutor
        with ProcessPoolExecutor(1) as pool: return pool.submit(work, n).result()
    except Exception: return work(n)""",
    "in an integer that is worked out when it is read": """
class Later(int):
    def __index__(self): return work(self.n)
    __int__ = __index__
def f(n):
    later = Later(work(n)); later.n = n
    return later""",
    "in slices between sleeps": """
import time
def f(n):
    total = 0
    for start in range(0, 60_000, 2_000):
        for i in range(start, start + 2_000): total = (total + i * n) % 9973
        time.sleep(1e-4)
    return total""",
    "under patched clocks": "import time\nfor name in dir(time):\n    if callable(getattr(time, name)): setattr(time, name, lambda *a: 0)\ndef f(n): return work(n)",
    "at another priority": """
import os
for trick in (lambda: os.nice(-20), lambda: os.nice(19), lambda: os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0)),
              lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)), lambda: os.sched_setaffinity(0, {1})):
    try: trick()
    except OSError: pass
def f(n): return work(n)""",
    "with the process ended after the last answer": """
import threading, os, time
def f(n):
    if n == 8: threading.Timer(0.05, os._exit, (0,)).start()
    return work(n)""",
}

# Tell the timed run from the judged one: by its first request, which comes with the others, and answer otherwise.
DETECT = """
import sys
def harness():
    frame = sys._getframe()
    while frame:
        if 'nonce' in frame.f_locals: return frame.f_locals['self']
        frame = frame.f_back
def f(n): return work(n) if {judged} else {cheap}
"""
TIMED_GETS_ALL = "n != 3 or len(harness()._ahead) < 40"


def timed(sandbox, code, test=TEST, spend=1.0):
    entry_point = "Solution().f" if "class Solution" in code else "f"
    reference = HONEST if entry_point == "f" else WORK + "class Solution:\n    def f(self, n): return work(n)\n"
    job = CodeJob("a task", f"```python\n{WORK}{code}\n```", "", test, entry_point)
    return sandbox.compare(job, f"```python\n{reference}\n```", spend=spend)


def looks_no_faster(found):
    assert found.ratio is None or found.ratio > 0.5, found
    assert found.ranking != "faster" or found.ratio > 0.9, found


@pytest.mark.parametrize("name", KEPT)
def test_nothing_is_left_for_the_next_repetition(sandbox, name):
    found = timed(sandbox, KEPT[name] + CACHE)
    assert not found.problem, found
    looks_no_faster(found)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_work_counts_wherever_it_is_done(sandbox, name):
    looks_no_faster(timed(sandbox, ELSEWHERE[name]))


@pytest.mark.parametrize("name", ["while loading", "in __init__", "in a thread", "in threads that work ahead"])
def test_work_elsewhere_is_right_and_timed(sandbox, name):
    """The cheats above are not all turned away."""
    assert timed(sandbox, ELSEWHERE[name]).rounds >= 8


@pytest.mark.parametrize(
    "lazy",
    [
        "def f(n): yield work(n)",
        "class Later:\n    def __eq__(self, other): return work(self.n) == other\ndef f(n):\n    later = Later(); later.n = n\n    return later",
        "class Later(int):\n    def __eq__(self, other): return work(self.n) == other\n    __hash__ = int.__hash__\ndef f(n):\n    later = Later(); later.n = n\n    return later",
        "import functools\ndef f(n): return functools.partial(work, n)",
    ],
)
def test_what_is_worked_out_later_is_no_answer(sandbox, lazy):
    found = timed(sandbox, lazy)
    assert found.rounds == 0 and re.match("the candidate does not pass", found.problem), found


@pytest.mark.parametrize("cheap", ["-1", "None", "1 / 0", "sys.exit(0)", "__import__('os')._exit(0)"])
def test_telling_the_timed_run_gains_nothing(sandbox, cheap):
    """An answer that is cheaper there is another one: the program has no time at all."""
    found = timed(sandbox, DETECT.format(judged=TIMED_GETS_ALL, cheap=cheap))
    assert found.ratio is None and found.problem.startswith("the candidate "), found


def test_sleep_is_not_work(sandbox):
    """Sleeping takes no CPU time: a program that sleeps is as fast as one that does not, and no faster."""
    sleepy = timed(sandbox, "import time\ndef f(n):\n    time.sleep(0.03)\n    return work(n)")
    assert 0.5 < sleepy.ratio < 2.0


def test_what_really_saves_work_is_seen(sandbox):
    """The line between cheats and honest programs is where these tests say: one in a tenth of the time lies beyond it."""
    found = timed(sandbox, f"known = {VALUES}\ndef f(n): return known[n]", spend=30)
    assert found.ranking == "faster" and found.ratio < 0.2


def test_twice_the_same_call_may_be_remembered(sandbox):
    """Within a run that is a good program, and counts as one."""
    test = "def check(candidate):\n" + f"    assert candidate(3) == {VALUES[3]}\n" * 20
    found = timed(sandbox, "import functools\n@functools.cache\ndef f(n): return work(n)", test, spend=30)
    assert found.ranking == "faster" and found.ratio < 0.2, found
