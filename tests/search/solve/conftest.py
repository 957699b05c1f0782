"""Both ways to solve."""

import pytest

from autofuse.search.solve import branching


@pytest.fixture
def by_highs(monkeypatch):
    """Nothing is solved by branch and bound."""
    monkeypatch.setattr(branching, "MOST_STEPS", 0)
