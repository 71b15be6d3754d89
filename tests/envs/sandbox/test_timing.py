"""Timing by simulated clocks: what is claimed, how often it is right, and when rounds end."""

import math
import random
from collections import Counter
from itertools import product

import pytest

from corrgrpo_gym.envs.sandbox import timing
from corrgrpo_gym.envs.sandbox.timing import compare, conclude, interval, rank

HARNESS = 0.0005


def clock(ratio, base, seed, noise=0.03, spikes=0.05, busy=1.6):
    """A machine that turns busy and back, with noise and spikes; ``ratio`` is the candidate's true one."""
    chance = random.Random(seed)
    state = 1.0
    own = {"candidate": base * ratio, "reference": base, "harness": 0.0}

    def run(side):
        nonlocal state
        if chance.random() < 0.2:
            state = chance.choice([1.0, busy])
        seconds = (own[side] + HARNESS) * state * math.exp(chance.gauss(0, noise))
        return seconds * (1 + chance.expovariate(1)) if chance.random() < spikes else seconds

    return run


def rankings(ratio, base, trials=100, **options):
    return Counter(compare(clock(ratio, base, seed, **options), 60.0).ranking for seed in range(trials))


@pytest.mark.parametrize("base", [0.002, 0.02, 0.2])
def test_a_tenth_more_work_is_seen_nearly_always_and_never_the_other_way(base):
    found = rankings(1.1, base)
    assert found["slower"] >= 95 and found["faster"] == 0
    found = rankings(1 / 1.1, base)
    assert found["faster"] >= 95 and found["slower"] == 0


@pytest.mark.parametrize(("base", "noise"), [*product([0.0002, 0.002, 0.02], [0.003, 0.1])])
def test_equal_programs_are_not_told_apart(base, noise):
    assert rankings(1.0, base, noise=noise)["undecided"] >= 99


def test_without_a_margin_too_looking_five_times_errs_less_than_said(monkeypatch):
    monkeypatch.setattr(timing, "_SAME", 0.0)
    monkeypatch.setattr(timing, "_SAME_SECONDS", 0.0)
    found = rankings(1.0, 0.02, trials=400)
    assert found["undecided"] >= 400 * 0.95


def test_what_comes_second_favours_neither():
    """The second run of a pair is a twentieth cheaper, as with warm caches."""
    last = []

    def run(side):
        if side == "harness":
            return HARNESS
        last.append(side)
        return 0.02 if len(last) % 2 else 0.019

    found = compare(run, 60.0)
    assert found.ranking == "undecided" and found.ratio == pytest.approx(1.0, abs=0.06)


def test_a_machine_that_gets_slower_favours_neither():
    now = [1.0]

    def run(side):
        now[0] *= 1.002
        return (HARNESS if side == "harness" else 0.02) * now[0]

    assert compare(run, 60.0).ranking == "undecided"


def test_the_harnesss_share_is_taken_off():
    own = {"candidate": 0.003, "reference": 0.001, "harness": 0.0}
    found = compare(lambda side: own[side] + 0.002, 60.0)
    assert found.ratio == pytest.approx(3.0)
    assert (found.candidate_seconds, found.reference_seconds) == pytest.approx((0.003, 0.001))
    assert found.harness_seconds == pytest.approx(0.002)
    assert found.ranking == "slower" and found.faster_share == 0.0


def test_programs_that_take_less_than_the_harness_are_not_ranked():
    own = {"candidate": 0.0009, "reference": 0.0008, "harness": 0.001}
    found = compare(lambda side: own[side], 60.0)
    assert found.ranking == "undecided" and found.ratio == 1.0


@pytest.mark.parametrize(("seconds", "runs"), [(1e-4, 16), (0.0011, 10), (0.006, 2), (0.05, 1), (3.0, 1)])
def test_short_programs_run_several_times_in_a_round(seconds, runs):
    seen = Counter()

    def run(side):
        seen[side] += 1
        return 0.0 if side == "harness" else seconds * (3 if side == "candidate" else 1)

    found = compare(run, 1e9)
    assert (found.runs, found.rounds, found.ranking) == (runs, 8, "slower")
    assert seen["candidate"] == seen["reference"] == 8 * runs + 2


def test_the_longer_side_bounds_a_round():
    found = compare(lambda side: {"candidate": 0.0001, "reference": 0.03, "harness": 0.0}[side], 1e9)
    assert (found.runs, found.rounds, found.ranking) == (3, 8, "faster")


def test_rounds_go_on_while_it_is_close_and_while_it_is_worth_it():
    few = compare(lambda side: {"candidate": 1.2, "reference": 1.0, "harness": 0.0}[side], 0.0)
    assert (few.rounds, few.ranking, few.low, few.high) == (3, "undecided", 0.0, math.inf)
    assert few.ratio == pytest.approx(1.2) and few.faster_share == 0.0
    assert compare(lambda side: {"candidate": 1.2, "reference": 1.0, "harness": 0.0}[side], 30.0).rounds == 8

    def close():
        chance = random.Random(1)
        return lambda side: 0.0 if side == "harness" else 0.1 * math.exp(chance.gauss(0, 0.2))

    assert compare(close(), 1e9).rounds == timing.LOOKS[-1]
    assert compare(close(), 0.0).rounds == 3
    assert compare(close(), 2.0).rounds in range(8, 12)
    assert compare(lambda side: 0.0 if side == "harness" else 0.1, 1e9).rounds == 15


def test_a_long_program_needs_no_warm_up_besides_the_judges_run():
    for judged, more in ((0.6, 0), (0.4, 2)):
        seen = Counter()

        def run(side, seen=seen):
            seen[side] += 1
            return {"candidate": 1.2, "reference": 1.0, "harness": 0.0}[side]

        assert compare(run, 1e9, (judged, 2.0)).rounds == 8
        assert seen["candidate"] == seen["reference"] == 8 + more


def test_the_share_is_of_the_first_eight_rounds():
    sums = [(1.0, 2.0)] * 6 + [(2.0, 1.0)] * 9
    found = conclude(sums, 0.0, 1)
    assert found.faster_share == 6 / 8
    assert found.rounds == 15 and found.ratio == 2.0


def test_ranks_are_the_sign_tests():
    for n, error in product((1, 5, 7, 8, 15, 25, 40, 60), (0.01, 0.05)):
        k = rank(n, error)
        signs = [bin(i).count("1") for i in range(2**n)] if n <= 15 else None
        if signs:
            beyond = sum(ups < k or ups > n - k for ups in signs) / 2**n
            next_one = sum(ups < k + 1 or ups > n - k - 1 for ups in signs) / 2**n
            assert beyond <= error < next_one
        assert k <= n // 2
    assert [rank(n) for n in (7, 8, 15, 25, 40, 60)] == [0, 1, 3, 6, 12, 20]


def test_interval():
    assert interval([3.0, 1.0, 2.0]) == (0.0, math.inf)
    assert interval([float(i) for i in (5, 8, 1, 7, 2, 4, 3, 6)]) == (1.0, 8.0)
    assert interval([float(i) for i in range(15)]) == (2.0, 12.0)


def test_the_interval_holds_the_median_as_often_as_it_says():
    chance = random.Random(3)
    for n in timing.LOOKS:
        held = 0
        for _ in range(1000):
            low, high = interval([math.exp(chance.gauss(0, 1)) ** 3 for _ in range(n)])
            held += low <= 1.0 <= high
        assert held >= 980
