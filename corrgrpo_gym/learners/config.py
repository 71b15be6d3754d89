"""The configuration of `corrgrpo-gym train`: defaults, presets, a TOML file, then the command line; in this order."""

from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from ..configuration import Section, checked, differences, documented_toml, load_toml, merge, parse_assignment, to_toml
from ..errors import GymError

__all__ = [
    "TrainConfig",
    "differences",
    "documented_toml",
    "load_toml",
    "merge",
    "parse_assignment",
    "resolve",
    "to_toml",
    "validate",
]

Rate = Annotated[float, Field(ge=0, lt=1)]


class AlgorithmConfig(Section):
    """How rewards become advantages and advantages a loss; empty means the algorithm's own default."""

    loss: str = ""
    """Policy loss, where it is not the one that `algo` names."""
    estimator: str = ""
    """Advantage estimator, where it is not the one that `algo` names."""
    weights: dict[str, float] = {}
    """Weight of each reward component by name; components not named keep the environment's weight."""
    estimator_options: dict[str, Any] = {}
    """Options of the estimator, such as `guard = "paper"`."""
    loss_options: dict[str, Any] = {}
    """Options of the loss, such as `clip_high = 0.28`."""
    aggregation: str = ""
    """How token losses are averaged: token-mean, token-sum, seq-mean-token-mean, seq-mean-token-sum[-norm]."""
    kl_coef: float = Field(0.0, ge=0)
    """Weight of the KL divergence to the initial policy; 0 loads no reference model."""
    kl: Literal["k1", "k2", "k3"] = "k3"
    """Estimator of that KL divergence."""
    sampler_cap: float = Field(2.0, gt=0)
    """Cap of the truncated importance weights that correct for a sampler that differs from the learner."""


class RolloutConfig(Section):
    """What is sampled in each step."""

    prompts: int = Field(8, ge=1)
    """Prompts (groups) per step."""
    samples: int = Field(8, ge=1)
    """Rollouts per prompt."""
    temperature: float = Field(1.0, gt=0)
    """Sampling temperature; the trained log-probabilities use it too."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Nucleus sampling: the smallest set of tokens with this much probability."""
    top_k: int = Field(0, ge=0)
    """Sample from the k most probable tokens; 0: from all."""
    max_prompt_tokens: int = Field(4096, ge=1)
    """Tasks with a longer prompt are left out, with a note."""
    max_new_tokens: int = Field(1024, ge=1)
    """Tokens after the prompt: of the answer, or of all turns with what the environment says between them."""
    max_turn_tokens: int = Field(0, ge=0)
    """Tokens that one answer of several may have; 0: only max_new_tokens limits it."""
    max_turns: int = Field(0, ge=0)
    """Answers in an episode; 0: only the environment limits them."""
    max_rows: int = Field(256, ge=1)
    """Sequences decoded at the same time."""
    scorers: int = Field(0, ge=0)
    """Threads that score answers while others are sampled; 0: two per CPU."""


class UpdateConfig(Section):
    """How the policy is updated from a batch."""

    lr: float = Field(1e-6, gt=0, le=100)
    """Peak learning rate of AdamW."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Course of the learning rate after its warm-up."""
    warmup_steps: int = Field(0, ge=0)
    """Steps over which the learning rate rises from 0."""
    betas: tuple[Rate, Rate] = (0.9, 0.999)
    """AdamW's decay rates."""
    weight_decay: float = Field(0.0, ge=0)
    """AdamW's weight decay."""
    grad_clip: float = Field(1.0, ge=0)
    """Largest norm of the gradient; 0: no clipping."""
    mini_batch: int = Field(0, ge=0)
    """Prompts per optimiser step; 0: the whole batch in one."""
    epochs: int = Field(1, ge=1)
    """Passes over each batch."""
    micro_batch_tokens: int = Field(16384, ge=1)
    """Padded tokens per forward and backward pass: lower it when memory runs out. Results do not depend on it."""
    shared_prefix: bool = True
    """Compute each prompt once per group (exact gradients); false: once per rollout."""
    mask_truncated: bool = False
    """Leave answers that were cut by `max_new_tokens` out of the loss."""


class PolicyConfig(Section):
    """The model that is trained."""

    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of the forward and backward pass; weights and optimiser stay float32. auto: bfloat16 on a GPU."""
    device: str = "auto"
    """`cpu`, `cuda`, `cuda:1`; auto: the first GPU, else the CPU."""
    attention: str = "sdpa"
    """Attention implementation of transformers: sdpa, eager, flash_attention_2."""
    gradient_checkpointing: bool = False
    """Recompute activations to save memory; each rollout then carries its own prompt."""
    train_last_blocks: int = Field(0, ge=0)
    """Train only the last N decoder blocks (and the final norm); 0: all weights."""
    lora_rank: int = Field(0, ge=0)
    """Rank of LoRA adapters (peft); 0: none. With train_last_blocks only those blocks get adapters."""
    lora_alpha: float = Field(0.0, ge=0)
    """Scale of the adapters; 0: twice the rank."""
    chat_template: str = ""
    """A file with a Jinja chat template, for models that have none."""


class EngineConfig(Section):
    """What samples the answers."""

    name: Literal["auto", "vllm", "transformers"] = "auto"
    """vllm, or transformers (the learner's own model). auto: vllm where it is installed and torch sees a GPU."""
    url: str = ""
    """A vLLM server that was started by `corrgrpo-gym serve`; empty: vLLM runs in this process."""
    folder: str = ""
    """Folder through which weights reach a server, and which it can read; empty: this machine's memory."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Arithmetic of vLLM. auto: as the policy's."""
    gpu_memory_utilization: float = Field(0.5, gt=0, le=1)
    """Share of the GPU's memory that vLLM in this process takes while it samples."""
    kv_cache_gib: float = Field(0.0, ge=0)
    """Size of vLLM's key-value cache; 0: what that share leaves (on a CPU: 4 GiB)."""
    tensor_parallel: int = Field(1, ge=1)
    """GPUs that share the model in vLLM."""
    eager: bool = False
    """No compilation and no CUDA graphs: starts sooner, samples slower."""
    sleep: bool = True
    """vLLM in this process gives its memory back while the policy is updated."""
    off_policy_steps: int = Field(0, ge=0, le=1)
    """1: the next batch is sampled while the update runs, with weights that are one update older."""
    max_mismatch: float = Field(0.1, ge=0)
    """Mean |log p of the learner - log p of the engine| per token at which the run stops; 0: it goes on."""


class WarmStartConfig(Section):
    """Supervised training on the environment's reference answers before the first step."""

    steps: int = Field(0, ge=0)
    """Optimiser steps; 0: no warm start."""
    batch: int = Field(16, ge=1)
    """Answers per step."""
    lr: float = Field(1e-5, gt=0, le=100)
    """Peak learning rate, reached after a tenth of the steps, then falling to a tenth (cosine)."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """muon: Muon for the matrices inside the blocks, AdamW for the rest; learns faster from random weights."""
    matrix_lr: float = Field(0.02, gt=0, le=100)
    """Muon's peak learning rate."""


class ValidationConfig(Section):
    """How the held-out split is scored while training."""

    every: int = Field(20, ge=0)
    """Steps between validations; also before the first step and after the last one. 0: never."""
    split: str = "test"
    """Split of the environment."""
    prompts: int = Field(64, ge=1)
    """Tasks, the same ones each time."""
    samples: int = Field(1, ge=1)
    """Answers per task (the k of mean@k)."""
    temperature: float = Field(0.0, ge=0)
    """0: greedy."""


class CheckpointConfig(Section):
    """What is kept to go on from, and which checkpoint counts as the best."""

    every: int = Field(20, ge=0)
    """Steps between checkpoints; one is always written at the end and when interrupted."""
    keep: int = Field(2, ge=1)
    """Latest checkpoints that are kept; the best one stays as well."""
    metric: str = "val/total"
    """Metric of metrics.jsonl that names the best checkpoint."""
    mode: Literal["max", "min"] = "max"
    """Whether the larger or the smaller value is better."""


def _listed(value: Any) -> Any:
    """One name as a list of it."""
    return [value] if isinstance(value, str) else value


class TrainConfig(Section):
    """All of a training run. `corrgrpo-gym train --print-config` prints it with every key."""

    env: str = "leetcode"
    """Environment: a registered name or package.module:thing."""
    algo: str = "corrgrpo"
    """Algorithm: see `corrgrpo-gym algos`."""
    model: str = "auto"
    """auto, embedded, a hub id, a folder, or a .gguf file."""
    data: str = "auto"
    """auto, embedded, hub, or a path."""
    steps: int = Field(100, ge=0)
    """Training steps."""
    seed: int = Field(0, ge=0)
    """Seed of sampling and of the order of the tasks."""
    threads: int = Field(0, ge=0, le=1024)
    """CPU threads of torch; 0: torch's default."""
    track: Annotated[list[Literal["tensorboard", "wandb"]], BeforeValidator(_listed)] = []
    """Trackers besides the run folder's own files: tensorboard, wandb, or a list of them."""
    imports: Annotated[list[str], BeforeValidator(_listed)] = []
    """Modules or .py files to import first: they may register environments, estimators and losses."""
    env_options: dict[str, Any] = {}
    """Options of the environment, as in `envs.make`."""
    algorithm: AlgorithmConfig = AlgorithmConfig()
    engine: EngineConfig = EngineConfig()
    rollout: RolloutConfig = RolloutConfig()
    update: UpdateConfig = UpdateConfig()
    policy: PolicyConfig = PolicyConfig()
    warm_start: WarmStartConfig = WarmStartConfig()
    validation: ValidationConfig = ValidationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()


# The embedded policy is small and trained from scratch: it wants short answers, many samples and a high rate.
EMBEDDED_PRESET: dict[str, Any] = {
    "threads": 1,
    "rollout": {"prompts": 8, "samples": 16, "max_prompt_tokens": 256, "max_new_tokens": 128},
    "update": {"lr": 2.5e-4},
    "warm_start": {"steps": 1000, "batch": 8, "lr": 4e-3, "optimizer": "muon", "matrix_lr": 0.01},
    "validation": {"every": 20, "prompts": 96},
}


# Environments that bring data of their own for it, and what they need besides.
EMBEDDED_BY_ENV: dict[str, dict[str, Any]] = {
    "leetcode": {},
    "rlla": {"warm_start": {"steps": 900}, "update": {"lr": 4e-4}, "validation": {"prompts": 120}},
    "agent": {
        "steps": 80,
        "rollout": {"prompts": 16, "samples": 8, "max_new_tokens": 160},
        "update": {"lr": 1e-3},
        "warm_start": {"steps": 1500},
        "validation": {"prompts": 120},
    },
}


def validate(values: dict[str, Any]) -> TrainConfig:
    """Check a configuration. Raises GymError listing every wrong key, each with the nearest known one."""
    return checked(TrainConfig, values)


def resolve(*layers: dict[str, Any]) -> TrainConfig:
    """Lay tables over each other, later ones first in rank, and check the result.

    A table `[for_algo.PATTERN]` in a layer counts where the algorithm's name matches the pattern (as in a shell).
    The preset of the embedded policy is the lowest layer where `model` resolves to it.
    """
    values: dict[str, Any] = {}
    algo = next((layer["algo"] for layer in reversed(layers) if "algo" in layer), TrainConfig().algo)
    for layer in layers:
        values = merge(values, _for_algo(layer, str(algo)))
    model, data = (values.get(k, "auto") for k in ("model", "data"))
    if model == "auto":
        model = "embedded" if not _has_gpu() else "Qwen/Qwen2.5-Coder-0.5B-Instruct"
        values["model"] = model
    if model == "embedded":
        env = str(values.get("env", TrainConfig().env))
        values = merge(merge(EMBEDDED_PRESET, EMBEDDED_BY_ENV.get(env, {})), values)
        if data == "auto" and env in EMBEDDED_BY_ENV:
            values["data"] = "embedded"
    return validate(values)


def _for_algo(layer: dict[str, Any], algo: str) -> dict[str, Any]:
    """A layer with those of its `for_algo` tables laid on it that are for this algorithm."""
    out = {key: value for key, value in layer.items() if key != "for_algo"}
    tables = layer.get("for_algo", {})
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise GymError('configuration key for_algo: expected tables by algorithm, such as [for_algo."*corrgrpo"]')
    for pattern, table in tables.items():
        if fnmatchcase(algo, pattern):
            out = merge(out, table)
    return out


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
