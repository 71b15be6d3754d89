"""Plans: sizes of known models, and the memory estimate against what torch really keeps."""

import pytest
import torch

from corrgrpo_gym.errors import GymError
from corrgrpo_gym.learners import plan, recipes
from corrgrpo_gym.learners.config import resolve
from corrgrpo_gym.learners.plan import Shape, describe, phases, shape_from, shape_of, trained_parameters

from . import tiny

CODER = "Qwen/Qwen2.5-Coder-0.5B-Instruct"


@pytest.mark.parametrize(
    ("model", "billions"),
    [  # as their model cards say
        (CODER, 0.49), ("Qwen/Qwen2.5-Coder-1.5B-Instruct", 1.54), ("Qwen/Qwen2.5-3B-Instruct", 3.09),
        ("Qwen/Qwen2.5-7B-Instruct", 7.61), ("Qwen/Qwen3-4B-Thinking-2507", 4.0), ("Qwen/Qwen3-8B", 8.2),
    ],
)  # fmt: skip
def test_parameters_of_published_models(model, billions):
    assert shape_of(model).parameters / 1e9 == pytest.approx(billions, rel=0.02)


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
@pytest.mark.parametrize("tied", [True, False])
def test_parameters_of_real_ones(tmp_path, kind, tied):
    model = tiny.model(kind, tie_word_embeddings=tied)
    model.save_pretrained(tmp_path)
    shape = shape_of(str(tmp_path))
    biases = sum(p.numel() for n, p in model.named_parameters() if n.endswith("bias"))
    assert shape.parameters == sum(p.numel() for p in model.parameters()) - biases


def test_trained_parameters_and_adapters():
    from corrgrpo_gym.learners.policy import load_policy

    def trained(tmp, **options):
        config = resolve({"model": str(tmp), "policy": {"device": "cpu", **options}})
        return sum(p.numel() for p in load_policy(str(tmp), config.policy).trainable()), config

    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        tiny.folder(Path(folder))
        shape = shape_of(folder)
        for options in ({}, {"lora_rank": 3}, {"lora_rank": 3, "train_last_blocks": 2}):
            real, config = trained(folder, **options)
            assert trained_parameters(config, shape) == real
        real, config = trained(folder, train_last_blocks=2)
        assert trained_parameters(config, shape) == real - shape.hidden  # the final norm


def test_activations_against_what_autograd_keeps():
    """The sum of all tensors saved for the backward pass, by storage, in bfloat16 autocast."""
    model = tiny.model(
        "qwen2", hidden_size=128, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, vocabulary=32,
    )  # fmt: skip
    shape = shape_from(model.config.to_dict())
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def kept(tokens):
        storages = {}

        def pack(tensor):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in weights:
                storages[storage.data_ptr()] = (storage, storage.nbytes())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t), torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(torch.zeros(2, tokens // 2, dtype=torch.long), use_cache=False).logits
        del out
        return sum(size for _, size in storages.values())

    # The difference leaves out what does not grow with the tokens, such as bfloat16 copies of the weights.
    per_token = (kept(768) - kept(256)) / 512 / shape.layers
    assert per_token == pytest.approx(shape.activation_bytes, rel=0.15)


def config_of(**over):
    return resolve(recipes.load("leetcode-qwen2.5-coder-0.5b"), over)


def test_phases_by_hand():
    shape = Shape(hidden=8, intermediate=16, layers=2, heads=2, kv_heads=1, head_dim=4, vocabulary=100, tied=True)
    p = 100 * 8 + 2 * (8 * 4 * 6 + 3 * 8 * 16 + 16) + 8
    assert shape.parameters == p and shape.kv_bytes == 2 * 2 * 2 * 4
    sampling, updating = phases(config_of(), shape, "transformers")
    assert sampling.parts["weights, float32"] == 4 * p and sampling.parts["optimiser"] == 8 * p
    assert sampling.parts["reference model"] == sampling.parts["weights, bfloat16 copy"] == 2 * p
    assert sampling.parts["key-value cache"] == 256 * 6144 * shape.kv_bytes  # max_rows of the 512
    assert updating.parts["gradients"] == 4 * p
    assert updating.parts["activations"] == 16384 * 2 * shape.activation_bytes
    assert sampling.total == sum(sampling.parts.values())
    asleep, _ = phases(config_of(), shape, "vllm")
    assert asleep.parts["engine's key-value cache"] == 512 * 6144 * shape.kv_bytes
    no_kl = phases(config_of(algorithm={"kl_coef": 0.0}), shape, "transformers")[0]
    assert "reference model" not in no_kl.parts
    wide = phases(config_of(policy={"dtype": "float32"}), shape, "transformers")
    assert "weights, bfloat16 copy" not in wide[1].parts
    assert wide[1].parts["activations"] == 2 * updating.parts["activations"]
    small = phases(config_of(policy={"gradient_checkpointing": True}), shape, "transformers")[1]
    assert small.parts["activations"] < updating.parts["activations"]


def test_the_text():
    lines = describe(config_of(), 2641, "hub: there", "transformers", 24 * 2**30)
    text = "\n".join(lines)
    assert "615, 39360 prompts = 14.90 epochs" in text
    assert "at most 1.05 M a step, 0.64 G in all" in text
    assert "more than this GPU has (24.0 GiB)" in text and "more than" not in "\n".join(
        describe(config_of(), 2641, "", "transformers", 80 * 2**30)
    )
    unknown = describe(config_of(model="some/other"), None, "no network", "transformers", None)
    assert "could not be made here" in unknown[0] and "no network" in unknown[1] and "not estimated" in unknown[-1]


def test_mistakes_in_the_environments_options_are_said():
    tasks, note = plan.tasks_of(config_of(env_options={"nothing": 1}, data="embedded"))
    assert tasks is None and "nothing" in note


def test_models_of_other_kinds_have_no_estimate(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "other", "hidden_size": 3}')
    assert shape_of(str(tmp_path)) is None
    (tmp_path / "config.json").write_text("{")
    assert shape_of(str(tmp_path)) is None
    assert shape_of("no/such-model") is None
    with pytest.raises(GymError):
        resolve(recipes.load("nope"))
