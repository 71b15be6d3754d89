# ruff: noqa: E501 - programs in texts

import pytest

from corrgrpo_gym.errors import GymError
from corrgrpo_gym.evals.code.humaneval import HumanEval
from corrgrpo_gym.evals.metrics import Sample

from .rows import HOSTILE, HUMANEVAL, HUMANEVAL_PLUS, passed, scored, write


@pytest.fixture
def make(tmp_path, sandbox):
    def make(rows=HUMANEVAL, name="HumanEval.jsonl.gz", **options):
        return HumanEval(write(tmp_path / name, rows), sandbox=sandbox, **options)

    return make


@pytest.mark.parametrize("options", [{}, {"prompt": "script"}])
def test_references_pass(make, options):
    benchmark = make(**options)
    assert len(benchmark.cases) == 12
    assert len(passed(benchmark, {case.id: case.reference for case in benchmark.cases})) == 12


def test_a_folder_of_data_sets_a_folder_and_a_file(make, tmp_path):
    (tmp_path / "humaneval").mkdir()
    path = write(tmp_path / "humaneval" / "HumanEval.jsonl", HUMANEVAL)
    for data in (tmp_path, tmp_path / "humaneval", path, str(path)):
        assert len(HumanEval(data).cases) == 12
    with pytest.raises(GymError, match="no file or folder"):
        HumanEval(tmp_path / "nowhere")
    with pytest.raises(GymError, match=r"holds none of HumanEval.jsonl\[.gz\]; it holds nothing"):
        (tmp_path / "empty").mkdir()
        HumanEval(tmp_path / "empty")


def test_prompts(make, tmp_path):
    body, script = make().cases[0].messages, make(prompt="script").cases[0].messages
    assert [m["role"] for m in body] == ["user"]
    assert HUMANEVAL[0]["prompt"] in body[0]["content"] and "body" in body[0]["content"]
    assert HUMANEVAL[0]["prompt"] in script[0]["content"] and "script" in script[0]["content"]
    file = tmp_path / "mine.txt"
    file.write_text("Do {this}: {prompt} {}")
    mine = make(prompt_file=file)
    assert mine.cases[0].messages[0]["content"] == f"Do {{this}}: {HUMANEVAL[0]['prompt']} {{}}"
    assert mine.settings["prompt_text"].startswith("mine.txt ") and mine.settings["prompt"] == "file"
    assert make().settings != make(prompt="script").settings != mine.settings
    assert any("instruction is ours" in c for c in make().caveats)
    assert not any("instruction is ours" in c for c in mine.caveats)
    file.write_text("Do this.")
    with pytest.raises(GymError, match=r"mine.txt has no {prompt}"):
        make(prompt_file=file)
    with pytest.raises(GymError, match="can't be read"):
        make(prompt_file=tmp_path / "absent.txt")
    with pytest.raises(GymError, match="unknown prompt 'bdy'. Did you mean 'body'"):
        make(prompt="bdy")


ANSWERS = {
    "HumanEval/0": "return 2 * n",
    "HumanEval/1": "```python\n    return sorted(xs)[-1]\n```",
    "HumanEval/2": "```python\ndef even(n):\n    return not n % 2\n```",
    "HumanEval/3": "import fractions\n    return float(fractions.Fraction(x) / 2)",
    "HumanEval/4": "The inverse is the same.\n\n    return encode(text)\n",
    "HumanEval/5": "```python\nfrom math import isqrt\ndef root(n): return isqrt(n)\n```",
    "HumanEval/6": "    return a, b",
    "HumanEval/7": "from collections import Counter\nreturn Counter(text)",
    "HumanEval/8": "if not xs:\n        return None\n    return xs[0]",
    "HumanEval/9": "def order(xs):\n    xs.sort()\n    return xs",
}


def test_right_answers_in_many_forms(make):
    assert passed(make(), ANSWERS) == list(ANSWERS)


WRONG = {
    "HumanEval/0": "    return n",
    "HumanEval/1": "    return xs[0]",
    "HumanEval/2": "    return True",
    "HumanEval/3": "    return x / 2 + 1e-5",
    "HumanEval/4": "    encode = lambda t: t\n    return text",
    "HumanEval/5": "    return math.sqrt(n)",
    "HumanEval/6": "    return [a, b]",
    "HumanEval/7": "    return {}",
    "HumanEval/8": "    return 0",
    "HumanEval/9": "    order = None\n    return xs",
    "HumanEval/10": "    raise AssertionError",
    "HumanEval/11": "    import os\n    os._exit(0)\n    return 0",
}


def test_wrong_answers_earn_nothing(make):
    assert passed(make(), WRONG) == []


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_answers_earn_nothing(make, name):
    score = scored(make(), make().cases[0], HOSTILE[name])
    assert score.values == {"passed": 0.0, "executable": 0.0} and score.detail["status"] != "passed"


def test_patching_helpers_of_the_prompt_changes_nothing_for_the_test(make):
    cheat = "```python\ndef encode(text): return ''\ndef decode(text): return ''\n```"
    assert scored(make(), make().cases[4], cheat).values["passed"] == 0


def test_time_is_limited_in_cpu_seconds(make):
    endless = make(cpu_seconds=0.2)
    score = scored(endless, endless.cases[0], "    while True: pass\n    return 1")
    assert score.detail["status"] == "timeout" and endless.settings["cpu_seconds"] == 0.2
    assert make().settings["cpu_seconds"] == 3.0


def test_plus(make):
    benchmark = make(HUMANEVAL_PLUS, "HumanEvalPlus-v0.1.10.jsonl", plus=True)
    assert [c.name for c in benchmark.columns] == ["pass@1", "base_pass@1"]
    assert passed(benchmark, {case.id: case.reference for case in benchmark.cases}) == ["HumanEval/0", "HumanEval/3"]
    base_only = scored(benchmark, benchmark.cases[0], "    return 2 * n if n < 5 else 0")
    assert base_only.values == {"passed": 0.0, "executable": 1.0, "passed_base": 1.0}
    assert "input 1" in base_only.detail["detail"]
    assert scored(benchmark, benchmark.cases[0], "    return 7").values["passed_base"] == 0
    close = "    return x / 2 + 1e-8"
    assert scored(benchmark, benchmark.cases[1], close).values["passed"] == 1
    assert scored(benchmark, benchmark.cases[1], "    return x / 2 + 1e-4").values["passed_base"] == 0
    assert scored(benchmark, benchmark.cases[1], "    return str(x / 2)").values["passed_base"] == 0


def test_plus_gives_slow_tasks_more_time(make):
    slow = dict(HUMANEVAL[11], base_input=[[10]], plus_input=[[1_500_000]] * 4, atol=0)
    benchmark = make([slow], plus=True, cpu_seconds=0.1)
    assert passed(benchmark, {slow["task_id"]: slow["canonical_solution"]}) == [slow["task_id"]]
    endless = "    while n > 10: pass\n    return 55"
    assert scored(benchmark, benchmark.cases[0], endless).values["passed"] == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"test": None}, r"HumanEval/0\): field 'test' is missing"),
        ({"prompt": ""}, "field 'prompt' is empty"),
        ({"prompt": 3}, "field 'prompt' is a int"),
        ({"prompt": "def double(n:\n"}, "its prompt doesn't parse"),
        ({"entry_point": "other"}, "its prompt doesn't define the entry_point 'other'"),
        ({"canonical_solution": "    return ("}, "its canonical_solution doesn't parse"),
        ({"test": "assert True"}, "defines no check"),
    ],
)
def test_bad_rows_are_named(make, change, message):
    row = {k: v for k, v in {**HUMANEVAL[0], **change}.items() if v is not None}
    with pytest.raises(GymError, match=r"HumanEval.jsonl.gz:1.*" + message):
        make([row])


def test_a_test_that_tests_nothing_is_the_rows_fault(make):
    benchmark = make([{**HUMANEVAL[0], "test": "def check(candidate):\n    pass\n"}])
    with pytest.raises(GymError, match="HumanEval/0.*without calling the candidate"):
        scored(benchmark, benchmark.cases[0], "    return 2 * n")


def test_a_repeated_id(make):
    with pytest.raises(GymError, match=":2: the id 'HumanEval/0' is that of an earlier row"):
        make([HUMANEVAL[0]] * 2)


def test_pass_at_k_columns(make):
    benchmark = make(k="1,2")
    assert [c.name for c in benchmark.columns] == ["pass@1", "pass@2"]
    samples = [Sample("HumanEval/0", "HumanEval/0", "", {"passed": float(i == 0)}) for i in range(4)]
    assert benchmark.columns[1].estimate(samples).value == pytest.approx(0.5)
    for k in (0, "a", "", [], "1,-2"):
        with pytest.raises(GymError, match="k is"):
            make(k=k)


def test_listed_tasks_are_counted_apart(make):
    rows = [{**HUMANEVAL[0], "task_id": "HumanEval/47"}, HUMANEVAL[1]]
    benchmark = make(rows)
    assert [c.name for c in benchmark.columns] == ["pass@1", "pass@1_sound"]
    samples = [Sample(name, name, "", {"passed": v}) for name, v in (("HumanEval/47", 0.0), ("HumanEval/1", 1.0))]
    assert [c.estimate(samples).value for c in benchmark.columns] == [0.5, 1.0]
    assert any(c.startswith("HumanEval/47: ") for c in benchmark.caveats)
