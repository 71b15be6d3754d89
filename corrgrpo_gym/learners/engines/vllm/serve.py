"""The command that starts a vLLM server which a learner can push weights to, and which evaluations can ask."""

import os
import sys
from collections.abc import Sequence

from .local import need_vllm, room_for_rank
from .worker import EXTENSION


def command(
    model: str, *, host: str, port: int, lora_rank: int, sleep: bool, cut: bool, more: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment of the server.

    Args:
        model: Hub id or folder.
        host: Address to listen on.
        port: And its port.
        lora_rank: Rank of the adapters that will come; 0: none.
        sleep: Let the learner put it to sleep; needs CUDA.
        cut: Training draws with top-p or top-k.
        more: Further arguments of vLLM's own.
    """
    arguments = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--host", host,
        "--port", str(port), "--worker-extension-cls", EXTENSION,
        "--logprobs-mode", "raw_logprobs" if cut else "processed_logprobs",
    ]  # fmt: skip
    if lora_rank:
        arguments += ["--enable-lora", "--max-lora-rank", str(room_for_rank(lora_rank)), "--max-loras", "2"]
    if sleep:
        arguments.append("--enable-sleep-mode")
    environment = {
        # Routes for weights, sleep and caches.
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
        "VLLM_NO_USAGE_STATS": "1",
    }
    return [*arguments, *more], environment


def serve(model: str, *, host: str, port: int, lora_rank: int, sleep: bool, cut: bool, more: Sequence[str]) -> None:
    """Become that server.

    Raises:
        GymError: vLLM is not installed.
    """
    need_vllm()
    arguments, environment = command(model, host=host, port=port, lora_rank=lora_rank, sleep=sleep, cut=cut, more=more)
    os.execve(arguments[0], arguments, environment | os.environ)
