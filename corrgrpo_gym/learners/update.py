"""One update: a batch of scored groups and their advantages -> optimiser steps on the policy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..corrgrpo import Algorithm, BatchTotals, truncated_importance_weights
from .config import UpdateConfig
from .kv import right_pad, right_pad_floats
from .mismatch import Gaps
from .policy import Piece, Policy, micro_batches
from .rollouts import Group


def learning_rate(config: UpdateConfig, step: int, steps: int) -> float:
    """Learning rate of training step `step` (1, 2, ...) of `steps`."""
    if step <= config.warmup_steps:
        return config.lr * step / config.warmup_steps
    done = (step - config.warmup_steps - 1) / max(1, steps - config.warmup_steps)
    if config.schedule == "linear":
        return config.lr * (1 - done)
    if config.schedule == "cosine":
        return config.lr * 0.5 * (1 + math.cos(math.pi * done))
    return config.lr


class Updater:
    """Holds the optimiser and does the updates.

    Args:
        policy: What is trained.
        algorithm: Its loss is used here; its estimator has been applied before.
        config: The update section of the configuration.
        temperature: Sampling temperature: the trained log-probabilities are those of the sampled distribution.
        sampler_cap: Cap of the truncated importance weights.
        max_mismatch: Mean |old - sampler| per token at which an update is refused; 0: never.
    """

    def __init__(
        self,
        policy: Policy,
        algorithm: Algorithm,
        config: UpdateConfig,
        temperature: float,
        sampler_cap: float,
        max_mismatch: float = 0.0,
    ):
        self.policy = policy
        self.algorithm = algorithm
        self.config = config
        self.temperature = temperature
        self.sampler_cap = sampler_cap
        self.max_mismatch = max_mismatch
        self.shared = config.shared_prefix and policy.can_share
        self.optimizer = torch.optim.AdamW(
            policy.trainable(), lr=config.lr, betas=config.betas, weight_decay=config.weight_decay
        )

    def update(
        self, groups: Sequence[Group], advantages: torch.Tensor, lr: float, seed: Sequence[int]
    ) -> dict[str, float]:
        """Train on a batch.

        Args:
            groups: G groups of n rollouts.
            advantages: [G, n], already times the weight of their group where the estimator gives one.
            lr: Learning rate of this step.
            seed: Orders the mini-batches.

        Returns:
            Metrics, means over the optimiser steps (`_max`: the largest).

        Raises:
            Mismatch: The sampler was too far from the learner; the weights are as they were.
        """
        config = self.config
        for param_group in self.optimizer.param_groups:
            param_group["lr"] = lr
        pieces = [Piece(g.prompt, [r.ids for r in g.rollouts]) for g in groups]
        rollouts = [r for g in groups for r in g.rollouts]
        device = self.policy.device
        rows = _Rows(
            samples=len(groups[0].rollouts),
            advantages=advantages.reshape(-1).to(device, torch.float32),
            sampler=right_pad_floats([r.logps for r in rollouts], device),
            sampled=right_pad([r.sampled for r in rollouts], device)[0].bool(),
            kept=torch.tensor(
                [not (config.mask_truncated and r.finish == "length") for r in rollouts],
                device=device,
            ),
            lengths=torch.tensor([sum(r.sampled) for r in rollouts], device=device),
        )
        size = config.mini_batch or len(groups)
        single = config.epochs == 1 and size >= len(groups)
        old = None if single else self._old_logps(pieces, rows)
        if old is not None:
            # Now, while no optimiser step has changed the weights.
            gaps = Gaps()
            gaps.add((old - rows.sampler)[rows.sampled & rows.kept[:, None]])
            gaps.check(self.max_mismatch)
        steps = []
        for epoch in range(config.epochs):
            order = np.random.default_rng([*seed, epoch]).permutation(len(groups))
            for start in range(0, len(groups), size):
                chosen = sorted(order[start : start + size].tolist())
                steps.append(self._optimiser_step(pieces, chosen, rows, old))
        names = {name: None for step in steps for name in step}
        found = {name: [step[name] for step in steps if name in step] for name in names}
        return {"lr": lr} | {n: float(np.max(v) if n.endswith("_max") else np.mean(v)) for n, v in found.items()}

    def _optimiser_step(
        self, pieces: list[Piece], chosen: list[int], rows: "_Rows", old: torch.Tensor | None
    ) -> dict[str, float]:
        policy, config, device = self.policy, self.config, self.policy.device
        lengths = rows.lengths * rows.kept
        totals = BatchTotals.from_lengths(lengths[rows.numbers(chosen, device)])
        # Where neither an advantage nor a KL term gives a gradient there is nothing to compute.
        kl = self.algorithm.loss_options.get("kl_coef", 0.0) > 0
        live = [i for i in chosen if kl or bool((rows.advantages[rows.numbers([i], device)] != 0).any())]
        numbers = rows.numbers(live, device)
        self.optimizer.zero_grad(set_to_none=True)
        sums: dict[str, float] = {}
        loss = 0.0
        gaps = Gaps()
        batches = micro_batches([pieces[i] for i in live], config.micro_batch_tokens, self.shared)
        for batch, index in batches:
            where = numbers[torch.tensor(index, device=device)]
            logp, mask = policy.logps(batch, self.temperature, shared=self.shared)
            mask = mask & rows.kept[where, None] & rows.sampled[where, : mask.shape[1]]
            sampler = rows.sampler[where, : logp.shape[1]]
            old_logp = logp.detach() if old is None else old[where, : logp.shape[1]]
            ref_logp = None
            if kl:
                with torch.no_grad():
                    ref_logp, _ = policy.logps(batch, self.temperature, shared=self.shared, reference=True)
            out = self.algorithm.policy_loss(
                logp,
                old_logp,
                rows.advantages[where],
                mask,
                ref_logp=ref_logp,
                totals=totals,
                sampler_weights=truncated_importance_weights(old_logp, sampler, mask, cap=self.sampler_cap),
            )
            out.loss.backward()
            loss += float(out.loss.detach())
            gaps.add((old_logp - sampler)[mask])
            for name, value in out.metrics.items():
                sums[name] = sums.get(name, 0.0) + float(value)
        # The losses' metrics are normalised by all tokens of the batch; these are means over the computed ones.
        share = float(lengths[numbers].sum() / max(1.0, float(totals.tokens))) if live else 1.0
        metrics = {name: value / share if share else 0.0 for name, value in sums.items() if name != "policy_loss"}
        metrics |= {"loss": loss} | gaps.metrics()
        if old is None:
            gaps.check(self.max_mismatch)
        norm = torch.nn.utils.clip_grad_norm_(policy.trainable(), config.grad_clip or math.inf)
        if torch.isfinite(norm):
            self.optimizer.step()
            return metrics | {"grad_norm": float(norm), "skipped_updates": 0.0}
        self.optimizer.zero_grad(set_to_none=True)
        return metrics | {"skipped_updates": 1.0}

    @torch.no_grad()
    def _old_logps(self, pieces: list[Piece], rows: "_Rows") -> torch.Tensor | None:
        """Log-probabilities [R, C] of all rows before the first optimiser step of this batch."""
        old = None
        for batch, index in micro_batches(pieces, self.config.micro_batch_tokens, self.shared):
            logp, _ = self.policy.logps(batch, self.temperature, shared=self.shared)
            if old is None:
                old = logp.new_zeros(rows.sampler.shape)
            old[torch.tensor(index, device=old.device), : logp.shape[1]] = logp
        return old


@dataclass(slots=True)
class _Rows:
    """Per-rollout tensors of a batch: R = G * samples rows, group by group.

    `advantages`, `kept` and `lengths` (sampled tokens) are [R]; `sampled` and the log-probabilities `sampler` [R, C].
    """

    samples: int
    advantages: torch.Tensor
    sampler: torch.Tensor
    sampled: torch.Tensor
    kept: torch.Tensor
    lengths: torch.Tensor

    def numbers(self, groups: Sequence[int], device: Any) -> torch.Tensor:
        """Row numbers of these groups."""
        return torch.tensor(
            [i * self.samples + j for i in groups for j in range(self.samples)],
            dtype=torch.long,
            device=device,
        )
