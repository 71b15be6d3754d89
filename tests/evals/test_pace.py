"""How requests slow down and speed up, and how long they wait."""

import asyncio
import time
from datetime import UTC, datetime

import pytest

from corrgrpo_gym.evals.models.pace import LONGEST, Pace, backoff, retry_after


def test_overload_halves_once_per_flight_and_answers_raise_by_one_a_round():
    async def session():
        pace = Pace(16)
        async with pace.slot() as first, pace.slot() as second:
            pace.overloaded(first, None)
            pace.overloaded(second, None)  # of the same flight: says nothing new
            assert pace.limit == 8
        async with pace.slot() as later:
            pace.overloaded(later, None)
        assert pace.limit == 4 and pace.status() == "slowed to 4 at once"
        for _ in range(4):
            pace.answered()
        assert 4.8 < pace.limit < 5.1
        for _ in range(500):
            pace.answered()
        assert pace.limit == 16 and pace.status() == ""
        for _ in range(20):
            async with pace.slot() as began:
                pace.overloaded(began, None)
        assert pace.limit == 1

    asyncio.run(session())


def test_no_more_fly_than_the_limit_and_nobody_is_forgotten():
    async def session():
        pace, flying, most, done = Pace(4), 0, 0, 0

        async def one(i):
            nonlocal flying, most, done
            async with pace.slot() as began:
                flying += 1
                most = max(most, flying)
                await asyncio.sleep(0.001)
                pace.overloaded(began, None) if i % 7 == 3 else pace.answered()
                flying -= 1
                done += 1

        tasks = [asyncio.create_task(one(i)) for i in range(200)]
        await asyncio.sleep(0.01)
        for task in tasks[50:80]:
            task.cancel()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 30)
        assert most <= 4 and done >= 170 and flying == 0

    asyncio.run(session())


def test_a_wait_holds_for_all():
    async def session():
        pace = Pace(4)
        async with pace.slot() as began:
            pace.overloaded(began, 60)
        assert pace.status() == "asked to wait 60 s"
        pace = Pace(4)
        async with pace.slot() as began:
            pace.overloaded(began, 0.2)
        began = time.monotonic()

        async def one():
            async with pace.slot():
                return time.monotonic() - began

        assert min(await asyncio.gather(*(one() for _ in range(3)))) >= 0.19

    asyncio.run(session())


def test_backoff_after_any_number_of_tries():
    assert LONGEST / 2 <= backoff(1100) <= LONGEST and LONGEST / 2 <= backoff(10**30) <= LONGEST


def test_backoff_grows_with_jitter_up_to_a_minute():
    for attempt, most in ((1, 0.5), (2, 1.0), (5, 8.0), (50, LONGEST)):
        waits = [backoff(attempt) for _ in range(200)]
        assert most / 2 <= min(waits) < max(waits) <= most and len(set(waits)) > 100


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None), ({"retry-after": "3"}, 3), ({"retry-after": "1.5"}, 1.5), ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT"}, 30), ({"retry-after": "Wed, 21 Oct 2026 07:20:00 GMT"}, 0),
        ({"retry-after": "Wednesday, 21-Oct-26 07:28:10 GMT"}, 10), ({"retry-after": "-4"}, 0),
        ({"retry-after": "soon"}, None), ({"retry-after": "nan"}, None), ({"retry-after": "inf"}, None),
        ({"retry-after": ""}, None), ({"retry-after-ms": "x"}, None),
    ],
)  # fmt: skip
def test_retry_after(headers, seconds):
    assert retry_after(headers, datetime(2026, 10, 21, 7, 28, 0, tzinfo=UTC)) == seconds
