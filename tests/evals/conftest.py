"""Fixtures of evaluations."""

import pytest

from corrgrpo_gym.evals import registry

from . import toys


@pytest.fixture
def bench(monkeypatch):
    made = toys.Sums()
    monkeypatch.setattr(registry, "make", lambda name, data=None, **options: made)
    return made
