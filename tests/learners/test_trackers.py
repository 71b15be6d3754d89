"""Metrics reach TensorBoard's files and, by a stand-in for its package, W&B's calls."""

import sys
import types

import pytest

from corrgrpo_gym.errors import GymError
from corrgrpo_gym.learners.config import TrainConfig
from corrgrpo_gym.learners.trackers import open_trackers


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (tracker,) = open_trackers(["tensorboard"], tmp_path, TrainConfig(), False)
    for step in range(3):
        tracker.log(step, {"reward/total": step / 2})
    tracker.close()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(e.step, e.value) for e in events.Scalars("reward/total")] == [(0, 0.0), (1, 0.5), (2, 1.0)]


def test_wandb(tmp_path, monkeypatch):
    calls = []
    run = types.SimpleNamespace(
        log=lambda metrics, step: calls.append((step, metrics)), finish=lambda: calls.append("finish")
    )
    package = types.ModuleType("wandb")
    package.init = lambda **options: calls.append(options) or run
    monkeypatch.setitem(sys.modules, "wandb", package)
    (tracker,) = open_trackers(["wandb"], tmp_path / "run-1", TrainConfig(seed=7), True)
    tracker.log(4, {"loss": 0.25})
    tracker.close()
    assert calls[0]["name"] == calls[0]["id"] == "run-1" and calls[0]["resume"] == "allow"
    assert calls[0]["config"]["seed"] == 7
    assert calls[1:] == [(4, {"loss": 0.25}), "finish"]


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_missing_package_is_named(name, tmp_path, monkeypatch):
    module = {"tensorboard": "torch.utils.tensorboard", "wandb": "wandb"}[name]
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(GymError, match=rf"{name}.*pip install 'corrgrpo-gym\[{name}\]'"):
        open_trackers([name], tmp_path, TrainConfig(), False)
