"""The model that is trained: loading, which weights move, log-probabilities of sampled tokens, the reference model."""

import contextlib
import copy
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch.utils.checkpoint import checkpoint

from ..errors import GymError
from .chat import end_ids, load_tokenizer
from .config import PolicyConfig
from .kv import padding_is_free, prefill, right_pad, select_rows

# Logits whose float32 copy is made at a time: 128 MiB.
CHUNK = 2**25


@dataclass(frozen=True, slots=True)
class Piece:
    """Some completions of one prompt, to be computed together.

    Attributes:
        prompt: Token ids of the prompt.
        completions: Sampled token ids, each at least one token long.
    """

    prompt: Sequence[int]
    completions: Sequence[Sequence[int]]


class Policy:
    """A causal LM with its tokenizer, the weights that are trained, and a reference copy where one is needed.

    Args:
        model: A transformers causal LM, or a peft model around one.
        tokenizer: Its tokenizer, with a chat template.
        config: The policy section of the configuration.
        reference: Keep the initial weights for a KL term.
    """

    def __init__(self, model: Any, tokenizer: Any, config: PolicyConfig, reference: bool = False):
        self.model = model
        self.tokenizer = tokenizer
        self.config = config
        self.end_ids = end_ids(tokenizer, model)
        self.device = next(model.parameters()).device
        self.is_lora = config.lora_rank > 0
        # Activation checkpointing and a cache exclude each other in transformers.
        self.can_share = not config.gradient_checkpointing and padding_is_free(model)
        bf16 = config.dtype == "bfloat16" or (config.dtype == "auto" and self.device.type == "cuda")
        self.half = bf16
        self._autocast_dtype = torch.bfloat16 if bf16 else None
        self._reference: Any = None
        if reference and not self.is_lora:
            self.set_reference(copy.deepcopy(model))

    def set_reference(self, model: Any) -> None:
        """Measure KL against this model from now on."""
        self._reference = model.eval().requires_grad_(False)
        if self._autocast_dtype:
            self._reference.to(self._autocast_dtype)

    def merged(self) -> Any:
        """The model as a plain transformers one, adapters merged into its weights."""
        return self.model.merge_and_unload() if self.is_lora else self.model

    def describe(self) -> str:
        """One line about its size."""
        total = sum(p.numel() for p in self.model.parameters())
        trained = sum(p.numel() for p in self.trainable())
        return f"{total / 1e6:.2f} M parameters, {trained / 1e6:.2f} M trained, on {self.device}"

    def trainable(self) -> list[torch.nn.Parameter]:
        """The parameters that are trained."""
        return [p for p in self.model.parameters() if p.requires_grad]

    def autocast(self) -> Any:
        """The context in which forward passes run."""
        if self._autocast_dtype is None:
            return torch.autocast(self.device.type, enabled=False)
        return torch.autocast(self.device.type, dtype=self._autocast_dtype)

    def logps(
        self, pieces: Sequence[Piece], temperature: float, *, shared: bool = True, reference: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities of the completions' tokens.

        Args:
            pieces: What to compute in one pass; rows come out in their order.
            temperature: The sampling temperature (0 counts as 1).
            shared: Compute each prompt once for all its completions (the gradient is exact), where `can_share`
                allows it; false: once per row.
            reference: Use the initial weights.

        Returns:
            Log-probabilities [R, C] and mask [R, C] (bool).
        """
        model, context = self.model, contextlib.nullcontext()
        if reference and self.is_lora:
            context = self.model.disable_adapter()
        elif reference:
            model = self._reference
        rows = [c for piece in pieces for c in piece.completions]
        ids, mask = right_pad(rows, self.device)
        with context, self.autocast():
            if shared and self.can_share:
                logits = _shared_logits(model, pieces, ids, mask, self.device)
            else:
                logits = _plain_logits(model, pieces, ids, self.device)
        return token_logps(logits, ids, temperature or 1.0), mask

    def save(self, folder: Path) -> None:
        """Write the weights (adapters alone for LoRA) and the tokenizer as a Hugging Face folder."""
        # Adapters never hold embeddings; peft would ask the hub to find that out.
        self.model.save_pretrained(folder, **({"save_embedding_layers": False} if self.is_lora else {}))
        self.tokenizer.save_pretrained(folder)


def _shared_logits(model: Any, pieces: Sequence[Piece], ids: torch.Tensor, mask: torch.Tensor, device: Any) -> Any:
    """Logits [R, C, V] of completions, all of a prompt but its last token computed once per piece."""
    prefix = prefill(model, [p.prompt for p in pieces], device)
    counts = torch.tensor([len(p.completions) for p in pieces], device=device)
    rows = torch.repeat_interleave(torch.arange(len(pieces), device=device), counts)
    select_rows(prefix.cache, rows)
    last = torch.tensor([p.prompt[-1] for p in pieces], device=device)[rows, None]
    steps = torch.arange(ids.shape[1], device=device)
    return model(
        input_ids=torch.cat([last, ids[:, :-1]], 1),
        attention_mask=torch.cat([prefix.mask[rows], mask.long()], 1),
        position_ids=prefix.lengths[rows, None] + steps,
        use_cache=True,
        **prefix.cache,
    ).logits


def _plain_logits(model: Any, pieces: Sequence[Piece], ids: torch.Tensor, device: Any) -> torch.Tensor:
    """Logits [R, C, V] with a whole sequence per row: the path that the shared one is tested against."""
    prompts = [piece.prompt for piece in pieces for _ in piece.completions]
    sequences = [[*piece.prompt, *c] for piece in pieces for c in piece.completions]
    whole, _ = right_pad(sequences, device)
    first = min(len(p) for p in prompts) - 1
    # No mask: real tokens do not see the padding on their right, and each query must have a key (see prefill).
    logits = model(input_ids=whole, use_cache=False, logits_to_keep=whole.shape[1] - first).logits
    begin = torch.tensor([len(p) - 1 - first for p in prompts], device=device)
    where = (begin[:, None] + torch.arange(ids.shape[1], device=device)).clamp(max=logits.shape[1] - 1)
    return logits.gather(1, where[..., None].expand(-1, -1, logits.shape[-1]))


def token_logps(logits: torch.Tensor, ids: torch.Tensor, temperature: float) -> torch.Tensor:
    """Log-probabilities [R, C] of ids under softmax(logits / temperature), in float32 or better.

    Large vocabularies go in chunks whose float32 copies are recomputed in the backward pass.
    """
    vocabulary = logits.shape[-1]
    flat, targets = logits.reshape(-1, vocabulary), ids.reshape(-1)
    chunk = max(1, CHUNK // vocabulary)
    if flat.shape[0] <= chunk:
        return _chunk_logps(flat, targets, temperature).view_as(ids)
    parts = [
        checkpoint(_chunk_logps, a, b, temperature, use_reentrant=False)
        for a, b in zip(flat.split(chunk), targets.split(chunk), strict=True)
    ]
    return torch.cat(parts).view_as(ids)


def _chunk_logps(logits: torch.Tensor, ids: torch.Tensor, temperature: float) -> torch.Tensor:
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return (wide / temperature).log_softmax(-1).gather(-1, ids[:, None])[:, 0]


def micro_batches(pieces: Sequence[Piece], budget: int, shared: bool) -> Iterator[tuple[list[Piece], list[int]]]:
    """Cut pieces into micro-batches of at most `budget` padded tokens, splitting groups that do not fit.

    Yields:
        Pieces, and the row numbers (in the order of all completions of all pieces) that they hold.
    """
    rows: list[tuple[int, int, int]] = []  # piece, completion, row number
    number = 0
    for p, piece in enumerate(pieces):
        for c in range(len(piece.completions)):
            rows.append((p, c, number))
            number += 1
    # Similar lengths together; within a piece rows stay neighbours, so prompts are shared.
    size = [len(p.prompt) + max(len(c) for c in p.completions) for p in pieces]
    rows.sort(key=lambda r: (size[r[0]], r[0], r[1]))
    batch: list[tuple[int, int, int]] = []
    prompts: set[int] = set()
    widest_prompt = longest = 0
    for row in rows:
        piece = pieces[row[0]]
        next_prompts = prompts | {row[0]}
        next_widest = max(widest_prompt, len(piece.prompt))
        next_longest = max(longest, len(piece.completions[row[1]]))
        count = len(batch) + 1
        padded = (len(next_prompts) if shared else count) * next_widest + count * next_longest
        if batch and padded > budget:
            yield _gather(pieces, batch)
            batch, next_prompts = [], {row[0]}
            next_widest, next_longest = len(piece.prompt), len(piece.completions[row[1]])
        batch.append(row)
        prompts, widest_prompt, longest = next_prompts, next_widest, next_longest
    if batch:
        yield _gather(pieces, batch)


def _gather(pieces: Sequence[Piece], batch: list[tuple[int, int, int]]) -> tuple[list[Piece], list[int]]:
    grouped: dict[int, list[int]] = {}
    for p, c, _ in batch:
        grouped.setdefault(p, []).append(c)
    out = [Piece(pieces[p].prompt, [pieces[p].completions[c] for c in cs]) for p, cs in grouped.items()]
    return out, [number for _, _, number in batch]


def load_policy(
    source: str, config: PolicyConfig, *, reference: bool = False, adapter: Path | None = None, seed: int = 0
) -> Policy:
    """Load a policy for training.

    Args:
        source: Hub id, folder, or .gguf file.
        config: The policy section of the configuration.
        reference: Keep the initial weights for a KL term.
        adapter: Folder with LoRA adapters to go on with.
        seed: Of new adapters.

    Raises:
        GymError: If the model cannot be loaded or has fewer blocks than are to be trained.
    """
    device = _device(config.device)
    model, tokenizer = load_model(source, config.attention, config.chat_template)
    if config.gradient_checkpointing:
        # transformers 5.20 renamed the method.
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable({"use_reentrant": False})
        # transformers recomputes in training mode alone, where dropout would change the log-probabilities.
        _no_dropout(model)
        model.train()
    blocks = _blocks(model)
    last = range(len(blocks))[-config.train_last_blocks :] if config.train_last_blocks else range(len(blocks))
    if config.train_last_blocks > len(blocks):
        raise GymError(f"policy.train_last_blocks is {config.train_last_blocks}, but {source} has {len(blocks)} blocks")
    if config.lora_rank:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = _with_lora(model, config, list(last), adapter)
    elif config.train_last_blocks:
        model.requires_grad_(False)
        for i in last:
            blocks[i].requires_grad_(True)
        norm = getattr(model.get_decoder(), "norm", None)
        if norm is not None:
            norm.requires_grad_(True)
    return Policy(model.to(device), tokenizer, config, reference)


def check_model(source: str) -> None:
    """Refuse a path at which there is no model, before anything is loaded or asked of a hub.

    Raises:
        GymError: A path that isn't there, or a file that is not .gguf.
    """
    path = Path(source).expanduser()
    if path.is_file() and path.suffix != ".gguf":
        raise GymError(f"model {source}: give the folder that holds it, or a .gguf file")
    if not path.exists() and (source.startswith((".", "/", "~")) or source.count("/") > 1 or path.suffix == ".gguf"):
        raise GymError(f"model {source}: there is no such file or folder (current folder: {Path.cwd()})")


def load_model(source: str, attention: str = "sdpa", template: str = "") -> tuple[Any, Any]:
    """Load a float32 causal LM and its tokenizer from a hub id, a folder or a .gguf file."""
    from transformers import AutoModelForCausalLM

    check_model(source)
    path = Path(source).expanduser()
    gguf = path.name if path.suffix == ".gguf" else None
    place = str(path.parent) if gguf else str(path) if path.exists() else source
    options = {"gguf_file": gguf} if gguf else {}
    try:
        # Reading GGUF prints a progress bar of its own, which no setting turns off.
        with contextlib.redirect_stderr(io.StringIO()) if gguf else contextlib.nullcontext():
            model = AutoModelForCausalLM.from_pretrained(
                place, dtype=torch.float32, attn_implementation=attention, **options
            )
        tokenizer = load_tokenizer(place, template, gguf)
    except GymError:
        raise
    except (OSError, ValueError, ImportError, RuntimeError, KeyError, SafetensorError) as e:
        raise GymError(
            f"cannot load the model {source!r}: {(str(e) or type(e).__name__).splitlines()[0]}\n"
            "Give a folder in Hugging Face format, a .gguf file (pip install 'corrgrpo-gym[gguf]'), "
            "a hub id (needs the network or the hub's cache), or `embedded`."
        ) from e
    if gguf:
        # A model that came from GGUF refuses to be saved: the same weights in a model that knows nothing of it.
        plain = copy.deepcopy(model.config)
        if hasattr(plain, "quantization_config"):
            del plain.quantization_config
        rebuilt = AutoModelForCausalLM.from_config(plain, dtype=torch.float32, attn_implementation=attention)
        rebuilt.load_state_dict(model.state_dict())
        rebuilt.tie_weights()
        rebuilt.generation_config = model.generation_config
        model = rebuilt
    return model, tokenizer


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as e:
        raise GymError(f"policy.device {name!r} is not a device: use auto, cpu, cuda or cuda:N") from e
    if device.type == "cuda" and not torch.cuda.is_available():
        raise GymError(f"policy.device is {name!r}, but torch sees no GPU here")
    return device


def _no_dropout(model: Any) -> None:
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name, value in vars(module).items():
            if name.endswith("dropout") and isinstance(value, float):
                setattr(module, name, 0.0)


def _blocks(model: Any) -> Any:
    blocks = getattr(model.get_decoder(), "layers", None)
    if blocks is None:
        raise GymError(f"{type(model).__name__}: its decoder has no `layers`; this architecture is not supported")
    return blocks


def _with_lora(model: Any, config: PolicyConfig, layers: list[int], adapter: Path | None) -> Any:
    from peft import LoraConfig, PeftModel, get_peft_model

    if adapter is not None:
        return PeftModel.from_pretrained(model, str(adapter), is_trainable=True)
    names = {module: name for name, module in model.named_modules()}
    blocks = _blocks(model)
    targets = [
        f"{names[blocks[i]]}.{name}"
        for i in layers
        for name, module in blocks[i].named_modules()
        if isinstance(module, torch.nn.Linear)
    ]
    return get_peft_model(
        model,
        LoraConfig(
            r=config.lora_rank,
            lora_alpha=config.lora_alpha or 2 * config.lora_rank,
            lora_dropout=0.0,
            target_modules=targets,
            task_type="CAUSAL_LM",
        ),
    )
