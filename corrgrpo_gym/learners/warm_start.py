"""Supervised training on an environment's reference answers, before any reinforcement."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ..errors import GymError
from .config import WarmStartConfig
from .engines.base import Interrupted
from .kv import right_pad
from .policy import Policy
from .rollouts import Prompts


def reference_pairs(prompts: Prompts, limit: int = 0) -> list[tuple[int, str]]:
    """(task, answer) for each reference answer of a split, tasks whose prompt is too long left out.

    Raises:
        GymError: If the environment has none.
    """
    pairs = [(task, answer) for task in prompts.tasks for answer in prompts.env.reference_answers(task)]
    if not pairs:
        raise GymError(
            f"warm_start.steps is set, but {type(prompts.env).__name__} has no reference answers in split "
            f"{prompts.env.split!r}: set warm_start.steps to 0, or give the environment reference_answers()"
        )
    return pairs


def warm_start(
    policy: Policy,
    prompts: Prompts,
    config: WarmStartConfig,
    *,
    max_answer_tokens: int,
    micro_batch_tokens: int = 16384,
    seed: int = 0,
    progress: Callable[[int, float], None] = lambda step, loss: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> list[float]:
    """Train a policy on reference answers: mean cross entropy over the tokens of the answers and their end token.

    Args:
        policy: Is changed in place.
        prompts: The rendered training split.
        config: Steps, batch, learning rates.
        max_answer_tokens: Longer answers are left out.
        micro_batch_tokens: Padded tokens per pass.
        seed: Orders the answers.
        progress: Called with (step, loss) after each step.
        interrupted: Asked before each step; raises Interrupted.

    Returns:
        The loss of each step, in nats per token.

    Raises:
        GymError: If no reference answer is short enough.
    """
    tokenizer, end = policy.tokenizer, [policy.tokenizer.eos_token_id]
    if end == [None]:
        raise GymError(f"warm start: the tokenizer of {tokenizer.name_or_path} has no end token to teach")
    pairs = [
        (task, ids)
        for task, answer in reference_pairs(prompts)
        if len(ids := tokenizer.encode(answer, add_special_tokens=False) + end) <= max_answer_tokens
    ]
    if not pairs:
        raise GymError(f"warm start: every reference answer is longer than {max_answer_tokens} tokens")
    optimizers = _optimizers(policy.trainable(), policy.model, config)
    rng = np.random.default_rng([seed, 0x3A57])
    losses = []
    order: list[int] = []
    for step in range(config.steps):
        if interrupted():
            raise Interrupted
        while len(order) < config.batch:
            order += rng.permutation(len(pairs)).tolist()
        batch, order = [pairs[i] for i in order[: config.batch]], order[config.batch :]
        scale = min(1.0, (step + 1) / max(1.0, 0.1 * config.steps))
        scale *= 0.1 + 0.45 * (1 + math.cos(math.pi * step / config.steps))
        loss = _step(policy, prompts, batch, optimizers, scale, micro_batch_tokens)
        losses.append(loss)
        progress(step + 1, loss)
    return losses


def _step(
    policy: Policy,
    prompts: Prompts,
    batch: Sequence[tuple[int, list[int]]],
    optimizers: Any,
    scale: float,
    budget: int,
) -> float:
    total = sum(len(ids) for _, ids in batch)
    rows = sorted(((prompts.ids(task), ids) for task, ids in batch), key=lambda r: len(r[0]) + len(r[1]))
    for optimizer in optimizers:
        optimizer.zero_grad(set_to_none=True)
    loss_sum = 0.0
    while rows:
        count = max(1, min(len(rows), budget // max(1, len(rows[-1][0]) + len(rows[-1][1]))))
        chunk, rows = rows[-count:], rows[:-count]
        ids, mask = right_pad([p + a for p, a in chunk], policy.device)
        labels = ids.masked_fill(~mask, -100)
        for row, (prompt, _) in enumerate(chunk):
            labels[row, : len(prompt)] = -100
        with policy.autocast():
            logits = policy.model(input_ids=ids, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten(), ignore_index=-100, reduction="sum"
        )
        (loss / total).backward()
        loss_sum += float(loss.detach())
    torch.nn.utils.clip_grad_norm_(policy.trainable(), 1.0)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * scale
        optimizer.step()
    return loss_sum / total


def _optimizers(parameters: Sequence[torch.nn.Parameter], model: Any, config: WarmStartConfig) -> list[Any]:
    if config.optimizer == "adamw":
        optimizers: list[Any] = [torch.optim.AdamW(parameters, lr=config.lr, weight_decay=0.0)]
    else:
        outer = {id(m.weight) for m in (model.get_input_embeddings(), model.get_output_embeddings())}
        inner = [p for p in parameters if p.ndim == 2 and id(p) not in outer]
        rest = [p for p in parameters if p.ndim != 2 or id(p) in outer]
        optimizers = []  # adapters have nothing but matrices, a norm alone has none
        if rest:
            optimizers.append(torch.optim.AdamW(rest, lr=config.lr, betas=(0.9, 0.98), weight_decay=0.01))
        if inner:
            optimizers.append(torch.optim.Muon(inner, lr=config.matrix_lr, weight_decay=0.0, momentum=0.9))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return optimizers
