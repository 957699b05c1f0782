"""Which workers are leased, and which are named and left out: of other versions, other devices, unsound, gone."""

from dataclasses import replace

import pytest

from autofuse.errors import MeasureError
from autofuse.measurement.channel import Message
from autofuse.measurement.cluster import leases
from autofuse.measurement.cluster.leases import lease_all
from autofuse.measurement.cluster.protocol import PROTOCOL, to_bytes, toolchain
from autofuse.measurement.workerpool import Job, Outcome, WorkerLostError
from autofuse.plan.identity import identity_to_json
from autofuse.testing.partitions import identity_here
from tests.fixtures.fakecluster import fake_cluster

HERE = identity_here()


def says(**changed):
    """A worker that introduces itself with something changed."""
    return lambda worker, job: worker.introduced(**{"identity": identity_to_json(HERE), **changed})


FINE = says()


def reason(behaviour, **options):
    """Why a worker is left out beside a sound one."""
    with fake_cluster(bad=behaviour, fine=FINE) as client:
        found = lease_all(client, HERE, **options)
        assert [worker.name for worker in found.workers] == ["fine"]
        (left_out,) = found.left_out
        assert left_out.name == "bad"
        assert str(left_out) == f"worker bad is left out: {left_out.reason}"
        return left_out.reason


def test_workers_say_what_they_are():
    with fake_cluster(one=FINE, two=says(noise=0.25, load=None)) as client:
        found = lease_all(client, HERE)
        assert [worker.name for worker in found.workers] == ["one", "two"]
        assert found.left_out == []
        assert found.identity == HERE
        assert (found.introduced["one"].noise, found.introduced["one"].load) == (0.1, 0.5)
        assert (found.introduced["two"].noise, found.introduced["two"].load) == (0.25, None)


def test_another_version_is_named_and_left_out():
    other = {**toolchain(), "protocol": PROTOCOL + 1}
    assert f"another version: protocol (there: {PROTOCOL + 1}, here: {PROTOCOL})" in reason(says(toolchain=other))


def test_a_worker_without_autofuse_is_left_out():
    def missing(worker, job):
        raise ModuleNotFoundError("No module named 'autofuse'")

    assert reason(missing) == "its task failed: ModuleNotFoundError: No module named 'autofuse'"


def test_a_task_that_raises_is_left_out_whatever_it_raises():
    def late(worker, job):
        raise TimeoutError("no time")

    assert reason(late) == "its task failed: TimeoutError: no time"


def test_a_scheduler_that_does_not_answer_is_no_fault_of_a_worker(monkeypatch):
    monkeypatch.setattr(leases, "_LOOK_S", 0.0)
    with fake_cluster(one=FINE) as client:
        (worker,) = lease_all(client, HERE).workers
        client.workers["one"].is_heard = False
        client.scheduler_info = lambda **_: {}
        with pytest.raises(leases.SchedulerError, match="the scheduler of Dask does not answer: KeyError"):
            worker.run(Job("a.bench:open_session", {}))


@pytest.mark.parametrize(
    "answer",
    [b"nonsense", 3, None, to_bytes(Message("hello")), to_bytes(Message("outcome", {"status": "ok"}))],
)
def test_nonsense_is_left_out(answer):
    assert reason(lambda worker, job: answer).startswith("it answers nonsense")


def test_an_identity_that_is_none_is_left_out():
    assert "nonsense of its device" in reason(says(identity={"backend": "abacus"}))


def test_another_device_is_left_out():
    assert "another device or toolchain: generator (wanted" in reason(
        says(identity={**identity_to_json(HERE), "generator": "cpu/0"})
    )


def test_what_the_tuner_does_not_know_the_most_frequent_device_decides():
    wanted = replace(HERE, generator="")
    made = {name: says(identity={**identity_to_json(HERE), "generator": name[0]}) for name in ("b1", "a1", "b2")}
    with fake_cluster(**made) as client:
        found = lease_all(client, wanted)
        assert found.identity == replace(HERE, generator="b")
        assert [worker.name for worker in found.workers] == ["b1", "b2"]
        assert found.left_out[0].reason.startswith("its device is another than most have: generator")


def test_a_worker_out_of_disk_is_left_out():
    full = to_bytes(Message("unfit", {"message": "No space left on device"}))
    assert reason(lambda worker, job: full) == "it can do nothing: No space left on device"


def test_a_device_that_is_not_there_is_left_out():
    def refused(worker, job):
        return worker.told(Outcome("refused", "there is no GPU here"))

    assert reason(refused) == "it has no such device (refused): there is no GPU here"


def test_a_device_that_somebody_holds_is_left_out(monkeypatch):
    monkeypatch.setattr(leases, "_FREE_S", 0.0)
    assert "somebody else has held its device" in reason(lambda worker, job: to_bytes(Message("unleased")))


@pytest.mark.parametrize(("attribute", "told"), [("is_there", "it is gone"), ("is_heard", "silent for 0 s")])
def test_workers_that_are_gone_or_hang_are_lost(attribute, told, monkeypatch):
    monkeypatch.setattr(leases, "_LOOK_S", 0.0)
    with fake_cluster(one=FINE, two=FINE) as client:
        found = lease_all(client, HERE, silent_s=0.0)
        setattr(client.workers["one"], attribute, False)
        with pytest.raises(WorkerLostError, match=told):
            found.workers[0].run(Job("a.bench:open_session", {}))


def test_no_workers_with_devices_is_an_error():
    with fake_cluster() as client, pytest.raises(MeasureError, match="dask worker ADDRESS --nthreads 2 --resources"):
        lease_all(client, HERE)


def test_no_fit_worker_is_an_error_that_names_all():
    with (
        fake_cluster(a=lambda *_: b"", b=says(identity={"backend": "abacus"})) as client,
        pytest.raises(MeasureError, match=r"worker a is left out: .*; worker b is left out: "),
    ):
        lease_all(client, HERE)


def test_conditions_of_a_record_name_the_worker():
    answer = {"samples_us": [1.0], "pruned": False, "unusual": False, "conditions": "cool"}

    def behaviour(worker, job):
        return FINE(worker, job) if job.runner.endswith("introduce") else worker.told(Outcome("ok", "", answer))

    with fake_cluster(one=behaviour) as client:
        (worker,) = lease_all(client, HERE).workers
        found = worker.run(Job("a.bench:time_kernel", {})).data["conditions"]
        assert found == "cool; worker one, noise 0.100, load 0.50"
