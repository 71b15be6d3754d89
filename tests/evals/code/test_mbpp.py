# ruff: noqa: E501 - programs in texts

import pytest

from corrgrpo_gym.errors import GymError
from corrgrpo_gym.evals.code.mbpp import Mbpp

from .rows import HOSTILE, MBPP, MBPP_PLUS, passed, scored, write


@pytest.fixture
def make(tmp_path, sandbox):
    def make(rows=MBPP, name="mbpp.jsonl", **options):
        return Mbpp(write(tmp_path / name, rows), sandbox=sandbox, **options)

    return make


def test_references_of_the_test_split_pass(make):
    benchmark = make()
    names = [case.id for case in benchmark.cases]
    assert names == [f"MBPP/{number}" for number in range(11, 23)]
    assert passed(benchmark, {case.id: case.reference for case in benchmark.cases}) == names


def test_the_prompt_shows_text_and_tests(make, tmp_path):
    message = make().cases[0].messages[0]["content"]
    assert "Add." in message and "assert add(1, 2) == 3\nassert add(0, 0) == 0" in message
    assert "-1" not in message and "-1" not in make(challenge=True).cases[0].messages[0]["content"]
    file = tmp_path / "mine.txt"
    file.write_text("{text}|{tests}")
    assert make(prompt_file=file).cases[0].messages[0]["content"] == "Add.|assert add(1, 2) == 3\nassert add(0, 0) == 0"


def test_challenge_tests(make):
    answer = {"MBPP/11": "def add(a, b): return abs(a) + abs(b)"}
    assert passed(make(), answer) == ["MBPP/11"]
    assert passed(make(challenge=True), answer) == []


RIGHT = {
    "MBPP/12": "```python\nboth = lambda a, b: (a, b)\n```",
    "MBPP/13": "```python\ndef common(a, b):\n    return frozenset(a).intersection(b)\n```",
    "MBPP/15": "```python\ndef counts(xs):\n    return {x: xs.count(x) for x in xs}\n```",
    "MBPP/17": "```python\ndef check(n):\n    return n == 1\n```",
    "MBPP/19": "```python\nclass Base: pass\nclass Node(Base):\n    def __init__(self, v, left=None, right=None):\n"
    "        self.left, self.right = left, right\ndef depth(n):\n    return 1 + max(map(depth, (n.left, n.right))) if n else 0\n```",
}
WRONG = {
    "MBPP/11": "def add(a, b): return 3",
    "MBPP/12": "def both(a, b): return [a, b]",
    "MBPP/13": "def common(a, b): return [2]",
    "MBPP/14": "def phase(z): return 0",
    "MBPP/15": "def counts(xs): return []",
    "MBPP/16": "def by_number(xs): return dict(zip('01', xs))",
    "MBPP/17": "def check(n): return True",
    "MBPP/18": "def sum(a, b): return a",
    "MBPP/19": "def depth(n): return 2",
    "MBPP/20": "def pi(): return 3",
    "MBPP/21": "def lines(text): return text",
    "MBPP/22": "def match(text): return text",
}  # fmt: skip
CHEATS = {
    "MBPP/19": "class Node:\n    def __init__(self, v): pass\n    def __eq__(self, o): return True\ndef depth(n): return Node(0)",
    "MBPP/11": "class E:\n    def __eq__(self, o): return True\ndef add(a, b): return E()",
    "MBPP/20": "import math\nmath.isclose = lambda *a, **k: True\ndef pi(): return 3",
    "MBPP/17": "import sys\ndef check(n): sys.exit(0)",
    "MBPP/18": "import os\ndef sum(a, b):\n    print('passed')\n    os._exit(0)",
}


def test_right_answers(make):
    assert passed(make(), RIGHT) == list(RIGHT)


@pytest.mark.parametrize("answers", [WRONG, CHEATS])
def test_wrong_answers_and_cheats_earn_nothing(make, answers):
    assert passed(make(), {name: f"```python\n{code}\n```" for name, code in answers.items()}) == []


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_answers_earn_nothing(make, name):
    assert scored(make(), make().cases[8], HOSTILE[name]).values == {"passed": 0.0, "executable": 0.0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"test_list": []}, "any program would pass"),
        ({"test_list": "assert add(1, 2) == 3"}, "not a list of texts"),
        ({"test_list": ["assert minus(1, 2) == 3"]}, r"call no function that its code defines \(they call minus\)"),
        ({"test_list": ["assert True"]}, r"\(they call none\)"),
        ({"test_list": ["assert add(1,"]}, "don't parse"),
        ({"code": "def add(a, b:"}, "don't parse"),
        ({"code": ""}, "field 'code' is empty"),
        ({"task_id": "eleven"}, "not a number"),
        ({"text": None}, "field 'text' is missing"),
    ],
)
def test_bad_rows_are_named(make, change, message):
    row = {k: v for k, v in {**MBPP[1], **change}.items() if v is not None}
    with pytest.raises(GymError, match=r"mbpp.jsonl:2 \(.*" + message):
        make([MBPP[0], row])


def test_a_file_without_the_test_split(make):
    with pytest.raises(GymError, match="no task of the test split"):
        make([MBPP[0]])


def test_plus(make):
    benchmark = make(MBPP_PLUS, "MbppPlus-v0.2.0.jsonl", plus=True)
    references = {case.id: case.reference for case in benchmark.cases}
    assert passed(benchmark, references) == list(references)
    assert "assert set(similar_elements" in benchmark.cases[0].messages[0]["content"]
    any_order = "def similar_elements(a, b):\n    return [x for x in b if x in a]"
    as_list = "def kind(x): return 'tuple' if len(x[0]) == 2 else 'list'"
    assert passed(benchmark, {"Mbpp/2": any_order, "Mbpp/6": "def check_str(s): return s[0] == 'a'"}) == [
        "Mbpp/2",
        "Mbpp/6",
    ]
    assert scored(benchmark, benchmark.cases[1], as_list).values == {
        "passed": 0.0,
        "executable": 1.0,
        "passed_base": 1.0,
    }
    wrong = {
        "Mbpp/2": "def similar_elements(a, b): return a",
        "Mbpp/4": "def angle(a, b): return 1.57",
        "Mbpp/5": "def third(x): return 0",
    }
    assert passed(benchmark, wrong) == []
    with pytest.raises(GymError, match="no challenge tests"):
        make(MBPP_PLUS, plus=True, challenge=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"base_input": []}, "'base_input' has no inputs"),
        ({"base_input": [1]}, "not a list of lists"),
        ({"assertion": "assert True"}, "calls third 0 times, and base_input has 1"),
        ({"assertion": "assert third("}, "assertion doesn't parse"),
        ({"entry_point": "fourth"}, "doesn't define the entry_point 'fourth'"),
        ({"atol": None}, "'atol' is missing"),
    ],
)
def test_bad_rows_of_plus_are_named(make, change, message):
    row = {k: v for k, v in {**MBPP_PLUS[3], **change}.items() if v is not None}
    with pytest.raises(GymError, match=r"plus.jsonl:1 \(Mbpp/5\).*" + message):
        make([row], "plus.jsonl", plus=True)
