"""The one place that turns chats into token ids."""

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from ..errors import GymError


def load_tokenizer(source: str, template: str = "", gguf: str | None = None) -> Any:
    """Load a Hugging Face tokenizer and make sure that it can render chats.

    Args:
        source: Folder or hub id.
        template: File with a Jinja chat template that replaces the tokenizer's own.
        gguf: Name of a .gguf file inside source that holds the tokenizer.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source, **({"gguf_file": gguf} if gguf else {}))
    if template:
        tokenizer.chat_template = read_template(template)
    if not tokenizer.chat_template:
        raise GymError(f"the tokenizer of {source} has no chat template: give one with --set policy.chat_template=FILE")
    return tokenizer


def read_template(file: str) -> str:
    """The text of a template file. Raises GymError where it cannot be read."""
    try:
        return Path(file).read_text()
    except (OSError, UnicodeDecodeError) as e:
        raise GymError(f"policy.chat_template: cannot read {file}: {getattr(e, 'strerror', None) or e}") from e


def render(tokenizer: Any, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] = ()) -> list[int]:
    """Token ids of a chat, up to where the assistant's answer begins."""
    ids = _apply(tokenizer, messages, tools, tokenize=True, return_dict=False)
    if not ids:
        raise GymError(f"the chat template of {tokenizer.name_or_path} renders a chat to nothing")
    return list(ids)


def continuation(
    tokenizer: Any,
    opening: Sequence[dict[str, Any]],
    tools: Sequence[dict[str, Any]],
    new: Sequence[dict[str, Any]],
    end: int | None,
) -> list[int]:
    """Token ids that follow a sampled answer: what closes it, the new messages, and the head of the next answer.

    The answer itself is not rendered, so it can't come out in other tokens than it was sampled in: a mark stands in
    its place, and what the template writes after the mark is what follows.

    Args:
        tokenizer: With a chat template.
        opening: The chat's first messages.
        tools: Their tools.
        new: What the environment said to the answer.
        end: The token that ended the answer; None where it was cut, and is closed here.

    Raises:
        GymError: The template can't render such a chat.
    """
    mark = secrets.token_hex(16)
    text: str = _apply(tokenizer, [*opening, {"role": "assistant", "content": mark}, *new], tools, tokenize=False)
    _, found, rest = text.partition(mark)
    if not found:
        raise GymError(
            f"the chat template of {tokenizer.name_or_path} leaves out what an assistant says, so a chat can't go on "
            "after it. Give another one with --set policy.chat_template=FILE"
        )
    if end is not None:
        closing = tokenizer.decode([end], skip_special_tokens=False)
        if rest.lstrip().startswith(closing):
            rest = rest.lstrip().removeprefix(closing)
    ids = list(tokenizer.encode(rest, add_special_tokens=False))
    if not ids:
        raise GymError(f"the chat template of {tokenizer.name_or_path} renders nothing between two answers")
    return ids


def _apply(tokenizer: Any, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]], **options: Any) -> Any:
    try:
        return tokenizer.apply_chat_template(
            list(messages), tools=list(tools) or None, add_generation_prompt=True, **options
        )
    except (TemplateError, TypeError, ValueError) as e:
        roles = ", ".join(str(m.get("role")) for m in messages)
        raise GymError(
            f"the chat template of {tokenizer.name_or_path} cannot render a chat of the roles {roles}: {e}. "
            "Give another one with --set policy.chat_template=FILE"
        ) from e


def end_ids(tokenizer: Any, model: Any) -> tuple[int, ...]:
    """Ids that end an answer: the tokenizer's and the generation configuration's."""
    ids = {tokenizer.eos_token_id}
    configured = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    ids.update(configured if isinstance(configured, list) else [configured])
    return tuple(sorted(i for i in ids if i is not None))


def decode(tokenizer: Any, ids: Sequence[int], ends: Sequence[int]) -> str:
    """Text of an answer without the token that ended it; other special tokens stay visible, as they were sampled."""
    ids = list(ids)
    if ids and ids[-1] in ends:
        ids.pop()
    return str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))
