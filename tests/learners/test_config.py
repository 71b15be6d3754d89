import tomllib
import typing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from corrgrpo_gym.errors import GymError
from corrgrpo_gym.learners import config as configs
from corrgrpo_gym.learners.config import (
    TrainConfig,
    documented_toml,
    load_toml,
    merge,
    parse_assignment,
    resolve,
    to_toml,
    validate,
)


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr(configs, "_has_gpu", lambda: False)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"stepz": 3}, "unknown configuration key 'stepz'. Did you mean 'steps'"),
        ({"update": {"learning_rate": 1}}, "unknown configuration key 'update.learning_rate'.*Known: update.betas"),
        ({"update": {"lrr": 1}}, "unknown configuration key 'update.lrr'. Did you mean 'update.lr'"),
        ({"rolout": {"prompts": 1}}, "unknown configuration key 'rolout'. Did you mean 'rollout'"),
        ({"steps": "many"}, r"configuration key steps: .*integer.*\(got 'many'\)"),
        ({"steps": -1}, r"configuration key steps: .*greater than or equal to 0 \(got -1\)"),
        ({"update": {"lr": 0}}, "configuration key update.lr: .*greater than 0"),
        ({"update": {"lr": float("nan")}}, "configuration key update.lr"),
        ({"update": {"lr": float("inf")}}, "configuration key update.lr: .*finite"),
        ({"update": {"schedule": "cosin"}}, "configuration key update.schedule: .*'cosine'.*got 'cosin'"),
        ({"update": 3}, "configuration key update: "),
        ({"policy": {"dtype": 16}}, "configuration key policy.dtype"),
        ({"track": ["tensorbord"]}, "configuration key track.0: .*'tensorboard'"),
        ({"algorithm": {"weights": {"a": "x"}}}, "configuration key algorithm.weights.a: "),
        ({"rollout": {"top_p": 0}}, "configuration key rollout.top_p"),
    ],
)
def test_wrong_configurations_are_named(values, message):
    with pytest.raises(GymError, match=message):
        validate(values)


def test_every_mistake_is_listed():
    with pytest.raises(GymError) as raised:
        validate({"stepz": 3, "seed": -4, "update": {"lrr": 1, "epochs": 0}})
    text = str(raised.value)
    assert len(text.splitlines()) == 4
    assert all(part in text for part in ("'stepz'", "seed", "'update.lrr'", "update.epochs"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("steps=3", {"steps": 3}),
        ("update.lr=1e-6", {"update": {"lr": 1e-6}}),
        (" update . lr = 1e-6 ", {"update": {"lr": 1e-6}}),
        ("algo=gdpo", {"algo": "gdpo"}),
        ('algo="gdpo"', {"algo": "gdpo"}),
        ("update.betas=[0.9, 0.95]", {"update": {"betas": [0.9, 0.95]}}),
        ("policy.gradient_checkpointing=true", {"policy": {"gradient_checkpointing": True}}),
        ("algorithm.weights={a = 1, b = 2.5}", {"algorithm": {"weights": {"a": 1, "b": 2.5}}}),
        ("model=a/b=c", {"model": "a/b=c"}),
        ("data=", {"data": ""}),
        ("data=3 apples", {"data": "3 apples"}),
    ],
)
def test_assignments(text, expected):
    assert parse_assignment(text) == expected


@pytest.mark.parametrize("text", ["steps", "=3", "update.=3", ".lr=3", ""])
def test_bad_assignments(text):
    with pytest.raises(GymError, match="expected KEY=VALUE"):
        parse_assignment(text)


def test_later_layers_rank_higher_than_earlier_ones_and_the_preset_lowest():
    file = {"steps": 7, "algo": "gdpo", "update": {"lr": 0.5, "epochs": 2}, "rollout": {"samples": 3}}
    flags = {"algo": "grpo", "seed": 4}
    assigned = {"update": {"lr": 0.25}, "seed": 5}
    made = resolve(file, flags, assigned)
    assert (made.steps, made.algo, made.seed) == (7, "grpo", 5)
    assert (made.update.lr, made.update.epochs) == (0.25, 2)
    # From the preset of the embedded policy, where nothing else is said.
    assert made.model == "embedded" and made.data == "embedded"
    assert made.rollout.samples == 3
    preset = configs.EMBEDDED_PRESET
    assert made.rollout.max_new_tokens == preset["rollout"]["max_new_tokens"]
    assert made.warm_start.steps == preset["warm_start"]["steps"]
    assert file["update"] == {"lr": 0.5, "epochs": 2}  # nobody's tables are changed


def test_the_preset_is_for_the_embedded_policy_alone(monkeypatch):
    made = resolve({"model": "some/where"})
    assert made == TrainConfig(model="some/where")
    assert resolve({"model": "embedded", "env": "other"}).data == "auto"
    assert resolve({"model": "embedded", "data": "hub"}).data == "hub"
    monkeypatch.setattr(configs, "_has_gpu", lambda: True)
    made = resolve({})
    assert made.model == "Qwen/Qwen2.5-Coder-0.5B-Instruct" and made.warm_start.steps == 0 and made.data == "auto"


def test_the_preset_is_valid():
    validate(configs.EMBEDDED_PRESET)


def test_merge():
    assert merge({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 5}, "e": 6}) == {"a": {"b": 5, "c": 2}, "d": 3, "e": 6}
    assert merge({"a": {"b": 1}}, {"a": 2}) == {"a": 2} and merge({"a": 2}, {"a": {"b": 1}}) == {"a": {"b": 1}}


def test_files(tmp_path):
    (tmp_path / "bad.toml").write_text("steps = \n")
    with pytest.raises(GymError, match="bad.toml is not valid TOML: .*line 1"):
        load_toml(tmp_path / "bad.toml")
    with pytest.raises(GymError, match="cannot read the configuration .*absent.toml: No such file"):
        load_toml(tmp_path / "absent.toml")
    (tmp_path / "latin.toml").write_bytes(b"model = '\xe9'\n")
    with pytest.raises(GymError, match="latin.toml is not valid TOML"):
        load_toml(tmp_path / "latin.toml")


def _sections(model=TrainConfig, prefix=""):
    for name, field in model.model_fields.items():
        yield prefix + name, field
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _sections(field.annotation, f"{prefix}{name}.")


def test_every_key_is_described():
    for name, field in _sections():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            assert field.annotation.__doc__, name
        else:
            assert field.description and field.description.rstrip().endswith("."), name


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
scalars = st.one_of(text, st.booleans(), st.integers(-(2**62), 2**62), st.floats(allow_nan=False, allow_infinity=False))
options = st.dictionaries(
    text, st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3))
)


@settings(max_examples=150, deadline=None)
@given(options, st.dictionaries(text, st.floats(allow_nan=False, allow_infinity=False)), text, st.floats(1e-12, 100))
def test_both_toml_texts_read_back_to_the_same_configuration(env_options, weights, model, lr):
    made = validate(
        {
            "model": model,
            "env_options": env_options,
            "update": {"lr": lr, "betas": (0.5, 0.75)},
            "algorithm": {"weights": weights, "estimator_options": env_options},
            "track": ["wandb"],
        }
    )
    for written in (to_toml(made), documented_toml(made)):
        assert validate(tomllib.loads(written)) == made


def test_the_documented_text_says_what_each_key_means():
    written = documented_toml(resolve({}))
    assert resolve(tomllib.loads(written)) == resolve({})
    lines = written.splitlines()
    for name, field in _sections():
        if field.description is None:
            continue
        at = [i for i, line in enumerate(lines) if line.startswith(f"{name.split('.')[-1]} = ")]
        assert any(lines[i - 1].startswith(f"# {field.description}") for i in at), name
        if typing.get_origin(field.annotation) is typing.Literal:
            choices = ", ".join(typing.get_args(field.annotation))
            assert any(lines[i - 1].endswith(f"One of: {choices}.") for i in at), name
