"""The key-value cache of a transformers model, whose argument is called differently in different versions."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch


def new_cache(model: Any) -> dict[str, Any]:
    """An empty cache that can be indexed by row, as the keyword argument that the model's forward takes.

    Args:
        model: A causal LM of transformers, or a peft model around one.
    """
    from transformers import DynamicCache

    base = _base(model)
    parameters = inspect.signature(base.forward).parameters
    return {"cache" if "cache" in parameters else "past_key_values": DynamicCache(config=base.config)}


def padding_is_free(model: Any) -> bool:
    """Whether padding between a prompt and what follows changes nothing.

    It does where layers count places instead of positions (sliding windows) or carry a state (linear attention).
    """
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer

    return all(type(layer) is DynamicLayer for layer in DynamicCache(config=_base(model).config).layers)


def _base(model: Any) -> Any:
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def select_rows(cache: dict[str, Any], rows: Any) -> None:
    """Keep these rows of a cache, in this order; a row may be taken several times. Gradients flow through."""
    (only,) = cache.values()
    only.batch_select_indices(rows)


@dataclass(slots=True)
class Prefix:
    """Prompts without their last token, computed.

    Attributes:
        cache: Their keys and values, as a keyword argument for the model.
        mask: [P, T], 1 at real tokens.
        lengths: [P], tokens of each.
    """

    cache: dict[str, Any]
    mask: torch.Tensor
    lengths: torch.Tensor


def prefill(model: Any, prompts: Sequence[Sequence[int]], device: Any) -> Prefix:
    """Compute all of each prompt but its last token, which goes in front of what follows.

    Padding is on the right, where no real token sees it; so it needs no mask, which would leave queries without a
    key, and some attention implementations turn those into NaN.
    """
    cache = new_cache(model)
    ids, mask = right_pad([p[:-1] for p in prompts], device)
    if ids.shape[1]:
        model(input_ids=ids, use_cache=True, logits_to_keep=1, **cache)
    return Prefix(cache, mask.long(), mask.sum(1))


def right_pad(sequences: Sequence[Sequence[int]], device: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids [B, T] padded with 0 on the right, and their mask [B, T] (bool)."""
    lengths = torch.tensor([len(s) for s in sequences])
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(s, dtype=torch.long) for s in sequences], batch_first=True)
    mask = torch.arange(ids.shape[1])[None] < lengths[:, None]
    return ids.to(device), mask.to(device)


def right_pad_floats(rows: Sequence[Sequence[float]], device: Any) -> torch.Tensor:
    """Float32 [R, C] padded with 0 on the right."""
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(r, dtype=torch.float32) for r in rows], batch_first=True).to(
        device
    )
