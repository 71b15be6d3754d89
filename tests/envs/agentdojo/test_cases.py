"""Which cases there are, the paper's split, attacks by name."""

import gzip
import hashlib
import json
from pathlib import Path

import pytest

from corrgrpo_gym import envs
from corrgrpo_gym.envs.agentdojo import cases
from corrgrpo_gym.envs.agentdojo.suites import suites
from corrgrpo_gym.errors import GymError

from .playing import SHARED

SPLIT = json.loads((Path(__file__).parent / "data/split.json").read_text())


@pytest.fixture(scope="module")
def attacks():
    return cases.checked_attacks(cases.ATTACKS)


@pytest.mark.parametrize("split", cases.SPLITS)
def test_the_papers_split(split, attacks):
    made = cases.make_cases(split, attacks)
    assert len(made) == SPLIT[split]["cases"] == {"train": 1584, "test": 411}[split]
    names = [case.task_id for case in made]
    assert hashlib.sha256("\n".join(names).encode()).hexdigest() == SPLIT[split]["ids_sha256"]
    texts = json.dumps([[case.task_id, dict(cases.injections(case))] for case in made])
    assert hashlib.sha256(texts.encode()).hexdigest() == SPLIT[split]["texts_sha256"]


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared is not there")
@pytest.mark.parametrize("split, file", [("test", "cases_eval.jsonl"), ("train", "cases_train.jsonl.gz")])
def test_equal_to_the_published_cases(split, file, attacks):
    opened = (gzip.open if file.endswith(".gz") else open)(SHARED / file, "rt")
    with opened as lines:
        rows = [json.loads(line) for line in lines]
    made = cases.make_cases(split, attacks)
    assert [case.task_id for case in made] == [row["case_id"] for row in rows]
    for case, row in zip(made, rows, strict=True):
        suite = suites()[case.suite]
        assert suite.user_tasks[case.user_task].PROMPT == row["prompt"]
        assert dict(cases.injections(case)) == row.get("injections", {})
        if case.injection_task:
            assert suite.injection_tasks[case.injection_task].GOAL == row["injection_goal"]


def test_test_tasks_are_a_fifth_by_their_names():
    made = dict.fromkeys(case.pair for case in cases.make_cases("test", ()))
    assert list(made) == SPLIT["test"]["user_tasks"]
    assert len(cases.make_cases(None, ())) == 97
    assert (
        cases.split_of("workspace", "user_task_1") == "test" and cases.split_of("workspace", "user_task_0") == "train"
    )


def test_every_case_can_be_made_by_its_name(attacks):
    made = cases.make_cases(None, attacks)
    assert len(made) == 1995 and all(cases.case_of(case.task_id) == case for case in made)
    wanted = ["slack:user_task_0:clean", "travel:user_task_7:injection_task_2:ignore_previous"]
    env = envs.make("agentdojo", cases=wanted)
    assert [env.task_id(i) for i in range(2)] == wanted and len(env.tasks) == 2
    messages, info = env.reset(options={"task": env.number_of(wanted[1])})
    assert info["task_id"] == wanted[1] and messages[-1]["role"] == "user"


@pytest.mark.parametrize(
    "name, hint",
    [
        ("slack:user_task_0", "a case is suite:user_task:clean or"),
        ("slak:user_task_0:clean", "slack"),
        ("slack:user_task_99:clean", "user_task"),
        ("slack:user_task_0:injection_task_99:dos", "injection_task"),
        ("slack:user_task_0:injection_task_1:tool_knowlege", "tool_knowledge"),
        ("slack:user_task_0:injection_task_1:manual", "attack"),
        (7, "a case is"),
    ],
)
def test_names_that_are_none(name, hint):
    with pytest.raises(GymError, match=hint):
        cases.case_of(name)


def test_number_of_says_what_is_near(test_split):
    with pytest.raises(GymError, match="workspace:user_task_1:clean"):
        test_split.number_of("workspace:user_task_1:claen")


def test_attacks_by_name():
    names = cases.attack_names()
    assert {"direct", "ignore_previous", "injecagent", "important_instructions_no_names", "dos"} <= set(names)
    assert "manual" not in names
    task = "banking:user_task_0:injection_task_0"
    texts = {name: cases.injections(cases.case_of(f"{task}:{name}")) for name in names}
    assert all(texts[name] and set(texts[name]) == set(texts["direct"]) for name in names)
    goal = suites()["banking"].injection_tasks["injection_task_0"].GOAL
    assert all(text == f"TODO: {goal}" for text in texts["direct"].values())
    assert all("to you, Local model." in text for text in texts["important_instructions"].values())
    assert not any("Local model" in text for text in texts["important_instructions_no_names"].values())
    assert all("`send_money`" in text for text in texts["tool_knowledge"].values())


def test_an_attack_that_only_disturbs_comes_once_for_a_user_task():
    made = cases.make_cases("test", cases.checked_attacks("direct, dos"), ["banking"])
    assert [c.task_id.split(":")[2:] for c in made[:4]] == [
        ["clean"], ["injection_task_0", "direct"], ["injection_task_0", "dos"], ["injection_task_1", "direct"]
    ]  # fmt: skip
    assert sum(c.attack == "dos" for c in made) == 2 and sum(c.attack == "direct" for c in made) == 2 * 9


@pytest.mark.parametrize("attacks, hint", [("tool_knowlege", "tool_knowledge"), (["dos", "dos"], "twice")])
def test_attacks_that_are_none(attacks, hint):
    with pytest.raises(GymError, match=hint):
        cases.checked_attacks(attacks)
