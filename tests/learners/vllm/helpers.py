"""Small models that vLLM can run, and the comparison of an engine with a learner."""

import torch

from corrgrpo_gym.learners.config import PolicyConfig
from corrgrpo_gym.learners.engines.base import Sampling
from corrgrpo_gym.learners.mismatch import measure
from corrgrpo_gym.learners.policy import Policy

from .. import tiny

# vLLM's kernels want heads of 32 or more.
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 2, "num_key_value_heads": 1}
PROMPTS = [[5, 6, 7, 8, 9], [3], [4, 20, 21], list(range(10, 40))]


def policy(tied=True, vocabulary=48, **config):
    made = tiny.model("qwen2", vocabulary=vocabulary, scale=0.15, tie_word_embeddings=tied, **SIZES)
    config = PolicyConfig(**{"dtype": "float32", "device": "cpu"} | config)
    if config.lora_rank:
        from corrgrpo_gym.learners.policy import _with_lora

        made = _with_lora(made, config, list(range(3)), None)
    return Policy(made, tiny.EndOnly(), config)


def largest_gap(policy, prompts, groups, temperature=1.0):
    """Largest |log p of the learner - log p of the engine| over all sampled tokens."""
    return measure(policy, prompts, groups, temperature).largest


def disturb(policy, size=0.05, seed=0):
    """Change every trained weight by a few per cent of its spread."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in policy.trainable():
            scale = p.std() if p.numel() > 1 and float(p.std()) > 0 else torch.tensor(0.3)
            p.add_(size * scale * torch.randn(p.shape, generator=generator))


def sample(engine, policy, prompts=PROMPTS, n=4, **options):
    groups = engine.generate(prompts, n, Sampling(**{"max_new_tokens": 16, "seed": 3} | options))
    return groups, largest_gap(policy, prompts, groups, options.get("temperature", 1.0))


def follows(engine, policy, change, versions=3):
    """After each push the engine has the learner's log-probabilities, and after each change of the learner no more."""
    for version in range(versions):
        engine.push(policy, version)
        assert engine.version == version
        assert sample(engine, policy)[1] < 1e-3
        change(policy, seed=version)
        assert sample(engine, policy)[1] > 0.02


def disturb_adapters(policy, seed=0):
    """Adapters begin as zeros, so by a fixed size."""
    with torch.no_grad():
        for p in policy.trainable():
            p.add_(0.1 * torch.randn(p.shape, generator=torch.Generator().manual_seed(seed)))
