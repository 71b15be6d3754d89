"""Programs that read standard input and write standard output, and a process per call."""

# ruff: noqa: E501 - programs in texts

from collections.abc import Callable
from typing import Any

import pytest

from corrgrpo_gym.envs.sandbox import CodeJob, Sandbox, SandboxError, Verdict

CHECK = """
def check(candidate):
    for given, wanted in data:
        result = candidate(given)
        assert result == wanted, repr(result)
"""
SUM = [("1 2\n", "3\n"), ("40 2\n", "42\n")]
Run = Callable[..., Verdict]


@pytest.fixture
def script(sandbox: Sandbox) -> Run:
    def run(code: str, data: Any = SUM, test: str = CHECK, prelude: str = "import math\n", **options: Any) -> Verdict:
        options = {"calls": 9, "entry_point": "", "cpu_seconds": 2.0, "wall_seconds": 20.0, **options}
        answer = f"```python\n{code}\n```"
        return sandbox.judge(CodeJob("a task", answer, prelude, test, data=data, **options))

    return run


RIGHT = {
    "input": "a, b = map(int, input().split())\nprint(a + b)",
    "the prelude": "a, b = map(int, input().split())\nprint(math.floor(a + b))",
    "stdin.read": "import sys\nprint(sum(map(int, sys.stdin.read().split())))",
    "stdin.buffer": "import sys\nprint(sum(map(int, sys.stdin.buffer.readline().split())))",
    "lines of stdin": "import sys\nfor line in sys.stdin: print(sum(map(int, line.split())))",
    "open(0)": "print(sum(map(int, open(0).read().split())))",
    "os.read": "import os\nos.write(1, b'%d\\n' % sum(map(int, os.read(0, 1000).split())))",
    "stdout.buffer": "import sys\nsys.stdout.buffer.write(b'%d\\n' % sum(map(int, input().split())))",
    "without a newline flushed late": "import sys\nsys.stdout.write(str(sum(map(int, input().split()))) + '\\n')",
    "a main guard": "def main(): print(sum(map(int, input().split())))\nif __name__ == '__main__': main()",
    "sys.exit": "import sys\nprint(sum(map(int, input().split())))\nsys.exit(0)",
    "sys.exit with a code": "import sys\nprint(sum(map(int, input().split())))\nsys.exit(1)",
    "exit": "print(sum(map(int, input().split())))\nexit()",
    "os._exit(0)": "import os\nprint(sum(map(int, input().split())), flush=True)\nos._exit(0)",
    "a thread that is not joined": """
import sys, threading
def main(): print(sum(map(int, input().split())))
sys.setrecursionlimit(10**6)
threading.stack_size(1 << 26)
threading.Thread(target=main).start()""",
    "atexit": "import atexit\nout = []\natexit.register(lambda: print(*out))\nout.append(sum(map(int, input().split())))",
    "streams of its own": """
import io, os, sys
sys.stdin = io.BytesIO(os.read(0, os.fstat(0).st_size))
sys.stdout = io.StringIO()
print(sum(map(int, sys.stdin.readline().split())))
os.write(1, sys.stdout.getvalue().encode())""",
    "a closed standard output": "import sys\nprint(sum(map(int, input().split())))\nsys.stdout.close()",
    "deep recursion": """
import sys
sys.setrecursionlimit(10**5)
def f(n): return 0 if n == 0 else 1 + f(n - 1)
a, b = map(int, input().split())
print(a + b + f(20000) - 20000)""",
    "errors on stderr": "import sys\nprint('warning', file=sys.stderr)\nprint(sum(map(int, input().split())))",
}
WRONG = {
    "an honest wrong answer": "print(0)",
    "nothing": "pass",
    "a verdict": "print('passed')\nprint({'status': 'passed'})",
    "a state that is not there": """
import sys
sys.seen = getattr(sys, 'seen', 0) + 1
a, b = map(int, input().split())
print(a + b if sys.seen > 1 else 'first')""",
    "a thread that answers late": """
import threading, time
def late():
    time.sleep(0.2); print(3)
threading.Thread(target=late, daemon=True).start()""",
    "a flood": "while True: print('a' * 100000)",
}
CRASH = {
    "an exception": "print(sum(map(int, input().split())), flush=True)\n1 / 0",
    "an exception of a hostile class": """
class Odd(Exception):
    def __str__(self): raise self
raise Odd""",
    "os._exit with a code": "import os\nprint(sum(map(int, input().split())), flush=True)\nos._exit(3)",
    "a signal": "import os\nprint(3, flush=True)\nos.abort()",
    "a segmentation fault": "import ctypes\nctypes.string_at(0)",
    "end of input": "input(); input()",
    "memory": "x = bytearray(1 << 40)",
    "writing on the judge's stream": """
import os
print(sum(map(int, input().split())), flush=True)
for fd in range(2, 32):
    try: os.write(fd, b'\\4\\0\\0\\0Rabc')
    except OSError: pass""",
    "a message too large for the judge": """
import os
for fd in range(2, 32):
    try: os.write(fd, b'\\xff' * 8)
    except OSError: pass""",
}


@pytest.mark.parametrize("name", RIGHT)
def test_ordinary_scripts_pass(script, name):
    verdict = script(RIGHT[name])
    assert verdict.status == "passed", verdict.detail


@pytest.mark.parametrize("name", WRONG)
def test_wrong_scripts_fail(script, name):
    verdict = script(WRONG[name])
    assert verdict.status == "failed", verdict.detail


@pytest.mark.parametrize("name", CRASH)
def test_crashes_are_runtime_errors(script, name):
    verdict = script(CRASH[name], memory_bytes=300 << 20)
    assert verdict.status == "runtime_error", verdict.detail
    assert script(RIGHT["input"]).status == "passed"


@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import os\nos.close(1)\nwhile True: pass",
        "import os\nwhile True: os.write(1, b'a')",
        "import threading\ndef f():\n    while True: pass\nthreading.Thread(target=f).start()",
        "import time\ntime.sleep(60)",
        "import os\nos.close(1)\nimport time\ntime.sleep(60)",
    ],
)
def test_time_is_limited(script, code):
    verdict = script(code, cpu_seconds=0.3, wall_seconds=3.0 if "sleep" in code else 60.0)
    assert verdict.status == "timeout", verdict.detail


def test_limits_hold_for_each_call(script):
    burn = "import time\nwhile time.process_time() < 0.3: pass\nprint(sum(map(int, input().split())))"
    verdict = script(burn, SUM * 3, cpu_seconds=1.0)
    assert verdict.status == "passed" and verdict.cpu_seconds > 1.2


def test_a_long_input_and_a_long_output_go_through(script):
    numbers = " ".join(map(str, range(200_000))) + "\n"
    assert (
        script("print(*reversed(input().split()))", [(numbers, " ".join(numbers.split()[::-1]) + "\n")]).status
        == "passed"
    )


def test_any_bytes_may_be_written(script):
    assert script("import os\nos.write(1, b'\\xff\\0a')", [("", "\ufffd\0a")]).status == "passed"
    assert script("print(input())", [("déjà\n", "déjà\n")]).status == "passed"


def test_the_expected_output_is_not_there(script):
    search = """
import gc, sys
frame = sys._getframe()
seen = [repr(o) for o in gc.get_objects() if isinstance(o, (str, bytes, tuple, list, dict))]
while frame:
    seen.append(repr((frame.f_locals, frame.f_globals)))
    frame = frame.f_back
print(any(''.join(['846', '2613']) in s for s in seen))"""
    assert script(search, [("", "False\n")], CHECK + "hidden = '8462613'\n").status == "passed"


def test_input_cannot_be_changed_for_the_judge(script):
    code = "import os\ntry: os.write(0, b'9 9')\nexcept OSError: pass\nos.lseek(0, 0, 0)\nprint(sum(map(int, input().split())))"
    assert script(code).status == "passed"


def test_details_name_the_test(script):
    assert "'0\\n'" in script("print(0)").detail
    assert script("int('x')").detail.startswith("ValueError")


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ("I cannot.", "nothing"),
        ("", "nothing"),
        ("```python\nprint(\n```", "syntax_error"),
        ("```python\nreturn 1\n```", "compile_error"),
        ("print(sum(map(int, input().split())))", "passed"),
        ("```\nprint(sum(map(int, input().split())))\n```\nOutput:\n```\n3\n```", "passed"),
    ],
)
def test_answers(sandbox, answer, status):
    job = CodeJob("a task", answer, "", CHECK, "", calls=2, data=SUM)
    assert sandbox.judge(job).status == status


def test_a_script_without_calls_and_too_many_calls_are_the_tasks_fault(sandbox, script):
    with pytest.raises(ValueError, match="calls"):
        CodeJob("a task", "", "", CHECK, "")
    with pytest.raises(SandboxError, match="a task.*over 1 calls"):
        script(RIGHT["input"], calls=1)
    with pytest.raises(SandboxError, match="without calling"):
        script(RIGHT["input"], [])


def test_functions_too_can_have_a_process_per_call(script):
    code = "seen = []\ndef f(n):\n    seen.append(n)\n    return len(seen)"
    data = [(5, 1), (6, 1)]
    assert script(code, data, entry_point="f").status == "passed"
    assert script(code, data, entry_point="f", calls=0).status == "failed"
    assert script("def f(n): return 1 / 0", data, entry_point="f").status == "runtime_error"
    assert script("import os\ndef f(n): os._exit(0)", data, entry_point="f").status == "runtime_error"
    assert script("def f(n):\n    while True: pass", data, entry_point="f", cpu_seconds=0.3).status == "timeout"
    assert script("def f(n): return (i for i in [1])", data, entry_point="f").status == "failed"


def test_an_object_of_an_ended_process_answers_nothing_more(script):
    test = "def check(candidate):\n    return str(candidate(1))"
    assert script("def f(n): return object()", None, test, entry_point="f").status == "runtime_error"


def test_names_of_the_program_for_the_test(script):
    code = "class Node:\n    def __init__(self, v): self.v = v; self.down = None\ndef depth(n): return 1 + depth(n.down) if n else 0"
    test = "root = Node(1)\nroot.down = Node(LIMIT)\ndef check(candidate):\n    assert candidate(root) == 2 and root.down.v == LIMIT"
    options = {"entry_point": "depth", "calls": 0, "names": ("Node", "LIMIT")}
    assert script(code + "\nLIMIT = 7", None, test, **options).status == "passed"
    assert script(code, None, test, **options).status == "runtime_error"


def test_kept_values_are_kept_for_the_row_alone(script):
    test = "def check(candidate):\n    kept['n'] = kept.get('n', 0) + 1\n    assert candidate(0) == kept['n'], data"
    options = {"entry_point": "f", "calls": 0}
    for n in (1, 2, 3):
        assert script(f"def f(_): return {n}", [1], test, **options).status == "passed"
    assert script("def f(_): return 1", [2], test, **options).status == "passed"
