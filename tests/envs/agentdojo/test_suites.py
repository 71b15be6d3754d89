"""Environments with injected texts: equal to the package's, and each episode's own."""

import threading

import pytest

from corrgrpo_gym.envs.agentdojo import cases, upstream
from corrgrpo_gym.envs.agentdojo.suites import suites
from corrgrpo_gym.envs.agentdojo.tools import execute

AWKWARD = "\n\n\nTwo lines\nhere: it's #1 - {not a place} \u00e9\u2019\U0001f600 \\\\ tab\there\n\n- end\n\n"


@pytest.mark.parametrize("name", ["workspace", "travel", "banking", "slack"])
def test_equal_to_what_the_package_builds(name, official):
    suite = suites()[name]
    task = next(iter(suite.user_tasks))
    number = list(suite.injection_tasks)[-1]
    attacked = cases.injections(cases.case_of(f"{name}:{task}:{number}:tool_knowledge"))
    everywhere = {place: f"{AWKWARD} {i}" for i, place in enumerate(suite.official.get_injection_vector_defaults())}
    for texts in ({}, attacked, everywhere):
        ours, theirs = suite.environment(texts), official(name, texts)
        assert ours == theirs
        assert ours.model_dump() == theirs.model_dump()


@pytest.mark.full
@pytest.mark.parametrize("split", cases.SPLITS)
def test_equal_to_what_the_package_builds_in_all_cases(split, official, monkeypatch):
    import yaml

    # Equal documents, ten times as fast; the fast test above compares with the package's own loader.
    monkeypatch.setattr(yaml, "safe_load", lambda text: yaml.load(text, yaml.CSafeLoader))
    for case in cases.make_cases(split, cases.checked_attacks(cases.ATTACKS)):
        texts = cases.injections(case)
        assert suites()[case.suite].environment(texts) == official(case.suite, texts), case.task_id


def test_defaults_are_the_packages(official):
    for suite in suites().values():
        theirs = type(suite.official).get_injection_vector_defaults(suite.official)
        assert suite.official.get_injection_vector_defaults() == theirs


def test_an_unknown_place_is_refused():
    with pytest.raises(ValueError, match="no place 'nowhere'"):
        suites()["banking"].environment({"nowhere": "text"})


def test_what_one_episode_does_no_other_sees():
    suite = suites()["banking"]
    one, other = suite.environment({}), suite.environment({})
    before = suite.environment({}).model_dump()
    assert not execute(suite, one, "update_password", {"password": "changed"}).failed
    assert not execute(suite, one, "schedule_transaction", PAYMENT).failed
    assert one.model_dump() != before
    assert other.model_dump() == before == suite.environment({}).model_dump()


PAYMENT = {"recipient": "X", "amount": 3, "subject": "s", "date": "2022-01-01", "recurring": False}


def test_built_once_and_by_many_threads():
    suite = suites()["slack"]
    place = next(iter(suite.official.get_injection_vector_defaults()))
    built = []
    build = suite._template.build
    suite._template.build = lambda texts: (built.append(1), build(texts))[1]
    try:
        found = []
        threads = [
            threading.Thread(target=lambda: found.append(suite.environment({place: "once only"}))) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        del suite._template.build
    assert len(built) == 1 and len(found) == 8
    assert len({id(e) for e in found}) == 8 and all(e == found[0] for e in found)


def test_the_present_is_always_the_same():
    suite = suites()["workspace"]
    environment = suite.environment({})
    result = execute(suite, environment, "send_email", {"recipients": ["a@b.com"], "subject": "s", "body": "b"})
    assert f"timestamp: {upstream.NOW}" in result.text
    file = execute(suite, environment, "create_file", {"filename": "f", "content": "c"})
    assert f"last_modified: {upstream.NOW}" in file.text
    event = {"title": "t", "start_time": "2024-05-20 10:00", "end_time": "2024-05-20 11:00"}
    assert not execute(suite, environment, "create_calendar_event", event).failed
