import pytest

from corrgrpo_gym.envs.leetcode.ast_shape import shape_of, similarity
from corrgrpo_gym.envs.leetcode.rewards import REWARD_NAMES, REWARD_WEIGHTS, efficiency, rewards
from corrgrpo_gym.envs.sandbox import Measured, Verdict

CODE = "class Solution:\n    def f(self, n):\n        return n\n"
SHAPE = shape_of(CODE)
OTHER = shape_of("class Solution:\n    def f(self, n):\n        return n + 1\n")


def score(status, *, code=CODE, fenced=True, parses=True, shape=SHAPE, seconds=0.0, reference=1.0):
    verdict = Verdict(status, code=code, fenced=fenced, parses=parses, shape=shape, cpu_seconds=seconds)
    return rewards(verdict, SHAPE, Measured(reference))


@pytest.mark.parametrize(
    ("status", "stages"),
    [
        ("syntax_error", [0, 0, 0, 0]),
        ("compile_error", [1, 0, 0, 0]),
        ("runtime_error", [1, 1, 0, 0]),
        ("timeout", [1, 1, 0, 0]),
        ("failed", [1, 1, 1, 0]),
        ("passed", [1, 1, 1, 1]),
    ],
)
def test_stages(status, stages):
    shape = None if status == "syntax_error" else SHAPE
    values = score(status, parses=shape is not None, shape=shape, seconds=0.25)
    speed = 0.75 if status == "passed" else 0.0
    assert values == (1.0, *map(float, stages), speed, float(shape is not None))


def test_nothing_earns_nothing():
    assert score("nothing", code="", fenced=False, parses=False, shape=None) == (0.0,) * 7


def test_format_wants_the_class_in_a_fenced_block():
    assert score("passed", fenced=False)[0] == 0.0
    assert score("runtime_error", code="def f(n):\n    return n")[0] == 0.0
    assert score("runtime_error", code="x = 1  # class Solution")[0] == 0.0
    assert score("runtime_error", code="class SolutionX:\n    pass")[0] == 0.0
    assert score("passed", code="@dataclass\nclass Solution:\n    pass")[0] == 1.0


def test_similarity_stands_alone():
    assert score("runtime_error", shape=OTHER)[6] == similarity(OTHER, SHAPE) < 1.0
    assert rewards(Verdict("passed", code=CODE, shape=SHAPE), None, Measured(1.0))[6] == 0.0


@pytest.mark.parametrize(
    ("seconds", "reference", "resolution", "expected"),
    [
        (0.25, 1.0, 0.0, 0.75),
        (1.0, 1.0, 0.0, 0.0),
        (3.0, 1.0, 0.0, 0.0),
        (0.0, 1.0, 0.0, 1.0),
        (0.1, 0.0, 0.0, 0.0),
        (0.92, 1.0, 0.2, 0.0),
        (1.1, 1.0, 0.2, 0.0),
        (0.85, 1.0, 0.2, 0.2),
        (0.45, 1.0, 0.2, 0.6),
        (0.09, 1.0, 0.2, 1.0),
        (0.11, 1.0, 0.2, 0.8),
        (0.0, 1.0, 0.3, 0.9),
        (0.2, 1.0, 1.0, 1.0),
        (0.6, 1.0, 1.0, 0.0),
    ],
)
def test_efficiency(seconds, reference, resolution, expected):
    assert efficiency(seconds, reference, resolution=resolution) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("seconds", "reference", "harness", "expected"),
    [
        (0.75, 1.0, 0.5, 0.5),
        (0.5, 1.0, 0.5, 1.0),
        (0.4, 1.0, 0.5, 1.0),
        (1.0, 1.0, 0.25, 0.0),
        (0.75, 1.0, 0.9, 0.5),  # at most half is taken off
        (1.0, 1.0, 2.0, 0.0),
    ],
)
def test_the_sandboxs_share_is_taken_off_both(seconds, reference, harness, expected):
    assert efficiency(seconds, reference, harness) == pytest.approx(expected)


def test_no_efficiency_without_a_reference():
    assert rewards(Verdict("passed", code=CODE, cpu_seconds=0.1), SHAPE, None)[5] == 0.0


def test_weights():
    assert dict(zip(REWARD_NAMES, REWARD_WEIGHTS["default"], strict=True)) == {
        "format": 0.05,
        "syntax": 0.05,
        "compile": 0.05,
        "runtime": 0.25,
        "accuracy": 0.60,
        "efficiency": 0.20,
        "ast_similarity": 0.30,
    }
    assert REWARD_WEIGHTS["paper-vector"] == (1.0,) * 7
