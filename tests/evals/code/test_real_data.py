"""Every reference of the real data, where the data is at hand."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from corrgrpo_gym.evals.registry import make

from .rows import scored

DATA = Path(__file__).parents[4] / "shared/data"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the data sets are not here")


def failures(sandbox, name, **options):
    """Score all references; return how many there are, and those that do not pass."""
    benchmark = make(name, data=DATA, sandbox=sandbox, **options)
    with ThreadPoolExecutor(sandbox.workers) as pool:
        scores = list(pool.map(lambda case: scored(benchmark, case, case.reference), benchmark.cases))
    pairs = zip(benchmark.cases, scores, strict=True)
    return len(scores), {case.id: dict(s.detail, code="") for case, s in pairs if s.values["passed"] != 1}


@pytest.mark.parametrize("prompt", ["body", "script"])
def test_humaneval(sandbox, prompt):
    assert failures(sandbox, "humaneval", prompt=prompt) == (164, {})


def test_mbpp(sandbox):
    assert failures(sandbox, "mbpp") == (500, {})


def test_mbpp_with_challenge_tests(sandbox):
    count, failed = failures(sandbox, "mbpp", challenge=True)
    assert count == 500 and not failed


@pytest.mark.slow
def test_leetcode(sandbox):
    count, failed = failures(sandbox, "leetcode", timing=False)
    assert count == 228 and len(failed) <= 2, failed


@pytest.mark.slow
@pytest.mark.parametrize(("name", "count"), [("humaneval", 164), ("mbpp", 378)])
def test_plus(sandbox, name, count):
    assert failures(sandbox, name, plus=True) == (count, {})


def test_bodies_lose_their_indentation_and_still_pass(sandbox):
    """Stripped, dedented and fenced: as models write them."""
    benchmark = make("humaneval", data=DATA, sandbox=sandbox)
    for case in benchmark.cases[::4]:
        body = case.reference.strip("\n")
        lines = body.split("\n")
        for answer in (body.strip(), f"```python\n{body}\n```", f"Here is the body:\n\n{body}\n\nIt is right."):
            assert scored(benchmark, case, answer).values["passed"] == 1, (case.id, answer)
        if not any(quote in body for quote in ('"""', "'''")):
            margin = len(lines[0]) - len(lines[0].lstrip())
            answer = "\n".join(line[margin:] for line in lines)
            assert scored(benchmark, case, answer).values["passed"] == 1, (case.id, answer)


def test_wrong_answers_to_every_tenth_task_earn_nothing(sandbox):
    for name in ("humaneval", "mbpp"):
        benchmark = make(name, data=DATA, sandbox=sandbox)
        for case in benchmark.cases[::10]:
            entry = case.row.entry_point
            code = f"```python\ndef {entry}(*args, **kwargs):\n    return ('no', -12345)\n```"
            assert scored(benchmark, case, code).values["passed"] == 0, case.id
