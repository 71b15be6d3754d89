"""The policy's weights in the forms that vLLM takes: named tensors, a file of them, a folder of adapters."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from ....errors import GymError

WEIGHTS, ADAPTER = "weights.safetensors", "adapter"


def named(policy: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Checkpoint names and tensors of the model without its adapters; weights that are tied come once."""
    seen: set[int] = set()
    for name, tensor in policy.model.state_dict().items():
        if "lora_" in name or tensor.data_ptr() in seen:
            continue
        seen.add(tensor.data_ptr())
        # peft wraps the model, and each layer that it adapts.
        yield name.removeprefix("base_model.model.").replace(".base_layer.", "."), tensor.detach()


def write(policy: Any, folder: Path, dtype: torch.dtype) -> Path:
    """Write the weights of the model without its adapters.

    Raises:
        GymError: There is no room.
    """
    tensors = {name: tensor.to("cpu", dtype).contiguous() for name, tensor in named(policy)}
    size = sum(t.numel() * t.element_size() for t in tensors.values())
    path = folder / WEIGHTS
    room = shutil.disk_usage(folder).free
    if size > room:
        raise GymError(
            f"{folder}: the weights take {size / 2**30:.1f} GiB, and {room / 2**30:.1f} are free. "
            "Name another folder by --set engine.folder=..."
        )
    try:
        save_file(tensors, path)
    except OSError as e:
        raise GymError(f"cannot write the weights for the engine to {path}: {e.strerror or e}") from e
    return path


def write_adapter(policy: Any, folder: Path) -> Path:
    """Write the policy's adapters as peft does."""
    path = folder / ADAPTER
    shutil.rmtree(path, ignore_errors=True)
    # Adapters never hold embeddings; peft would ask the hub to find that out.
    policy.model.save_pretrained(path, save_embedding_layers=False)
    return path


def describe(policy: Any, folder: Path) -> Path:
    """Write what vLLM must know of the model before it has weights: its configuration alone."""
    model = policy.model.get_base_model() if policy.is_lora else policy.model
    config = model.config
    if not config.architectures:
        config.architectures = [type(model).__name__]
    config.save_pretrained(folder)
    return folder
