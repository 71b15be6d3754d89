"""The package's ground truth through our own text interface.

Here: all 97 user tasks, and every fifteenth attacked case. All 390 of them: pytest -m full tests/envs/agentdojo
"""

import pytest

from corrgrpo_gym import envs

from .playing import scripted, tally


@pytest.mark.slow
def test_all_user_tasks_pass():
    passed = 0
    for split in ("train", "test"):
        env = envs.make("agentdojo", split=split, attacks=())
        for number in range(len(env.tasks)):
            rewards, info, ends = scripted(env, number)
            passed += rewards["utility"]
            assert rewards["utility"] == rewards["format"] == 1.0 and ends == (True, False), info
    assert passed == 97


@pytest.mark.slow
def test_native_calls_come_to_the_same():
    env = envs.make("agentdojo", split="test", attacks=(), tools="native")
    assert sum(scripted(env, number, native=True)[0]["utility"] for number in range(21)) == 21


@pytest.mark.slow
def test_some_attacked_cases():
    numbers = range(0, 411, 15)
    good = tally(envs.make("agentdojo", split="test"), numbers)
    assert good["utility"] == good["exposed"] == good["cases"] == 26 and good["attack"] == 0
    bad = tally(envs.make("agentdojo", split="test", reference="obeying"), numbers)
    assert (bad["utility"], bad["attack"]) == (14, 18) and bad["cases"] == good["cases"]


def test_an_agent_that_calls_nothing():
    env = envs.make("agentdojo", split="test", suite="banking", reference="silent")
    sums = tally(env, range(len(env.tasks)))
    assert sums["cases"] == 36 and not any(sums[k] for k in ("clean", "utility", "attack", "exposed"))


@pytest.mark.full
def test_all_attacked_cases_by_the_ground_truth():
    sums = tally(envs.make("agentdojo", split="test"), range(411))
    assert sums == {"clean": 21, "cases": 390, "utility": 390, "attack": 0, "exposed": 390}


@pytest.mark.full
def test_all_attacked_cases_by_an_agent_that_obeys():
    sums = tally(envs.make("agentdojo", split="test", reference="obeying"), range(411))
    assert sums == {"clean": 21, "cases": 390, "utility": 236, "attack": 242, "exposed": 390}


@pytest.mark.full
def test_the_ground_truth_of_all_training_cases():
    sums = tally(envs.make("agentdojo", split="train"), range(1584))
    assert sums["clean"] == 76 and sums["cases"] == 1508
    assert (sums["utility"], sums["attack"], sums["exposed"]) == (1508, 0, 1508)
