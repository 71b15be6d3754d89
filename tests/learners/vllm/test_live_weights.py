"""After an update the engine's log-probabilities are the learner's. Nothing less proves that weights arrived."""

from dataclasses import replace

import pytest
import torch

from corrgrpo_gym.learners.engines.vllm.local import Options, VllmEngine

from . import helpers

OPTIONS = {"dtype": "float32", "max_model_len": 64, "max_rows": 32, "kv_cache_bytes": 2**26}


@pytest.mark.parametrize("tied", [True, False])
def test_full_weights(tied):
    policy = helpers.policy(tied)
    engine = VllmEngine.of_policy(policy, Options(**OPTIONS))
    try:
        engine.push(policy, 0)
        assert helpers.sample(engine, policy)[1] < 1e-3
        for version in (1, 2):
            helpers.disturb(policy, seed=version)
            assert helpers.sample(engine, policy)[1] > 0.02  # it has the old ones
            engine.push(policy, version)
            assert helpers.sample(engine, policy)[1] < 1e-3
            assert engine.version == version
    finally:
        engine.close()


def test_adapters():
    policy = helpers.policy(lora_rank=4)
    engine = VllmEngine.of_policy(policy, Options(**OPTIONS, lora_rank=4))
    try:
        engine.push(policy, 0)
        assert helpers.sample(engine, policy)[1] < 1e-3
        for version in (1, 2, 3):
            with torch.no_grad():
                for p in policy.trainable():
                    p.add_(0.1 * torch.randn(p.shape, generator=torch.Generator().manual_seed(version)))
            assert helpers.sample(engine, policy)[1] > 0.02
            engine.push(policy, version)
            assert helpers.sample(engine, policy)[1] < 1e-3
    finally:
        engine.close()


def test_through_a_file():
    """As workers on several GPUs take them."""
    policy = helpers.policy()
    engine = VllmEngine.of_policy(policy, Options(**OPTIONS))
    try:
        engine.options = replace(engine.options, tensor_parallel=2)
        for version in (0, 1):
            engine.push(policy, version)
            assert helpers.sample(engine, policy)[1] < 1e-3
            helpers.disturb(policy, seed=version)
            assert helpers.sample(engine, policy)[1] > 0.02
    finally:
        engine.close()
