"""What a run will do and need, told before anything is loaded: `corrgrpo-gym train --dry-run`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..corrgrpo import Algorithm
from ..errors import GymError
from .config import TrainConfig
from .engines.choose import engine_name
from .trainer import algorithm_of

GIB = 2**30
# Float32 copies of logits are made in pieces of this many elements (policy.CHUNK), with their gradients.
_LOGIT_PIECES = 3 * 4 * 2**25


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a Llama- or Qwen-shaped decoder."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool

    @property
    def block(self) -> int:
        """Parameters of one decoder block."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return attention + 3 * self.hidden * self.intermediate + 2 * self.hidden

    @property
    def parameters(self) -> int:
        """Parameters of the whole model; biases, some ten thousand in each block, are left out."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2) + self.layers * self.block + self.hidden

    @property
    def kv_bytes(self) -> int:
        """Bytes of keys and values that one token takes in bfloat16."""
        return 2 * 2 * self.layers * self.kv_heads * self.head_dim

    @property
    def activation_bytes(self) -> int:
        """Bytes that one block keeps of one token for the backward pass, in mixed precision with fused attention.

        The residual stream and the inside of the norms are float32, the inputs of the products bfloat16: 10 h for each
        norm and what it feeds, queries, keys and values before and after rotation, the attention's output, and four
        tensors of the width of the feed-forward layer.
        """
        projected = self.head_dim * (self.heads + 2 * self.kv_heads)
        return 20 * self.hidden + 4 * projected + 2 * self.heads * self.head_dim + 8 * self.intermediate


# The models of the recipes, from their published config.json, for a plan where there is no network.
_KNOWN = {
    "Qwen/Qwen2.5-Coder-0.5B-Instruct": Shape(896, 4864, 24, 14, 2, 64, 151936, True),
    "Qwen/Qwen2.5-Coder-1.5B-Instruct": Shape(1536, 8960, 28, 12, 2, 128, 151936, True),
    "Qwen/Qwen2.5-Coder-3B-Instruct": Shape(2048, 11008, 36, 16, 2, 128, 151936, True),
    "Qwen/Qwen2.5-3B-Instruct": Shape(2048, 11008, 36, 16, 2, 128, 151936, True),
    "Qwen/Qwen2.5-Coder-7B-Instruct": Shape(3584, 18944, 28, 28, 4, 128, 152064, False),
    "Qwen/Qwen2.5-7B-Instruct": Shape(3584, 18944, 28, 28, 4, 128, 152064, False),
    "Qwen/Qwen3-4B-Thinking-2507": Shape(2560, 9728, 36, 32, 8, 128, 151936, True),
    "Qwen/Qwen3-8B": Shape(4096, 12288, 36, 32, 8, 128, 151936, False),
}


@dataclass(frozen=True, slots=True)
class Phase:
    """What is in a GPU's memory during one phase of a step: parts by name, in bytes."""

    name: str
    parts: dict[str, int]

    @property
    def total(self) -> int:
        """Bytes of all parts together."""
        return sum(self.parts.values())


def shape_of(model: str) -> Shape | None:
    """The shape of a model: a local folder's, a cached one's, or one of those that the recipes name.

    Returns:
        None where it isn't known without the network, or isn't of this kind.
    """
    path = Path(model).expanduser() / "config.json"
    if not path.is_file():
        if model in _KNOWN:
            return _KNOWN[model]
        cached = _cached(model)
        if cached is None:
            return None
        path = cached
    try:
        return shape_from(json.loads(path.read_text()))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _cached(model: str) -> Path | None:
    try:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(model, "config.json")
    except (ImportError, ValueError):
        return None
    return Path(found) if isinstance(found, str) else None


def shape_from(values: dict[str, Any]) -> Shape:
    """The shape that a config.json describes. Raises KeyError where it describes another kind of model."""
    heads = values["num_attention_heads"]
    return Shape(
        hidden=values["hidden_size"],
        intermediate=values["intermediate_size"],
        layers=values["num_hidden_layers"],
        heads=heads,
        kv_heads=values.get("num_key_value_heads") or heads,
        head_dim=values.get("head_dim") or values["hidden_size"] // heads,
        vocabulary=values["vocab_size"],
        tied=bool(values.get("tie_word_embeddings", False)),
    )


def phases(config: TrainConfig, shape: Shape, engine: str) -> list[Phase]:
    """Estimate the memory of each phase of a step on one GPU.

    Args:
        config: Of the run.
        shape: Of the model.
        engine: `transformers` or `vllm` (in the learner's process, asleep while the policy is updated).
    """
    rollout, policy, p = config.rollout, config.policy, shape.parameters
    trained = trained_parameters(config, shape)
    half = policy.dtype != "float32"
    fixed = {"weights, float32": 4 * p, "optimiser": 8 * trained}
    if config.algorithm.kl_coef and not policy.lora_rank:
        fixed["reference model"] = (2 if half else 4) * p
    copies = {"weights, bfloat16 copy": 2 * p} if half else {}
    rows = rollout.prompts * rollout.samples
    length = rollout.max_prompt_tokens + rollout.max_new_tokens
    if engine == "vllm":
        cache = {"engine's weights": 2 * p, "engine's key-value cache": rows * length * shape.kv_bytes}
    else:
        rows = min(rows, rollout.max_rows)
        kv = shape.kv_bytes * (1 if half else 2)
        cache = copies | {"key-value cache": rows * length * kv, "logits": rows * shape.vocabulary * 12}
    tokens = max(config.update.micro_batch_tokens, length)
    scale = 1 if half else 2
    block = shape.activation_bytes * scale
    kept = shape.layers * 4 * shape.hidden + block if policy.gradient_checkpointing else shape.layers * block
    # Every token of a micro-batch may be an answer's.
    logits = tokens * shape.vocabulary * 4 * scale + _LOGIT_PIECES
    update = copies | {"gradients": 4 * trained, "activations": tokens * kept, "logits and their gradients": logits}
    return [Phase("sampling", fixed | cache), Phase("updating", fixed | update)]


def trained_parameters(config: TrainConfig, shape: Shape) -> int:
    """Parameters that move, by `train_last_blocks` and `lora_rank`."""
    policy = config.policy
    blocks = min(policy.train_last_blocks or shape.layers, shape.layers)
    if policy.lora_rank:
        attention = shape.head_dim * (shape.heads + shape.kv_heads)
        widths = 4 * shape.hidden + 2 * attention + 3 * (shape.hidden + shape.intermediate)
        return blocks * policy.lora_rank * widths
    return blocks * shape.block if policy.train_last_blocks else shape.parameters


def describe(config: TrainConfig, tasks: int | None, note: str, engine: str, gpu_bytes: int | None) -> list[str]:
    """The plan, in lines.

    Args:
        config: Of the run.
        tasks: Tasks of the training split; None where the environment can't be made here.
        note: On its data, or why it can't be made.
        engine: `transformers` or `vllm`.
        gpu_bytes: Memory of the GPU that it will run on; None: there is none here.
    """
    rollout, update = config.rollout, config.update
    rows = rollout.prompts * rollout.samples
    mini = update.mini_batch or rollout.prompts
    passes = update.epochs * -(-rollout.prompts // mini)
    seen = config.steps * rollout.prompts
    answer_tokens = rows * rollout.max_new_tokens
    lines = [
        f"environment   {config.env}, " + (f"{tasks} training tasks" if tasks else "could not be made here"),
        f"data          {note or config.data}",
        f"algorithm     {config.algo}",
        f"model         {config.model}, sampled by {engine}",
        f"steps         {config.steps}, {seen} prompts" + (f" = {seen / tasks:.2f} epochs" if tasks else ""),
        f"a step        {rollout.prompts} prompts x {rollout.samples} rollouts = {rows} answers; {passes} optimiser "
        f"step{'s' * (passes > 1)} on {min(mini, rollout.prompts)} prompts each, lr {update.lr:g} ({update.schedule})",
        f"tokens        prompt up to {rollout.max_prompt_tokens}, after it up to {rollout.max_new_tokens}: at most "
        f"{answer_tokens / 1e6:.2f} M a step, {config.steps * answer_tokens / 1e9:.2f} G in all",
        f"validation    {_every(config.validation.every, config.steps)}, {config.validation.prompts} tasks x "
        f"{config.validation.samples}",
        f"checkpoints   {_every(config.checkpoint.every, config.steps)}, {config.checkpoint.keep} kept and the best",
    ]
    shape = shape_of(config.model)
    if shape is None:
        return [*lines, "memory        not estimated: the model's shape isn't known without loading it"]
    lines.append(
        f"parameters    {shape.parameters / 1e9:.2f} G, {trained_parameters(config, shape) / 1e9:.3f} G of them trained"
    )
    for phase in phases(config, shape, engine):
        lines.append(f"memory        {phase.name}: about {phase.total / GIB:.1f} GiB")
        lines += [f"                {size / GIB:7.1f}  {name}" for name, size in phase.parts.items()]
    most = max(phase.total for phase in phases(config, shape, engine))
    if gpu_bytes is not None and most > 0.95 * gpu_bytes:
        lines.append(
            f"              more than this GPU has ({gpu_bytes / GIB:.1f} GiB): lower update.micro_batch_tokens or "
            "rollout.max_rows, or set policy.gradient_checkpointing, policy.lora_rank or policy.train_last_blocks"
        )
    return lines


def _every(every: int, steps: int) -> str:
    return f"every {every} steps ({steps // every + 1} in all)" if every else "none"


def tasks_of(config: TrainConfig) -> tuple[int | None, str]:
    """Number of training tasks, and a note on the data; None, and why, where the environment can't be made here.

    Raises:
        GymError: The algorithm or its options don't go with the environment.
    """
    from .. import envs

    try:
        env = envs.make(config.env, split="train", data=config.data, **config.env_options)
    except GymError as error:
        return None, str(error).splitlines()[0]
    try:
        algorithm_of(config, env.reward_names, env.reward_weights)  # raises where a real run would
        return len(env.tasks), env.data_note
    finally:
        env.close()


def of(config: TrainConfig) -> list[str]:
    """The plan of a run on this machine, in lines; no model is loaded.

    Raises:
        GymError: The algorithm or its options are wrong.
    """
    import torch

    Algorithm.from_name(config.algo)
    gpu = torch.cuda.get_device_properties(0).total_memory if torch.cuda.is_available() else None
    tasks, note = tasks_of(config)
    return describe(config, tasks, note, engine_name(config, planned=True), gpu)
