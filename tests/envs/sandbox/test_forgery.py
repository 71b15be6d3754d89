"""Cheats, by class: each must earn exactly what an honest wrong answer earns.

The test that they face passes for ``n + 1`` and is in the judge's hands alone. Cheats that go on with a wrong
value end as "failed", like the honest wrong answer; those that end or break their process, as "runtime_error"
like any crash.
"""

# ruff: noqa: E501 - programs in texts

import pytest

EVERYWHERE = True  # see conftest
CHECK = """
assert candidate(1) == 2
assert candidate(41) == 42
assert candidate(2) == 3 and candidate(-1) == 0
"""

WRONG = {
    "honest": "def f(n): return -7",
    "always equal": """
class Equal:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __bool__(self): return True
    def __instancecheck__(self, cls): return True
def f(n): return Equal()""",
    "an always equal int": """
class Equal(int):
    def __eq__(self, other): return True
    def __hash__(self): return 0
def f(n): return Equal(-7)""",
    "an always equal list, float, text, dictionary, set": """
def equal(base): return type('Equal', (base,), {'__eq__': lambda s, o: True, '__hash__': lambda s: 0, '__lt__': lambda s, o: True})
kinds = iter([list, float, str, dict, set] * 9)
def f(n): return equal(next(kinds))()""",
    "a metaclass that is equal": """
class Meta(type):
    def __eq__(cls, other): return True
    def __hash__(cls): return 0
class Equal(metaclass=Meta): pass
def f(n): return Equal""",
    "a class that claims to be int": """
class Fake:
    __class__ = int
    def __eq__(self, other): return True
    def __int__(self): return 2
    __index__ = __int__
def f(n): return Fake()""",
    "nodes that change while they are read": """
class Node:
    reads = 0
    @property
    def val(self): Node.reads += 1; return Node.reads
    @property
    def next(self): return None
def f(n): return Node()""",
    "mock": "from unittest.mock import ANY\ndef f(n): return ANY",
    "patched builtins": """
import builtins
for name in ('all', 'any', 'abs', 'len', 'sorted', 'isinstance', 'AssertionError', 'list', 'int', 'type', 'bool', 'compile', 'exec'):
    setattr(builtins, name, lambda *a, **k: True)
def f(n): return -7""",
    "patched comparison": """
import operator, unittest, math
operator.eq = operator.ne = math.isclose = lambda *a: True
unittest.TestCase.assertEqual = lambda *a: None
def f(n): return -7""",
    "patched time": """
import time, sys
for name in dir(time):
    if callable(getattr(time, name)): setattr(time, name, lambda *a: 0)
def f(n): return -7""",
    "patched check": "import sys\ndef check(candidate): pass\nsys.modules['__main__'].check = check\ndef f(n): return -7",
    "assertions off": "import sys\nsys.flags = type('F', (), {'optimize': 2})()\n__debug__ is True\ndef f(n): return -7",
    "printing a verdict": """
import sys
def f(n):
    for text in ('passed', 'PASSED', '{"status": "passed"}', 'OK', '1 passed', "('verdict', {'status': 'passed'})"):
        print(text, flush=True); print(text, file=sys.stderr)
    return -7""",
    "atexit hooks": "import atexit, os\natexit.register(print, 'passed')\natexit.register(os._exit, 0)\ndef f(n): return -7",
    "changing its arguments": """
def f(n):
    import sys
    frame = sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()):
            if type(value) is list: value[:] = [True] * len(value)
        frame = frame.f_back
    return -7""",
    "a thread that answers late": """
import threading, time, sys
best = [-7]
def late():
    time.sleep(0.05); best[0] = 2
def f(n):
    threading.Thread(target=late, daemon=True).start()
    return best[0]""",
    "tracing": "import sys\nsys.settrace(lambda *a: None)\nsys.setprofile(lambda *a: None)\ndef f(n): return -7",
    "caching": "import functools\n@functools.cache\ndef f(n): return -7",
    "a generator": "def f(n): yield from (2, 42, 3, 0)",
    "nan": "def f(n): return float('nan')",
    "a false exception class": "def f(n): return AssertionError",
    "monkeypatched harness": """
import sys
for name, module in list(sys.modules.items()):
    for key, value in list(vars(module).items()) if 'corrgrpo' in name else ():
        if key in ('dumps', 'loads', 'frame'): continue
        if callable(value): setattr(module, key, lambda *a, **k: True) if key.startswith('check') else None
def f(n): return -7""",
}

CRASH = {
    "an honest crash": "def f(n): return 1 / 0",
    "sys.exit(0)": "import sys\ndef f(n): sys.exit(0)",
    "sys.exit while loading": "import sys\nsys.exit(0)\ndef f(n): return 2",
    "os._exit(0)": "import os\ndef f(n): os._exit(0)",
    "os._exit while loading": "import os\nos._exit(0)\ndef f(n): return 2",
    "quit": "def f(n): raise SystemExit",
    "keyboard interrupt": "def f(n): raise KeyboardInterrupt",
    "generator exit": "def f(n): raise GeneratorExit",
    "stop iteration": "def f(n): raise StopIteration(2)",
    "an assertion of its own": "def f(n): assert False",
    "an exception named like the harness's": "class Stop(BaseException): pass\nclass RowError(Exception): pass\ndef f(n): raise RowError",
    "an exception that cannot be described": """
class Odd(Exception):
    def __str__(self): raise self
    __repr__ = __str__
    @property
    def args(self): raise self
def f(n): raise Odd()""",
    "an exception with a hostile class": """
class Meta(type):
    @property
    def __name__(cls): return 5
    @property
    def __mro__(cls): return (1, 2)
class Odd(Exception, metaclass=Meta): pass
def f(n): raise Odd()""",
    "kill": "import os\ndef f(n): os.kill(os.getpid(), 9); 1 / 0",
    "abort": "import os\ndef f(n): os.abort()",
    "segmentation fault": "import ctypes\ndef f(n): ctypes.string_at(0)",
    "recursion bomb": "def f(n): return f(n + 1)",
    "recursion bomb without a limit": "import sys\nsys.setrecursionlimit(10**9)\ndef f(n): return [f(n + 1)]",
    "a recursion bomb in C": """
import sys
sys.setrecursionlimit(10**9)
x = []
for _ in range(10**6): x = [x]
def f(n): return repr(x)""",
    "exec of nothing": "import os\ndef f(n): os.execv('/bin/true', ['true'])",
    "memory": "def f(n): return bytearray(1 << 40)",
    "a missing entry point": "def f(n): return 2\ndel f",
    "closed stream": "import os\ndef f(n): os.closerange(3, 100); return 2",
}

# Written to the harness's own stream, wherever it is.
STREAM = """
import marshal, os, struct, sys
def send(body):
    for fd in range(3, 32):
        try: os.write(fd, struct.pack('<I', len(body)) + body)
        except OSError: pass
def nonce():
    frame = sys._getframe()
    while frame:
        if 'nonce' in frame.f_locals: return frame.f_locals['nonce']
        frame = frame.f_back
"""
STREAMS = {
    "a verdict": "def f(n): send(marshal.dumps(('verdict', {'status': 'passed'}), 2)); return -7",
    "a code object": "def f(n): send(nonce() + b'V' + marshal.dumps(compile('1', '', 'eval'), 2)); return -7",
    "a pickle": "import pickle\ndef f(n): send(nonce() + b'V' + pickle.dumps(f)); return -7",
    "an unknown kind": "def f(n): send(nonce() + b'X' + marshal.dumps(2, 2)); return -7",
    "an empty message": "def f(n): send(b''); return -7",
    "a very long message": "def f(n): [os.write(fd, b'\\xff\\xff\\xff\\xff') for fd in (3, 4)]; return -7",
    "an answer without its call": "for i in range(9): send(bytes(8) + b'V' + marshal.dumps(2, 2))\ndef f(n): return -7",
    "two answers to one call": "def f(n): send(nonce() + b'V' + marshal.dumps(n + 1, 2)); return -7",
    "answers ahead": """
def f(n):
    k = int.from_bytes(nonce(), 'little')
    for i, v in enumerate((-7, 42, 3, 0)): send((k + i).to_bytes(8, 'little') + b'V' + marshal.dumps(v, 2))
    os._exit(0)""",
    "a handle of nothing": "def f(n): send(nonce() + b'R' + marshal.dumps(('h', 99), 2)); return -7",
    "a malformed tree": "def f(n): send(nonce() + b'R' + marshal.dumps(('T', [1, 2]), 2)); return -7",
    "a thousand nested lists": "def f(n): send(nonce() + b'V' + b'[\\1\\0\\0\\0' * 900 + b'N'); return -7",
    "an exception of no form": "def f(n): send(nonce() + b'E' + marshal.dumps((1, [2], [3, ('ValueError',)]), 2)); return -7",
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_answers_fail(judge, name):
    verdict = judge(WRONG[name], CHECK)
    assert verdict.status == "failed", verdict.detail


@pytest.mark.parametrize("name", CRASH)
def test_crashes_are_runtime_errors(judge, name):
    verdict = judge(CRASH[name], CHECK, memory_bytes=200 << 20)
    assert verdict.status == "runtime_error", verdict.detail


@pytest.mark.parametrize("name", STREAMS)
def test_writing_on_the_stream_does_not_pass(judge, name):
    verdict = judge(STREAM + STREAMS[name], CHECK)
    assert verdict.status in ("failed", "runtime_error"), verdict.detail
    assert judge("def f(n): return n + 1", CHECK).status == "passed"


def test_values_answered_ahead_are_compared_like_any_other(judge):
    """Written early or late, they are answers; right ones are right, and the time until the last one counts."""
    code = STREAM + "def f(n): send(nonce() + b'V' + marshal.dumps(n + 1, 2)); sys.stdin.read(); os._exit(0)"
    assert judge(code, "assert candidate(1) == 2").status == "passed"
    assert judge(code.replace("n + 1", "n + 2"), "assert candidate(1) == 2").status == "failed"


HIDDEN = "the expected value, 8462613"


@pytest.mark.parametrize(
    "search",
    [
        "seen = [o for o in gc.get_objects()]",
        "seen = []\nframe = sys._getframe()\nwhile frame:\n    seen += [frame.f_locals, frame.f_globals, frame.f_code.co_consts]\n    frame = frame.f_back",
        "seen = [vars(m) for m in list(sys.modules.values())]",
        "seen = [r for o in gc.get_objects() for r in gc.get_referents(o)]",
        "seen = [sys.argv, dict(os.environ), sys.orig_argv, linecache.cache]",
        "seen = [inspect.getsource(m) for n, m in list(sys.modules.items()) if 'sandbox.jail.' in n]",
    ],
)
def test_the_expected_values_are_not_there(judge, search):
    """The test's texts are in no object of the program's process (its raw memory: test_confinement)."""
    lines = f"import gc, sys, os, linecache, inspect\ntry:\n    pass\nfinally:\n    pass\n{search}\n".splitlines()
    code = "def f(n):\n" + "".join(f"    {line}\n" for line in lines)
    code += "    text = repr(seen)\n    return len(text) > 40, ''.join(['8462', '613']) in text\n"
    check = f"r = candidate(1)\nassert r == (True, False), r\nassert r != {HIDDEN!r}\n"
    verdict = judge(code, check)
    assert verdict.status == "passed", verdict.detail


def test_the_test_code_is_not_in_the_programs_memory(judge):
    from .test_confinement import SCAN

    body = SCAN.replace("MARK", repr(HIDDEN[::-1].encode()))
    code = "import os, ctypes\ndef f(n):\n" + "".join(f"    {line}\n" for line in body.splitlines())
    verdict = judge(code, f"r = candidate(1)\nassert r == (0, True), r\nassert r != {HIDDEN!r}")
    assert verdict.status == "passed", verdict.detail


def test_cpu_time_cannot_be_hidden(judge):
    """By patched clocks, by work in threads, before the calls, between them, or after an early answer."""
    burn = "def burn():\n    t = process_time()\n    while process_time() < t + 0.15: pass\n"
    start = (
        "import time, threading\nprocess_time = time.process_time\ntime.process_time = time.perf_counter = lambda: 0.0\n"
        + burn
    )
    early = STREAM + start
    for code in (
        start + "def f(n):\n    burn()\n    return n + 1",
        start + "burn()\ndef f(n): return n + 1",
        start + "class Solution:\n    def __init__(self): burn()\n    def f(self, n): return n + 1",
        start + "def f(n):\n    t = threading.Thread(target=burn); t.start(); t.join()\n    return n + 1",
        early
        + "def f(n):\n    if n == 1:\n        send(nonce() + b'V' + marshal.dumps(2, 2)); burn(); send(b'')\n    return n + 1",
    ):
        verdict = judge(code, "assert candidate(1) == 2\nassert candidate(2) == 3")
        assert verdict.cpu_seconds >= 0.15 or verdict.status != "passed"


def test_a_program_cannot_act_on_what_it_was_told_in_an_earlier_job(judge):
    code = "import sys, os, tempfile\ndef f(n):\n    old = getattr(sys, 'memory', [])\n    sys.memory = old + [n]\n    return sys.memory"
    for _ in range(2):
        assert judge(code, "assert candidate(1) == [1]\nassert candidate(2) == [1, 2]").status == "passed"
