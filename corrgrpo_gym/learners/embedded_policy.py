"""The embedded policy: a small Llama-shaped model with a tokenizer of its own, made from an environment's texts.

It needs no download. It starts from random weights, so a run warm-starts it on the environment's reference answers
(see EMBEDDED_PRESET); the warm-started folder is cached, so only the first run pays for it.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from .. import __version__
from ..envs import MultiRewardEnv
from ..errors import GymError, NotScored
from .chat import read_template
from .config import TrainConfig

SHAPE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 1024,
    "initializer_range": 0.05,
}
VOCABULARY = 1024
END = "<|end|>"
ROLES = ("system", "user", "assistant", "tool")
TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + (m['content'] or '') }}"
    "{% if m['role'] == 'assistant' %}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def texts_of(env: MultiRewardEnv) -> list[str]:
    """Every text of the training split that the tokenizer should know: prompts and reference answers.

    Raises:
        GymError: If the environment has no reference answers, from which alone the policy could learn to speak.
    """
    texts = []
    answers = 0
    for task in range(len(env.tasks)):
        messages, _ = env.clone().reset(options={"task": task})
        given = env.reference_answers(task)
        answers += len(given)
        # Questions count as often as answers, or their words would be left in letters.
        texts += [m["content"] for m in messages if m.get("content")] * max(1, len(given))
        for answer in given:
            texts += [answer] if isinstance(answer, str) else [*answer, *_heard(env, task, answer)]
    if not answers:
        raise GymError(
            f"{type(env).__name__} has no reference answers, and the embedded policy starts from nothing: "
            "give a pretrained one with --model"
        )
    return texts


def _heard(env: MultiRewardEnv, task: int, answers: Sequence[str]) -> list[str]:
    """What the environment says between the answers of an episode."""
    env, heard = env.clone(), []
    env.reset(options={"task": task})
    for answer in answers:
        try:
            messages, _, terminated, truncated, _ = env.step(answer)
        except NotScored:
            break
        heard += [m["content"] for m in messages if m.get("content")]
        if terminated or truncated:
            break
    return heard


def fingerprint(texts: list[str], config: TrainConfig) -> str:
    """A name for the policy that these texts and this configuration's warm start make."""
    import transformers

    recipe = [__version__, torch.__version__, transformers.__version__, SHAPE, VOCABULARY, TEMPLATE]
    # What is too long is left out of the warm start, and a template of the user's own is what it learns.
    limits = [config.rollout.max_prompt_tokens, config.rollout.max_new_tokens]
    template = read_template(config.policy.chat_template) if config.policy.chat_template else ""
    digest = hashlib.sha256(json.dumps([recipe, limits, template, config.warm_start.model_dump(mode="json")]).encode())
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()[:16]


def build(texts: list[str], folder: Path) -> None:
    """Make the tokenizer and the random model and save them as a Hugging Face folder."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    # Numbers stay whole: copying a constant from the question is then one look, not two.
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    special = [END, *(f"<|{role}|>" for role in ROLES)]
    bpe.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token=END, pad_token=END, additional_special_tokens=special[1:]
    )
    tokenizer.chat_template = TEMPLATE
    end = tokenizer.convert_tokens_to_ids(END)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=len(tokenizer),
                tie_word_embeddings=True,
                bos_token_id=None,
                eos_token_id=end,
                pad_token_id=end,
                **SHAPE,
            )
        )
        _ready_to_copy(model)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _ready_to_copy(model: Any) -> None:
    """Let each attention head pass on what it looks at: values and outputs start as inverse rotations.

    Embeddings are tied, so a head that looks at a token raises that token's logit from the first step on. What is
    left to learn for copying a constant out of the question is where to look; from plain random weights that takes
    three times as many steps, and with some seeds does not happen in the time that a first run has.
    """
    width = SHAPE["head_dim"]
    for layer in model.model.layers:
        attention = layer.self_attn
        with torch.no_grad():
            for head in range(SHAPE["num_attention_heads"]):
                rows = slice(head * width, (head + 1) * width)
                rotation = torch.nn.init.orthogonal_(torch.empty(width, SHAPE["hidden_size"]), gain=0.5)
                attention.v_proj.weight[rows] = rotation
                attention.o_proj.weight[:, rows] = rotation.T


def publish(folder: Path, place: Path) -> None:
    """Copy a finished folder into the cache, whole or not at all; a full disk is no error, the run has its own copy."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".new-", dir=place.parent))
        try:
            shutil.copytree(folder, temporary, dirs_exist_ok=True)
            if not place.exists():
                os.replace(temporary, place)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError:
        pass
