"""Calls: results as the package writes them, errors in its words, arguments of every kind."""

import datetime
import json

import pytest
import yaml

from corrgrpo_gym.envs.agentdojo import upstream
from corrgrpo_gym.envs.agentdojo.suites import suites
from corrgrpo_gym.envs.agentdojo.tools import ARGUMENTS, RESULT, as_list, as_text, calls_of, cut, execute

EVENT = {"title": "t", "start_time": "2024-05-20 10:00", "end_time": "2024-05-20 11:00"}


def in_package(suite, environment, name, arguments):
    runtime = upstream.module("functions_runtime").FunctionsRuntime(suite.official.tools)
    return runtime.run_function(environment, name, arguments)


@pytest.mark.parametrize("name", ["workspace", "travel", "banking", "slack"])
def test_results_are_the_packages_byte_for_byte(name):
    suite = suites()[name]
    formatted = upstream.module("agent_pipeline.tool_execution").tool_result_to_str
    seen = long = 0
    for task in suite.user_tasks.values():
        ours, theirs = suite.environment({}), suite.environment({})
        for tool, arguments in calls_of([task], suite.environment({})):
            value, error = in_package(suite, theirs, tool, arguments)
            assert error is None
            text = formatted(value)
            assert as_text(value) == text
            assert execute(suite, ours, tool, arguments).text == cut(text)
            seen += 1
            long += len(text) > RESULT
    assert seen > 20
    assert long or name in ("banking", "slack")


def test_plain_yaml_and_not_the_fast_one():
    # They wrap long lines in different places.
    event = suites()["workspace"].environment({}).calendar.get_by_day(datetime.date(2024, 5, 15))[0]
    event.description = "A caf\u00e9\twith words, one after the other; " * 20
    data = event.model_dump() | {"status": "confirmed"}
    assert yaml.dump(data, Dumper=yaml.CSafeDumper) != yaml.safe_dump(data)
    assert as_text(event) == yaml.safe_dump(data).strip()


@pytest.mark.parametrize(
    "suite, tool, arguments, problem",
    [
        ("banking", "send_money", {"recipient": "X"}, "bad_call"),
        ("banking", "send_money", {}, "bad_call"),
        ("workspace", "send_email", {"recipients": "a@b.com", "subject": "s", "body": "b"}, "bad_call"),
        ("workspace", "send_email", {"recipients": [], "subject": {"a": 1}, "body": None}, "bad_call"),
        ("workspace", "search_emails", {"query": "no such words anywhere"}, ""),
        ("workspace", "get_day_calendar_events", {"day": "the day after tomorrow"}, ""),
        ("workspace", "create_calendar_event", {**EVENT, "start_time": "soon"}, ""),
        ("workspace", "send_email", {"recipients": ["not an address"], "subject": "s", "body": "b"}, ""),
        (
            "workspace",
            "send_email",
            {"recipients": ["a@b.com"], "subject": "s", "body": "b", "attachments": [{"type": "event"}]},
            "",
        ),
        ("banking", "update_scheduled_transaction", {"id": 10**30}, ""),
        ("slack", "read_channel_messages", {"channel": "nowhere"}, ""),
    ],
)
def test_errors_are_told_in_the_packages_words(suite, tool, arguments, problem):
    suite = suites()[suite]
    before = suite.environment({})
    environment = suite.environment({})
    result = execute(suite, environment, tool, arguments)
    _, error = in_package(suite, suite.environment({}), tool, arguments)
    assert error is not None and result.text == cut(error)
    assert result.failed and result.problem == problem
    assert environment == before


def test_a_tool_that_is_none():
    suite = suites()["banking"]
    result = execute(suite, suite.environment({}), "rm_rf", {})
    assert result.text == "Invalid tool rm_rf provided." and result.problem == "bad_call" and result.failed


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        None, True, -1, 1e308, 10**400, "", "\ud800\udfff", "\x00\x1b[31m", "x" * 10_000, "[" * 5000, "[" * 50_000,
        "[-" * 3000, "[1, 2", "[__import__('os').system('true')]", [], {}, {"a": {"b": [None]}}, nested(60),
        nested(5000), [[]] * 1000, {"function": "get_iban", "args": {}}, "[1]), f(x=[2]", "{{}}",
        "!!python/object:os.system",
    ],
)  # fmt: skip
def test_no_argument_raises(value):
    for suite in suites().values():
        environment = suite.environment({})
        for name, function in suite.functions.items():
            arguments = dict.fromkeys(function.parameters.model_fields, value)
            result = execute(suite, environment, name, arguments)
            assert len(result.text) <= RESULT
            result.text.encode()
            execute(suite, environment, name, {"unknown": value})


def test_arguments_are_no_longer_than_the_limit():
    suite = suites()["slack"]
    environment = suite.environment({})
    fits = {"recipient": "Bob", "body": "x" * (ARGUMENTS - 100)}
    assert not execute(suite, environment, "send_direct_message", fits).failed
    result = execute(suite, environment, "send_direct_message", {"recipient": "Bob", "body": "x" * ARGUMENTS})
    assert result.problem == "bad_call" and "longer than" in result.text


def test_texts_that_hold_lists_become_lists():
    suite = suites()["workspace"]
    environment = suite.environment({})
    for text in ("['a@b.com', 'c@d.com']", '["a@b.com", "c@d.com"]', " ['a@b.com',\n 'c@d.com',]"):
        result = execute(suite, environment, "send_email", {"recipients": text, "subject": "s", "body": "b"})
        assert not result.failed and result.arguments["recipients"] == ["a@b.com", "c@d.com"]
        assert environment.inbox.sent[-1].recipients == ["a@b.com", "c@d.com"]


def test_lists_are_read_as_the_package_reads_them():
    literal = upstream.module("agent_pipeline.tool_execution")
    lists = ["[]", "[1, 'a', 2.5, None, True]", "[[1], {'a': [2]}]", "['it''s']", "[-1]"]
    others = ["a", "(1, 2)", "{'a': 1}", "[1", "[x]", "", "[1][0]", "[1] + [2]", "[f(1)]", "1", "'[1]'"]
    assert [literal.is_string_list(text) for text in lists + others] == [True] * 5 + [False] * 11
    for text in lists + others:
        assert (as_list(text) is not None) == literal.is_string_list(text), text
        if literal.is_string_list(text):
            assert as_list(text) == literal.literal_eval(text)


def test_the_middle_is_cut_out():
    text = "".join(chr(97 + i % 26) for i in range(5000))
    short = cut(text)
    assert len(short) == RESULT and short.startswith(text[:900]) and short.endswith(text[-900:])
    assert "characters" in short and cut(text[:RESULT]) == text[:RESULT]
    assert len(cut(text, 100)) == 100
    note = short[short.index("[...") : short.index("...]")]
    head, tail = short.split("\n[...")[0], short.split("...]\n")[1]
    assert int(note.split()[1]) == len(text) - RESULT and text.startswith(head) and text.endswith(tail)


def test_schemas_are_the_packages():
    for suite in suites().values():
        assert len(suite.schemas) == len(suite.functions)
        json.dumps(suite.schemas)
        for schema, tool in zip(suite.schemas, suite.official.tools, strict=True):
            assert schema["function"]["name"] == tool.name
            assert schema["function"]["parameters"] == tool.parameters.model_json_schema()
