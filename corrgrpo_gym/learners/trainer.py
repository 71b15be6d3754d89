"""The training loop: sample, score, estimate, update; validate and save now and then.

All randomness comes from (seed, step), so what a checkpoint must remember is the weights, the optimiser, and how
many prompts have been used.
"""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np
import torch

from ..corrgrpo import Algorithm, reward_report
from ..errors import GymError, unknown
from .batches import Batches
from .checkpoints import Checkpoints
from .config import TrainConfig, to_toml
from .engines.base import Engine, Interrupted
from .mismatch import Mismatch, likely_cause
from .policy import Policy
from .rollouts import Group, Prompts
from .runfolder import CannotWrite, RunFolder, rollout_records
from .trackers import Tracker
from .update import Updater, learning_rate


class Display(Protocol):
    """Shows a run while it goes on."""

    def phase(self, name: str, done: int, total: int) -> None:
        """What is being done, and how far it is."""

    def row(self, step: int, metrics: Mapping[str, float], seconds: float) -> None:
        """A finished step; step 0 is the validation before training."""


@dataclass(slots=True)
class State:
    """What a run must remember besides weights and optimiser.

    Attributes:
        step: Finished updates.
        cursor: Prompts taken from the shuffled sequence.
        best: Best value of the checkpoint metric so far.
        best_step: The step that had it.
        pending: Metrics of a step whose validation is still to be done.
        offsets: Lengths of the run folder's streams.
    """

    step: int = 0
    cursor: int = 0
    best: float | None = None
    best_step: int | None = None
    pending: dict[str, float] | None = None
    offsets: dict[str, int] = field(default_factory=dict)


class Trainer:
    """Runs the loop over parts that are already built (see `session`).

    Args:
        config: The resolved configuration.
        algorithm: Estimator, loss, sampling rules, weights.
        policy: What is trained.
        engine: Samples; closed when `train` is done.
        prompts: The training split.
        validation: The held-out split, or None.
        run: Where everything is written.
        checkpoints: Its checkpoints.
        trackers: Further places for metrics.
        display: Shows progress.
        interrupted: True when the user wants to stop.
        state: Where to go on.
        optimizer: State of the optimiser to go on with.
    """

    def __init__(
        self,
        config: TrainConfig,
        algorithm: Algorithm,
        policy: Policy,
        engine: Engine,
        prompts: Prompts,
        validation: Prompts | None,
        run: RunFolder,
        checkpoints: Checkpoints,
        trackers: Sequence[Tracker],
        display: Display,
        interrupted: Callable[[], bool],
        state: State,
        optimizer: dict[str, Any] | None = None,
    ):
        self.config, self.algorithm, self.policy = config, algorithm, policy
        self.prompts, self.validation = prompts, validation
        self.run, self.checkpoints, self.trackers = run, checkpoints, trackers
        self.display, self.interrupted, self.state = display, interrupted, state
        self.names = prompts.env.reward_names
        self.weights = np.asarray(algorithm.weights, dtype=np.float64)
        self.batches = Batches(config, algorithm, policy, engine, run.log, display.phase, interrupted)
        self.updater = Updater(
            policy, algorithm, config.update, config.rollout.temperature, config.algorithm.sampler_cap,
            config.engine.max_mismatch,
        )  # fmt: skip
        if optimizer is not None:
            self.updater.optimizer.load_state_dict(optimizer)
        self._timings: dict[str, float] = {}
        self._gap = 0.0
        self._saved = state.step if state.offsets else -1

    def train(self) -> bool:
        """Run to the last step.

        Returns:
            False if it was interrupted; everything up to the last finished step is saved.
        """
        state = self.state
        try:
            if state.step == 0 and state.pending is None and not state.offsets:
                state.pending = {}
            if state.pending is not None:
                self._finish_step(state.pending)
            while state.step < self.config.steps:
                if self.interrupted():
                    raise Interrupted
                self._finish_step(self._train_step())
        except Interrupted:
            self._save_unsaved()
            return False
        except CannotWrite:
            raise  # what the streams hold of this step is not known
        except GymError:
            # A server that died, a sampler that drifted: the weights are those of the last finished step.
            with contextlib.suppress(GymError):
                self._save_unsaved()
            raise
        finally:
            self.batches.close()
        return True

    def _train_step(self) -> dict[str, float]:
        """Sample, score, estimate and update. Nothing of the state changes before the update is done."""
        config, step = self.config, self.state.step + 1
        started = time.perf_counter()
        batch = self.batches.next(self.prompts, step, self.state.cursor)
        groups, staleness = batch.groups, step - 1 - batch.version
        self._timings = {"sample_and_score": time.perf_counter() - started}
        rewards = torch.from_numpy(np.stack([[r.reward for r in g.rollouts] for g in groups]))
        lengths = torch.tensor([[sum(r.sampled) for r in g.rollouts] for g in groups])
        estimate = self.algorithm.estimate(
            rewards,
            token_counts=lengths,
            penalty=self.algorithm.overlong_penalty(lengths, config.rollout.max_new_tokens),
        )
        advantages = estimate.weighted()
        self.display.phase("updating", 0, 1)
        started = time.perf_counter()
        lr = learning_rate(config.update, step, config.steps)
        metrics = self._describe(groups, rewards, estimate.info)
        metrics |= {"sampled_groups": float(batch.sampled), "staleness": float(staleness)}
        try:
            metrics |= self.updater.update(groups, advantages, lr, (config.seed, 0x5EED, step))
        except Mismatch as gap:
            cause = likely_cause(gap, self.batches.engine.name, staleness, self._gap)
            raise GymError(
                f"step {step}: the sampler's log-probabilities are not the learner's: {gap}; engine.max_mismatch is "
                f"{config.engine.max_mismatch:g}.\n{cause}.\nThe step changed nothing: --resume {self.run.path} goes "
                "on after the one before"
            ) from gap
        self._gap = metrics.get("sampler_gap_mean", self._gap)
        if metrics["skipped_updates"]:
            self.run.log.warning("step %d: the gradient was not finite, so the weights were left as they were", step)
        self._timings["update"] = time.perf_counter() - started
        self.run.append("rollouts.jsonl", rollout_records(step, "train", groups, self.names, advantages.tolist()))
        self.state.step, self.state.cursor, self.state.pending = step, batch.cursor, metrics
        return metrics

    def _describe(self, groups: Sequence[Group], rewards: torch.Tensor, info: Mapping[str, float]) -> dict[str, float]:
        rollouts = [r for g in groups for r in g.rollouts]
        lengths = np.array([sum(r.sampled) for r in rollouts], dtype=float)
        guard = {k: v for k, v in self.algorithm.estimator_options.items() if k in ("guard", "s_min")}
        report = reward_report(rewards, self.algorithm.weights, names=self.names, **guard)
        return {
            **self._rewards("reward", groups),
            "entropy": -float(np.sum([sum(r.logps) for r in rollouts]) / lengths.sum()),
            "completion_tokens": float(lengths.mean()),
            "truncated": float(np.mean([r.finish != "stop" for r in rollouts])),
            "turns": float(np.mean([r.turns for r in rollouts])),
            **{f"estimator/{k}": v for k, v in info.items()},
            **{f"report/{k}": v for k, v in report.summary().items()},
        }

    def _rewards(self, prefix: str, groups: Sequence[Group]) -> dict[str, float]:
        """Mean of each component over what could be scored, and of the weighted total."""
        table = np.array([r.reward for g in groups for r in g.rollouts], dtype=np.float64)
        figures = {}
        for k, name in enumerate(self.names):
            scorable = table[~np.isnan(table[:, k]), k]
            if scorable.size:
                figures[f"{prefix}/{name}"] = float(scorable.mean())
        scored = ~np.isnan(table).all(1)
        if scored.any():
            figures[f"{prefix}/total"] = float((np.nan_to_num(table[scored]) @ self.weights).mean())
        return figures

    def _finish_step(self, metrics: dict[str, float]) -> None:
        """Validate if it is time, write the step's metrics, and save if it is time."""
        config, state = self.config, self.state
        step, last = state.step, state.step == self.config.steps
        every = config.validation.every
        if self.validation is not None and every and (step % every == 0 or last):
            started = time.perf_counter()
            metrics = metrics | self._validate()
            self._timings["validate"] = time.perf_counter() - started
        if metrics:
            self.run.append("metrics.jsonl", [{"step": step, **metrics}])
        if pushed := self.batches.push_seconds:
            self.batches.push_seconds = 0.0
            self._timings["push"] = pushed  # part of the others
        self.run.append("timings.jsonl", [{"step": step, **self._timings}])
        for tracker in self.trackers:
            tracker.log(step, metrics)
        state.pending = None
        seconds = sum(self._timings.values())
        self._timings = {}
        value = metrics.get(config.checkpoint.metric)
        sign = 1 if config.checkpoint.mode == "max" else -1
        # Step 0 has no checkpoint: the best is the best of what training made.
        best = step > 0 and value is not None and (state.best is None or sign * value > sign * state.best)
        if best:
            state.best, state.best_step = value, step
        due = config.checkpoint.every and step % config.checkpoint.every == 0
        if step and (best or last or due):
            self._save()
        self.display.row(step, metrics, seconds)

    def _validate(self) -> dict[str, float]:
        assert self.validation is not None
        config = self.config.validation
        tasks = self.validation.order(0, 0, min(config.prompts, len(self.validation.tasks)))
        groups = self.batches.validate(self.validation, tasks, self.state.step)
        split = self.validation.env.split
        self.run.append("rollouts.jsonl", rollout_records(self.state.step, split, groups, self.names, None))
        return self._rewards("val", groups)

    def _save_unsaved(self) -> None:
        if self._saved != self.state.step or self.state.pending is not None:
            self._save()

    def _save(self) -> None:
        self.display.phase("saving", 0, 1)
        self.state.offsets = self.run.offsets()
        state = asdict(self.state) | {"optimizer": self.updater.optimizer.state_dict()}
        self.checkpoints.save(self.state.step, self.policy, state, self.state.best_step, to_toml(self.config))
        self._saved = self.state.step


def check_metric(config: TrainConfig, names: Sequence[str]) -> None:
    """Raise GymError if the metric that names the best checkpoint is of a reward component that does not exist."""
    metric = config.checkpoint.metric
    kind = metric.partition("/")[0]
    known = [f"{kind}/{name}" for name in (*names, "total")]
    if kind in ("val", "reward") and metric not in known:
        raise GymError("checkpoint.metric: " + unknown("metric", metric, known))


def algorithm_of(config: TrainConfig, names: Sequence[str], weights: Sequence[float]) -> Algorithm:
    """The algorithm that a configuration asks for, with the environment's weights where it names none.

    Raises:
        GymError: Unknown algorithm, option or component.
    """
    section = config.algorithm
    for name in section.weights:
        if name not in names:
            raise GymError("algorithm.weights: " + unknown("reward component", name, names))
    chosen = [section.weights.get(name, weight) for name, weight in zip(names, weights, strict=True)]
    loss_options: dict[str, Any] = {
        "kl_coef": section.kl_coef,
        "kl": section.kl,
        "norm_length": float(config.rollout.max_new_tokens),
        **section.loss_options,
    }
    if section.aggregation:
        loss_options["aggregation"] = section.aggregation
    named = Algorithm.from_name(config.algo)
    algorithm = Algorithm(
        section.loss or named.loss,
        section.estimator or named.estimator,
        loss_options,
        section.estimator_options,
        chosen,
        config.algo,
    )
    # A value that only the formula itself refuses is refused now, not after the first batch.
    n = config.rollout.samples
    advantages = algorithm.estimate(torch.rand(2, n, len(names))).weighted().reshape(-1).float()
    logp = torch.zeros(2 * n, 2)
    algorithm.policy_loss(logp, logp, advantages, torch.ones_like(logp), ref_logp=logp)
    return algorithm
