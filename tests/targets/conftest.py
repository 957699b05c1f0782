"""Tuning in this process, without waiting for a machine to calm down: the clock counts work."""

import pytest

from autofuse.api import againstnumpy
from autofuse.measurement import bench, client
from autofuse.testing.nearworker import NearWorker


@pytest.fixture
def near(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that starts at once, no rests between moments, and no race against NumPy, which has another clock."""
    monkeypatch.setattr(client, "Worker", NearWorker)
    monkeypatch.setattr(bench, "sleep", lambda seconds: None)
    monkeypatch.setattr(againstnumpy, "_BLOCKS", 0)
