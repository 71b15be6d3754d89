"""Batches of scored groups to train on, sampled when they are wanted or while the batch before is trained on."""

import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from ..corrgrpo import Algorithm
from .config import RolloutConfig, TrainConfig
from .engines.base import Engine, Sampling, seed, settle
from .episode import Limits
from .policy import Policy
from .rollouts import Group, Prompts, collect

# DAPO: how many batches of prompts one step may sample in search of groups with a signal.
MAX_SAMPLED_BATCHES = 5

Phase = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Batch:
    """What a step trains on.

    Attributes:
        groups: As many as `rollout.prompts`.
        sampled: Groups that were sampled for them.
        cursor: Prompts taken from the shuffled sequence, these included.
        version: Updates behind the weights that it was sampled with.
    """

    groups: list[Group]
    sampled: int
    cursor: int
    version: int


class Batches:
    """Samples and scores, with the newest weights or, by `engine.off_policy_steps`, with those before them.

    Args:
        config: Of the run.
        algorithm: Its sampling rules count here.
        policy: Whose weights the engine is given.
        engine: Samples; closed with this.
        log: Gets warnings.
        phase: Shows progress: what is done, how much of it, of how much.
        interrupted: True when the user wants to stop.
    """

    def __init__(
        self,
        config: TrainConfig,
        algorithm: Algorithm,
        policy: Policy,
        engine: Engine,
        log: logging.Logger,
        phase: Phase,
        interrupted: Callable[[], bool],
    ):
        self.config, self.algorithm, self.policy, self.engine = config, algorithm, policy, engine
        self.log, self.phase, self.interrupted = log, phase, interrupted
        self.push_seconds = 0.0
        self._scorers = ThreadPoolExecutor(config.rollout.scorers or 2 * (os.cpu_count() or 1), "score")
        self._sampler = ThreadPoolExecutor(1, "sample ahead")
        self._ahead: Future[Batch] | None = None
        self._closed = False

    def next(self, prompts: Prompts, step: int, cursor: int) -> Batch:
        """What training step `step` trains on.

        Args:
            prompts: The training split.
            step: 1, 2, ...; the policy has had step - 1 updates.
            cursor: Prompts taken by the steps before.

        Raises:
            Interrupted: Asked to stop.
            GymError: From the environment, the chat template or the engine.
        """
        if not self.config.engine.off_policy_steps:
            self._refresh(step - 1)
            batch = self._sample(prompts, step, cursor)
            self.engine.sleep()
            return batch
        if self._ahead is None:
            self._refresh(step - 1)
            batch = self._sample(prompts, step, cursor)
        else:
            batch = self._finish_ahead(self._ahead)
            self._refresh(step - 1)
        more = step < self.config.steps
        self._ahead = self._sampler.submit(self._sample, prompts, step + 1, batch.cursor, False) if more else None
        return batch

    def validate(self, prompts: Prompts, tasks: Sequence[int], step: int) -> list[Group]:
        """Answers to these tasks by the weights of now: those after `step` updates."""
        if self._ahead is not None:
            # The engine has one set of weights; what it samples ahead waits for its step.
            self._finish_ahead(self._ahead)
        self._refresh(step)
        config = self.config.validation
        draw = seed(self.config.seed, step, 0x7A11)
        return self._collect(prompts, tasks, config.samples, config.temperature, "validation", step, draw)

    def close(self) -> None:
        """Stop what is sampled, and close the engine."""
        self._closed = True
        self._sampler.shutdown(wait=True, cancel_futures=True)
        self._scorers.shutdown(wait=True, cancel_futures=True)
        self.engine.close()

    def _finish_ahead(self, ahead: "Future[Batch]") -> Batch:
        self.phase("train: sampling goes on", 0, 1)
        settle([ahead], self.interrupted)
        return ahead.result()

    def _refresh(self, version: int) -> None:
        if self.engine.version != version:
            self.phase("giving the engine new weights", 0, 1)
            started = time.perf_counter()
            self.engine.push(self.policy, version)
            self.push_seconds += time.perf_counter() - started

    def _sample(self, prompts: Prompts, step: int, cursor: int, shown: bool = True) -> Batch:
        config, phase = self.config.rollout, "train" if shown else ""
        version = self.engine.version
        kept: list[Group] = []
        spare: list[Group] = []
        sampled = 0
        for attempt in range(MAX_SAMPLED_BATCHES):
            tasks = prompts.order(self.config.seed, cursor, config.prompts)
            draw = seed(self.config.seed, step, attempt)
            groups = self._collect(prompts, tasks, config.samples, config.temperature, phase, step, draw)
            cursor += config.prompts
            sampled += len(groups)
            rewards = torch.from_numpy(np.stack([[r.reward for r in g.rollouts] for g in groups]))
            keep = self.algorithm.keep_groups(rewards, prompts.env.reward_names).tolist()
            kept += [g for g, k in zip(groups, keep, strict=True) if k]
            spare += [g for g, k in zip(groups, keep, strict=True) if not k]
            if len(kept) >= config.prompts:
                break
        else:
            self.log.warning(
                "step %d: only %d of %d sampled groups have a signal; the batch is filled with others",
                step, len(kept), sampled,
            )  # fmt: skip
        return Batch((kept + spare)[: config.prompts], sampled, cursor, version)

    def _collect(
        self, prompts: Prompts, tasks: Sequence[int], n: int, temperature: float, phase: str, step: int, seed: int
    ) -> list[Group]:
        config, total = self.config.rollout, len(tasks) * n
        done = {"sampled": 0, "scored": 0}

        def progress(kind: str, count: int) -> None:
            done[kind] = max(done[kind], count)
            if phase:
                self.phase(f"{phase}: {done['sampled']} sampled, scored", done["scored"], total)

        if phase:
            self.phase(f"{phase}: sampling", 0, total)
        sampling = Sampling(config.max_new_tokens, temperature, config.top_p, config.top_k, seed)
        groups = collect(
            prompts, tasks, n, self.engine, self.policy.end_ids, sampling, self._scorers, limits=limits_of(config),
            interrupted=lambda: self._closed or self.interrupted(), progress=progress,
        )  # fmt: skip
        for rollout in (r for g in groups for r in g.rollouts):
            rollout.version = self.engine.version
            if "not_scored" in rollout.info:
                self.log.warning("step %d: an answer was left out: %s", step, rollout.info["not_scored"])
        return groups


def limits_of(config: RolloutConfig) -> Limits:
    """How far an episode may go, by the rollout section of a configuration."""
    return Limits(config.max_new_tokens, config.max_turn_tokens, config.max_turns)
