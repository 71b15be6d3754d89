from collections import Counter
from itertools import islice
from random import Random

import pytest

from corrgrpo_gym.envs.leetcode.embedded import embedded_rows
from corrgrpo_gym.envs.leetcode.noise import fenced, noisy_answers, slip
from corrgrpo_gym.envs.sandbox import CodeJob


@pytest.fixture(scope="module")
def rows():
    return embedded_rows("test")


def test_the_mix(rows):
    kinds: Counter = Counter()
    for row in rows:
        clean = {fenced(row["baseline"]): "slow", fenced(row["completion"]): "fast"}
        for answer in islice(noisy_answers(row, Random(row["task_id"])), 20):
            assert answer.startswith("```python\nclass Solution:") and answer.endswith("\n```")
            kinds[clean.get(answer, "slip")] += 1
    share = {name: count / kinds.total() for name, count in kinds.items()}
    # 0.7 * 0.85, 0.3 * 0.85 and 0.15, from 2160 answers.
    assert 0.56 < share["slow"] < 0.63 and 0.22 < share["fast"] < 0.29 and 0.12 < share["slip"] < 0.18


def test_the_generator_decides(rows):
    def answers(seed):
        return list(islice(noisy_answers(rows[0], Random(seed)), 30))

    assert answers(1) == answers(1) != answers(2)


def test_shares_are_options(rows):
    only = set(islice(noisy_answers(rows[0], Random(0), fast=1.0, slips=0.0), 5))
    assert only == {fenced(rows[0]["completion"])}
    clean = {fenced(rows[0]["completion"]), fenced(rows[0]["baseline"])}
    assert not clean & set(islice(noisy_answers(rows[0], Random(0), slips=1.0), 50))


def test_slips_keep_the_class_line_and_change_the_body(rows):
    rng = Random(3)
    for row in rows:
        code = row["completion"]
        changed = slip(code, rng)
        assert changed != code
        assert changed.splitlines()[:2] == code.splitlines()[:2]


def test_most_slips_fail_and_most_of_them_still_run(rows, sandbox):
    rng = Random(0)
    statuses: Counter = Counter()
    for row in rows[::2]:
        code = slip(row[rng.choice(["baseline", "completion"])], rng)
        verdict = sandbox.judge(
            CodeJob(row["task_id"], fenced(code), row["prompt"], row["test"], row["entry_point"], cpu_seconds=0.5)
        )
        statuses[verdict.status] += 1
    assert statuses["passed"] <= 0.1 * statuses.total()
    assert statuses["failed"] >= 0.55 * statuses.total()
