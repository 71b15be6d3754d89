"""Which engine a configuration gets, and what is refused before a run folder exists."""

import pytest
import torch

from corrgrpo_gym.errors import GymError
from corrgrpo_gym.learners import plan
from corrgrpo_gym.learners.config import EngineConfig, resolve
from corrgrpo_gym.learners.engines import choose
from corrgrpo_gym.learners.engines.vllm import local

from . import runs


@pytest.fixture
def machine(monkeypatch):
    """Pretend that vLLM and a GPU are here, or not."""

    def pretend(vllm, gpu):
        monkeypatch.setattr(local, "installed", lambda: vllm)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)

    return pretend


def name(**over):
    return choose.engine_name(resolve({"model": "x", "data": "embedded", **over}))


def test_auto(machine):
    for vllm, gpu, expected in [(1, 1, "vllm"), (1, 0, "transformers"), (0, 1, "transformers"), (0, 0, "transformers")]:
        machine(vllm, gpu)
        assert name() == expected
        assert name(engine={"url": "http://x:8000"}) == "vllm"
        assert name(model="embedded") == "transformers"
        assert name(engine={"name": "transformers"}) == "transformers"


def test_refused(machine):
    machine(False, True)
    with pytest.raises(GymError, match=r"vLLM is not installed. With a GPU: pip install 'corrgrpo-gym\[vllm\]'"):
        name(engine={"name": "vllm"})
    machine(True, True)
    with pytest.raises(GymError, match="leave one of them out"):
        name(engine={"name": "transformers", "url": "http://x"})
    with pytest.raises(GymError, match="needs an engine with weights of its own"):
        name(engine={"name": "transformers", "off_policy_steps": 1})
    with pytest.raises(GymError, match="set rollout.temperature=1"):
        name(rollout={"top_p": 0.9, "temperature": 0.7})
    assert name(rollout={"top_k": 20}) == "vllm"


def test_it_is_refused_before_there_is_a_run_folder(machine, tmp_path):
    machine(False, False)
    with pytest.raises(GymError, match="vLLM is not installed"):
        runs.start(tmp_path / "run", engine={"name": "vllm"})
    assert not (tmp_path / "run").exists()


def test_a_plan_for_another_machine(machine):
    machine(False, False)
    config = resolve({"model": "Qwen/Qwen2.5-Coder-0.5B-Instruct", "data": "embedded", "engine": {"name": "vllm"}})
    text = "\n".join(plan.of(config))
    assert "sampled by vllm" in text and "engine's key-value cache" in text
    with pytest.raises(GymError, match="needs an engine with weights of its own"):
        plan.of(config.model_copy(update={"engine": EngineConfig(name="transformers", off_policy_steps=1)}))
