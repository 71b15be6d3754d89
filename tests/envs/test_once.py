from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest

from corrgrpo_gym.envs.once import Once


def test_threads_that_ask_at_once_compute_once():
    once: Once[int] = Once(10)
    calls = []
    start, release = Barrier(4), Event()

    def compute():
        calls.append(1)
        release.wait(10)
        return 7

    def ask():
        start.wait(10)
        return once.get("key", compute)

    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(ask) for _ in range(4)]
        release.set()
        assert [future.result(10) for future in asked] == [7] * 4
    assert len(calls) == 1


def test_errors_reach_the_caller_and_are_not_remembered():
    once: Once[int] = Once(10)
    with pytest.raises(ZeroDivisionError):
        once.get("key", lambda: 1 // 0)
    assert once.get("key", lambda: 3) == 3


def test_the_least_recently_used_is_forgotten():
    once: Once[int] = Once(2)
    for key in (1, 2, 1, 3):
        once.get(key, lambda key=key: key)
    assert once.get(1, lambda: -1) == 1
    assert once.get(2, lambda: -2) == -2
