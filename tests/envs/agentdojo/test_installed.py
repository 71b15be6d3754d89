"""Whether the package agentdojo is there, and what is said where it is not."""

import subprocess
import sys
from importlib import metadata

import pytest

from corrgrpo_gym import envs
from corrgrpo_gym.envs.agentdojo import upstream

INSTALLED = any(d.name == "agentdojo" for d in metadata.distributions())

# Nothing of the package, and of what it needs, can be found.
WITHOUT = """
import sys
from importlib import metadata
def version(name):
    raise metadata.PackageNotFoundError(name)
metadata.version = version
sys.modules["yaml"] = sys.modules["deepdiff"] = None
from corrgrpo_gym import envs
from corrgrpo_gym.cli import main
assert "agentdojo" in [info.name for info in envs.list_envs()]
sys.argv = ["corrgrpo-gym", "eval", "--env", "agentdojo", "--model", "reference"]
main()
"""


@pytest.mark.skipif(not INSTALLED, reason=f"the package agentdojo is not installed: {upstream.INSTALL}")
def test_it_is_installed():
    assert metadata.version("agentdojo") == upstream.VERSION
    assert "agentdojo" in [info.name for info in envs.list_envs()]


def test_without_it_an_error_says_what_to_do():
    run = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=120)
    text = " ".join((run.stdout + run.stderr).split())
    assert run.returncode != 0 and "Traceback" not in text
    assert upstream.INSTALL in text
