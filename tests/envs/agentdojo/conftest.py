"""All of these need the package agentdojo, which `make test` installs; test_installed says so where it is missing."""

import pytest

from .test_installed import INSTALLED

if not INSTALLED:
    collect_ignore_glob = ["test_[!i]*.py"]


@pytest.fixture(scope="session")
def test_split():
    from corrgrpo_gym import envs

    return envs.make("agentdojo", split="test")


@pytest.fixture
def official():
    """Builds environments as the package does."""
    from .playing import official_environment, quoting

    with quoting():
        yield official_environment
