import gzip
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from corrgrpo_gym import envs
from corrgrpo_gym.envs import hub
from corrgrpo_gym.envs.rlla import embedded
from corrgrpo_gym.errors import GymError
from corrgrpo_gym.learners.config import resolve

SHARED = Path(__file__).parents[4] / "shared/data/rlla_4k"
LABEL = '<think> g </think>\n<tool_call>\n{"name": "f", "parameters": {"a": "1"}}\n</tool_call>'
ROW = {"instruction": "Tools: f", "input": "<user> go </user>", "output": LABEL}
PUBLISHED = {
    "prompt": [{"role": "system", "content": "Tools: f"}, {"role": "user", "content": "<user> go </user>"}],
    "reward_model": {"ground_truth": LABEL, "style": "rule"},
}


def write(path, *rows):
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def test_a_right_answer_earns_all(tmp_path):
    for row in (ROW, PUBLISHED):
        env = envs.make("rlla", split="test", data=write(tmp_path / "test.jsonl", row))
        observation, info = env.reset(options={"task": 0})
        assert observation == tuple(PUBLISHED["prompt"]) and info["task_id"] == "test/0"
        _, reward, terminated, truncated, info = env.step(LABEL)
        assert reward.tolist() == [1.0, 0.5, 1.0, 1.5] and terminated and not truncated and info["label"] == LABEL
        assert env.reference_answers(0) == (LABEL,)


def test_it_keeps_the_rules_of_environments():
    report = envs.check_env(envs.make("rlla", data="embedded"))
    assert report.reward_names == ("format", "function_name", "parameter_name", "parameter_value")


def test_parquet_as_published(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist([PUBLISHED] * 3), tmp_path / "train.parquet")
    env = envs.make("rlla", data=tmp_path)
    assert len(env.tasks) == 3 and env.tasks[2].calls[0].arguments == {"a": "1"}
    with pytest.raises(GymError, match="has no file of split 'test'"):
        envs.make("rlla", split="test", data=tmp_path)


def test_strict_reference_is_an_option(tmp_path):
    label = LABEL.replace('{"a": "1"}', "{}")
    path = write(tmp_path / "train.jsonl.gz", ROW | {"output": label})
    wrong = label.replace('"f"', '"g"')
    for strict, value in ((False, -1.5), (True, 1.5)):
        env = envs.make("rlla", data=path, strict_reference=strict)
        env.reset(options={"task": 0})
        assert env.step(wrong)[1].tolist() == [1.0, -0.5, -1.0, value]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"instruction": "x", "input": "y"}, "train.jsonl:2: field 'output' is missing"),
        (ROW | {"output": " "}, "train.jsonl:2: .*empty"),
        (ROW | {"output": "<tool_call>{</tool_call>"}, "train.jsonl:2: the label can't be read: not JSON"),
        (ROW | {"output": "nothing"}, "neither calls nor a response"),
        (PUBLISHED | {"reward_model": {}}, "field 'ground_truth' is missing"),
        (PUBLISHED | {"prompt": [{"role": "system", "content": "x"}]}, "does not end with a user"),
        ([1], "a row is an object, not a list"),
    ],
)
def test_bad_rows_are_named(tmp_path, row, message):
    path = write(tmp_path / "train.jsonl", ROW, row)
    with pytest.raises(GymError, match=message):
        envs.make("rlla", data=path)


def test_where_data_come_from(tmp_path, monkeypatch):
    def away(*args, **options):
        raise hub.Unreachable("no network")

    monkeypatch.setattr(hub, "fetch", away)
    assert envs.make("rlla").data_note.startswith("embedded: 800 tasks") and "no network" in envs.make("rlla").data_note
    with pytest.raises(GymError, match="no network"):
        envs.make("rlla", data="hub")
    with pytest.raises(GymError, match="there is no file or folder"):
        envs.make("rlla", data=tmp_path / "none")
    path = write(tmp_path / "test.jsonl", ROW)
    monkeypatch.setattr(hub, "fetch", lambda *a, **o: (path, "there"))
    assert envs.make("rlla", split="test", data="hub").data_note == f"hub: there: 1 dialogues of {path}"


def test_embedded_tasks():
    train, test = embedded.embedded_rows("train"), embedded.embedded_rows("test")
    assert (len(train), len(test)) == (800, 120)
    assert not {r["input"] for r in train} & {r["input"] for r in test}
    assert embedded.embedded_rows("train") == train and embedded.embedded_rows("train", seed=1) != train
    names = Counter(json.loads(line)["name"] for r in train for line in r["output"].split("\n")[2:-1])
    assert set(names) == {tool.name for tool in embedded.TOOLS} and min(names.values()) > 20
    with pytest.raises(GymError):
        embedded.embedded_rows("dev")


def test_what_the_warm_start_learns_from_leaves_room():
    env = envs.make("rlla", data="embedded")
    scores = []
    for task in range(200):
        env.reset(options={"task": task})
        assert env.step(env.tasks[task].label)[1].tolist() == [1.0, 0.5, 1.0, 1.5]
        for answer in env.reference_answers(task):
            env.reset(options={"task": task})
            scores.append(env.step(answer)[1])
    means = np.mean(scores, 0)
    assert 0.85 < means[0] < 1 and 0.3 < means[1] < 0.5 and 0 < means[2] < 0.5 and 0 < means[3] < 0.75
    best = np.mean([s.tolist() == [1.0, 0.5, 1.0, 1.5] for s in scores])
    assert 0.1 < best < 0.3  # right answers are among them


def test_training_takes_the_embedded_tasks_by_itself():
    config = resolve({"env": "rlla", "model": "embedded"})
    assert config.data == "embedded" and config.warm_start.steps == 900
    assert resolve({"env": "rlla", "model": "./mine"}).data == "auto"


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the real data beside the repository")
def test_published_labels_earn_everything():
    for data in (SHARED, SHARED / "rlla_test.jsonl.gz"):
        env = envs.make("rlla", split="test", data=data)
        assert len(env.tasks) == 80 and sum(bool(d.calls) for d in env.tasks) == 71
        for task, dialogue in enumerate(env.tasks):
            env.reset(options={"task": task})
            best = [1.0, 0.5, 1.0, 1.5] if dialogue.calls else [1.0, 0.0, 0.0, 0.0]
            assert env.step(dialogue.label)[1].tolist() == best, dialogue.label
