"""The package without its model SDKs, and without a trace in what other code sees."""

import subprocess
import sys
from importlib import metadata

import pytest

from corrgrpo_gym.envs.agentdojo import upstream
from corrgrpo_gym.errors import GymError

LEAVES_NO_TRACE = """
import sys, yaml
before = dict(yaml.Dumper.yaml_representers)
finders = len(sys.meta_path)
from corrgrpo_gym import envs
assert not [m for m in sys.modules if "agentdojo" in m], "imported too early"
env = envs.make("agentdojo", split="test", suite="banking")
env.reset(options={"task": 1})
sdks = {"anthropic", "cohere", "openai", "google.genai", "langchain", "torch", "transformers", "requests"}
assert not sdks & set(sys.modules), sdks & set(sys.modules)
assert not [m for m in sys.modules if m.split(".")[0] == "agentdojo"]
assert yaml.Dumper.yaml_representers == before
# What others import is the package itself, all of it.
import agentdojo.functions_runtime as theirs
from corrgrpo_gym.envs.agentdojo import upstream
ours = upstream.module("functions_runtime")
assert theirs is not ours and theirs.__name__ == "agentdojo.functions_runtime"
assert theirs.__dict__["__builtins__"] is not ours.__dict__["__builtins__"]
try:
    import agentdojo.agent_pipeline
except ModuleNotFoundError as error:
    assert error.name in sdks, error
else:
    assert agentdojo.agent_pipeline.AnthropicLLM
"""


def test_nobody_else_sees_how_it_is_loaded():
    subprocess.run([sys.executable, "-c", LEAVES_NO_TRACE], check=True, timeout=300)


def test_an_import_of_the_envs_is_quick_without_it():
    code = "import sys, corrgrpo_gym.envs as e; e.list_envs(); assert not {'yaml', 'deepdiff'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("version", [None, "0.1.34"])
def test_another_version_or_none_is_an_error_that_says_what_to_do(monkeypatch, version):
    def found(name):
        if version is None:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(upstream.metadata, "version", found)
    with pytest.raises(GymError, match=r"pip install --no-deps agentdojo==0\.1\.35") as error:
        upstream._check_version()
    assert version is None or version in str(error.value)


def test_a_missing_dependency_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "deepdiff", None)
    monkeypatch.setitem(sys.modules, "deepdiff.diff", None)
    for name in [m for m in sys.modules if m.startswith(f"{upstream._NAME}.default_suites.v1.workspace")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(GymError, match=r"needs the package 'deepdiff.*corrgrpo-gym\[agentdojo\]"):
        upstream.module("default_suites.v1.workspace.task_suite")


def test_functions_import_from_the_private_copy_too():
    attacks = upstream.module("attacks.base_attacks")
    assert attacks.BaseAttack.__module__.startswith(upstream._NAME)
    assert issubclass(upstream.module("attacks.attack_registry").ATTACKS["dos"], attacks.BaseAttack)
