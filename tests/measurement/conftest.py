"""A worker to measure in."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from autofuse.measurement import client
from autofuse.measurement.client import Bench
from autofuse.measurement.database import Database
from autofuse.testing.partitions import identity_here
from tests.fixtures.failing import bench_on
from tests.fixtures.keptworkers import KeptProcesses


@pytest.fixture(scope="session")
def processes() -> Iterator[KeptProcesses]:
    """Those of workers that tests are done with."""
    kept = KeptProcesses()
    yield kept
    kept.end()


@pytest.fixture(autouse=True)
def _processes_are_kept(processes: KeptProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "Worker", processes.worker)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """An empty file of records."""
    with Database(tmp_path / "records.db", identity_here()) as opened:
        yield opened


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One worker for all tests that do not kill it."""
    with (
        Database(tmp_path_factory.mktemp("shared") / "records.db", identity_here()) as database,
        bench_on(database) as bench,
    ):
        yield bench


@pytest.fixture
def faulty(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A bench whose kernels and plans fail in the way that their name says."""
    monkeypatch.setattr(client, "_RUNNERS", "tests.fixtures.faults")
    with bench_on(database) as bench:
        yield bench
