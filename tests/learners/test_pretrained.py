"""Models from .gguf files and what the hub would give, without the hub."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from corrgrpo_gym.learners import session
from corrgrpo_gym.learners.config import PolicyConfig
from corrgrpo_gym.learners.policy import load_policy

from . import runs, tiny, toy

TEMPLATE = "{{ messages[0]['content'] }}="
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory):
    """A file as llama.cpp writes it, and the model whose weights it holds."""
    gguf = pytest.importorskip("gguf")
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    tokens = ["<end>", *bytes_to_unicode().values(), "ab"]
    model = tiny.model("qwen2", vocabulary=len(tokens), hidden_size=32)
    config = model.config
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    writer = gguf.GGUFWriter(str(path), "qwen2")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([3] + [1] * (len(tokens) - 1))
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(0)
    writer.add_chat_template(TEMPLATE)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        stem, _, kind = name.rpartition(".")
        writer.add_tensor(f"{names.get_name(stem)}.{kind}", tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path, model


def test_a_gguf_file_is_the_model_that_it_holds(gguf_file, tmp_path):
    path, model = gguf_file
    policy = load_policy(str(path), PolicyConfig(device="cpu"))
    ids = torch.tensor([[3, 4, 5, 6, 250]])
    with torch.no_grad():
        torch.testing.assert_close(policy.model(ids).logits, model(ids).logits, rtol=0, atol=1e-5)
    assert policy.end_ids == (0,) and policy.tokenizer.chat_template == TEMPLATE
    assert policy.tokenizer.decode(policy.tokenizer.encode("abc? é")) == "abc? é"
    # It can be saved as a plain folder and loaded again: checkpoints are that.
    policy.save(tmp_path / "saved")
    again = load_policy(str(tmp_path / "saved"), PolicyConfig(device="cpu"))
    with torch.no_grad():
        assert torch.equal(again.model(ids).logits, policy.model(ids).logits)
    assert again.end_ids == (0,)


@pytest.mark.parametrize("lora", [0, 2])
def test_a_gguf_file_is_trained_and_resumed(gguf_file, tmp_path, lora, capsys):
    over = {
        "env": f"{toy.__name__}:loose",
        "model": str(gguf_file[0]),
        "policy": {"lora_rank": lora},
        "algorithm": {"kl_coef": 0.1},
        "warm_start": {"steps": 0},
        "validation": {"every": 0},
        "algo": "dr_grpo",
        "update": {"lr": 1e-3},
    }
    runs.start(tmp_path / "whole", **over)
    runs.start(tmp_path / "parts", **over | {"steps": 2})
    session.resume(tmp_path / "parts", steps=4)
    assert all(m["grad_norm"] > 1e-4 for m in runs.records(tmp_path / "whole") if m["step"])
    assert runs.streams(tmp_path / "parts") == runs.streams(tmp_path / "whole")
    exported = session.export(tmp_path / "whole", tmp_path / "exported")
    assert load_policy(str(exported), PolicyConfig(device="cpu")).tokenizer.chat_template == TEMPLATE


def test_a_hub_id_without_the_hub_is_a_clear_error(tmp_path):
    script = (
        "from corrgrpo_gym.cli import main; main()",
        "train", "--env", "tests/learners/toy.py:make", "--model", "nobody/no-such-model", "--out", tmp_path / "run",
    )  # fmt: skip
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-c", *map(str, script)], cwd=ROOT, env=environment, capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 2 and "Traceback" not in done.stderr + done.stdout
    said = " ".join(done.stderr.split())
    assert "cannot load the model 'nobody/no-such-model'" in said and "a hub id (needs the network" in said
    assert not (tmp_path / "run").exists()
