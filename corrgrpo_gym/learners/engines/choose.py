"""Which engine a run samples with."""

from typing import Literal

from ...errors import GymError
from ..config import TrainConfig
from ..policy import Policy
from .base import Engine
from .transformers import TransformersEngine
from .vllm.local import Options, VllmEngine, need_vllm, useful


def engine_name(config: TrainConfig, *, planned: bool = False) -> Literal["vllm", "transformers"]:
    """The engine that a configuration resolves to on this machine.

    `auto` is vLLM where it is installed and torch sees a GPU, or where `engine.url` names a server. The embedded policy
    is too small for it.

    Args:
        config: Of the run.
        planned: The run may be for another machine: an engine that is named need not be here.

    Raises:
        GymError: An engine that isn't here, or options that don't go together.
    """
    engine, rollout = config.engine, config.rollout
    name = engine.name
    if name == "auto":
        name = "vllm" if engine.url or (useful() and config.model != "embedded") else "transformers"
    if name == "transformers":
        if engine.url:
            raise GymError("engine.url names a vLLM server, but engine.name is transformers: leave one of them out")
        if engine.off_policy_steps:
            raise GymError(
                "engine.off_policy_steps = 1 samples while the weights are updated, so it needs an engine with weights "
                "of its own: --engine vllm"
            )
        return name
    if not (engine.url or planned):
        need_vllm()
    if (rollout.top_p < 1 or rollout.top_k) and rollout.temperature != 1:
        raise GymError(
            "vLLM reports log-probabilities before top-p and top-k only as they are at temperature 1: set "
            "rollout.temperature=1, or leave rollout.top_p and rollout.top_k out, or use --engine transformers"
        )
    return name


def open_engine(config: TrainConfig, policy: Policy) -> Engine:
    """The engine of a run; it has no weights before the first push.

    Raises:
        GymError: It can't be built, or its server can't be reached.
    """
    engine, rollout = config.engine, config.rollout
    if engine_name(config) == "transformers":
        return TransformersEngine(policy.model, policy.end_ids, rollout.max_rows, policy.autocast)
    cut = rollout.top_p < 1 or rollout.top_k > 0
    if engine.url:
        from .vllm.server import VllmServer

        return VllmServer(
            engine.url, policy.end_ids, folder=engine.folder, cut=cut, lora=policy.is_lora,
            concurrency=rollout.max_rows,
        )  # fmt: skip
    options = Options(
        dtype=engine.dtype if engine.dtype != "auto" else "bfloat16" if policy.half else "float32",
        max_model_len=rollout.max_prompt_tokens + rollout.max_new_tokens,
        max_rows=rollout.max_rows,
        gpu_memory_utilization=engine.gpu_memory_utilization,
        kv_cache_bytes=int(engine.kv_cache_gib * 2**30) or None,
        tensor_parallel=engine.tensor_parallel,
        eager=engine.eager,
        sleep=engine.sleep and not engine.off_policy_steps,
        lora_rank=config.policy.lora_rank,
        cut=cut,
    )
    return VllmEngine.of_policy(policy, options)
