import ast
import sys
from collections import Counter

import pytest

from corrgrpo_gym.envs.leetcode.embedded import KINDS, embedded_rows
from corrgrpo_gym.envs.leetcode.noise import fenced
from corrgrpo_gym.envs.leetcode.problem import parse_row
from corrgrpo_gym.envs.sandbox import CodeJob
from corrgrpo_gym.errors import GymError

FIELDS = [
    *(
        "task_id",
        "question_id",
        "difficulty",
        "tags",
        "problem_description",
        "starter_code",
        "estimated_date",
    ),
    *("prompt", "completion", "entry_point", "test", "input_output", "query", "response"),
]


@pytest.fixture(scope="module")
def rows():
    return {split: embedded_rows(split) for split in ("train", "test")}


def _kind(row):
    return "-".join(word for word in row["task_id"].split("-") if not word.isdigit())


def _constants(row):
    return tuple(int(word) for word in row["task_id"].split("-") if word.isdigit())


def test_sizes_and_layout(rows):
    counts = {split: Counter(map(_kind, rows[split])) for split in rows}
    assert set(counts["test"].values()) == {6}
    # window-sum admits 48 constants only.
    assert counts["train"] == {kind.name: 42 if kind.name == "window-sum" else 80 for kind in KINDS}
    assert (len(rows["train"]), len(rows["test"])) == (1402, 108)
    assert len(KINDS) >= 14
    for row in [*rows["train"], *rows["test"]]:
        assert sorted(row) == sorted([*FIELDS, "baseline"])
        parse_row(row)
        assert len(row["query"].split()) <= 60
        assert row["query"].count(row["starter_code"].rstrip()) == 1
        asserts = row["test"].count("assert candidate(")
        assert 8 <= asserts <= 15 and asserts == len(row["input_output"])
        assert all(len(row[name].splitlines()) <= 11 for name in ("completion", "baseline"))


def test_all_kinds_in_both_splits_and_no_pair_of_kind_and_constants_shared(rows):
    names = {kind.name for kind in KINDS}
    for split in rows.values():
        assert {_kind(row) for row in split} == names
    ids = [row["task_id"] for split in rows.values() for row in split]
    assert len(set(ids)) == len(ids)


def test_constants_of_test_tasks_occur_in_train_with_other_kinds_and_stand_in_the_texts(rows):
    seen = {(_kind(row), c) for row in rows["train"] for c in _constants(row)}
    for row in rows["test"]:
        for c in _constants(row):
            assert any(value == c and kind != _kind(row) for kind, value in seen), row["task_id"]
            for name in ("query", "completion", "baseline"):
                assert str(c) in row[name]


def test_the_seed_decides(rows):
    assert embedded_rows("test") == rows["test"]
    other = embedded_rows("test", seed=1)
    assert {row["task_id"] for row in other} != {row["task_id"] for row in rows["test"]}


def test_unknown_split():
    with pytest.raises(GymError, match="'tset'.*Did you mean 'test'"):
        embedded_rows("tset")


@pytest.mark.parametrize("kind", [kind.name for kind in KINDS])
def test_the_slow_solution_works_much_more(rows, kind):
    row = next(row for row in rows["test"] if _kind(row) == kind)
    slow, fast = _lines_run(row, "baseline"), _lines_run(row, "completion")
    assert slow > 20_000
    assert slow > 10 * fast


def _lines_run(row, which):
    """Count the lines of the solution that its tests execute; the tests must pass."""
    scope: dict = {}
    exec(compile(row["prompt"] + row[which], "solution", "exec"), scope)
    exec(row["test"], scope)
    candidate = getattr(scope["Solution"](), row["entry_point"].partition(".")[2])
    count = 0

    def trace(frame, event, arg):
        nonlocal count
        if frame.f_code.co_filename != "solution":
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        scope["check"](candidate)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("split", ["train", "test"])
def test_both_solutions_pass_in_the_sandbox_and_the_fast_one_is_fast(rows, sandbox, split):
    for kind in KINDS:
        row = next(row for row in rows[split] if _kind(row) == kind.name)
        fast, slow = _seconds(sandbox, row)
        assert fast < slow / 3, row["task_id"]


def _seconds(sandbox, row):
    """Return the CPU time of both, the least of seven runs in turn: what others take only ever adds. All must pass."""
    jobs = [
        CodeJob(row["task_id"], fenced(row[which]), row["prompt"], row["test"], row["entry_point"])
        for which in ("completion", "baseline")
    ]
    verdicts = [[sandbox.judge(job) for job in jobs] for _ in range(7)]
    assert {verdict.status for pair in verdicts for verdict in pair} == {"passed"}, (row["task_id"], verdicts)
    return [min(verdict.cpu_seconds for verdict in side) for side in zip(*verdicts, strict=True)]


def test_slow_and_fast_differ_in_shape(rows):
    for row in rows["test"]:
        assert ast.dump(ast.parse(row["baseline"])) != ast.dump(ast.parse(row["completion"]))
