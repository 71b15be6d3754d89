"""After an update the engine's log-probabilities are the learner's. Nothing less proves that weights arrived."""

from dataclasses import replace

import pytest

from corrgrpo_gym.learners.engines.vllm.local import Options, VllmEngine

from . import helpers

OPTIONS = {"dtype": "float32", "max_model_len": 64, "max_rows": 32, "kv_cache_bytes": 2**26}


@pytest.mark.parametrize("tied", [True, False])
def test_full_weights(tied):
    policy = helpers.policy(tied)
    engine = VllmEngine.of_policy(policy, Options(**OPTIONS))
    try:
        helpers.follows(engine, policy, helpers.disturb)
    finally:
        engine.close()


def test_adapters():
    policy = helpers.policy(lora_rank=4)
    engine = VllmEngine.of_policy(policy, Options(**OPTIONS, lora_rank=4))
    try:
        helpers.follows(engine, policy, helpers.disturb_adapters, versions=4)
    finally:
        engine.close()


def test_through_a_file():
    """As workers on several GPUs take them."""
    policy = helpers.policy()
    engine = VllmEngine.of_policy(policy, Options(**OPTIONS))
    try:
        engine.options = replace(engine.options, tensor_parallel=2)
        helpers.follows(engine, policy, helpers.disturb)
    finally:
        engine.close()
