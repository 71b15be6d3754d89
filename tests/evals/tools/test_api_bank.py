# ruff: noqa: E501 - tables
import gzip
import json
import sys
from pathlib import Path

import pytest

from corrgrpo_gym.envs.tool_calls import Call, parse
from corrgrpo_gym.errors import GymError
from corrgrpo_gym.evals import registry
from corrgrpo_gym.evals.tools.api_bank_execution import ApiBankTools
from corrgrpo_gym.evals.tools.api_bank_text import calls_of, plain, turns_of

from .asking import native, shuffled, table, values

SHARED = Path(__file__).parents[4] / "shared/data/api_bank"
ACCOUNT = {
    "ann": {"password": "pw", "token": "t1", "email": "a@x"},
    "bo": {"password": "pb", "token": "t2", "email": "b@x"},
}
TABLES = {
    "Account": ACCOUNT,
    "Agenda": {"1": {"content": "Gym", "time": "2023-03-16 10:00:00", "location": "Hall", "username": "ann"}},
    "Alarm": {"1": {"time": "2023-03-16 07:00:00", "username": "ann"}},
    "Reminder": {"1": {"content": "Call mom", "time": "2023-03-16 14:30:00", "username": "ann"}},
    "Meeting": {"1": {"meeting_topic": "Plan", "start_time": "2023-03-20 14:00:00", "end_time": "2023-03-20 16:00:00",
                      "location": "A", "attendees": ["X", "Y"], "username": "ann"}},
    "Bank": {"ann": {"balance": 5.5}},
    "Appointments": {"12": {"patient_name": "Jo", "date": "2023-04-12", "doctor_name": "Dr. A"}},
    "HealthData": {"A1": [{"time": "2023-03-15 10:30:00", "heart_rate": 80}]},
    "Stock": {"AAPL": {"2022-01-01": 180.5}},
    "History": {"04-21": [{"Title": "x"}]},
    "Symptom": {"headache": [{"name": "Migraine"}]},
    "Scenes": {"relaxing time": [{"name": "light"}]},
    "Wiki": {}, "SpeechRecognition": {"u.wav": "hi"},
    "ImageCaptioning": [{"url": "u.jpg", "caption": "a cat"}],
    "QuestionAnswering": {"d.txt": [{"question": "Who?", "answer": "Me."}]},
}  # fmt: skip
APIS = (
    'id,类名,api_info\n1,AddAgenda,"description = ""Adds an agenda item."" input_parameters = {}"\n'
    '2,QueryStock,"description = ""The stock price."" input_parameters = {}"\n'
)


def about(name):
    return json.dumps(
        {"name": name, "description": "d", "input_parameters": {"k": {"type": "str", "description": "kk"}}}
    )


def level(number, label, dialogue="User: please\n", name="AddAgenda"):
    return {"file": f"f{number}.jsonl", "id": number, "instruction": f"Generate.\nAPI descriptions:\n{about(name)}",
            "input": f"{dialogue}Generate API Request:\n", "expected_output": f"API-Request: {label}"}  # fmt: skip


ADD = "[AddAgenda(token='t1', content='Lunch', time='2023-03-24 14:00:00', location='X')]"
LEVEL1 = [
    level(0, ADD, "User: hi\nAI: your token?\nUser: t1\n"),
    level(1, "[AddMeeting(token='t1', meeting_topic='P', start_time='2023-03-20 14:00:00', end_time='2023-03-20 15:00:00', "
             "location='A', attendees='['X', 'Y']')]"),
]  # fmt: skip
LEVEL2 = [level(2, "[ToolSearcher(keywords='stock price')]", name="ToolSearcher")]


def level3(sample, call, label, before=""):
    tool = json.dumps({"apiCode": "ToolSearcher", "description": "d", "parameters": {"keywords": {"type": "str"}}})
    return {"instruction": "Generate.\nAPI descriptions:\n", "sample_id": sample, "api_id": call,
            "input": f"{tool}\nUser: stock?\n{before}Generate API Request: \n", "output": f"API-Request: {label}"}  # fmt: skip


LEVEL3 = [
    level3(0, 0, "[ToolSearcher(keywords='QueryStock')]"),
    level3(0, 1, "[QueryStock(stock_code='AAPL', date='2022-01-01')]",
           "API-Request: [ToolSearcher(keywords='QueryStock')]->{'name': 'QueryStock'}\n"),
    level3(1, 0, "[GetToday()]"),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "level-1-api.json").write_text(json.dumps(LEVEL1))
    (tmp_path / "level-2-api.json.gz").write_bytes(gzip.compress(json.dumps(LEVEL2).encode()))
    (tmp_path / "level-3-batch-inf.json").write_text(json.dumps(LEVEL3))
    (tmp_path / "init_database").mkdir()
    for name, values_ in TABLES.items():
        (tmp_path / "init_database" / f"{name}.json").write_text(json.dumps(values_))
    (tmp_path / "all_apis.csv").write_text(APIS)
    return tmp_path


@pytest.mark.parametrize("metric", ["all_exact", "execution"])
@pytest.mark.parametrize("prompt", ["rlla", "official"])
def test_gold_empty_and_shuffled(folder, metric, prompt):
    benchmark = registry.make("api-bank", folder, metric=metric, prompt=prompt)
    columns = ("v1", "v2", "v3", "avg", "v3_dialogue")
    assert table(benchmark, lambda c: c.reference) == dict.fromkeys(columns, 100)
    assert table(benchmark, lambda c: "") == dict.fromkeys(columns, 0)
    # The last of level 2 gets level 3's first, which searches for something else; nothing is right.
    mixed = table(benchmark, shuffled(benchmark))
    assert mixed["v1"] == 0 and mixed["v3"] == 0


def test_dialogues_of_level_3(folder):
    benchmark = registry.make("api-bank", folder)
    wrong_one = table(benchmark, lambda c: "" if c.id == "v3/0-1" else c.reference)
    assert wrong_one["v3"] == 66.67 and wrong_one["v3_dialogue"] == 50
    assert [c.cluster for c in benchmark.cases[3:]] == ["v3/dialogue 0", "v3/dialogue 0", "v3/dialogue 1"]


def test_prompts(folder):
    system, user = registry.make("api-bank", folder).cases[0].messages
    assert (
        '1. Name: AddAgenda\nDescription: d\nParameters: {"k": {"description": "kk", "type": "str", "default": ""}}'
        in (system["content"])
    )
    assert "{tools}" not in system["content"] and "**Output Format**" in system["content"]
    assert user["content"] == (
        "**Dialogue Records History**\n<user> hi </user>\n<response> your token? </response>\n<user> t1 </user>"
    )
    history = registry.make("api-bank", folder).cases[4].messages[1]["content"]
    assert (
        '<tool_call>\n{"name": "ToolSearcher", "parameters": {"keywords": "QueryStock"}}\n</tool_call>\n<obs> {'
        in history
    )
    system, user = registry.make("api-bank", folder, prompt="official").cases[0].messages
    assert system["content"] == LEVEL1[0]["instruction"] and user["content"] == LEVEL1[0]["input"].strip()


RIGHT = {"token": "t1", "content": "Lunch", "time": "2023-03-24 14:00:00", "location": "X"}


def in_tags(parameters):
    return "<tool_call>" + json.dumps({"name": "AddAgenda", "parameters": parameters}) + "</tool_call>"


@pytest.mark.parametrize("prompt", ["rlla", "official"])
@pytest.mark.parametrize(
    ("answer", "right"),
    [
        (f"API-Request: {ADD}", 1), (ADD, 1), (f"Sure.\n{ADD}", 1), (ADD.replace("'", '"'), 1),
        ("<think> x </think>\n<tool_call>\n" + json.dumps({"name": "AddAgenda", "parameters": RIGHT}) + "\n</tool_call>", 1),
        (native(("AddAgenda", json.dumps(RIGHT))), 1), (native(("AddAgenda", json.dumps(RIGHT)),) , 1),
        (f"{ADD}\n{ADD}", 0), (native(("AddAgenda", json.dumps(RIGHT)), ("GetToday", "{}")), 0),
        (ADD.replace("Lunch", "lunch"), 0), (ADD.replace(", location='X'", ""), 0), (ADD.replace("AddAgenda", "addAgenda"), 0),
        (ADD.replace(")]", ", x='1')]"), 0), ("[AddAgenda(", 0), ("I can't.", 0), ("<tool_call>{</tool_call>", 0),
    ],
)  # fmt: skip
def test_all_exact(folder, prompt, answer, right):
    benchmark = registry.make("api-bank", folder, prompt=prompt)
    assert values(benchmark, benchmark.cases[0], answer) == {"right": right}


@pytest.mark.parametrize(
    ("answer", "rlla", "official"),
    [
        (f"<tool_call>garbage</tool_call> {ADD}", 0, 1),
        (f"<tool_call></tool_call> {ADD}", 0, 1),
        (f"{ADD} [TOOL_CALLS] garbage", 0, 1),
        ("<tool_call>garbage</tool_call>" + in_tags(RIGHT), 0, 0),
        (in_tags(RIGHT) + "<tool_call>" + "[" * 200, 0, 0),
        (f"<think>{in_tags({})} no</think> {ADD}", 1, 1),
        (f"<tool_call>garbage</tool_call> {ADD} {ADD}", 0, 0),
    ],
)
def test_a_call_that_cannot_be_read_is_a_call(folder, answer, rlla, official):
    for prompt, right in (("rlla", rlla), ("official", official)):
        benchmark = registry.make("api-bank", folder, prompt=prompt)
        assert values(benchmark, benchmark.cases[0], answer)["right"] == right, prompt


def test_lists_may_be_written_as_lists_or_as_texts(folder):
    benchmark = registry.make("api-bank", folder)
    case = benchmark.cases[1]
    parameters = dict(parse(case.reference, "tags").calls[0].arguments)
    assert parameters["attendees"] == ["X", "Y"]
    for attendees in (["X", "Y"], "['X', 'Y']", '["X", "Y"]'):
        answer = native(("AddMeeting", json.dumps(parameters | {"attendees": attendees})))
        assert values(benchmark, case, answer)["right"] == 1
    for attendees in (["Y", "X"], "X, Y", ["X"]):
        answer = native(("AddMeeting", json.dumps(parameters | {"attendees": attendees})))
        assert values(benchmark, case, answer)["right"] == 0


def run(name, /, **arguments):
    return ApiBankTools(TABLES, {"AddAgenda": "Adds an agenda item.", "QueryStock": "The stock price."}).run(
        Call(name, arguments), dict(TABLES)
    )


MEETING = {"token": "t1", "meeting_topic": "Plan", "start_time": "2023-03-20 14:00:00",
           "end_time": "2023-03-20 16:00:00", "location": "A", "attendees": ["X", "Y"]}  # fmt: skip


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (("GetUserToken", {"username": "ann", "password": "pw"}), ("GetUserToken", {"username": "bo", "password": "pb"}), False),
        (("AddAgenda", RIGHT), ("AddAgenda", RIGHT | {"content": " lunch "}), True),
        (("AddAgenda", RIGHT), ("AddAgenda", RIGHT | {"time": "2023-03-24 14:00"}), True),
        (("AddAgenda", RIGHT), ("AddAgenda", RIGHT | {"location": "Y"}), False),
        (("AddAgenda", RIGHT), ("AddAgenda", RIGHT | {"token": "t2"}), False),
        (("DeleteAlarm", {"token": "t1", "time": "2023-03-16 07:00:00"}),
         ("DeleteAlarm", {"token": "t1", "time": "2023-03-16 07:00"}), True),
        (("ModifyAlarm", {"token": "t1", "from_time": "2023-03-16 07:00:00", "to_time": "2023-03-16 08:00:00"}),
         ("ModifyAlarm", {"token": "t1", "from_time": "2023-03-16 07:00:00", "to_time": "2023-03-16 09:00:00"}), False),
        (("QueryMeeting", MEETING), ("QueryMeeting", MEETING | {"attendees": "['X', 'Y']"}), True),
        (("ModifyMeeting", MEETING), ("ModifyMeeting", MEETING | {"location": "B"}), False),
        (("QueryBalance", {"token": "t1"}), ("QueryBalance", {"token": "t1"}), True),
        (("QueryStock", {"stock_code": "AAPL", "date": "2022-01-01"}),
         ("QueryStock", {"stock_code": "aapl", "date": "2022-01-01"}), True),
        (("Calculator", {"formula": "(5+6)*3"}), ("Calculator", {"formula": "3*11"}), True),
        (("Calculator", {"formula": "(5+6)*3"}), ("Calculator", {"formula": "3*12"}), False),
        (("ToolSearcher", {"keywords": "QueryStock"}), ("ToolSearcher", {"keywords": "price of a stock"}), True),
        (("ToolSearcher", {"keywords": "QueryStock"}), ("ToolSearcher", {"keywords": "add agenda"}), False),
        (("Geocoding", {"address": "Paris"}), ("Geocoding", {"address": "paris "}), True),
        (("LikeCount", {"post_id": "4"}), ("LikeCount", {"post_id": 4}), True),
        (("GetToday", {}), ("GetToday", {"x": 1}), True),
        (("QueryHealthData", {"user_id": "a1", "start_time": "2023-03-15 00:00:00", "end_time": "2023-03-16 00:00:00"}),
         ("QueryHealthData", {"user_id": "A1", "start_time": "2023-03-14 00:00:00", "end_time": "2023-03-17 00:00:00"}), True),
        (("CancelRegistration", {"appointment_id": "12"}), ("CancelRegistration", {"appointment_id": 12}), True),
        (("DeleteScene", {"name": "Relaxing Time"}), ("DeleteScene", {"name": "relaxing time"}), True),
        (("RegisterUser", {"username": "cy", "password": "p", "email": "e"}),
         ("RegisterUser", {"username": "cy", "password": "q", "email": "e"}), False),
    ],
)  # fmt: skip
def test_outcomes(one, other, equal):
    first, second = run(one[0], **one[1]), run(other[0], **other[1])
    assert first is not None and second is not None
    assert (first == second) is equal


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("GetUserToken", {"username": "ann", "password": "no"}), ("GetUserToken", {}), ("QueryBalance", {"token": "none"}),
        ("DeleteAlarm", {"token": "t2", "time": "2023-03-16 07:00:00"}), ("Calculator", {"formula": "__import__('os')"}),
        ("Calculator", {"formula": "1/0"}), ("Calculator", {"formula": "9**9"}), ("Calculator", {"formula": "(" * 400}),
        ("CancelRegistration", {"appointment_id": "13"}), ("QueryStock", {"stock_code": "AAPL"}), ("ToolSearcher", {"keywords": ""}),
        ("QueryHealthData", {"user_id": "A1", "start_time": "x", "end_time": "y"}), ("QueryStock", {"stock_code": [], "date": {}}),
        ("DeleteAgenda", {"token": "t1"}), ("QueryMeeting", {"token": "t1"}),
        ("ImageCaption", {"url": "none"}), ("ModifyPassword", {"token": "t1", "old_password": "x", "new_password": "y"}),
    ],
)  # fmt: skip
def test_calls_without_an_outcome(name, arguments):
    assert run(name, **arguments) is None


def test_the_databases_stay_as_they_are():
    before = json.dumps(TABLES)
    for name, arguments in (("DeleteAccount", {"token": "t1"}), ("AddAgenda", RIGHT), ("ModifyMeeting", MEETING)):
        assert run(name, **arguments).changes
    assert json.dumps(TABLES) == before


def test_execution_follows_the_calls_before(folder):
    """After the account is deleted its token leads nowhere, so the arguments decide."""
    rows = [level(0, "[QueryBalance(token='t1')]", "User: x\nAPI-Request: [DeleteAccount(token='t1')]->success\n")]
    (folder / "level-1-api.json").write_text(json.dumps(rows))
    benchmark = registry.make("api-bank", folder, metric="execution")
    case = benchmark.cases[0]
    assert [c.name for c in case.row[1]] == ["DeleteAccount"]
    assert values(benchmark, case, "[QueryBalance(token='t1')]")["right"] == 1


def test_labels_with_quotes_in_quotes():
    (call,) = calls_of("API-Request: [AddMeeting(attendees='['A', 'B']', topic='it's', n=3, flag=True, e='')]")
    assert call.arguments == {"attendees": "['A', 'B']", "topic": "it's", "n": "3", "flag": "True", "e": ""}
    assert plain(call.arguments)["attendees"] == ["A", "B"]
    (call,) = calls_of("[R(health_data='[{'name': 'bp', 'value': '120/80'}, {'name': 'hr', 'value': '80'}]')]")
    assert plain(call.arguments) == {"health_data": [{"name": "bp", "value": "120/80"}, {"name": "hr", "value": "80"}]}
    assert calls_of("[F()]") == [Call("F", {})] and calls_of("[F(a=1)]") == [Call("F", {"a": 1})]
    assert calls_of("nothing [here]") == [] and calls_of("[F(a='x") == []


@pytest.mark.parametrize(
    "value", ["[" * 5000, "[__import__('os')]", "{1: 2", "[1, 2", "x" * 20_000, "[" + "'a'," * 5000]
)
def test_texts_that_are_no_lists_stay_texts(value):
    assert plain(value) == value


@pytest.mark.parametrize(
    "text",
    ["[F(" * 100_000, "[F(a='" + "', " * 200_000, "[F(a='" + "' " * 300_000, "[F(a=" * 150_000, "API-Request: " * 50_000,
     "[F(" + "a='b', " * 100_000, "[F(" + " " * 400_000 + "x", "[" + " " * 400_000 + "x(", "[F(a='x'" + " " * 400_000 + "x"],
)  # fmt: skip
def test_hostile_answers_are_read_in_linear_time(text):
    def steps(part):
        count = 0

        def trace(frame, event, arg):
            nonlocal count
            count += 1
            return trace

        sys.settrace(trace)
        try:
            calls_of(part)
        finally:
            sys.settrace(None)
        return count

    assert steps(text) <= 4 * steps(text[: len(text) // 2]) + 5000


def test_turns():
    assert turns_of("User: a\nAI: b\nmore\nAPI-Request: [F()]->x\nGenerate API Request:\n") == [
        ("User", "a"), ("AI", "b\nmore"), ("API-Request", "[F()]->x"),
    ]  # fmt: skip


def test_bad_data_are_named(folder):
    for options, message in (({"prompt": "rla"}, "Did you mean 'rlla'"), ({"metric": "exact"}, "all_exact")):
        with pytest.raises(GymError, match=message):
            registry.make("api-bank", folder, **options)
    (folder / "level-2-api.json.gz").write_bytes(
        gzip.compress(json.dumps([LEVEL2[0] | {"expected_output": "?"}]).encode())
    )
    with pytest.raises(GymError, match="level-2-api.json, row 0: label or APIs can't be read"):
        registry.make("api-bank", folder)
    (folder / "level-2-api.json.gz").unlink()
    with pytest.raises(GymError, match="level-2-api.json"):
        registry.make("api-bank", folder)


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the real data beside the repository")
@pytest.mark.parametrize("metric", ["all_exact", "execution"])
def test_the_published_turns(metric):
    benchmark = registry.make("api-bank", SHARED, metric=metric)
    assert [sum(c.group == g for c in benchmark.cases) for g in ("v1", "v2", "v3")] == [399, 135, 245]
    assert set(table(benchmark, lambda c: c.reference).values()) == {100}
    assert set(table(benchmark, lambda c: "").values()) == {0}
    mixed = table(benchmark, shuffled(benchmark))
    assert all(mixed[name] < 12 for name in ("v1", "v2", "v3")), mixed


def test_spaces_are_gone_through_once():
    """Backtracking would take minutes here."""
    for text in ("[F(" + " " * 1_000_000 + "x", "[F(a='x'" + " " * 1_000_000 + "x", "[F(a='x'," + " " * 1_000_000):
        assert calls_of(text) == []


def test_arguments_that_an_api_does_not_have_are_wrong(folder):
    benchmark = registry.make("api-bank", folder, metric="execution")
    case = benchmark.cases[0]
    assert values(benchmark, case, ADD)["right"] == 1
    assert values(benchmark, case, ADD.replace(")]", ", k='1')]"))["right"] == 1  # described, and of no effect
    assert values(benchmark, case, ADD.replace(")]", ", zzz='1')]"))["right"] == 0


def test_dialogues_count_where_all_their_turns_are_scored(folder):
    from corrgrpo_gym.evals.metrics import Sample

    benchmark = registry.make("api-bank", folder)
    (column,) = (c for c in benchmark.columns if c.name == "v3_dialogue")

    def sample(case, right):
        return Sample(case, "v3/dialogue 0", "v3", {"right": right})

    assert column.estimate([sample("v3/0-0", 1.0)]).count == 0
    assert column.estimate([sample("v3/0-0", 1.0), sample("v3/0-1", 0.0)]).value == 0
    several = [sample("v3/0-0", 1.0), sample("v3/0-1", 1.0), sample("v3/0-1", 0.0)]
    assert column.estimate(several).value == 0.5


def test_options_are_of_their_kind(folder):
    for options, message in (({"prompt": 5}, "prompt is 5; it takes a text"), ({"metric": True}, "it takes a text")):
        with pytest.raises(GymError, match=message):
            registry.make("api-bank", folder, **options)
    with pytest.raises(GymError, match="native_tools is 'no'; it takes true or false"):
        registry.make("bfcl", folder, native_tools="no")
