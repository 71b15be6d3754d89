import json
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corrgrpo_gym.envs.tool_calls import Call, parse, split_reasoning
from corrgrpo_gym.envs.tool_calls.json_reader import BadJson, value_at, whole
from corrgrpo_gym.envs.tool_calls.pythonic import MAX_DEPTH, NotACall, calls_of
from corrgrpo_gym.errors import GymError

ANSWERS = [json.loads(line) for line in (Path(__file__).parent / "answers.jsonl").read_text().splitlines()]
PARIS = {"city": "Paris", "days": 3}
ONE = [("f", {"a": 1})]


def seen(answer, dialect="auto"):
    parsed = parse(answer, dialect)
    return [(c.name, c.arguments) for c in parsed.calls]


def reasons(answer, dialect="auto"):
    return [e.reason for e in parse(answer, dialect).errors]


@pytest.mark.parametrize("row", ANSWERS, ids=lambda row: row["case"])
def test_answers_that_break_naive_parsers(row):
    expected = {
        "exact": [("get_weather", PARIS)],
        "int_as_str": [("get_weather", {"city": "Paris", "days": "3"})],
        "call_order": [("get_weather", {"city": "Rome"}), ("get_weather", {"city": "Paris"})],
        "duplicate_call": [("get_weather", {"city": "Paris"})] * 2,
        "two_blocks": [("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Rome"})],
        "json_array": [("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Rome"})],
        "pretty_json": [("get_weather", PARIS)],
        "text_after_block": [("get_weather", PARIS)],
        "think_blank_line": [("get_weather", PARIS)],
        "tool_call_in_think": [("get_weather", PARIS)],
        "embedded_end_tag": [("get_weather", {"city": "</tool_call>", "days": 3})],
        "unicode_escape": [("search", {"q": "北京"})],
        "noarg_wrong_name": [("get_time", {})],
        "noarg_extra_param": [("get_today", {"tz": "UTC"})],
        "dup_json_key": [("get_weather", PARIS)],
        "call_plus_response": [("get_weather", PARIS)],
    }
    parsed = parse(row["output"])
    if row["case"] in ("trailing_comma", "single_quotes"):
        assert parsed.calls == () and parsed.errors[0].reason.startswith("not JSON: Expecting property name")
        return
    assert [(c.name, c.arguments) for c in parsed.calls] == expected[row["case"]]
    assert parsed.errors == () and parsed.dialect == "tags" and parsed.reasoning
    wanted = {"text_after_block": "Done.", "call_plus_response": "<response> ok </response>"}
    assert parsed.text == wanted.get(row["case"], "")


@pytest.mark.parametrize(
    ("answer", "calls", "dialect"),
    [
        ('<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>', ONE, "tags"),
        ('Let me.\n<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call> ok', ONE, "tags"),
        ('<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', ONE, "tags"),
        ('<tool_call>{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}</tool_call>', ONE, "tags"),
        ('<tool_call>{"name": "f", "parameters": {"a": 1}}, {"name": "f", "parameters": {"a": 1}}</tool_call>', ONE * 2,
         "tags"),
        ('{"name": "f", "parameters": {"a": 1}}', ONE, "json"),
        ('<|python_tag|>{"name": "f", "parameters": {"a": 1}}<|eom_id|>', ONE, "json"),
        ('{"name": "f", "parameters": {"a": 1}}; {"name": "f", "parameters": {"a": 1}}', ONE * 2, "json"),
        ('{"type": "function", "name": "f", "parameters": {"a": 1}}', ONE, "json"),
        ('{"type": "function", "function": "f", "parameters": {"a": 1}}', ONE, "json"),
        ("<|python_tag|>f.call(a=1)", [("f.call", {"a": 1})], "pythonic"),
        ('[{"name": "f", "arguments": {"a": 1}}]', ONE, "json"),
        ('```json\n{"name": "f", "arguments": {"a": 1}}\n```', ONE, "json"),
        ('[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}]', ONE, "mistral"),
        ('[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}, {"name": "f", "arguments": {"a": 1}}]', ONE * 2,
         "mistral"),
        ('[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]f{"a": 1}', ONE * 2, "mistral"),
        ("[f(a=1)]", ONE, "pythonic"),
        ("f(a=1)", ONE, "pythonic"),
        ("<|python_start|>[f(a=1), f(a=+1)]<|python_end|>", ONE * 2, "pythonic"),
        ("[ f ( a = 1 , ) ]", ONE, "pythonic"),
        ("[g.h(b='x\\'y', c=[1, -2.5, (True,)], d={'k': None, 'l': false}), now()]",
         [("g.h", {"b": "x'y", "c": [1, -2.5, [True]], "d": {"k": None, "l": False}}), ("now", {})], "pythonic"),
        ("[f(a='''x\n(''', b=\"[\")]", [("f", {"a": "x\n(", "b": "["})], "pythonic"),
    ],
)  # fmt: skip
def test_dialects(answer, calls, dialect):
    assert seen(answer) == calls
    assert parse(answer).dialect == dialect and parse(answer).errors == ()
    assert seen(answer, dialect) == calls
    assert seen("<think> [f(a=2)] <tool_call> </think>\n" + answer) == calls


@pytest.mark.parametrize(
    "text",
    [
        "", "Paris is warm.", "[1, 2, 3]", "[x] done", '{"answer": 3}', '{"city": "Paris"}', "print(x) prints x.",
        "f(x) = 3", "see [f](http://x)", "```python\nprint(1)\n```", "f(1)", "()", "{", "[",
    ],
)  # fmt: skip
def test_no_call_is_neither_a_call_nor_an_error(text):
    parsed = parse(text)
    assert parsed.calls == () and parsed.errors == () and parsed.text == text.strip() and parsed.dialect == "none"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("<tool_call></tool_call>", "an empty block"),
        ("<tool_call>f(a=1)</tool_call>", "not JSON"),
        ("<tool_call>3</tool_call>", "a call is an object with a name, not a number"),
        ("<tool_call>[]</tool_call>", "a call is an object with a name, not a list"),
        ('<tool_call>{"arguments": {}}</tool_call>', "the call has no name"),
        ('<tool_call>{"name": 3, "arguments": {}}</tool_call>', "the name is a number, not a text"),
        ('<tool_call>{"name": " ", "arguments": {}}</tool_call>', "the name is a text"),
        ('<tool_call>{"name": "f"}</tool_call>', "the call of 'f' has no arguments"),
        ('<tool_call>{"name": "f", "arguments": [1]}</tool_call>', "the arguments of 'f' are a list, not an object"),
        ('<tool_call>{"name": "f", "arguments": "x"}</tool_call>', "are a text that is not JSON"),
        ('<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>', "NaN is not a JSON value"),
        ('<tool_call>{"name": "f", "arguments": {"a": 1}}', "the block does not end"),
        ('{"name": "f", "parameters": {"a": 1}', "not JSON"),
        ('[TOOL_CALLS]f[ARGS]{"a": ', "not JSON"),
        ("[f(a=1", "not Python"),
        ("[f(1)]", "f has an argument without a name"),
        ("[f(a=x)]", "an argument is not a plain value"),
        ("[f(a=1, a=2)]", "repeated"),
        ("[f(**{'a': 1})]", "no place in a call"),
        ("[f(a=__import__('os'))]", "an argument is not a plain value"),
        ("[f(a=__import__('os').system('x'))]", "'.' has no place there"),
        ("[f(a=lambda: 1)]", "'lambda' has no place there"),
        ("[f(a={1: 2})]", "an argument is not a plain value"),
        ("[f(a=b'x')]", "not a plain value|no place"),
        ("[f(a=1j)]", "not a plain value"),
        ("[f(a=1)(b=2)]", "'\\(' has no place there"),
        ("[f(a=1e999)]", "a number is too large"),
        ('<tool_call>{"name": "f", "arguments": {"a": 1e999}}</tool_call>', "1e999 is not a JSON value"),
        ("[f(a=--1)]", "two signs"),
        ("[f(a=1), 3]", "not a call"),
    ],
)
def test_what_was_meant_as_a_call_is_an_error_with_a_reason(answer, reason):
    parsed = parse(answer)
    assert len(parsed.errors) == 1
    import re

    assert re.search(reason, parsed.errors[0].reason), parsed.errors[0].reason
    assert str(parsed.errors[0]).startswith(parsed.errors[0].reason)


def test_errors_and_calls_stand_side_by_side():
    good, bad = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>', "<tool_call>{</tool_call>"
    assert seen(good + bad + good) == ONE * 2 and len(reasons(good + bad + good)) == 1
    parsed = parse(good + bad)
    assert parsed.errors[0].position > len(good) and parsed.errors[0].excerpt


def test_native_calls():
    def message(*arguments, content=None):
        calls = [
            {"id": f"c{i}", "type": "function", "function": {"name": "f", "arguments": a}}
            for i, a in enumerate(arguments)
        ]
        return {"role": "assistant", "content": content, "tool_calls": calls}

    assert parse(message('{"a": 1}')).calls == (Call("f", {"a": 1}, "c0"),)
    assert parse(message('{"a": 1}')).dialect == "native"
    assert seen(message({"a": 1}, "", None, " ")) == [*ONE, ("f", {}), ("f", {}), ("f", {})]
    # Decoded once: a text in a text is not an object.
    assert reasons(message('"{\\"a\\": 1}"')) == ["the arguments of 'f' are a text, not an object"]
    assert "not JSON" in reasons(message("{'a': 1}"))[0]
    assert [e.position for e in parse(message("{", '{"a": 1}', "{")).errors] == [0, 2]
    # They go before what the text may hold.
    assert seen(message('{"a": 1}', content='<tool_call>{"name": "g", "arguments": {}}</tool_call>')) == ONE
    assert parse(message('{"a": 1}', content=" hm ")).text == "hm"
    assert seen({"role": "assistant", "content": "[f(a=1)]", "tool_calls": []}) == ONE
    assert parse({"role": "assistant", "content": None}).calls == ()
    deep = {"k": 1}
    for _ in range(900):
        deep = {"k": deep}
    for arguments in (deep, {1: 2}):
        assert len(reasons(message(arguments))) == 1 and seen(message(arguments)) == []
    assert len(reasons({"content": None, "tool_calls": "abc"})) == 1
    for broken in ({}, 3, None, {"function": 3}, {"function": {"name": None}}):
        assert len(parse({"role": "assistant", "content": None, "tool_calls": [broken]}).errors) == 1


def test_reasoning():
    assert split_reasoning(" <think> a </think> b") == ("a", " b")
    assert split_reasoning("a </think>b") == ("a", "b")  # the template had opened it
    assert split_reasoning("<think> a, cut") == ("a, cut", "")
    assert split_reasoning("a <think> b </think>") == ("a <think> b", "")
    assert split_reasoning("plain") == ("", "plain")
    inside = '<tool_call>{"name": "f", "arguments": {"a": "</think>"}}</tool_call>'
    assert seen(inside) == [("f", {"a": "</think>"})]
    assert parse('<think> <tool_call>{"name": "f", "arguments": {}}</tool_call>').calls == ()


def test_content_that_is_no_text():
    parts = [{"type": "text", "text": "[f("}, {"type": "image"}, 3, {"type": "text", "text": "a=1)]"}]
    assert seen({"role": "assistant", "content": parts}) == ONE
    for content in (3, {"a": 1}, [None], b"[f(a=1)]", True):
        parsed = parse({"role": "assistant", "content": content})
        assert (parsed.calls, parsed.errors, parsed.text) == ((), (), "")


# Each is a syntax tree as deep as it is long.
CHAINS = {
    "calls": "[f" + "()" * 500 + "]",
    "indices": "[f(a=x" + "[0]" * 500 + ")]",
    "sums": "[f(a=" + "1-" * 500 + "1)]",
    "numbers": "[f(a=" + "1 " * 500 + ")]",
    "lambdas": "[f(a=" + "lambda:" * 500 + "1)]",
    "nots": "[f(a=" + "not " * 500 + "1)]",
    "choices": "[f(a=" + "1 if 1 else " * 500 + "1)]",
    "attributes": "[f(a=" + "x()." * 500 + "x)]",
    "brackets": "[f(a=" + "[" * 500 + "]" * 500 + ")]",
    "signs": "[f(a=" + "-" * 500 + "1)]",
    "names": "[f" + ".f" * 500 + "()]",
}


@pytest.mark.parametrize("name", CHAINS)
def test_deep_trees_never_reach_the_parser_of_python(name, monkeypatch):
    def parser(*args, **options):
        raise AssertionError("Python's parser was given a deep text")

    monkeypatch.setattr("ast.parse", parser)
    with pytest.raises(NotACall):
        calls_of(CHAINS[name])


TOKENS = [*"fx()[]{}.,:=-+1 ", "2.5", "'s'", "not", "lambda", "if"]


@given(st.lists(st.sampled_from(TOKENS), max_size=60).map("".join))
@example("[" * 39 + "]" * 39)
@settings(max_examples=500, deadline=None)
def test_no_tree_is_deeper_than_its_brackets(text):
    import ast

    trees = []
    original = ast.parse
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ast.parse", lambda *a, **k: trees.append(original(*a, **k)) or trees[-1])
        try:
            calls_of(text)
        except NotACall:
            pass

    def depth(node):
        return 1 + max((depth(child) for child in ast.iter_child_nodes(node)), default=0)

    # A pair of brackets may be a keyword, a call and what is called; 8 dots and a sign come on top.
    assert all(depth(tree) <= 3 * MAX_DEPTH + 14 for tree in trees)
    opened = sum(map(text.count, "([{"))
    assert all(depth(tree) <= 3 * opened + 14 for tree in trees)


def test_unknown_dialects():
    with pytest.raises(GymError, match="Did you mean 'pythonic'"):
        parse("x", "pythonik")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
names = st.text(min_size=1).filter(lambda n: n.strip())
calls_strategy = st.lists(st.tuples(names, st.dictionaries(st.text(), json_values, max_size=3)), min_size=1, max_size=4)


@given(calls_strategy, st.sampled_from(["arguments", "parameters"]), st.booleans())
@settings(max_examples=200, deadline=None)
def test_what_is_written_comes_back(calls, key, ascii_only):
    objects = [json.dumps({"name": n, key: a}, ensure_ascii=ascii_only) for n, a in calls]
    tagged = "".join(f"<tool_call>\n{o}\n</tool_call>\n" for o in objects)
    lines = "<tool_call>\n" + "\n".join(objects) + "\n</tool_call>"
    native = {"content": None, "tool_calls": [{"function": {"name": n, "arguments": json.dumps(a)}} for n, a in calls]}
    for answer, dialect in ((tagged, "tags"), (lines, "tags"), ("; ".join(objects), "json"), (native, "auto")):
        assert seen(answer, dialect) == calls
        assert reasons(answer, dialect) == []
    assert seen("[TOOL_CALLS][" + ", ".join(objects) + "]", "mistral") == calls


CONSTANTS = ("true", "false", "null")
identifiers = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True).filter(
    lambda n: n not in ("true", "false", "null")
)


@given(st.lists(st.tuples(identifiers, st.dictionaries(identifiers, json_values, max_size=3)), min_size=1, max_size=3))
@settings(max_examples=200, deadline=None)
def test_what_is_written_as_python_comes_back(calls):
    import keyword

    if any(keyword.iskeyword(n) or any(map(keyword.iskeyword, a)) for n, a in calls):
        return
    text = "[" + ", ".join(f"{n}({', '.join(f'{k}={v!r}' for k, v in a.items())})" for n, a in calls) + "]"
    assert seen(text) == calls


PIECES = [
    "<tool_call>", "</tool_call>", "<think>", "</think>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", '{"name": "f", ',
    '"arguments": {', '"a": ', "}", "]", "[", "(", ")", "f(", "a=", "'", '"', "\\", ",", ";", "\n", "1", "-", ".", 
    "```",
    "\x00", "\ud800", "NaN", "é", " ",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join) | st.text())
@example("[f(a='" + "\\" * 99)
@example('{"name": "f", "arguments": ' + "9" * 5000 + "}")
@settings(max_examples=600, deadline=None)
def test_any_text_gives_an_answer(text):
    for dialect in ("auto", "tags", "mistral", "json", "pythonic"):
        parsed = parse(text, dialect)
        assert all(isinstance(c.name, str) and isinstance(c.arguments, dict) for c in parsed.calls)
        assert all(isinstance(str(e), str) and len(e.excerpt) <= 80 for e in parsed.errors)


@given(st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
@settings(max_examples=200, deadline=None)
def test_any_native_calls_give_an_answer(value):
    for calls in (value, [value], [{"function": value}], [{"function": {"name": "f", "arguments": value}}]):
        parse({"role": "assistant", "content": None, "tool_calls": calls})


DEEP = 100_000
HOSTILE = {
    "open tags": "<tool_call>" * 300_000,
    "open objects": '<tool_call>{"a": ' * 200_000,
    "brackets": "[" * 2_000_000,
    "brackets in a block": "<tool_call>" + "[" * 2_000_000,
    "deep arguments": '{"name": "f", "arguments": ' + '{"a":' * DEEP,
    "deep python": "[f(a=" + "(" * 200_000,
    "deep lists in python": "[f(a=" + "[" * 100 + "]" * 100 + ")]",
    "signs": "[f(a=" + "-" * 200_000 + "1)]",
    "dots": "[f" + ".f" * 100_000 + "(a=1)]",
    "calls of calls": "[f" + "()" * 100_000 + "]",
    "quotes": "[f(a='" + "'''x" * 60_000,
    "mistral": "[TOOL_CALLS]f" * 200_000,
    "strings with closing tags": '<tool_call>["</tool_call>",' * 100_000,
    "strings with closing tags, quoted otherwise": '<tool_call>["","</tool_call>' * 100_000,
    "a long number": '{"name": "f", "arguments": {"a": ' + "9" * 2_000_000 + "}}",
    "fences": "```\n" * 500_000,
    "thoughts": "<think>" * 300_000,
    "spaces": "<tool_call>" + " " * 3_000_000,
    "escapes": '<tool_call>{"name": "' + "\\" * 2_000_001,
    "many errors": "<tool_call>x</tool_call>" * 100_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_megabytes_of_hostile_text_are_read_in_linear_time(name):
    """Twice the text takes about twice the steps of the interpreter, and few in all."""
    text = HOSTILE[name]

    def steps(part):
        count = 0

        def trace(frame, event, arg):
            nonlocal count
            count += 1
            return trace

        sys.settrace(trace)
        try:
            parsed = parse(part)
        finally:
            sys.settrace(None)
        return count, parsed

    half, _ = steps(text[: len(text) // 2])
    full, parsed = steps(text)
    assert full <= 4 * half + 5_000
    assert len(parsed.errors) <= 100 and parsed.calls == ()


def test_many_calls_are_all_read():
    one = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
    assert seen(one * 20_000) == ONE * 20_000


def test_values_of_json():
    assert value_at('x {"a": [1]} y', 2) == ({"a": [1]}, 12)
    assert whole(" 1 ") == 1
    for text in ("", "1 2", "nan", "-Infinity", "[" * 65 + "]" * 65, "'a'", "[" * 10**6, "1" * 5000):
        with pytest.raises(BadJson):
            whole(text)
    assert whole("[" * 64 + "]" * 64)
