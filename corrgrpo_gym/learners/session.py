"""From a configuration, or a run folder, to a trained policy."""

import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers.utils import logging

from .. import envs
from ..cache import cache_folder
from ..envs import MultiRewardEnv
from ..envs.loading import load
from ..errors import GymError
from . import embedded_policy
from .checkpoints import CONFIG, Checkpoints
from .config import TrainConfig, differences, load_toml, resolve
from .display import Screen
from .engines.base import Interrupted
from .engines.choose import engine_name, open_engine
from .policy import Policy, check_model, load_model, load_policy
from .rollouts import Prompts
from .runfolder import NEW_START, START, CannotWrite, RunFolder, cannot_write, read_records
from .trackers import check_trackers, open_trackers
from .trainer import State, Trainer, algorithm_of, check_metric
from .warm_start import warm_start

# transformers' own would run through our display.
logging.disable_progress_bar()

# What may be changed before a run is resumed: but for rounding, none of it changes what the run computes.
FREE_ON_RESUME = (
    "steps",
    "threads",
    "track",
    "policy.device",
    "engine.url",
    "engine.folder",
    "engine.gpu_memory_utilization",
    "engine.kv_cache_gib",
    "engine.tensor_parallel",
    "engine.eager",
    "engine.sleep",
    "engine.max_mismatch",
    "rollout.scorers",
    "rollout.max_rows",
    "update.micro_batch_tokens",
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a session ended.

    Attributes:
        run: The run folder.
        finished: False if it was interrupted.
        steps: Finished steps.
    """

    run: Path
    finished: bool
    steps: int


def start(config: TrainConfig, out: Path | None = None) -> Outcome:
    """Train from the beginning.

    Args:
        config: The resolved configuration.
        out: Run folder; None makes runs/ENV-ALGO-DATE.

    Raises:
        GymError: Wrong configuration, data or model; a run folder that is in use.
    """
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    name = f"{config.env}-{config.algo}-{stamp}".replace("/", "_").replace(":", "_")
    path = out or Path("runs") / name
    if (path / "config.toml").exists():
        RunFolder.create(path, config)  # raises: says how to go on
    return _run(config, path, resume=False)


def resume(path: Path, steps: int | None = None) -> Outcome:
    """Go on with a run from its latest complete checkpoint.

    Args:
        path: The run folder.
        steps: A new number of steps in all, to train longer.
    """
    if not (path / "config.toml").is_file():
        raise GymError(f"cannot resume {path}: it is not a run folder (no config.toml)")
    config = resolve(load_toml(path / "config.toml"))
    checkpoints = Checkpoints(path / "checkpoints")
    done = checkpoints.steps()
    made_with = checkpoints.path(done[-1]) / CONFIG if done else None
    if made_with and made_with.is_file():
        changed = [
            key
            for key in differences(config, resolve(load_toml(made_with)))
            if key not in FREE_ON_RESUME and not key.startswith("checkpoint.")
        ]
        if changed:
            raise GymError(
                f"{path}/config.toml was edited since the last checkpoint: {', '.join(changed)}. A run has one "
                f"configuration: put it back (it is in {made_with}), or begin another run by --config and --out"
            )
    if steps is not None:
        if done and steps < done[-1]:
            raise GymError(f"cannot resume {path} to step {steps}: it has done {done[-1]} steps already")
        config = config.model_copy(update={"steps": steps})
    return _run(config, path, resume=True)


def _run(config: TrainConfig, path: Path, resume: bool) -> Outcome:
    if config.threads:
        torch.set_num_threads(config.threads)
    with _stop_requests() as interrupted, Screen() as screen:
        # Everything that can be wrong is found before the run folder exists.
        for module in config.imports:
            load(f"{module}:__name__", here=True)
        check_model(config.model)
        engine_name(config)
        env = envs.make(config.env, split="train", data=config.data, **config.env_options)
        held_out = None
        try:
            algorithm = algorithm_of(config, env.reward_names, env.reward_weights)
            if config.validation.every:
                if config.validation.split not in env.splits:
                    raise GymError(
                        f"validation.split is {config.validation.split!r}, but {config.env} has only "
                        f"{', '.join(env.splits)}. Give the environment a held-out split, "
                        "name another by --set validation.split=NAME, or turn it off by --set validation.every=0"
                    )
                options = config.env_options | env.shared_options()
                held_out = envs.make(config.env, split=config.validation.split, data=config.data, **options)
            check_metric(config, env.reward_names)
            check_trackers(config.track)
            screen.header(config, env, held_out, path)
            run = RunFolder.open(path) if resume else RunFolder.create(path, config)
            try:
                if resume:
                    run.write_config(config)
                return _train(config, env, held_out, algorithm, run, screen, interrupted)
            except Exception as e:
                run.log.error("%s: %s", type(e).__name__, e)
                if not resume and not isinstance(e, CannotWrite):
                    run.remove_if_empty()
                raise
            finally:
                run.close()
        finally:
            if held_out is not None:
                held_out.close()
            env.close()


def _train(
    config: TrainConfig,
    env: MultiRewardEnv,
    held_out: MultiRewardEnv | None,
    algorithm: Any,
    run: RunFolder,
    screen: Screen,
    interrupted: Callable[[], bool],
) -> Outcome:
    began = time.perf_counter()
    checkpoints = Checkpoints(run.path / "checkpoints", config.checkpoint.keep)
    checkpoints.recover()
    done = checkpoints.steps()
    saved = checkpoints.load(done[-1]) if done else None
    for stream in run.truncate(saved["offsets"] if saved else {}):
        screen.note(f"{stream} is shorter than at the checkpoint: earlier lines of it are lost")
        run.log.warning("%s is shorter than at the checkpoint", stream)
    try:
        kl = algorithm.loss_options["kl_coef"] > 0
        policy = _policy(config, kl, env, run, checkpoints.path(done[-1]) if done else None, screen, interrupted)
    except Interrupted:
        screen.footer(run.path, config.algo, False, 0, [], time.perf_counter() - began)
        return Outcome(run.path, False, 0)
    prompts = Prompts(env, policy.tokenizer, config.rollout.max_prompt_tokens)
    validation = None
    if held_out is not None:
        validation = Prompts(held_out, policy.tokenizer, config.rollout.max_prompt_tokens)
    for split in (prompts, validation):
        if split and split.too_long:
            screen.note(
                f"{len(split.too_long)} prompts of split {split.env.split!r} are too long: left out, see log.txt"
            )
            run.log.warning("prompts over %d tokens: %s", split.max_tokens, ", ".join(split.too_long))
    state, optimizer = State(), None
    if saved:
        optimizer = saved.pop("optimizer")
        state = State(**saved)
        checkpoints.link(state.best_step)  # a process that was killed may have saved this step, but not the link
        screen.note(f"resuming after step {state.step}")
    run.log.info("%s: %s, seed %d, from step %d", config.algo, policy.describe(), config.seed, state.step)
    screen.table(env.reward_names, config.steps, policy.describe(), read_records(run.path / "metrics.jsonl"))
    trackers = open_trackers(config.track, run.path, config, resume=bool(saved))
    try:
        if engine_name(config) == "vllm":
            screen.phase("starting vLLM", 0, 1)
        engine = open_engine(config, policy)
        run.log.info("sampled by %s", engine.name)
        trainer = Trainer(
            config, algorithm, policy, engine, prompts, validation, run, checkpoints, trackers, screen, interrupted,
            state, optimizer,
        )  # fmt: skip
        finished = trainer.train()
    finally:
        for tracker in trackers:
            tracker.close()
    run.log.info("%s at step %d", "finished" if finished else "interrupted", state.step)
    screen.footer(
        run.path,
        config.algo,
        finished,
        state.step,
        read_records(run.path / "metrics.jsonl"),
        time.perf_counter() - began,
    )
    return Outcome(run.path, finished, state.step)


def _policy(
    config: TrainConfig,
    kl: bool,
    env: MultiRewardEnv,
    run: RunFolder,
    checkpoint: Path | None,
    screen: Screen,
    interrupted: Callable[[], bool],
) -> Policy:
    """The policy at the point where the run stands; a warm start is done, or taken from the cache or the run."""
    base = run.path / START if config.warm_start.steps or config.model == "embedded" else None
    if base and not base.exists():
        try:
            _make_start(config, env, base, screen, interrupted)
        except (OSError, SafetensorError) as e:
            raise cannot_write(base, run.path, e) from e
    source = str(base or config.model)
    if checkpoint is None or config.policy.lora_rank:
        return load_policy(source, config.policy, reference=kl, adapter=checkpoint, seed=config.seed)
    policy = load_policy(str(checkpoint), config.policy)
    if kl:
        policy.set_reference(load_policy(source, config.policy).model)
    return policy


def _make_start(
    config: TrainConfig, env: MultiRewardEnv, base: Path, screen: Screen, interrupted: Callable[[], bool]
) -> None:
    """Warm-start the model into the folder `base`, whole or not at all."""
    new = base.with_name(NEW_START)
    shutil.rmtree(new, ignore_errors=True)
    cached, source, settings = None, config.model, config.policy
    if config.model == "embedded":
        # From random weights everything must be trained; what the run itself trains comes later.
        settings = settings.model_copy(update={"lora_rank": 0, "train_last_blocks": 0, "dtype": "float32"})
        texts = embedded_policy.texts_of(env)
        cached = cache_folder() / f"policy-{embedded_policy.fingerprint(texts, config)}"
        if cached.is_dir():
            try:
                load_model(str(cached))
            except GymError:
                screen.note(f"the cached policy in {cached} is damaged: it is made again")
                shutil.rmtree(cached, ignore_errors=True)
            else:
                screen.note(f"warm-started policy taken from {cached}")
                shutil.copytree(cached, new)
                new.rename(base)
                return
        embedded_policy.build(texts, new)
        source = str(new)
    policy = load_policy(source, settings, seed=config.seed)
    prompts = Prompts(env, policy.tokenizer, config.rollout.max_prompt_tokens)
    with screen.bar("warm start on reference answers", config.warm_start.steps) as advance:
        warm_start(
            policy,
            prompts,
            config.warm_start,
            max_answer_tokens=config.rollout.max_new_tokens,
            micro_batch_tokens=config.update.micro_batch_tokens,
            progress=advance,
            interrupted=interrupted,
        )
    policy.merged().save_pretrained(new)
    policy.tokenizer.save_pretrained(new)
    if cached:
        embedded_policy.publish(new, cached)
    new.rename(base)


def export(path: Path, out: Path, step: int | None = None, dtype: str = "float32") -> Path:
    """Write a checkpoint as a plain Hugging Face model: adapters merged, nothing of the trainer in it.

    Args:
        path: The run folder.
        out: New folder.
        step: Which checkpoint; None takes the best one, else the latest.
        dtype: float32, bfloat16 or float16.
    """
    config = resolve(load_toml(path / "config.toml"))
    checkpoints = Checkpoints(path / "checkpoints")
    steps = checkpoints.steps()
    if not steps:
        raise GymError(f"{path} has no checkpoint yet")
    if step is None:
        step = checkpoints.best if checkpoints.best in steps else steps[-1]
    if step not in steps:
        raise GymError(f"{path} has no checkpoint of step {step}; there are {steps}")
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise GymError(f"{out} is not empty: give a new folder")
    except OSError as e:
        raise GymError(f"cannot write to {out}: {e.strerror}: give a new folder") from e
    folder = checkpoints.path(step)
    if config.policy.lora_rank:
        base = str(path / START) if (path / START).exists() else config.model
        policy = load_policy(base, config.policy, adapter=folder)
    else:
        policy = load_policy(str(folder), config.policy)
    policy.merged().to(getattr(torch, dtype)).save_pretrained(out)
    policy.tokenizer.save_pretrained(out)
    return out


@contextmanager
def _stop_requests() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C or SIGTERM into a request to stop; a second Ctrl-C ends at once."""
    asked = False

    def ask(number: int, frame: Any) -> None:
        nonlocal asked
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked = True

    signals: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM)
    try:
        before = [(s, signal.signal(s, ask)) for s in signals]
    except ValueError:  # not the main thread: whoever runs us handles signals
        before = []
    try:
        yield lambda: asked
    finally:
        for s, handler in before:
            signal.signal(s, handler)
