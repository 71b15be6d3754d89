"""Models of a few thousand weights, a tokenizer of characters, and a toy environment."""

import string

import torch

from corrgrpo_gym.learners.config import PolicyConfig
from corrgrpo_gym.learners.policy import Policy

END = 1
ALPHABET = string.digits + string.ascii_lowercase + " +=?.\n"


def model(kind="llama", attention="sdpa", vocabulary=48, seed=0, scale=0.3, dtype=torch.float32, **options):
    """A causal LM with random weights, large enough that logits are far from uniform."""
    import transformers

    config_class, model_class = {
        "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
        "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
        "mistral": (transformers.MistralConfig, transformers.MistralForCausalLM),
    }[kind]
    settings = {
        "vocab_size": vocabulary,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "initializer_range": scale,
        "bos_token_id": None,
        "pad_token_id": None,
        "eos_token_id": END,
        "attn_implementation": attention,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return model_class(config_class(**settings | options)).to(dtype).eval()


def tokenizer():
    """One token per character, chats as `role: content` lines."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {"<pad>": 0, "<end>": END} | {c: i + 2 for i, c in enumerate(ALPHABET)}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex(r"(.|\n)"), "isolated")
    inner.decoder = decoders.Fuse()
    made = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>", pad_token="<pad>")
    made.chat_template = (
        "{% for m in messages %}{{ m['content'] }}\n{% endfor %}{% if add_generation_prompt %}={% endif %}"
    )
    return made


def folder(path, **options):
    """Save a tiny model with its tokenizer as a Hugging Face folder."""
    made = tokenizer()
    model(vocabulary=len(made), **options).save_pretrained(path)
    made.save_pretrained(path)
    return path


class EndOnly:
    """What a policy needs of a tokenizer where no text is involved."""

    eos_token_id = END


def policy(kind="llama", attention="sdpa", reference=False, dtype=torch.float32, config=None, **options):
    made = model(kind, attention, dtype=dtype, **options)
    return Policy(made, EndOnly(), config or PolicyConfig(), reference)
