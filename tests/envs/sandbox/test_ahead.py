# ruff: noqa: E501 - programs in texts
"""Calls that are sent ahead: verdicts are those of calls made one by one."""

import pytest

from corrgrpo_gym.envs.sandbox.foresee import Foreseen, is_plain, run_blindly

COUNTER = "class Solution:\n    n = 0\n    def f(self, *a):\n        self.n += 1\n        return self.n"


def compiled(check, head="def check(candidate):"):
    body = "\n".join("    " + line for line in check.strip().splitlines())
    return compile(f"{head}\n{body}\n", "<test>", "exec")


@pytest.mark.parametrize(
    ("check", "plain"),
    [
        ("assert candidate(x=[1, 2], y='a') == {1: (2, 3)}", True),
        ("for x in (1, 2):\n    assert candidate(x)", True),
        ("assert candidate(1) == inf", False),
        ("assert abs(candidate(1)) < 1", False),
        ("assert all(candidate(i) for i in (1, 2))", False),
        ("import random\nassert candidate(random.random())", False),
        ("f = lambda: 1\nassert candidate(f())", False),
    ],
)
def test_plain_tests(check, plain):
    assert is_plain(compiled(check)) is plain


@pytest.mark.parametrize(
    "test", ["import os\ndef check(candidate): pass", "x = 1\ndef check(candidate): pass", "check = 1"]
)
def test_tests_that_do_more_are_not_plain(test):
    assert not is_plain(compile(test, "<test>", "exec"))


def test_calls_are_foreseen_as_far_as_they_do_not_depend_on_answers():
    seen = Foreseen()
    run_blindly(compiled("assert candidate(1) == 5\nassert not candidate(2) != 7\nassert candidate(3) == 1"), seen)
    assert len(seen.requests) == 2
    seen = Foreseen()
    run_blindly(compiled("assert candidate(1) == 5\ncandidate(candidate(2))"), seen)
    assert len(seen.requests) == 2


@pytest.mark.parametrize(
    "check",
    [
        # The same calls whatever is answered, and more of them than go ahead at first.
        "\n".join(f"assert candidate({i}) == {i + 1}" for i in range(40)),
        # Fewer calls than a right program that is equal to everything would get.
        "while candidate() != 9: pass",
        "for i in (0, 0, 0, 0, 0, 0):\n    if candidate() == 4: return\nassert False",
        "try:\n    assert candidate() == 7\n    candidate(); candidate(); candidate()\nexcept AssertionError:\n    pass",
        # Other calls.
        "assert candidate() == 1\nif candidate() == 3:\n    candidate(1); candidate(2)\nassert candidate(3) == 3",
        "candidate(); candidate(); candidate()\nif candidate() == 0:\n    candidate(1)\n    candidate(2)\n"
        "assert candidate(5) == 5\nassert candidate(6) == 6",
        # What it answered goes into the next call.
        "assert candidate(candidate(candidate())) == 3",
        "x = candidate()\nfor i in (1, 2, 3, 4):\n    x = candidate(x)\nassert x == 5",
    ],
)
def test_verdicts_of_a_program_that_counts_its_calls(judge, check):
    for _ in range(2):
        verdict = judge(COUNTER, check)
        assert verdict.status == "passed", verdict.detail


def test_the_first_wrong_answer_decides(judge):
    check = "\n".join(f"assert candidate({i}) == {i + 1}" for i in range(40))
    late = "def f(n):\n    if n == 21:\n        while True: pass\n    return n + 1 if n != 20 else 0"
    verdict = judge(late, check, cpu_seconds=3)
    assert verdict.status == "failed" and "candidate(20)" in verdict.detail
    assert judge("def f(n): return 1 // (20 - n)", check).status == "failed"
    ended = judge("import os\ndef f(n):\n    if n == 20: os._exit(3)\n    return n + 1", check)
    assert ended.status == "runtime_error" and "status 3" in ended.detail
    assert judge("def f(n):\n    while n == 20: pass\n    return n + 1", check, cpu_seconds=0.3).status == "timeout"


def test_calls_with_large_arguments_and_results(judge):
    check = "\n".join(f"assert candidate([{i}] * 50_000) == [{i}] * 50_000" for i in range(12))
    assert judge("def f(x): return x", check).status == "passed"


def test_a_program_may_answer_before_it_is_asked_but_only_by_number(judge):
    check = "\n".join(f"assert candidate({i}) == {i + 1}" for i in range(8))
    code = "import sys\nclass Solution:\n    def f(self, n):\n        own = sys._getframe(1).f_locals['self']\n"
    # Sends each answer twice: the second of them is no answer to the next call.
    code += "        nonce = sys._getframe(2).f_locals['nonce']\n        own._send(nonce + own._encode(n + 1))\n"
    code += "        return n + 1"
    assert judge(code, check).status == "runtime_error"


def test_a_test_that_never_ends_is_still_limited(judge):
    assert judge("def f(): return 1", "while True:\n    candidate()", wall_seconds=3).status == "timeout"
    assert judge("def f(): return 1", "candidate()\nwhile True: pass", wall_seconds=1).status == "timeout"
