"""Recipes: each resolves for each algorithm to the paper's settings."""

import subprocess
import sys
import tomllib

import pytest

from corrgrpo_gym.configuration import load_toml
from corrgrpo_gym.corrgrpo import catalogue
from corrgrpo_gym.errors import GymError
from corrgrpo_gym.learners import recipes
from corrgrpo_gym.learners.config import resolve
from corrgrpo_gym.learners.trainer import algorithm_of

ALGORITHMS = [row.name for row in catalogue.algorithms()] + ["cispo+corrgrpo", "dapo+gdpo", "gspo+corrgrpo"]
COMPONENTS = {
    "leetcode": ("format", "syntax", "compile", "runtime", "accuracy", "efficiency", "ast_similarity"),
    "rlla": ("format", "function_name", "parameter_name", "parameter_value"),
    "agentdojo": ("utility", "safety"),
}


def test_there_is_one_for_each_of_the_papers_models():
    found = {(row.env, row.model) for row in recipes.recipes()}
    coder = {("leetcode", f"Qwen/Qwen2.5-Coder-{size}-Instruct") for size in ("0.5B", "1.5B", "3B", "7B")}
    tools = {("rlla", m) for m in ("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen3-4B-Thinking-2507", "Qwen/Qwen3-8B")}
    agents = {("agentdojo", m) for m in ("Qwen/Qwen2.5-3B-Instruct", "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen3-8B")}
    assert found == coder | tools | agents
    assert all("2609.36820" in row.description for row in recipes.recipes())


@pytest.mark.parametrize("name", recipes.names())
def test_every_recipe_resolves_for_every_algorithm(name):
    for algo in ALGORITHMS:
        config = resolve(recipes.load(name), {"algo": algo})
        names = COMPONENTS[config.env]
        algorithm = algorithm_of(config, names, [1.0] * len(names))
        guard = config.algorithm.estimator_options.get("guard")
        assert guard == ("paper" if algo.endswith("corrgrpo") else None)
        if algo.startswith(("dr_grpo", "gspo")):
            assert config.algorithm.aggregation == ""
        else:
            assert algorithm.loss_options["aggregation"] == "token-mean"
        assert config.update.lr == 1e-6 and config.rollout.temperature == 1.0 and config.rollout.top_p == 1.0


def test_the_papers_figures():
    def figures(name, algo="corrgrpo"):
        config = resolve(recipes.load(name), {"algo": algo})
        r, u = config.rollout, config.update
        sizes = (r.prompts, r.samples, r.max_prompt_tokens, r.max_new_tokens)
        return sizes, u.mini_batch, config.algorithm.kl_coef, config.steps

    assert figures("leetcode-qwen2.5-coder-0.5b") == ((64, 8, 4096, 2048), 32, 0.001, 15 * (2641 // 64))
    assert figures("rlla-qwen3-8b") == ((128, 4, 2048, 2048), 0, 0.0, 15 * (3920 // 128))
    assert figures("rlla-qwen3-8b", "gdpo") == ((512, 4, 2048, 2048), 128, 0.0, 15 * (3920 // 512))
    assert figures("agentdojo-qwen2.5-3b") == ((16, 8, 12288, 8192), 0, 0.001, 7 * (1584 // 16))
    assert figures("leetcode-qwen2.5-coder-7b", "dapo")[2] == 0.0


def test_the_reference_code_gives_the_vector_to_corrgrpo_and_gdpo_alone():
    for algo, weights in (("grpo", None), ("dapo", None), ("gdpo", "paper-vector"), ("cispo+corrgrpo", "paper-vector")):
        config = resolve(recipes.load("leetcode-qwen2.5-coder-0.5b"), {"algo": algo})
        assert config.env_options.get("reward_weights") == weights and config.env_options["recipe"] == "paper"


def test_what_the_user_says_goes_before_what_a_recipe_says_for_an_algorithm():
    name = "leetcode-qwen2.5-coder-0.5b"
    over = {"algo": "corrgrpo", "algorithm": {"estimator_options": {"guard": "floor"}}, "steps": 3}
    config = resolve(recipes.load(name), over)
    assert config.algorithm.estimator_options == {"guard": "floor"} and config.steps == 3
    # The pattern is matched with the algorithm that runs, wherever it is named.
    assert resolve(recipes.load(name), {"algo": "grpo"}).algorithm.estimator_options == {}
    assert resolve(recipes.load(name)).algorithm.estimator_options == {"guard": "paper"}


def test_names_paths_and_files(tmp_path, monkeypatch):
    whole = recipes.load("rlla-qwen3-8b")
    for what in ("recipes/rlla-qwen3-8b.toml", "rlla-qwen3-8b.toml", "recipes/rlla-qwen3-8b"):
        assert recipes.load(what) == whole
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text('extends = "rlla-qwen3-8b"\nmodel = "./here"\n[update]\nlr = 2e-6\n')
    mine = recipes.load("mine.toml")
    assert mine["model"] == "./here" and mine["update"] == {"lr": 2e-6} and mine["steps"] == whole["steps"]
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/next.toml").write_text('extends = "../mine.toml"\nseed = 4\n')
    assert recipes.load(tmp_path / "sub/next.toml") == mine | {"seed": 4}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.toml", 'extends = "a"', "leads in a circle"),
        ("a.toml", "extends = 3", "extends is 3; it should name"),
        ("a.toml", 'extends = "nothing"', "no such file beside it and no such recipe"),
        ("a.toml", "for_algo = 3", "for_algo: expected tables by algorithm"),
        ("a.toml", '[for_algo]\n"*" = 1', "for_algo: expected tables by algorithm"),
        ("a.toml", '[for_algo."*"]\nstepz = 1', "unknown configuration key 'stepz'"),
        ("a.toml", "x = ", "a.toml is not valid TOML"),
        ("rlla-qwen3-8.toml", None, "neither a file nor a recipe: .*rlla-qwen3-8b"),
        ("sub/none.toml", None, "there is no such file"),
    ],
)
def test_mistakes(tmp_path, monkeypatch, name, text, message):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(GymError, match=message):
        resolve(recipes.load(name))


def test_files_are_small_and_parse():
    for path in recipes.FOLDER.glob("*.toml"):
        tomllib.loads(path.read_text())
        assert ("model" in load_toml(path)) == ("extends" in load_toml(path))


def test_the_command_lists_and_plans_them(tmp_path):
    command = [sys.executable, "-m", "corrgrpo_gym"]
    listed = subprocess.run([*command, "recipes"], capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert all(name in listed for name in recipes.names())
    planned = subprocess.run(
        [*command, "train", "--config", "leetcode-qwen2.5-coder-0.5b", "--data", "embedded", "--dry-run"],
        capture_output=True, text=True, check=True, cwd=tmp_path,
    ).stdout  # fmt: skip
    assert "64 prompts x 8 rollouts = 512 answers; 2 optimiser steps on 32 prompts each" in planned
    assert "1402 training tasks" in planned and "updating: about" in planned
    assert not list(tmp_path.iterdir())
