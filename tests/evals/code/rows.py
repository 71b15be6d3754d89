"""Rows of our own in the published layouts, a dozen or so per benchmark, and what writes them to files."""

# ruff: noqa: E501 - programs in texts

import base64
import gzip
import json
import pickle
import zlib

import pytest

from corrgrpo_gym.envs.sandbox import SandboxUnavailable, make_sandbox
from corrgrpo_gym.evals.models.base import Reply

TESTS = """

METADATA = {}


def check(candidate):
"""


def _human(number, head, name, arguments, doc, body, *checks):
    prompt = f'{head}def {name}({arguments}):\n    """ {doc}\n    """\n'
    test = TESTS + "".join(f"    {line}\n" for line in checks)
    row = {"prompt": prompt, "entry_point": name, "canonical_solution": body, "test": test}
    return {"task_id": f"HumanEval/{number}", **row}


HUMANEVAL = [
    _human(0, "", "double", "n", "Twice n.", "    return 2 * n\n", "assert candidate(2) == 4", "assert candidate(-1) == -2"),
    _human(1, "from typing import List\n\n\n", "largest", "xs: List[int]", "The largest.", "    return max(xs)\n", "assert candidate([1, 3, 2]) == 3"),
    _human(2, "", "even", "n", "Whether n is even.", "    return n % 2 == 0\n", "assert candidate(4)", "assert not candidate(3)"),
    _human(3, "", "half", "x", "Half of x.", "    return x / 2\n", "assert abs(candidate(3.0) - 1.5) < 1e-6"),
    # A helper of the prompt, used by the test with random inputs, as in HumanEval/32, 38 and 50.
    _human(
        4,
        "def encode(text):\n    return text[::-1]\n\n\n",
        "decode",
        "text",
        "The inverse of encode.",
        "    return text[::-1]\n",
        "from random import choice",
        "for _ in range(20):",
        "    text = ''.join(choice('abc') for _ in range(9))",
        "    assert candidate(encode(text)) == text",
    ),
    _human(5, "import math\n\n\n", "root", "n", "Whole root.", "    return math.isqrt(n)\n", "assert candidate(17) == 4"),
    _human(6, "", "pair", "a, b", "Both.", "    return (a, b)\n", "assert candidate(1, 2) == (1, 2)"),
    _human(7, "", "count", "text", "Letters by number.", "    r = {}\n    for c in text:\n        r[c] = r.get(c, 0) + 1\n    return r\n", "assert candidate('aab') == {'a': 2, 'b': 1}"),
    _human(8, "", "nothing", "xs", "The first, or None.", "    return xs[0] if xs else None\n", "assert candidate([]) is None", "assert candidate([5]) == 5"),
    # The test calls the function by its name, as in HumanEval/33.
    _human(9, "", "order", "xs", "Sorted.", "    return sorted(xs)\n", "assert tuple(candidate([2, 1])) == tuple(order([1, 2]))", "assert candidate([2, 1]) == [1, 2]"),
    _human(10, "", "squares", "n", "The first squares.", "    return [i * i for i in range(n)]\n", "assert candidate(3) == [0, 1, 4], 'Test 1'"),
    _human(11, "", "slow", "n", "Adds up to n.", "    r = 0\n    for i in range(n + 1):\n        r += i\n    return r\n", "assert candidate(1000) == 500500"),
]  # fmt: skip


def _mbpp(number, text, code, tests, setup="", challenge=()):
    row = {"text": text, "code": code.replace("\n", "\r\n"), "task_id": number, "test_setup_code": setup}
    return {**row, "test_list": list(tests), "challenge_test_list": list(challenge)}


MBPP = [
    _mbpp(1, "Of the few-shot prompt, not of the test split.", "def one(): return 1", ["assert one() == 1"]),
    _mbpp(11, "Add.", "def add(a, b):\n    return a + b", ["assert add(1, 2) == 3", "assert add(0, 0) == 0"], challenge=["assert add(-1, 1) == 0"]),
    _mbpp(12, "Both as a tuple.", "def both(a, b):\n    return a, b", ["assert both(1, 2) == (1, 2)"]),
    _mbpp(13, "Common items.", "def common(a, b):\n    return set(a) & set(b)", ["assert common([1, 2], [2]) == {2}", "assert set(common((1,), (1,))) == set((1,))"]),
    _mbpp(14, "Phase.", "import cmath\ndef phase(z):\n    return cmath.phase(z)", ["assert phase(complex(0, 1)) > 1.5"]),
    _mbpp(15, "Counts.", "from collections import Counter\ndef counts(xs):\n    return Counter(xs)", ["assert counts('aab') == {'a': 2, 'b': 1}"]),
    _mbpp(16, "By number.", "def by_number(xs):\n    return dict(enumerate(xs))", ["assert by_number('ab') == {0: 'a', 1: 'b'}"]),
    # Names that the harness uses itself.
    _mbpp(17, "Whether it is one.", "def check(n):\n    return n == 1", ["assert check(1) == True", "assert not check(2)"]),
    _mbpp(18, "Add, by a name of Python's.", "def sum(a, b):\n    return a + b", ["assert sum(1, 2) == 3"]),
    # The tests build nodes of the program's class, as in MBPP/367.
    _mbpp(
        19,
        "Depth of a tree.",
        "class Node:\n    def __init__(self, v):\n        self.data = v\n        self.left = self.right = None\n"
        "def depth(n):\n    return 0 if n is None else 1 + max(depth(n.left), depth(n.right))",
        ["assert depth(root) == 2", "assert depth(None) == 0"],
        setup="root = Node(1)\nroot.left = Node(2)\n",
    ),
    _mbpp(20, "Close to pi.", "import math\ndef pi():\n    return math.pi", ["import math\nassert math.isclose(pi(), 3.14159, rel_tol=1e-4)"]),
    _mbpp(21, "Lines.", "def lines(text):\n    return text.split('\\n')", ["assert lines('''a\nb''') == ['a',\n  'b']"]),
    _mbpp(22, "Match.", "import re\ndef match(text):\n    return re.match('a', text)", ["assert match('ab')", "assert not match('b')"]),
    _mbpp(511, "Of the validation split.", "def two(): return 2", ["assert two() == 2"]),
]  # fmt: skip

HUMANEVAL_PLUS = [
    {**HUMANEVAL[0], "base_input": [[2], [-1]], "plus_input": [[0], [10**20]], "atol": 0, "contract": ""},
    {**HUMANEVAL[3], "base_input": [[3.0]], "plus_input": [[1e-3], [7.0]], "atol": 0, "contract": ""},
]


def _mbpp_plus(number, name, code, base, plus, assertion, atol=0):
    row = {"task_id": f"Mbpp/{number}", "prompt": f'"""\nWrite {name}.\n{assertion}\n"""\n', "entry_point": name}
    row |= {"canonical_solution": f"\n{code}\n", "base_input": base, "atol": atol, "plus_input": plus}
    return {**row, "contract": "", "assertion": f"\n{assertion}\n"}


MBPP_PLUS = [
    # The order is nobody's business here, by the rule of this name.
    _mbpp_plus(2, "similar_elements", "def similar_elements(a, b):\n  return tuple(set(a) & set(b))", [[[1, 2], [2, 3]]], [[[5, 1, 9], [9, 5]]], "assert set(similar_elements((1, 2), (2, 3))) == {2}"),
    _mbpp_plus(3, "kind", "def kind(x):\n  return type(x[0]).__name__", [[[[1, 2]]]], [[[[]]], [[[3, [4]]]]], "assert kind([(1, 2)]) == 'tuple'"),
    _mbpp_plus(4, "angle", "import cmath\ndef angle(a, b):\n  return cmath.phase(a + b)", [["0", "1j"]], [["-1", "(-0-2j)"]], "import math\nassert math.isclose(angle(0, 1j), 1.57, rel_tol=0.01)"),
    _mbpp_plus(5, "third", "def third(x):\n  return x / 3", [[1]], [[10.0], [14 * 14]], "assert third(1) == 1 / 3"),
    _mbpp_plus(6, "check_str", "import re\ndef check_str(s):\n  return re.match('a', s)", [["ab"]], [["b"]], "assert check_str('ab')"),
    _mbpp_plus(7, "nothing_more", "def nothing_more(x):\n  return x", [[1]], {}, "assert nothing_more(1) == 1"),
]  # fmt: skip


def packed(tests, protocol=None):
    """Private tests as they are published."""
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests), protocol))).decode()


def _lcb(number, question, tests, function=None, starter="", difficulty="easy", public=1):
    kind = "functional" if function else "stdin"
    tests = [{"input": given, "output": wanted, "testtype": kind} for given, wanted in tests]
    return {
        "question_title": f"problem {number}",
        "question_content": question,
        "platform": "leetcode" if function else "atcoder",
        "question_id": f"{number}",
        "contest_id": "c1",
        "contest_date": "2025-01-11T18:30:00",
        "starter_code": starter,
        "difficulty": difficulty,
        "public_test_cases": json.dumps(tests[:public]),
        "private_test_cases": packed(tests[public:]),
        "metadata": json.dumps({"func_name": function} if function else {}),
    }


STARTER = "class Solution:\n    def {}(self, {}):\n        "
LIVECODEBENCH = [
    _lcb("abc_a", "Print a + b.", [("1 2\n", "3\n"), ("40 2\n", "42\n"), ("-1 1", "0")]),
    _lcb("abc_b", "Print half of n.", [("1\n", "0.5\n"), ("4\n", "2.00\n")], difficulty="medium"),
    _lcb("abc_c", "Print n lines. If there are multiple solutions, print any of them.", [("2\n", "1\n2\n"), ("0\n", "\n")]),
    _lcb("3001", "Add one.", [("1", "2"), ("41", "42")], "addOne", STARTER.format("addOne", "n: int"), difficulty="medium"),
    _lcb("3002", "Pair up.", [("1\n[2, 3]", "[1, 2, 3]"), ('"a"\n[]', '["a"]')], "pairUp", STARTER.format("pairUp", "a, b"), difficulty="hard"),
    _lcb("3003", "Half.", [("3", "1.5"), ("1", "0.5")], "half", STARTER.format("half", "n"), difficulty="hard"),
]  # fmt: skip
LIVECODEBENCH_ANSWERS = {
    "abc_a": "```python\na, b = map(int, input().split())\nprint(a + b)\n```",
    "abc_b": "```python\nprint(int(input()) / 2)\n```",
    "abc_c": "```python\nfor i in range(int(input())):\n    print(i + 1, end=' \\n')\n```",
    "3001": "```python\nclass Solution:\n    def addOne(self, n: int) -> int:\n        return n + 1\n```",
    "3002": "```python\nclass Solution:\n    def pairUp(self, a, b: List[int]):\n        return (a, *b)\n```",
    "3003": "```python\nclass Solution:\n    def half(self, n):\n        return n / 2\n```",
}

# By what they try; each must earn nothing.
HOSTILE = {
    "nothing": "",
    "a refusal": "I cannot help with that.",
    "an empty fence": "```python\n```",
    "a fence alone": "```",
    "a null byte": "```python\ndef f(): return \x00\n```",
    "a surrogate": "\ud800",
    "parentheses": "```python\n" + "(" * 5000 + "\n```",
    "a thought": "<think>```python\nprint(1)\n```",
    "html": "<html>" * 1000,
}


def write(path, rows):
    """Write rows as JSON lines, packed where the name says so."""
    data = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def scored(benchmark, case, answer):
    """Score one answer."""
    return benchmark.score(case, [Reply({"role": "assistant", "content": answer})])


def passed(benchmark, answers):
    """Score answers by case id; return ids of the cases whose answer passed."""
    cases = {case.id: case for case in benchmark.cases}
    return [name for name, answer in answers.items() if scored(benchmark, cases[name], answer).values["passed"] == 1]


def shared_sandbox():
    """A sandbox for a test module, or a skip."""
    try:
        return make_sandbox("bubblewrap", workers=2)
    except SandboxUnavailable as error:
        pytest.skip(str(error))
