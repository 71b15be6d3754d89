"""All of these need the package agentdojo, which `make test` installs."""

from importlib.util import find_spec

import pytest

from .playing import official_environment, quoting

if find_spec("agentdojo") is None:
    pytest.skip("the package agentdojo is not installed", allow_module_level=True)


@pytest.fixture(scope="session")
def test_split():
    from corrgrpo_gym import envs

    return envs.make("agentdojo", split="test")


@pytest.fixture
def official():
    """Builds environments as the package does."""
    with quoting():
        yield official_environment
