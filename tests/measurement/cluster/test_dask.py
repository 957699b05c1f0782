"""The workers of a real Dask cluster on this machine: leases, killed workers, tuners that are gone."""

import os
import signal
import warnings
from contextlib import contextmanager

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import ArgumentError, MeasureError, WorkerLeftOutWarning
from autofuse.measurement.cluster import connecting, leases, station
from autofuse.measurement.cluster.leases import lease_all
from autofuse.measurement.cluster.local import local_cluster
from autofuse.measurement.workerpool import WorkerLostError
from autofuse.targets.base import find_target

distributed = pytest.importorskip("distributed")

IDENTITY = find_target("counted").identity
X = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)


def layer(x, w):
    h = np.tanh(x @ w)
    return h - h.mean(-1, keepdims=True)


W = np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)


@contextmanager
def client_of(count):
    """A client of a cluster with so many workers."""
    with local_cluster([{}] * count) as address, distributed.Client(address, set_as_default=False) as client:
        client.wait_for_workers(count, timeout=600)
        yield client


def tuned(**options):
    return af.tune(layer, X, W, backend="counted", max_trials=10, seed=3, progress=False, **options)


@pytest.mark.slow
def test_one_of_two_workers_is_killed_and_the_plan_is_that_of_the_records(tmp_path, monkeypatch):
    with client_of(2) as client:
        first = min(leases.workers_of(client))
        (pid,) = client.run(os.getpid, workers=[first]).values()
        real, asked = leases.Leased.run, []

        def run(self, job):
            if self.name == first and job.runner.endswith(":time_kernel"):
                asked.append(job)
                if len(asked) == 2:
                    os.kill(pid, signal.SIGKILL)
            return real(self, job)

        monkeypatch.setattr(leases.Leased, "run", run)
        with pytest.warns(WorkerLeftOutWarning, match=f"worker {first} is left"):
            plan = tuned(cluster=client, db=tmp_path / "records.db")
        assert len(asked) >= 2
        np.testing.assert_allclose(plan(X, W), layer(X, W), rtol=1e-5, atol=1e-6)
        alone = tuned(db=tmp_path / "records.db")
        assert alone.document.kernels == plan.document.kernels
        assert alone.document.order == plan.document.order


@pytest.fixture(scope="module")
def shared():
    """A client of a cluster with one worker, for tests that leave it as it was."""
    with client_of(1) as client:
        yield client


@pytest.mark.slow
def test_a_device_is_leased_to_one_tuner_at_a_time_and_is_free_when_that_is_gone(shared, monkeypatch):
    monkeypatch.setattr(leases, "_FREE_S", 0.5)
    mine = lease_all(shared, IDENTITY)
    with distributed.Client(shared.scheduler.address, set_as_default=False) as other:
        with pytest.raises(MeasureError, match=r"somebody else has held its device for 0\.5 s"):
            lease_all(other, IDENTITY)
        monkeypatch.setattr(leases, "_FREE_S", 600.0)
        mine.release()
        theirs = lease_all(other, IDENTITY)
        assert theirs.workers[0].introduced(IDENTITY).identity == IDENTITY
    # the other client is gone, and never gave its device back
    again = lease_all(shared, IDENTITY)
    assert again.identity == IDENTITY
    again.release()


@pytest.mark.slow
def test_a_hanging_worker_is_lost(shared, monkeypatch):
    monkeypatch.setattr(leases, "_FREE_S", 600.0)
    held = lease_all(shared, IDENTITY, silent_s=1.5)
    name = held.workers[0].name
    (pid,) = shared.run(os.getpid, workers=[name]).values()
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(WorkerLostError, match=r"silent for 1\.5 s"):
            held.workers[0].introduced(IDENTITY)
    finally:
        os.kill(pid, signal.SIGCONT)
        held.release()


def test_renewing_gives_another_process(shared, monkeypatch):
    monkeypatch.setattr(leases, "_FREE_S", 600.0)
    held = lease_all(shared, IDENTITY)
    (worker,) = held.workers
    before = worker.restarts
    worker.renew()
    assert worker.restarts == before + 1
    assert worker.introduced(IDENTITY).identity == IDENTITY
    held.release()


def test_what_is_given_as_a_cluster_must_be_one(monkeypatch):
    monkeypatch.setattr(connecting, "_CONNECTING_S", 0.1)
    for given in ("tcp://127.0.0.1:1", "nonsense://"):
        with pytest.raises(MeasureError, match="no scheduler of Dask answers there"):
            tuned(cluster=given)
    for given in (True, 0, 3.5, [], object()):
        with pytest.raises(ArgumentError, match="cluster="):
            tuned(cluster=given)
    with pytest.raises(ArgumentError, match=r"of backend='cpu' there are 1 here; give 1, or the address"):
        af.tune(layer, X, W, backend="cpu", cluster=2, max_trials=1, progress=False)


def test_requests_without_a_lease_are_refused():
    from autofuse.measurement.channel import Message
    from autofuse.measurement.cluster.protocol import from_bytes, to_bytes

    assert from_bytes(station.perform(to_bytes(Message("renew", {"lease": "x"})))).type == "unleased"
    assert from_bytes(station.perform(b"hello")).type == "unfit"


@pytest.mark.slow
def test_no_warnings_where_nothing_is_wrong(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error", WorkerLeftOutWarning)
        plan = tuned(cluster=2, db=tmp_path / "records.db")
    assert tuned(db=tmp_path / "records.db").document.kernels == plan.document.kernels
