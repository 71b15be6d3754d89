import json
from pathlib import Path

import pytest

from corrgrpo_gym.envs.rlla.rewards import RANGES, matched, rewards, same, well_formed
from corrgrpo_gym.envs.tool_calls import Call, parse

ANSWERS = [
    json.loads(line) for line in (Path(__file__).parents[1] / "tool_calls/answers.jsonl").read_text().splitlines()
]
BY_NAME = {row["case"]: row for row in ANSWERS}
MINIMA = (-0.5, -1.0, -1.5)
MAXIMA = (0.5, 1.0, 1.5)


def message(text):
    return {"role": "assistant", "content": text}


def three(text, label, strict=False):
    scores = rewards(message(text), label, parse(label, "tags").calls, strict)
    return tuple(scores[name] for name in RANGES)


@pytest.mark.parametrize("row", ANSWERS, ids=lambda row: row["case"])
def test_the_reference_code_under_strict_reference(row):
    expected = (row["corr_fn"], row["corr_pname"], row["corr_pvalue"])
    assert three(row["output"], row["ground_truth"], strict=True) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("exact", MAXIMA), ("int_as_str", (0.5, 1.0, 0.0)), ("call_order", MAXIMA), ("duplicate_call", (0.5, 1.0, 0.0)),
        ("two_blocks", MAXIMA), ("json_array", MAXIMA), ("pretty_json", MAXIMA), ("trailing_comma", MINIMA),
        ("single_quotes", MINIMA), ("text_after_block", MAXIMA), ("think_blank_line", MAXIMA),
        ("tool_call_in_think", MAXIMA), ("embedded_end_tag", (0.5, 1.0, 0.0)), ("unicode_escape", MAXIMA),
        ("noarg_wrong_name", MINIMA), ("noarg_extra_param", (0.5, -1.0, 1.5)), ("dup_json_key", MAXIMA),
        ("call_plus_response", MAXIMA),
    ],
)  # fmt: skip
def test_the_definition(case, expected):
    row = BY_NAME[case]
    assert three(row["output"], row["ground_truth"]) == pytest.approx(expected)


@pytest.mark.parametrize("row", ANSWERS, ids=lambda row: row["case"])
def test_format_of_the_cases(row):
    # White space may stand between parts, which the reference code forbids.
    expected = 1.0 if row["case"] == "think_blank_line" else row["toolrl_format"]
    assert well_formed(message(row["output"]), row["ground_truth"]) == bool(expected)


CALL = '<tool_call>\n{"name": "f", "parameters": {}}\n</tool_call>'
SAID = "<response> hello </response>"


@pytest.mark.parametrize(
    ("label", "answer", "expected"),
    [
        (CALL, f"<think> a </think>\n{CALL}", True),
        (CALL, f" <think>a</think>{CALL}\n\n", True),
        (CALL, f"a </think>\n{CALL}", True),  # the template had opened it
        (CALL, f"a\n{CALL}", False),
        (CALL, CALL, False),
        (CALL, f"<think> a </think>\n{SAID}", False),
        (CALL, f"<think> a </think>\n{CALL}\n{CALL}", False),
        (CALL, f"<think> a </think> well {CALL}", False),
        (CALL, '<think> a </think><tool_call>{"name": "f", "parameters": {}}</tool_call>', False),
        (CALL, "<think> a </think>\n<tool_call>\n\n</tool_call>", True),  # the form alone
        (SAID, f"<think> a </think>\n{SAID}", True),
        (SAID, f"<think> a </think>\n{SAID} bye", False),
        (SAID, f"<think> a </think>\n{CALL}\n{SAID}", False),
        (f"{CALL}\n{SAID}", f"<think> a </think>\n{CALL}\n{SAID}", True),
        (f"{CALL}\n{SAID}", f"<think> a </think>\n{SAID}\n{CALL}", False),
        ("<think> only thoughts </think>", "<think> b </think>", True),
        ("<think> only thoughts </think>", "<think> b </think> c", False),
        (SAID, f"<think> <think> a </think>\n{SAID}", False),
        (SAID, f"{SAID} <think> a </think>", False),
        (CALL, "", False),
    ],
)
def test_format(label, answer, expected):
    assert well_formed(message(answer), label) is expected


def test_native_calls_count_as_well():
    label = '<think> g </think>\n<tool_call>\n{"name": "f", "parameters": {"a": 1}}\n</tool_call>'
    native = {"content": None, "tool_calls": [{"function": {"name": "f", "arguments": '{"a": 1}'}}]}
    wanted = parse(label, "tags").calls
    assert rewards(native, label, wanted) == {
        "format": 1.0, "function_name": 0.5, "parameter_name": 1.0, "parameter_value": 1.5,
    }  # fmt: skip
    assert rewards(native, SAID, ())["format"] == 0.0


def test_labels_without_calls_give_nothing_for_calls():
    assert rewards(message(f"<think> a </think>\n{SAID}"), SAID, ()) == {
        "format": 1.0, "function_name": 0.0, "parameter_name": 0.0, "parameter_value": 0.0,
    }  # fmt: skip
    assert matched(message(CALL), ()) == (None, None, None)


def calls(*pairs):
    return "<tool_call>\n" + "\n".join(json.dumps({"name": n, "parameters": p}) for n, p in pairs) + "\n</tool_call>"


def shares(said, wanted, strict=False):
    return matched(message("<think> a </think>\n" + calls(*said)), [Call(n, p) for n, p in wanted], strict)


def test_shares_by_hand():
    wanted = [("f", {"a": 1, "b": 2}), ("f", {"a": 3}), ("g", {})]
    assert shares(wanted, wanted) == (1, 1, 1)
    # Names f f g against f h: one in common, four in all.
    assert shares([("f", {"a": 1, "c": 2}), ("h", {})], wanted) == pytest.approx((1 / 4, (1 / 3) / 3, 1 / 3))
    # The best call is taken for each in the label's order: the second for the first of the label.
    assert shares([("f", {"a": 3}), ("f", {"a": 1, "b": 2})], wanted[:2]) == (1, 1, 1)
    # Greedy: the first of the label takes what the second would need.
    assert shares([("f", {"a": 3})], [("f", {"a": 3, "b": 1}), ("f", {"a": 3})]) == pytest.approx((1 / 2, 1 / 4, 1 / 3))
    # Calls too many cost the name reward alone.
    assert shares([*wanted, ("g", {})], wanted) == pytest.approx((3 / 4, 1, 1))


def test_calls_that_only_python_takes_for_equal_are_not_confused():
    said = [("f", {"a": True}), ("f", {"a": 1})]
    assert shares(said, said[::-1]) == (1, 1, 1) and shares(said, said) == (1, 1, 1)


def test_what_has_nothing_to_match_is_full_for_matched_calls_alone():
    assert shares([("f", {})], [("f", {}), ("g", {})]) == pytest.approx((1 / 2, 1 / 2, 1 / 2))
    assert shares([("f", {})], [("f", {}), ("g", {})], strict=True) == pytest.approx((1 / 2, 1 / 2, 1))
    assert shares([("g", {})], [("f", {})]) == (0, 0, 0)


def test_no_calls_and_broken_calls_give_the_minima():
    label = calls(("f", {"a": 1}))
    for text in ("", "f(a=1)", '{"name": "f", "parameters": {"a": 1}}', label.replace("}}", "}"), label[:-4],
                 label + "<tool_call>{</tool_call>", "<think>" + label):  # fmt: skip
        assert three(text, label) == MINIMA, text


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (1, 1.0, True), (1, "1", False), (1, True, False), (0, False, False), (True, True, True), (None, False, False),
        ([1, [2]], [1, [2.0]], True), ([1, 2], [2, 1], False), ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": 1}, {"a": True}, False), ({"a": 1}, {"a": 1, "b": None}, False), ("x", "x ", False),
    ],
)  # fmt: skip
def test_values_are_equal_as_json(a, b, equal):
    assert same(a, b) is equal and same(b, a) is equal


def test_floods_of_white_space_are_gone_through_once():
    """Backtracking would take hours here."""
    for label in (CALL, SAID, CALL + SAID):
        for text in ("\n" * 300_000 + "</think>x<tool_call>\n{}\n</tool_call>", "</think>" + " " * 300_000 + "x",
                     "</think><tool_call>" + "\n" * 300_000 + "</tool_call>" + " " * 300_000 + "x"):  # fmt: skip
            assert not well_formed(message(text), label)
