"""Engines that are built otherwise, or not at all; one at a time."""

import pytest

from corrgrpo_gym.errors import GymError
from corrgrpo_gym.learners.engines.vllm.local import Options, VllmEngine, room_for_rank

from . import helpers

OPTIONS = {"dtype": "float32", "max_model_len": 128, "max_rows": 64, "kv_cache_bytes": 2**26}


def test_top_k_reports_log_probabilities_before_the_cut():
    policy = helpers.policy()
    engine = VllmEngine.of_policy(policy, Options(**OPTIONS, cut=True))
    try:
        engine.push(policy, 0)
        groups, gap = helpers.sample(engine, policy, n=16, top_k=2)
        assert gap < 1e-3
        assert len({c.ids[0] for c in groups[0]}) <= 2
        assert helpers.sample(engine, policy, n=4, top_p=0.5)[1] < 1e-3
    finally:
        engine.close()


def test_a_model_that_vllm_does_not_know():
    policy = helpers.policy()
    policy.model.config.architectures = ["Unheard"]
    policy.model.config.num_attention_heads = 3
    with pytest.raises(GymError, match="vLLM cannot run this model"):
        VllmEngine.of_policy(policy, Options(**OPTIONS))
    # What failed is not in the way of what comes after it.
    engine = VllmEngine.of_policy(helpers.policy(), Options(**OPTIONS))
    engine.close()


def test_ranks():
    assert [room_for_rank(r) for r in (1, 8, 9, 64, 300)] == [8, 8, 16, 64, 320]
    with pytest.raises(GymError, match="lora_rank is 513"):
        room_for_rank(513)
