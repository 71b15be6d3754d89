"""What is asked of vLLM around sleep, in which order. A CPU can't sleep, so the engine here only writes down."""

import tempfile

import pytest
import torch

from corrgrpo_gym.learners.engines.vllm.local import Options, VllmEngine

from . import tiny


class Recorder:
    """In the place of the thread that owns vLLM's engine, and of the engine."""

    def __init__(self):
        self.calls = []

    def call(self, what):
        return what(self)

    def __getattr__(self, name):
        def record(*args, **kwargs):
            self.calls.append((name, *args))
            return True

        return record


@pytest.fixture
def engine(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)

    def make(**options):
        made = object.__new__(VllmEngine)
        made.options, made._pump, made.version = Options(**options), Recorder(), -1
        made._lora, made._adapters, made._asleep, made._filled = None, 0, False, False
        made._folder = tempfile.TemporaryDirectory()
        return made

    return make


def names(engine):
    calls, engine._pump.calls = engine._pump.calls, []
    return [call[:2] for call in calls]


def test_full_weights_are_dropped_asleep_and_filled_in_before_the_cache_is_back(engine):
    made, policy = engine(), tiny.policy()
    made.push(policy, 0)
    assert names(made) == [("collective_rpc", "take_learner_weights"), ("reset_prefix_cache",)]
    made.sleep()
    made.sleep()
    assert names(made) == [("sleep", 2)]  # once; level 2 keeps nothing
    made.push(policy, 1)
    assert names(made) == [
        ("wake_up", ["weights"]), ("collective_rpc", "take_learner_weights"), ("wake_up", ["kv_cache"]),
        ("reset_prefix_cache",),
    ]  # fmt: skip
    assert made.version == 1


def test_no_sleep_where_it_is_turned_off(engine):
    made = engine(sleep=False)
    made.push(tiny.policy(), 0)
    names(made)
    made.sleep()
    assert names(made) == []


def test_several_gpus_read_a_file(engine):
    made = engine(tensor_parallel=2, dtype="float32")
    made.push(tiny.policy(), 0)
    assert names(made) == [("collective_rpc", "read_learner_weights"), ("reset_prefix_cache",)]
