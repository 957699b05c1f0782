"""Tuning in this process, without waiting for a machine to calm down: the clock counts work."""

import pytest

from autofuse.measurement import client
from autofuse.testing.counted.nearworker import NearWorker


@pytest.fixture
def near(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that starts at once."""
    monkeypatch.setattr(client, "Worker", NearWorker)
