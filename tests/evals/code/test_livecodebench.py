# ruff: noqa: E501 - programs in texts

import base64
import json
import os
import pickle
import zlib

import pytest

from corrgrpo_gym.errors import GymError
from corrgrpo_gym.evals.code.livecodebench import LiveCodeBench
from corrgrpo_gym.evals.code.private_tests import text_of_pickle, unpack
from corrgrpo_gym.evals.metrics import Sample

from .rows import HOSTILE, LIVECODEBENCH, LIVECODEBENCH_ANSWERS, packed, passed, scored, write


@pytest.fixture
def make(tmp_path, sandbox):
    def make(rows=LIVECODEBENCH, **options):
        return LiveCodeBench(write(tmp_path / "test6.jsonl", rows), sandbox=sandbox, **options)

    return make


def test_right_answers_pass(make):
    assert passed(make(), LIVECODEBENCH_ANSWERS) == list(LIVECODEBENCH_ANSWERS)


def test_prompts(make, tmp_path):
    script, method = make().cases[0], make().cases[3]
    assert "Print a + b." in script.messages[0]["content"] and "standard input" in script.messages[0]["content"]
    assert "def addOne(self, n: int)" in method.messages[0]["content"]
    assert "standard input" not in method.messages[0]["content"]
    file = tmp_path / "mine.txt"
    file.write_text("{question}")
    assert make(prompt_file=file).cases[0].messages[0]["content"] == "Print a + b."


def test_columns(make):
    benchmark = make()
    assert [c.name for c in benchmark.columns] == ["pass@1", "pass@1_sound", "easy@1", "medium@1", "hard@1"]
    assert any("several answers" in c and "abc_c" in c for c in benchmark.caveats)
    samples = [Sample(c.id, c.id, c.group, {"passed": float(c.id.startswith("abc"))}) for c in benchmark.cases]
    values = [c.estimate(samples).value for c in benchmark.columns]
    assert values == pytest.approx([0.5, 0.4, 1.0, 0.5, 0.0])


WRONG = {
    "abc_a": "print(3)",
    "abc_b": "print(int(input()) // 2)",
    "abc_c": "print(*range(1, int(input()) + 1))",
    "3001": "class Solution:\n    def addOne(self, n): return n",
    "3002": "class Solution:\n    def pairUp(self, a, b): return [(a, *b)]",
    "3003": "class Solution:\n    def half(self, n): return '1.5'",
}
CHEATS = {
    "abc_a": "import sys\nprint('passed')\nsys.exit(0)",
    "abc_b": "import decimal, os\ndecimal.Decimal.__eq__ = lambda *a: True\nprint('sNaN')",
    "abc_c": "import os\nos._exit(0)",
    "3001": "class Solution:\n    def addOne(self, n):\n        class E(int):\n            def __eq__(self, o): return True\n        return E(0)",
    "3002": "import sys\nclass Solution:\n    def pairUp(self, a, b): sys.exit(0)",
    "3003": "class Solution:\n    seen = []\n    def half(self, n):\n        self.seen.append(n)\n        return 1.5 if len(self.seen) == 1 else 0.5",
}


@pytest.mark.parametrize("answers", [WRONG, CHEATS])
def test_wrong_answers_and_cheats_earn_nothing(make, answers):
    assert passed(make(), {name: f"```python\n{code}\n```" for name, code in answers.items()}) == []


@pytest.mark.parametrize("case", [0, 3])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_answers_earn_nothing(make, name, case):
    assert scored(make(), make().cases[case], HOSTILE[name]).values == {"passed": 0.0, "executable": 0.0}


PRINTED = [
    ("0.5", "0.50", True),
    ("1 2.0", "1.0 2", True),
    ("a b", "a b  \n", True),
    ("a\nb", "a \r\nb\n\n", True),
    ("50000000000000000", "50000000000000001", False),
    ("0.1", "0.1000000001", False),
    ("a  b", "a b", False),
    ("1", "1\n\n1", False),
    ("YES", "yes", False),
    ("nan", "NaN", False),
    ("1e1", "10", True),
    ("", "0", False),
    ("\n", "", True),
]


@pytest.mark.parametrize(("wanted", "printed", "right"), PRINTED)
def test_what_counts_as_the_same_output(make, wanted, printed, right):
    test = [{"input": "", "output": wanted, "testtype": "stdin"}]
    row = {**LIVECODEBENCH[0], "public_test_cases": json.dumps(test), "private_test_cases": ""}
    answer = f"```python\nprint({printed!r}, end='')\n```"
    assert bool(passed(make([row]), {"abc_a": answer})) == right


def test_the_first_failure_ends_it(make):
    code = "```python\nimport time\na, b = map(int, input().split())\nif a != 1: time.sleep(60)\nprint(0)\n```"
    score = scored(make(), make().cases[0], code)
    assert score.detail["status"] == "failed" and "test 0" in score.detail["detail"]


def test_each_test_has_its_own_time(make):
    tests = [{"input": "x", "output": "x", "testtype": "stdin"}] * 4
    row = {**LIVECODEBENCH[0], "public_test_cases": json.dumps(tests), "private_test_cases": "[]"}
    burn = "```python\nimport time\nwhile time.process_time() < {}: pass\nprint(input())\n```"
    benchmark = make([row], cpu_seconds=1.0)
    assert scored(benchmark, benchmark.cases[0], burn.format(0.4)).detail["status"] == "passed"
    assert scored(benchmark, benchmark.cases[0], burn.format(9)).detail["status"] == "timeout"


# -- private tests

TESTS = [{"input": "é\n", "output": "2", "testtype": "stdin"}]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_published_private_tests_are_read(protocol):
    assert json.loads(unpack(packed(TESTS, protocol))) == TESTS
    assert json.loads(unpack(packed(TESTS * 5000, protocol))) == TESTS * 5000


def test_private_tests_may_be_json():
    assert unpack(json.dumps(TESTS)) == json.dumps(TESTS) and unpack("") == ""


class _Calls:
    def __init__(self, function, *arguments):
        self.what = function, arguments

    def __reduce__(self):
        return self.what


class _Text(str):
    pass


def _wrapped(data):
    return base64.b64encode(zlib.compress(data)).decode()


def _hostile(tmp_path):
    return {
        "a call": pickle.dumps(_Calls(os.mkdir, str(tmp_path / "made"))),
        "a call of eval": pickle.dumps(_Calls(eval, f"__import__('os').mkdir({str(tmp_path / 'made')!r})")),
        "a call beside a text": pickle.dumps(["[]", _Calls(os.mkdir, str(tmp_path / "made"))]),
        "a text's subclass": pickle.dumps(_Text("[]")),
        "a class": pickle.dumps(os.mkdir),
        "an opcode by hand": f"cos\nmkdir\n(V{tmp_path / 'made'}\ntR.".encode(),
        "a persistent id": b"Pmade\n.",
        "a list": pickle.dumps(["[]"]),
        "bytes": pickle.dumps(b"[]"),
        "a number": pickle.dumps(5),
        "two texts": b"\x8c\x02[]\x8c\x02[].",
        "no end": b"\x8c\x02[]",
        "nothing": b"",
        "an end alone": b".",
        "a length that lies": b"X\xff\xff\xff\x7f[].",
        "no pickle": b"[]",
    }


def test_pickles_that_are_more_than_a_text_are_refused_and_not_run(make, tmp_path):
    for name, data in _hostile(tmp_path).items():
        with pytest.raises(ValueError, match="private tests"):
            text_of_pickle(data)
        row = {**LIVECODEBENCH[0], "private_test_cases": _wrapped(data)}
        with pytest.raises(GymError, match=r"test6.jsonl:1 \(abc_a\): the private tests"):
            make([row])
        assert not (tmp_path / "made").exists(), name


@pytest.mark.parametrize(
    "field",
    ["!", "abc", _wrapped(pickle.dumps("[]"))[:-8], base64.b64encode(b"no zlib").decode(), "cos\nsystem\n."],
)
def test_damaged_private_tests_are_refused(field):
    with pytest.raises(ValueError, match="private tests"):
        unpack(field)


def test_private_tests_are_limited_in_size(monkeypatch):
    monkeypatch.setattr("corrgrpo_gym.evals.code.private_tests.MAX_BYTES", 1000)
    with pytest.raises(ValueError, match="over 1 GiB"):
        unpack(_wrapped(pickle.dumps("a" * 2000)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"question_content": ""}, "field 'question_content' is empty"),
        ({"metadata": None}, "field 'metadata' is missing"),
        ({"metadata": "{"}, "Expecting"),
        ({"metadata": json.dumps({"func_name": "a b"})}, "is no name"),
        ({"metadata": json.dumps({"func_name": "f"})}, "of type 'stdin', but the row's metadata say 'functional'"),
        ({"public_test_cases": "[1]"}, "not a list of tests"),
        ({"public_test_cases": "{"}, "not JSON"),
        ({"public_test_cases": '[{"input": 1}]'}, "test 0 has no input or output"),
        ({"public_test_cases": "[]", "private_test_cases": packed([])}, "any program would pass"),
    ],
)
def test_bad_rows_are_named(make, change, message):
    row = {k: v for k, v in {**LIVECODEBENCH[0], **change}.items() if v is not None}
    with pytest.raises(GymError, match=r"test6.jsonl:2 \(abc_a\): .*" + message):
        make([LIVECODEBENCH[1], row])


def test_a_call_that_is_no_json_is_named(make):
    test = json.dumps([{"input": "1\nx", "output": "1", "testtype": "functional"}])
    with pytest.raises(GymError, match="3001.*test 0: its input or output is not JSON"):
        make([{**LIVECODEBENCH[3], "public_test_cases": test}])
