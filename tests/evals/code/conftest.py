import pytest

from .rows import shared_sandbox


@pytest.fixture(scope="session")
def sandbox():
    with shared_sandbox() as made:
        yield made
