"""Kernels of a GPU measured in a worker: those that hang or lose the device, warm and cold times, what records say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import BackendError, DeviceLostError
from autofuse.ir.graph import Graph
from autofuse.ir.graphtext import to_text
from autofuse.lower.schedule import Schedule
from autofuse.measurement import bench, client, judging, references
from autofuse.measurement.client import Bench
from autofuse.measurement.database import Database
from autofuse.measurement.kernelrecords import Trial
from autofuse.measurement.turns import in_turns, turns_of
from autofuse.measurement.worker import Wait
from autofuse.plan.identity import COLD_POLICY, MEASUREMENT_POLICY, identity_to_json
from autofuse.runtime.planlowering import candidate_of
from autofuse.targets.base import find_target
from autofuse.targets.cuda.conditions import Conditions
from autofuse.targets.cuda.gpus import H200
from autofuse.testing.simt.device import SimulatedDriver
from autofuse.testing.simt.target import SimulatedTarget
from autofuse.testing.sketches import Sketch

FAULTS = ("lose", "hang", "kernel")


def _graph() -> Any:
    sketch = Sketch("faults")
    x = sketch.arg("f32[16,8]")
    outputs = [sketch.op("abs", x, name="fine")]
    outputs += [sketch.op("multiply", x, sketch.splat(number, x), name=name) for number, name in enumerate(FAULTS, 2)]
    return sketch.finish([*outputs, sketch.op("negate", x, name="fine_too")])


GRAPH = _graph()
X = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)


def trial(name: str, **options: Any) -> Trial:
    return Trial(name, candidate_of(GRAPH, [name], [name]), Schedule(), **options)


@pytest.fixture
def database(tmp_path: Path) -> Any:
    with Database(tmp_path / "records.db", find_target("simulated").identity) as base:
        yield base


def bench_on(database: Database, **options: Any) -> Bench:
    return Bench(GRAPH, [X], database, find_target("simulated").identity, time_cap_us=2000.0, **options)


@pytest.mark.parametrize(
    ("name", "status", "message", "lost"),
    [
        ("lose", "crash", "nothing more runs in this process", 2),
        ("hang", "timeout", "run deadline", 2),
        ("kernel", "error", "it fails while it runs", 0),
    ],
)
def test_a_kernel_that_fails_costs_one_record_and_at_most_a_worker(
    name: str, status: str, message: str, lost: int, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_RUNNERS", "tests.fixtures.devicefaults")
    with bench_on(database) as timing:
        before, failed, after = timing.kernels([trial("fine"), trial(name), trial("fine_too")])
        assert (before.status, failed.status, after.status) == ("ok", status, "ok")
        assert message in failed.message
        assert timing._worker.restarts == lost  # what may have been the moment's fault is tried a second time
    (record,) = database.find(name, code_version=timing._records._code_version)
    assert record.measurement.status == status
    with bench_on(database) as again:
        known = again._records.known(trial(name))
        assert (known is None) == (status == "timeout")  # what may pass is no answer


def test_a_lost_device_is_lost_for_the_process() -> None:
    driver = SimulatedDriver(H200)
    plan = af.compile(lambda x: np.exp(x).sum(), X, backend="simulated")
    executable = SimulatedTarget(H200, driver, "simulated").executable(plan.document)
    driver.fail("lose")
    with pytest.raises(DeviceLostError):
        executable.run([X])
    for asked in (lambda: executable.run([X]), driver.clock, driver.wait):
        with pytest.raises(DeviceLostError):
            asked()
    assert issubclass(DeviceLostError, BackendError)


def test_cold_and_warm_times_have_records_of_their_own(database: Database) -> None:
    for cold in (False, True):
        for replayed in (False, True):
            with bench_on(database, cold=cold) as timing:
                (found,) = timing.kernels([trial("fine")])
                assert (found.status, found.replayed) == ("ok", replayed)
    policies = {
        record.measurement.policy for record in database.find("fine", code_version=timing._records._code_version)
    }
    assert policies == {MEASUREMENT_POLICY, COLD_POLICY}


def test_records_say_in_which_state_the_device_was(database: Database) -> None:
    with bench_on(database) as timing:
        timing.kernels([trial("fine")])
    (record,) = database.find("fine", code_version=timing._records._code_version)
    assert record.measurement.message == find_target("simulated").conditions()
    hot = Conditions("580.82", 1500, 1980, 3201, 88, 690.5, 0x40)
    assert hot.text() == (
        "1500 MHz of 1980, memory 3201 MHz, 88 C, 690 W, driver 580.82, slowed down (NVML's reasons 0x40)"
    )


@pytest.mark.parametrize(("cache", "turns"), [(10, 11), (3, 4), (1, 1)])
def test_cold_calls_walk_more_memory_than_the_cache_holds(cache: int, turns: int) -> None:
    bound: list[int] = []

    class Counting:
        def bound(self, inputs: Any, outs: Any) -> Any:
            number = len(bound)
            bound.append(0)
            return lambda: bound.__setitem__(number, bound[number] + 1)

    class Target:
        cache_bytes = cache * X.nbytes

    call = in_turns(Target(), Counting(), [X], [X.copy()])  # type: ignore[arg-type]
    for _ in range(2 * turns):
        call()
    assert bound == [2] * turns


@pytest.mark.parametrize("cold", [False, True])
def test_whole_plans_find_their_arguments_on_the_device(cold: bool) -> None:
    """What is timed is the plan, and not copies over the bus."""

    def update(x: Any, y: Any) -> Any:
        x += np.exp(y)
        return y.sum(0)

    args = X, X + 1
    plan = af.compile(update, X.copy(), args[1], backend="simulated")
    constants: dict[str, Any] = {}
    payload = {
        "session": "s",
        "text": to_text(plan.document.graph, constants),
        "identity": identity_to_json(plan.document.identity),
        "held_bytes": 1 << 30,
        "cold": cold,
    }
    bench.open_session(payload, {f"input{n}": array for n, array in enumerate(args)}, Wait(lambda seconds: None))
    session = bench._sessions["s"]
    run = bench._PlanRun(plan.document, session)
    assert len(run._turns) == (turns_of(2 * X.nbytes, session.target) if cold else 1)
    assert run.problem() == ""
    run.restore()
    driver: Any = session.target.own.driver
    copies = driver.calls["copy"]
    (total, written) = run.call()
    assert driver.calls["copy"] == copies
    np.testing.assert_allclose(total.get(), args[1].sum(0), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(written.get(), X + np.exp(args[1]), rtol=1e-6, atol=1e-6)  # of each term
    run.restore()
    assert run.problem() == ""


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["softmax", "attention"])
def test_reference_answers_are_the_devices_where_the_interpreter_would_take_long(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels and plans are judged by a part of them, and beside what kernels of single nodes give."""
    monkeypatch.setattr(references, "LEAST_ELEMENTS", 500)
    monkeypatch.setattr(judging, "_ELEMENTS", 3000)
    judged: list[int] = []
    bounds_of = judging.bounds_of

    def counting(graph: Graph, arrays: Any) -> Any:
        judged.append(sum(value.type.size for value in graph.values()))
        return bounds_of(graph, arrays)

    monkeypatch.setattr(judging, "bounds_of", counting)
    rng = np.random.default_rng(0)
    args = [rng.standard_normal((80, 32)).astype(np.float32) for _ in range(1 if name == "softmax" else 3)]
    function = softmax if name == "softmax" else lambda q, k, v: softmax(q @ k.T) @ v
    plan = af.compile(function, *args, backend="simulated")
    payload = {
        "session": "s",
        "text": to_text(plan.document.graph, {}),
        "identity": identity_to_json(plan.document.identity),
        "held_bytes": 1 << 30,
        "cold": False,
    }
    bench.open_session(payload, {f"input{n}": array for n, array in enumerate(args)}, Wait(lambda seconds: None))
    session = bench._sessions["s"]
    assert not session.values.are_exact(session.graph.nodes)
    assert bench._PlanRun(plan.document, session).problem() == ""
    for kernel in plan.document.kernels:
        asked = {"session": "s", "nodes": kernel.nodes, "outputs": kernel.outputs, "schedule": {}}
        times = {"time_cap_us": 2000.0, "worth_us": None, "expected_us": 0.0, "deadline_s": 60.0, "left_s": None}
        assert bench.time_kernel({**asked, **times}, {}, Wait(lambda seconds: None))["samples_us"]
    whole = sum(value.type.size for value in session.graph.values())
    assert judged
    assert max(judged) <= 0.8 * whole
