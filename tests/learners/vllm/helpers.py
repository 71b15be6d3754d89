"""Small models that vLLM can run, and the comparison of an engine with a learner."""

import torch

from corrgrpo_gym.learners.config import PolicyConfig
from corrgrpo_gym.learners.engines.base import Sampling
from corrgrpo_gym.learners.policy import Piece, Policy

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
    pieces = [Piece(p, [c.ids for c in group]) for p, group in zip(prompts, groups, strict=True)]
    with torch.no_grad():
        logps, mask = policy.logps(pieces, temperature)
    said = [c.logps for group in groups for c in group]
    return max(
        float((row[seen] - torch.tensor(logp)).abs().max()) for row, seen, logp in zip(logps, mask, said, strict=True)
    )


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
