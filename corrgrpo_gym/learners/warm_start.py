"""Supervised training on an environment's reference answers, before any reinforcement."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..errors import GymError
from .config import WarmStartConfig
from .engines.base import Completion, Interrupted
from .episode import Episode, Limits
from .kv import right_pad
from .policy import Policy
from .rollouts import Prompts


@dataclass(frozen=True, slots=True)
class Example:
    """What follows a task's prompt.

    Attributes:
        task: Its number.
        ids: Token ids: one answer, or all turns of an episode.
        learnt: Which of them an assistant wrote.
    """

    task: int
    ids: list[int]
    learnt: list[bool]


def examples(prompts: Prompts, end: int, limit: int) -> list[Example]:
    """Every reference answer of a split as tokens, without those of over `limit` tokens or with too long a prompt.

    A reference of several turns is played through the environment, which says what stands between them.

    Raises:
        GymError: If the environment has none, or none is short enough.
    """
    pairs = [(task, answer) for task in prompts.tasks for answer in prompts.env.reference_answers(task)]
    if not pairs:
        raise GymError(
            f"warm_start.steps is set, but {type(prompts.env).__name__} has no reference answers in split "
            f"{prompts.env.split!r}: set warm_start.steps to 0, or give the environment reference_answers()"
        )
    found = [_example(prompts, task, answer, end, limit) for task, answer in pairs]
    short = [e for e in found if len(e.ids) <= limit]
    if not short:
        raise GymError(f"warm start: every reference answer is longer than {limit} tokens")
    return short


def _example(prompts: Prompts, task: int, answer: str | Sequence[str], end: int, limit: int) -> Example:
    turns = [
        [*prompts.tokenizer.encode(text, add_special_tokens=False), end]
        for text in ([answer] if isinstance(answer, str) else answer)
    ]
    if len(turns) == 1:  # what the environment would make of it is not needed
        return Example(task, turns[0], [True] * len(turns[0]))
    episode = Episode(prompts.env.clone(), task, prompts.tokenizer, (end,), Limits(limit))
    for number, ids in enumerate(turns, 1):
        more = episode.advance(Completion(ids, [0.0] * len(ids), "stop"))
        if more is None:
            if number < len(turns) and episode.rollout.finish != "length":
                raise GymError(
                    f"{type(prompts.env).__name__}, task {prompts.env.task_id(task)}: a reference answer has "
                    f"{len(turns)} turns, but the environment ends the episode after {number}"
                )
            break
    return Example(task, episode.rollout.ids, episode.rollout.sampled)


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
    tokenizer, end = policy.tokenizer, policy.tokenizer.eos_token_id
    if end is None:
        raise GymError(f"warm start: the tokenizer of {tokenizer.name_or_path} has no end token to teach")
    pairs = examples(prompts, end, max_answer_tokens)
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
    batch: Sequence[Example],
    optimizers: Any,
    scale: float,
    budget: int,
) -> float:
    total = sum(sum(e.learnt) for e in batch)
    rows = sorted(((prompts.ids(e.task), e) for e in batch), key=lambda r: len(r[0]) + len(r[1].ids))
    for optimizer in optimizers:
        optimizer.zero_grad(set_to_none=True)
    loss_sum = 0.0
    while rows:
        count = max(1, min(len(rows), budget // max(1, len(rows[-1][0]) + len(rows[-1][1].ids))))
        chunk, rows = rows[-count:], rows[:-count]
        ids, _ = right_pad([p + e.ids for p, e in chunk], policy.device)
        learnt, _ = right_pad([[False] * len(p) + e.learnt for p, e in chunk], policy.device)
        labels = ids.masked_fill(learnt == 0, -100)
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
