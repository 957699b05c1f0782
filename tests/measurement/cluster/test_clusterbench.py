"""A bench on several devices: the same records and answers as on one, whoever is lost meanwhile."""

import threading
from pathlib import Path

import numpy as np
import pytest

from autofuse.errors import MeasureError, WorkerLeftOutWarning
from autofuse.fusion.atoms import AtomGraph
from autofuse.ir.digest import subgraph_digest
from autofuse.lower.schedule import Schedule
from autofuse.measurement.client import BenchCounts
from autofuse.measurement.cluster.clusterbench import ClusterBench, _HandedOut
from autofuse.measurement.cluster.leases import lease_all
from autofuse.measurement.database import Database
from autofuse.measurement.kernelrecords import KernelTime, Trial
from autofuse.measurement.racing import Terms
from autofuse.measurement.workerpool import WorkerLostError
from autofuse.targets.cpu.decisions import cpu_schedule
from autofuse.testing.graphs import random_inputs
from autofuse.testing.partitions import identity_here
from tests.fixtures.failing import FAILURES, GRAPH, bench_on
from tests.fixtures.fakecluster import fake_cluster, sound
from tests.measurement.test_planraces import plans

HERE = identity_here()
ATOMS = AtomGraph(GRAPH, contract=False)
NAMES = ("fine", *FAILURES, "columns", "rows")
"""With the usual runners nothing fails."""


def trial(name: str) -> Trial:
    atoms = frozenset(atom for atom in ATOMS.atoms if atom.nodes[0].name == name)
    found = ATOMS.candidate(atoms, (GRAPH.value_by_name[name],))
    return Trial(subgraph_digest(found.graph, found.nodes, found.outputs), found, Schedule())


TRIALS = [trial(name) for name in NAMES]


def at(kernels: int, gone: threading.Event | None = None):
    """A worker that is gone when it is asked to time its n-th kernel, and then sets `gone`."""

    def behaviour(worker, job):
        if job.runner.endswith(":time_kernel") and len(worker.timed) == kernels:
            worker.is_there = False
            if gone is not None:
                gone.set()
            raise ConnectionError("the task's worker died")
        return worker.done(job)

    return behaviour


def after(gone: threading.Event):
    """A sound worker that times nothing before that."""

    def behaviour(worker, job):
        if job.runner.endswith(":time_kernel"):
            assert gone.wait(600)
        return worker.done(job)

    return behaviour


def on(client, path: Path):
    """A bench on a cluster, and its records."""
    database = Database(path, HERE)
    inputs = random_inputs(GRAPH, np.random.default_rng(0))
    return ClusterBench(GRAPH, inputs, database, lease_all(client, HERE), time_cap_us=2000.0)


def test_kernels_are_timed_once_each_and_recorded_as_on_one_device(tmp_path):
    with Database(tmp_path / "one.db", HERE) as database, bench_on(database) as bench:
        bench.kernels(TRIALS)
        wanted = {(r.measurement.kernel, r.measurement.policy, r.measurement.code_version) for r in database.records()}
    with fake_cluster(a=sound, b=sound) as client, on(client, tmp_path / "two.db") as bench:
        times = bench.kernels(TRIALS)
        assert [time.status for time in times] == ["ok"] * len(TRIALS)
        assert (bench.counts.measured, bench.counts.replayed) == (len(TRIALS), 0)
        asked = [worker.timed for worker in client.workers.values()]
        assert sorted(asked[0] + asked[1]) == sorted(NAMES)
        records = bench._database.records()
        assert len(records) == len(TRIALS)
        assert {(r.measurement.kernel, r.measurement.policy, r.measurement.code_version) for r in records} == wanted
        said = {f"worker {name}, noise 0.100, load 0.50" for name in ("a", "b")}
        assert {r.measurement.message for r in records} <= said
        again = bench.kernels(TRIALS)
        assert [time.us for time in again] == [time.us for time in times]
        assert (bench.counts.measured, bench.counts.replayed) == (len(TRIALS), len(TRIALS))
    # and without a cluster
    with Database(tmp_path / "two.db", HERE) as database, bench_on(database) as alone:
        assert [time.us for time in alone.kernels(TRIALS)] == [time.us for time in times]
        assert alone.counts.measured == 0


def test_a_lost_worker_costs_its_unfinished_kernels_only(tmp_path):
    gone = threading.Event()
    with fake_cluster(a=at(3, gone), b=after(gone)) as client, on(client, tmp_path / "r.db") as bench:
        with pytest.warns(WorkerLeftOutWarning, match="worker a is left out: its task failed: ConnectionError"):
            times = bench.kernels(TRIALS)
        assert [time.status for time in times] == ["ok"] * len(TRIALS)
        assert bench.counts.measured + bench.counts.replayed == len(TRIALS)
        assert len(bench._database.records()) == len(TRIALS)
        lost = client.workers["a"].timed
        assert len(lost) == 3
        assert {*lost} <= {*client.workers["b"].timed}  # none was finished: all moments of several come at the end
        assert bench.plans(plans()[:1], Terms(seed=0, seconds=5.0, blocks=1, turn_us=10.0))[0].samples_us


@pytest.mark.slow
def test_what_a_lost_worker_had_answered_is_kept(tmp_path):
    gone = threading.Event()
    with fake_cluster(a=sound, b=sound) as client, on(client, tmp_path / "r.db") as bench:
        first = bench.kernels(TRIALS[:4])
        client.workers["a"].behaviour = at(len(client.workers["a"].timed) + 1, gone)
        client.workers["b"].behaviour = after(gone)
        with pytest.warns(WorkerLeftOutWarning):
            both = bench.kernels(TRIALS)
        assert [time.us for time in both[:4]] == [time.us for time in first]
        assert len(bench._database.records()) == len(TRIALS)


def test_the_kernel_that_several_workers_got_last_is_the_one_to_blame():
    counts = BenchCounts()
    handed = _HandedOut(TRIALS[:3], lambda trial: None, lambda: True, counts)
    lost = WorkerLostError("it is gone")
    for _ in range(2):
        hand = dict(filter(None, (handed.next() for _ in range(3))))
        assert hand == dict(enumerate(TRIALS[:3]))
        assert counts.measured == 3
        handed.take_back(hand, lost)
        assert (hand, counts.measured) == ({}, 0)
    assert (TRIALS[2].digest, Schedule()) in counts.failing
    assert counts.failed == ["hang: killed: 2 workers were lost with it: it is gone"]
    hand = dict(filter(None, (handed.next() for _ in range(3))))
    assert hand == dict(enumerate(TRIALS[:2]))
    handed.answer(hand, [KernelTime("ok", 1.0), KernelTime("ok", 2.0)])
    times = handed.prefix()
    assert [time.status for time in times] == ["ok", "ok", "killed"]
    assert times[2].may_pass
    assert not handed.has_more()


def test_times_end_where_there_is_no_time():
    counts = BenchCounts()
    handed = _HandedOut(TRIALS, lambda trial: None, lambda: counts.measured < 3, counts)
    hand = dict(filter(None, (handed.next() for _ in range(len(TRIALS)))))
    assert len(hand) == 3
    assert handed.goes_on_without_one()  # who measures the last one may try it again
    handed.answer(hand, [KernelTime("ok", 1.0)])
    assert [time.us for time in handed.prefix()] == [1.0]
    assert counts.measured == 1
    assert not handed.has_more()


def test_when_all_workers_are_lost_the_error_names_them(tmp_path):
    with (
        fake_cluster(a=at(2), b=at(2)) as client,
        on(client, tmp_path / "r.db") as bench,
        pytest.warns(WorkerLeftOutWarning),
        pytest.raises(MeasureError, match=r"no worker is left: worker [ab] .*; worker [ab] "),
    ):
        bench.kernels(TRIALS)


def test_a_budget_in_counts_means_the_same_as_on_one_device(tmp_path):
    with fake_cluster(a=sound, b=sound, c=sound) as client, on(client, tmp_path / "r.db") as bench:
        times = bench.kernels(TRIALS, lambda: bench.counts.measured + bench.counts.replayed < 4)
        assert len(times) == 4
        assert bench.counts.measured == 4
        assert sorted(name for worker in client.workers.values() for name in worker.timed) == sorted(NAMES[:4])


def test_a_program_that_no_worker_can_prepare_is_an_error(tmp_path):
    with fake_cluster(a=sound, b=sound) as client, on(client, tmp_path / "r.db") as bench:
        for lane in bench._lanes:
            lane.bench._identity = {"backend": "abacus"}
        with pytest.warns(WorkerLeftOutWarning), pytest.raises(MeasureError, match="could not prepare the program"):
            bench.ready()


def test_an_error_of_the_records_is_no_fault_of_a_worker(tmp_path, monkeypatch):
    with fake_cluster(a=sound, b=sound) as client, on(client, tmp_path / "r.db") as bench:

        def full(*_):
            raise MeasureError("the disk is full")

        monkeypatch.setattr(bench._database, "add", full)
        with pytest.raises(MeasureError, match="the disk is full"):
            bench.kernels(TRIALS)
        assert len(bench._lanes) == 2


@pytest.mark.slow
def test_schedules_are_compiled_ahead_where_there_is_one_device(tmp_path):
    first = TRIALS[0]
    schedules = [cpu_schedule(unroll=n) for n in (1, 2)]
    for names, jobs in ((("a",), 1), (("a", "b"), 0)):
        with (
            fake_cluster(**dict.fromkeys(names, sound)) as client,
            on(client, tmp_path / f"{len(names)}.db") as bench,
        ):
            bench.compile(first.digest, first.kernel, schedules)
            asked = [job for worker in client.workers.values() for job in worker.jobs]
            assert sum(job.runner.endswith(":compile_kernels") for job in asked) == jobs
            assert [bench.kernel(first.digest, first.kernel, one).status for one in schedules] == ["ok", "ok"]


def test_races_go_on_with_another_worker(tmp_path):
    def no_races(worker, job):
        if job.runner.endswith(":time_plans"):
            raise ConnectionError("the task's worker died")
        return worker.done(job)

    terms = Terms(seed=0, seconds=5.0, blocks=1, turn_us=10.0)
    with fake_cluster(a=no_races, b=sound) as client, on(client, tmp_path / "r.db") as bench:
        with pytest.warns(WorkerLeftOutWarning, match="worker a is left out"):
            times = bench.plans(plans(), terms)
        assert all(time.samples_us for time in times)
        assert bench._leases.workers[0].name == "b"
        monkey = [job for job in client.workers["b"].jobs if job.runner.endswith(":time_plans")]
        assert len(monkey) == 1


def test_lost_is_a_measure_error():
    assert issubclass(WorkerLostError, MeasureError)
