"""What the verdict says about ordinary programs."""

import pytest

from corrgrpo_gym.envs.sandbox import CodeJob, SandboxError

RIGHT = "def f(n):\n    return n + 1"


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (RIGHT, "passed"),
        ("class Solution:\n    def f(self, n):\n        return n + 1", "passed"),
        ("def f(n):\n    return n", "failed"),
        ("def f(n):\n    return 1 / 0", "runtime_error"),
        ("def f(n):\n    return None.x", "runtime_error"),
        ("def f(n): pass\ndel f", "runtime_error"),
        ("x = 1 / 0\ndef f(n):\n    return n + 1", "runtime_error"),
        ("class Solution:\n    def f(self): pass\n    def __init__(self): raise ValueError", "runtime_error"),
        ("def f(n):\n    raise AssertionError", "runtime_error"),
        ("def f(n):\n    return f(n)", "runtime_error"),
        ("def f(n):\n    while True: pass", "timeout"),
        ("while True: pass\ndef f(n): pass", "timeout"),
        ("def f(n):\n    import time; time.sleep(60)", "timeout"),
        ("def f(n):\n    return n +", "syntax_error"),
        ("def f(n):\n    return 1\nreturn 2", "compile_error"),
        ("from __future__ import annotations\ndef f(n): return n + 1", "compile_error"),
        ("inf = 1\nglobal inf\ndef f(n): return n + 1", "compile_error"),
    ],
)
def test_status(judge, code, status):
    verdict = judge(code, cpu_seconds=0.5, wall_seconds=2 if "sleep" in code else 60)
    assert verdict.status == status, verdict.detail
    assert verdict.fenced
    assert verdict.parses == (status != "syntax_error")
    assert (verdict.shape is None) == (status == "syntax_error")


def test_no_code_at_all(judge):
    verdict = judge("", answer="I do not know.")
    assert verdict.status == "nothing"
    assert verdict.code == ""
    assert verdict.shape is None
    assert not verdict.fenced
    assert not verdict.parses


def test_raw_code_is_code_but_not_fenced(judge):
    verdict = judge("", answer=RIGHT, entry_point="f")
    assert (verdict.status, verdict.fenced, verdict.code) == ("passed", False, RIGHT)


def test_a_future_import_is_right_where_nothing_precedes_it(judge):
    code = "from __future__ import annotations\ndef f(n: Missing): return n + 1"
    assert judge(code, prelude="").status == "passed"
    assert judge(code, prelude="'''Only a text.'''").status == "passed"


def test_a_future_import_of_the_prelude_holds_for_the_code(judge):
    code = "def f(n: Missing): return n + 1"
    assert judge(code, prelude="from __future__ import annotations").status == "passed"
    assert judge(code, prelude="").status == "runtime_error"


def test_shape_is_preorder_with_closing_marks_and_context_nodes(judge):
    shape = judge("f = abs", "assert candidate(-2) == 2").shape
    assert shape == ("Module", "Assign", "Name", "Store", ")", ")", "Name", "Load", ")", ")", ")", ")")


def test_shape_of_a_very_large_tree_is_none(judge):
    verdict = judge(RIGHT + "\n" + "x = 1\n" * 2000)
    assert (verdict.status, verdict.parses, verdict.shape) == ("passed", True, None)


def test_one_instance_serves_all_calls(judge):
    code = "class Solution:\n    n = 0\n    def f(self):\n        self.n += 1\n        return self.n"
    assert judge(code, "assert candidate() == 1\nassert candidate() == 2").status == "passed"


def test_keyword_arguments(judge):
    assert judge("def f(a, *, b): return a - b", "assert candidate(b=1, a=3) == 2").status == "passed"


def test_arguments_are_copies(judge):
    code = "def f(x):\n    x.append(1)\n    return x"
    check = "x = []\nassert candidate(x) == [1]\nassert candidate(x) == [1]\nassert x == []"
    assert judge(code, check).status == "passed"


def test_arguments_keep_what_they_share(judge):
    code = "def f(rows):\n    rows[0].append(1)\n    return rows"
    assert judge(code, "row = []\nassert candidate([row, row]) == [[1], [1]]").status == "passed"


def test_details(judge):
    assert "assert candidate(1) == 2" in judge("def f(n): return 0").detail
    assert judge("def f(n): raise KeyError('k')").detail == "KeyError: 'k'"
    assert "SIGSEGV" in judge("def f(n):\n    import ctypes; ctypes.string_at(0)").detail
    assert "status 3" in judge("def f(n):\n    import os; os._exit(3)").detail
    assert "CPU time" in judge("def f(n):\n    while 1: pass", cpu_seconds=0.2).detail
    assert "'return' outside function" in judge(RIGHT + "\nreturn").detail


def test_a_test_can_expect_an_exception(judge):
    check = "try:\n    candidate(1)\nexcept ValueError as error:\n    return\nassert False"
    assert judge("def f(n): raise ValueError", check).status == "passed"
    assert judge("class Odd(ValueError): pass\ndef f(n): raise Odd", check).status == "passed"
    assert judge("def f(n): raise KeyError", check).status == "runtime_error"
    assert judge("def f(n): return n", check).status == "failed"


def test_a_test_cannot_swallow_an_end_or_a_timeout(judge):
    check = "try:\n    candidate(1)\nexcept BaseException:\n    pass"
    assert judge("def f(n):\n    import os; os._exit(0)", check).status == "runtime_error"
    assert judge("def f(n):\n    while 1: pass", check, cpu_seconds=0.2).status == "timeout"


def test_a_returned_value_that_the_test_trips_over_is_the_programs_fault(judge):
    verdict = judge("def f(n): return None", "assert abs(candidate(1) - 2) < 1e-6")
    assert verdict.status == "runtime_error"
    assert "TypeError" in verdict.detail


def test_bare_truthiness(judge):
    assert judge("import re\ndef f(s): return re.match('a', s)", "assert candidate('ab')").status == "passed"
    assert judge("import re\ndef f(s): return re.match('a', s)", "assert candidate('b')").status == "failed"


def test_a_test_may_call_a_function_by_its_name(judge):
    assert judge(RIGHT, "assert candidate(1) == f(1) == 2").status == "passed"


def test_helpers_of_the_prelude_run_on_the_trusted_side(judge):
    prelude = "def double(n): return 2 * n"
    code = "def double(n): return 2\ndef f(n): return 4"
    assert judge(code, "assert double(candidate(1)) == 8", prelude=prelude).status == "passed"


def test_programs_are_repeatable(judge):
    code = "import random\ndef f():\n    return [random.random(), [*{'a', 'b', 'c'}]]"
    seen = judge(code, "assert candidate() == 0, 1").detail
    check = "import random\na = candidate()\nrandom.seed(0)\nassert False, str(random.random()) + str(a)"
    assert judge(code, check).detail == judge(code, check).detail
    assert seen


@pytest.mark.parametrize(
    ("test", "words"),
    [
        ("def check(candidate):\n    pass", "without calling"),
        ("", "defines no check"),
        ("def check(candidate):\n    assert candidate(1) == missing", "missing"),
        ("def check(candidate):\n    assert [][0] == candidate(1)", "IndexError"),
        ("def check(candidate:\n", "does not compile"),
        ("def check(candidate):\n    candidate(check)", "function"),
        ("raise SystemExit", "SystemExit"),
    ],
)
def test_a_broken_test_is_an_error_with_the_rows_name(judge, test, words):
    with pytest.raises(SandboxError, match=f"'a task'.*{words}"):
        judge(RIGHT, test=test)


@pytest.mark.parametrize("prelude", ["import missing_module", "x = (", "raise ValueError", "raise SystemExit"])
def test_a_broken_prelude_is_an_error_with_the_rows_name(judge, prelude):
    with pytest.raises(SandboxError, match="'a task'.*prelude"):
        judge(RIGHT, prelude=prelude)


def test_a_broken_row_is_an_error_whatever_the_answer(sandbox):
    with pytest.raises(SandboxError, match="row 7"):
        sandbox.judge(CodeJob("row 7", "no code", "", "def check(:", "f"))


def test_cpu_time_counts_loading_and_calls_but_not_sleep(judge):
    burn = "    t = time.process_time()\n    while time.process_time() < t + 0.2: pass\n"
    lazy = judge("import time\ndef f(n):\n    time.sleep(1)\n    return n + 1")
    busy = judge("import time\ndef f(n):\n" + burn + "    return n + 1")
    early = judge("import time\ndef burn():\n" + burn + "burn()\ndef f(n): return n + 1")
    behind = "import time, threading\ndef burn():\n" + burn + "other = threading.Thread(target=burn)\ndef f(n):\n"
    behind += "    other.start() if n == 1 else other.join()\n    return n + 1"
    thread = judge(behind, "assert candidate(1) == 2\nassert candidate(2) == 3")
    assert [v.status for v in (lazy, busy, early, thread)] == ["passed"] * 4
    assert lazy.cpu_seconds < 0.9
    for verdict in (busy, early, thread):
        assert 0.2 <= verdict.cpu_seconds < 2


@pytest.mark.parametrize("tests", [1, 300])
def test_test_code_is_limited_by_the_wall_clock(judge, tests):
    check = "candidate(1)\n" * tests + "while True: pass"
    assert judge(RIGHT, check, wall_seconds=0.5).status == "timeout"


def test_hostile_text_for_the_parser(judge):
    for code in (
        "f = " + "(" * 10_000,
        "f = " + "-" * 200_000 + "1",
        "f = " + "a." * 50_000 + "a",
        "f = \x00",
    ):
        assert judge(code).status in ("syntax_error", "compile_error", "nothing", "runtime_error")
    assert judge(RIGHT).status == "passed"
    assert judge("def f(n): return '\\ud800'", "assert candidate(1) == '\\ud800'").status == "passed"
    assert judge("def f(n): return '\ud800'", "candidate(1)").status in ("syntax_error", "nothing")
