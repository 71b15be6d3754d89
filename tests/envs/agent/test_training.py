"""The embedded policy on the agent environment: a few steps of a whole run."""

import json

import pytest

pytest.importorskip("torch")

from corrgrpo_gym import envs
from corrgrpo_gym.learners import embedded_policy
from corrgrpo_gym.learners.config import resolve
from corrgrpo_gym.learners.session import start


def test_the_tokenizer_knows_what_tools_say():
    env = envs.make("agent")
    env.tasks = env.tasks[:40]
    texts = embedded_policy.texts_of(env)
    assert "Sent." in texts and "Added." in texts and any("The code is" in text for text in texts)
    assert any(text.startswith("[read_mail(") for text in texts)


def test_a_run_of_several_turns(tmp_path, monkeypatch):
    monkeypatch.setenv("CORRGRPO_GYM_CACHE", str(tmp_path / "cache"))
    few = {
        "steps": 1,
        "rollout": {"prompts": 2, "samples": 4},
        "warm_start": {"steps": 60},
        "validation": {"prompts": 12},
    }
    config = resolve({"env": "agent", "model": "embedded"}, few)
    assert config.data == "embedded" and config.rollout.max_new_tokens == 160
    outcome = start(config, tmp_path / "run")
    assert outcome.finished
    first, last = [json.loads(line) for line in (outcome.run / "metrics.jsonl").read_text().splitlines()]
    assert {"val/utility", "val/safety", "val/format", "val/total"} <= set(first)
    assert {"reward/utility", "turns", "val/safety"} <= set(last)
    rollouts = [json.loads(line) for line in (outcome.run / "rollouts.jsonl").read_text().splitlines()]
    # Sixty steps teach it to call a tool at least.
    assert any(r["turns"] > 1 and r["environment_tokens"] > 0 for r in rollouts)
    clean = [r for r in rollouts if r["task_id"].endswith("clean")]
    assert clean and all(r["reward"]["safety"] is None for r in clean)
