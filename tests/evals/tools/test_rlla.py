import json
from pathlib import Path

import pytest

from corrgrpo_gym.errors import GymError
from corrgrpo_gym.evals import registry

from .asking import native, shuffled, table, values

SHARED = Path(__file__).parents[4] / "shared/data/rlla_4k"


def label(*calls, response=""):
    lines = "\n".join(json.dumps({"name": n, "parameters": p}) for n, p in calls)
    text = "<think> g </think>"
    text += f"\n<tool_call>\n{lines}\n</tool_call>" if calls else ""
    return text + (f"\n<response> {response} </response>" if response else "")


ROWS = [
    label(("f", {"a": "1", "b": "2"})),
    label(("f", {"a": "3"}), ("g", {})),
    label(response="hello"),
]


@pytest.fixture
def benchmark(tmp_path):
    path = tmp_path / "rlla_test.jsonl"
    path.write_text("".join(json.dumps({"instruction": "s", "input": "u", "output": o}) + "\n" for o in ROWS))
    return registry.make("rlla", tmp_path)


def test_gold_empty_and_shuffled(benchmark):
    assert [c.id for c in benchmark.cases] == ["test/0", "test/1", "test/2"]
    gold = table(benchmark, lambda c: c.reference)
    assert gold == {"function": 100, "param_name": 100, "param_value": 100, "all_exact": 100, "format": 100}
    empty = table(benchmark, lambda c: "")
    assert empty == {"function": 0, "param_name": 0, "param_value": 0, "all_exact": 0, "format": 0}
    # Case 0 is answered by f(a=3), g(); case 1 by words: half a function of two, half the names, no value.
    mixed = table(benchmark, shuffled(benchmark))
    assert mixed == {"function": 25, "param_name": 25, "param_value": 0, "all_exact": 0, "format": 33.33}


def test_other_dialects_are_not_the_labels(benchmark):
    case = benchmark.cases[0]
    for answer in ("f(a='1', b='2')", '[{"name": "f", "parameters": {"a": "1", "b": "2"}}]'):
        assert values(benchmark, case, answer)["all_exact"] == 0
    hermes = '<think> x </think>\n<tool_call>\n{"name": "f", "arguments": {"a": "1", "b": "2"}}\n</tool_call>'
    assert values(benchmark, case, hermes)["all_exact"] == 1
    called = native(("f", '{"a": "1", "b": "2"}'))
    assert values(benchmark, case, called) == {
        "function": 1, "param_name": 1, "param_value": 1, "all_exact": 1, "format": 1,
    }  # fmt: skip


def test_rows_without_calls_count_for_the_format_alone(benchmark):
    assert values(benchmark, benchmark.cases[2], ROWS[2]) == {
        "function": None, "param_name": None, "param_value": None, "all_exact": None, "format": 1,
    }  # fmt: skip


def test_strict_reference_and_settings(benchmark, tmp_path):
    strict = registry.make("rlla", tmp_path, strict_reference=True)
    assert strict.settings != benchmark.settings and strict.settings["data"] == benchmark.settings["data"]
    two = ROWS[1].replace('\n{"name": "g"', '\n</tool_call>\n<tool_call>\n{"name": "g"')
    assert values(benchmark, benchmark.cases[1], two)["all_exact"] == 1
    assert values(strict, strict.cases[1], two)["function"] == 0.5
    assert registry.make("rlla", "embedded").paper == {} or not getattr(registry.make("rlla", "embedded"), "paper", {})
    with pytest.raises(GymError, match="strict_referenc"):
        registry.make("rlla", tmp_path, strict_referenc=True)


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the real data beside the repository")
def test_the_published_split():
    benchmark = registry.make("rlla", SHARED)
    gold = table(benchmark, lambda c: c.reference)
    assert set(gold.values()) == {100}
    assert benchmark.columns[0].estimate([]).count == 0
    assert table(benchmark, lambda c: "")["format"] == 0
    assert table(benchmark, shuffled(benchmark))["all_exact"] < 5
