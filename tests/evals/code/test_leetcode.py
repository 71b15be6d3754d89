# ruff: noqa: E501 - programs in texts

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from corrgrpo_gym.envs import hub
from corrgrpo_gym.envs.sandbox import Timing
from corrgrpo_gym.errors import GymError
from corrgrpo_gym.evals.code import leetcode
from corrgrpo_gym.evals.code.leetcode import LeetCode
from corrgrpo_gym.evals.metrics import Sample

from .rows import HOSTILE, passed, scored, write

PRELUDE = "from typing import *\nimport math\n"


def row(name, method, arguments, body, *tests, query="", **more):
    code = f"class Solution:\n    def {method}(self, {arguments}):\n        {body}\n"
    test = "def check(candidate):\n" + "".join(f"    assert {t}\n" for t in tests)
    row = {"task_id": name, "prompt": PRELUDE, "completion": code, "entry_point": f"Solution().{method}", "test": test}
    return row | {"query": query or f"Solve {name}.", "difficulty": "Easy"} | more


ROWS = [
    row("add-one", "addOne", "n", "return n + 1", "candidate(n = 1) == 2", "candidate(n = 5) == 6"),
    row("any-order", "pair", "n", "return [n, n + 1]", "candidate(1) == [1, 2]", query="Return both in any order."),
    row("word-ladder-ii", "ladder", "n", "return n", "candidate(n = 1) == 1"),
    row("broken-reference", "f", "n", "return 0", "candidate(n = 1) == 1"),
]


class Timed:
    """A sandbox whose timings are known."""

    def __init__(self, sandbox, faster_share=0.75, ratio=0.5):
        self.sandbox, self.faster_share, self.ratio = sandbox, faster_share, ratio
        self.compared = []

    def judge(self, job):
        return self.sandbox.judge(job)

    def compare(self, job, reference, spend):
        self.compared.append((job.name, job.answer, reference))
        if job.name == "broken-reference":
            return Timing(problem="the reference does not pass")
        return Timing("faster", 8, 1, self.faster_share, self.ratio, 0.4, float("inf"), 0.1, 0.2, 0.0)


@pytest.fixture
def make(tmp_path, sandbox):
    def make(rows=ROWS, **options):
        path = write(tmp_path / "LeetCodeDataset-test.jsonl", rows)
        return LeetCode(path, **{"sandbox": Timed(sandbox), **options})

    return make


def test_cases_and_columns(make, tmp_path):
    benchmark = make()
    assert [case.id for case in benchmark.cases] == [r["task_id"] for r in ROWS]
    assert benchmark.cases[0].messages == ({"role": "user", "content": "Solve add-one."},)
    assert [c.name for c in benchmark.columns] == ["efficiency", "executable", "pass@1", "pass@1_sound", "speedup"]
    assert [c.name for c in make(timing=False).columns] == ["executable", "pass@1", "pass@1_sound"]
    assert benchmark.settings != make(timing=False).settings
    assert len(LeetCode(tmp_path).cases) == 4


def test_references_pass_and_broken_ones_do_not(make):
    benchmark = make()
    references = {case.id: case.reference for case in benchmark.cases}
    assert passed(benchmark, references) == ["add-one", "any-order", "word-ladder-ii"]


def test_right_programs_are_timed_against_the_reference(make):
    benchmark = make()
    score = scored(benchmark, benchmark.cases[0], benchmark.cases[0].reference)
    figures = {"efficiency": 0.75, "speedup": 2.0, "reference_passes": 1.0}
    assert score.values == {"passed": 1.0, "executable": 1.0, **figures}
    assert score.detail["timing"]["low"] == 0.4 and score.detail["timing"]["high"] is None
    assert benchmark.sandbox.compared == [("add-one", benchmark.cases[0].reference, benchmark.cases[0].reference)]
    untimed = make(timing=False)
    assert scored(untimed, untimed.cases[0], untimed.cases[0].reference).values["efficiency"] is None


def test_what_is_not_right_or_has_no_right_reference_is_not_eligible(make):
    benchmark = make()
    for case, body in ((0, "return 0"), (0, "return 1 / 0"), (3, "return 1")):
        entry = benchmark.cases[case].row.entry_point.removeprefix("Solution().")
        score = scored(benchmark, benchmark.cases[case], f"class Solution:\n    def {entry}(self, n): {body}")
        assert score.values["efficiency"] is None and score.values["speedup"] is None
    samples = [Sample("add-one", "add-one", "", {"passed": 0.0, "efficiency": None, "speedup": None})]
    efficiency, speedup = benchmark.columns[0].estimate(samples), benchmark.columns[-1].estimate(samples)
    assert efficiency.value is None and efficiency.count == 0 and speedup.value is None


def test_executable_is_running_to_a_verdict(make):
    benchmark = make()
    bodies = {"return 0": 1.0, "return 1 / 0": 0.0, "return (": 0.0, "import os; os._exit(0)": 0.0}
    for body, expected in bodies.items():
        answer = f"```python\nclass Solution:\n    def addOne(self, n): {body}\n```"
        assert scored(benchmark, benchmark.cases[0], answer).values["executable"] == expected


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_answers_earn_nothing(make, name):
    benchmark = make()
    expected = {"passed": 0.0, "executable": 0.0, "efficiency": None, "speedup": None}
    values = dict(scored(benchmark, benchmark.cases[0], HOSTILE[name]).values)
    assert values.pop("reference_passes") in (None, 1.0)
    assert values == expected


def test_broken_references_are_named_in_the_report(make):
    """Also where the program passes, and those of an earlier session, which only its samples tell of."""
    benchmark = make()
    values = [
        scored(benchmark, case, f"class Solution:\n    def {name}(self, n): {body}").values
        for case, name, body in (
            (benchmark.cases[0], "addOne", "return n"),
            (benchmark.cases[3], "f", "return 0"),
            (benchmark.cases[3], "f", "return 1"),
            (benchmark.cases[3], "f", "return ("),
        )
    ]
    assert [v["reference_passes"] for v in values] == [1.0, 0.0, 0.0, None]
    assert values[2]["passed"] == 1.0 and values[2]["efficiency"] is None
    samples = [
        Sample(name, name, "", v) for name, v in zip(("add-one", *["broken-reference"] * 3), values, strict=True)
    ]
    (remark,) = make().remarks(samples)
    assert remark.startswith("references that fail their own tests") and remark.endswith(": broken-reference")
    assert not benchmark.remarks(samples[:1])


def test_slow_references_give_more_time(make):
    slow = "s = 0\n        for i in range(2_000_000): s += i\n        return n + 1"
    benchmark = make([row("slow", "f", "n", slow, "candidate(n = 1) == 2")], cpu_seconds=0.05)
    assert scored(benchmark, benchmark.cases[0], benchmark.cases[0].reference).values["passed"] == 1
    endless = "class Solution:\n    def f(self, n):\n        while True: pass"
    assert scored(benchmark, benchmark.cases[0], endless).detail["status"] == "timeout"
    broken = make([row("broken", "f", "n", "return 0", "candidate(n = 1) == 2")], cpu_seconds=0.05)
    assert scored(broken, broken.cases[0], endless).detail["status"] == "timeout"


def test_listed_tasks_are_counted_apart(make):
    benchmark = make()
    samples = [Sample(r["task_id"], r["task_id"], "", {"passed": float(i % 2 == 0)}) for i, r in enumerate(ROWS)]
    assert [c.estimate(samples).value for c in benchmark.columns[2:4]] == [0.5, 0.5]
    assert [c.estimate(samples).count for c in benchmark.columns[2:4]] == [4, 2]
    assert any("several answers" in c and "any-order" in c for c in benchmark.caveats)


def test_data(make, monkeypatch):
    def nowhere(*_, **__):
        raise hub.Unreachable("no network")

    monkeypatch.setattr(hub, "fetch", nowhere)
    for data in (None, "auto", "hub"):  # never the embedded problems in the place of the data set's
        with pytest.raises(GymError, match="no network"):
            LeetCode(data)
    embedded = LeetCode("embedded")
    assert embedded.note.startswith("embedded") and not embedded.paper
    with pytest.raises(GymError, match="field 'test' is missing"):
        make([{k: v for k, v in ROWS[0].items() if k != "test"}])


def test_timings_of_the_sandbox(make, sandbox):
    slow = "s = 0\n        for i in range(n): s += i\n        return s"
    benchmark = make([row("gauss", "f", "n", slow, "candidate(n = 300_000) == 44999850000")], sandbox=sandbox)
    case = benchmark.cases[0]
    fast = scored(benchmark, case, "class Solution:\n    def f(self, n): return n * (n - 1) // 2")
    assert fast.values["efficiency"] == 1.0 and fast.values["speedup"] > 10
    assert fast.detail["timing"]["ranking"] == "faster"
    slower = scored(
        benchmark,
        case,
        f"class Solution:\n    def f(self, n):\n        for i in range(20): self.g(n)\n        return self.g(n)\n    def g(self, n):\n        {slow}",
    )
    assert slower.values["efficiency"] == 0.0 and slower.values["speedup"] < 0.5


def test_the_line_of_progress_says_what_is_timed_for_long(make, sandbox, monkeypatch):
    begun, end = threading.Event(), threading.Event()

    class Slow(Timed):
        def compare(self, job, reference, spend):
            begun.set()
            assert end.wait(60)
            return super().compare(job, reference, spend)

    benchmark = make(sandbox=Slow(sandbox))
    case = benchmark.cases[0]
    with ThreadPoolExecutor(1) as pool:
        scoring = pool.submit(scored, benchmark, case, case.reference)
        assert begun.wait(60) and benchmark.status() == ""
        monkeypatch.setattr(leetcode, "_SHOWN_SECONDS", 0.0)
        assert benchmark.status().startswith("timing add-one for ")
        end.set()
        assert scoring.result().values["passed"] == 1
    assert benchmark.status() == ""


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_time_for_timing_is_checked(make, seconds):
    with pytest.raises(GymError, match="timing_seconds is .*; it must be a positive number"):
        make(timing_seconds=seconds)
