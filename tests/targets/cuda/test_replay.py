"""Calls of a plan that replay a graph: what the driver is asked for, other addresses, threads, and failures."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import BackendError, NotEnoughMemoryError
from autofuse.search.plans.planning import started_each
from autofuse.targets.cuda.driver import Driver
from autofuse.targets.cuda.gpus import H200
from autofuse.targets.cuda.segments import MOST_WAITED, Launch, Segment
from autofuse.targets.cuda.streams import Order, Step
from autofuse.testing.simt.device import SimulatedDriver
from autofuse.testing.simt.target import SimulatedTarget

X = np.random.default_rng(0).standard_normal((12, 40)).astype(np.float32)
COPIES = {"copy", "allocate"}


def chain(x: Any, y: Any) -> Any:
    return np.cumsum(np.cumsum(np.exp(x), axis=1) - y.max(1, keepdims=True), axis=0)


@pytest.fixture
def driver() -> SimulatedDriver:
    return SimulatedDriver(H200)


def executable(driver: Driver, function: Any = chain) -> Any:
    """The function, a kernel for each operation, on a device."""
    plan = af.compile(function, X, X, backend="simulated", policy="unfused")
    return SimulatedTarget(H200, driver, "simulated").executable(plan.document)


def asked(driver: SimulatedDriver, call: Any) -> dict[str, int]:
    """What a call asks of the driver."""
    before = driver.calls.copy()
    call()
    return dict(driver.calls - before)


def test_a_replay_with_equal_pointers_is_one_call_of_the_driver(driver: SimulatedDriver) -> None:
    plan, x, y = executable(driver), driver.array(X), driver.array(X)
    first = asked(driver, lambda: plan.run([x, y]))
    assert first["launch"] == len(plan.starts) > 3
    second = asked(driver, lambda: plan.run([x, y]))
    assert second == {"instantiate": 1, "graph launch": 1}
    for _ in range(3):
        assert asked(driver, lambda: plan.run([x, y])) == {"graph launch": 1}


def test_only_nodes_that_see_other_pointers_are_updated(driver: SimulatedDriver) -> None:
    plan, x, y, other = executable(driver), driver.array(X), driver.array(X), driver.array(X * 2)
    for _ in range(2):
        plan.run([x, y])
    readers = sum(plan.document.graph.inputs[1] in kernel.reads for kernel in plan.kernels)
    assert asked(driver, lambda: plan.run([x, other])) == {"graph launch": 1, "node update": readers}
    (found,) = plan.run([x, other])
    np.testing.assert_allclose(found.get(), chain(X, X * 2), rtol=1e-4, atol=1e-4)


def test_results_that_the_caller_keeps_are_not_written_again(driver: SimulatedDriver) -> None:
    plan = executable(driver)
    given = [driver.array(X * factor) for factor in (1.0, 0.5, 2.0, -1.0)]
    found = [plan.run([x, given[0]])[0] for x in given for _ in range(2)]
    assert len({array.data.ptr for array in found}) == len(found)
    for number, array in enumerate(found):
        np.testing.assert_allclose(array.get(), chain(given[number // 2].get(), X), rtol=1e-4, atol=1e-4)


def test_arguments_of_the_host_are_replayed_too(driver: SimulatedDriver) -> None:
    plan = executable(driver)
    for factor in (1.0, 0.5, 2.0, -1.0):
        (found,) = plan.run([X * np.float32(factor), X])
        np.testing.assert_allclose(found, chain(X * np.float32(factor), X), rtol=1e-4, atol=1e-4)
    assert driver.calls["graph launch"] == 3
    assert driver.calls["instantiate"] == 1


def test_without_graphs_kernels_are_started_one_by_one() -> None:
    driver = SimulatedDriver(H200, graphs=False)
    plan = executable(driver)
    for _ in range(5):
        plan.run([X, X])
    assert driver.calls["launch"] == 5 * len(plan.starts)


def test_a_single_kernel_is_no_graph(driver: SimulatedDriver) -> None:
    plan = executable(driver, lambda x, y: x + y)
    for _ in range(3):
        plan.run([X, X])
    assert driver.calls["graph launch"] == 0


@pytest.mark.parametrize("graphs", [True, False])
def test_threads_with_streams_of_their_own(graphs: bool) -> None:
    driver = SimulatedDriver(H200, 5, graphs=graphs)
    plan = executable(driver)

    def calls(number: int) -> bool:
        with driver.stream():
            x = driver.array(X * np.float32(number))
            found = [plan.run([x, x])[0] for _ in range(4)]
            right = chain(X * np.float32(number), X * np.float32(number))
            return all(np.allclose(array.get(), right, rtol=1e-4, atol=1e-4) for array in found)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(calls, range(-3, 5)))


def test_two_devices_in_one_process() -> None:
    devices = [SimulatedDriver(H200, seed) for seed in range(2)]
    plans = [executable(driver) for driver in devices]
    for _ in range(3):
        for driver, plan in zip(devices, plans, strict=True):
            x = driver.array(X)
            np.testing.assert_allclose(plan.run([x, x])[0].get(), chain(X, X), rtol=1e-4, atol=1e-4)


def test_a_call_leaves_no_memory_behind(driver: SimulatedDriver) -> None:
    plan, x = executable(driver), driver.array(X)
    plan.run([x, x])
    before = driver.calls["allocate"]
    for _ in range(5):
        plan.run([x, x])
    assert driver.calls["allocate"] == before


# ---- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [0, 1, 2])
@pytest.mark.parametrize(
    ("what", "kind"),
    [("allocate", NotEnoughMemoryError), ("launch", BackendError), ("kernel", BackendError), ("compile", BackendError)],
)
def test_after_a_failure_the_device_works(what: Any, kind: type, call: int, driver: SimulatedDriver) -> None:
    """A failure of the first call, which starts kernels, of the second, which builds a graph, and of the third."""
    plan = executable(driver)
    for _ in range(call):
        plan.run([X, X])
    if what == "compile" and call:
        return  # kernels are compiled once
    driver.fail(what, skip=0 if what == "compile" else 1)
    if what == "launch" and call:
        driver.fail(what)  # a graph is launched once
    with pytest.raises(kind, match="a failure on demand"):
        plan.run([X, X])
    for _ in range(3):
        np.testing.assert_allclose(plan.run([X, X])[0], chain(X, X), rtol=1e-4, atol=1e-4)


def test_kernels_are_started_one_by_one_where_no_graph_can_be_built(driver: SimulatedDriver) -> None:
    plan = executable(driver)
    plan.run([X, X])
    driver.fail("graph")
    plan.run([X, X])
    assert driver.calls["graph launch"] == 0
    plan.run([X, X])  # that failure passed
    assert driver.calls["graph launch"] == 1


def test_graphs_that_cannot_be_built_are_tried_less_and_less_often_but_never_given_up() -> None:
    calls: list[int] = []
    attempts: list[int] = []
    replays: list[int] = []
    first_with_memory = 6 * MOST_WAITED

    class Full(SimulatedDriver):
        def graph(self, nodes: Any) -> Any:
            attempts.append(calls[-1])
            if calls[-1] < first_with_memory:
                raise BackendError("no memory for a graph")
            return lambda _: replays.append(calls[-1])

    class Kernel:
        launches = 2

        def __call__(self, pointers: Any) -> None: ...

    segment = Segment([Launch.of(Kernel(), ())], Order((Step(0, ()),), 1, (), frozenset()), Full(H200))
    for number in range(1, first_with_memory + 2 * MOST_WAITED):
        calls.append(number)
        segment.start(())
    assert attempts[:5] == [2, 3, 5, 9, 17]
    assert max(later - before for before, later in pairwise(attempts)) == MOST_WAITED + 1
    assert replays == calls[attempts[-1] - 1 :]


def test_a_plan_may_start_each_kernel_in_every_call(tmp_path: Any, driver: SimulatedDriver) -> None:
    """Inside of loops too."""

    def function(x: Any, y: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            return np.sort(np.cumsum(np.cumsum(state, 0), 1), 1) * np.float32(0.01), None

        return af.scan(step, chain(x, y), None, length=3)[0]

    made = af.compile(function, X, X, backend="simulated", policy="unfused")
    made = af.load(af.Plan(started_each(made.document)).save(tmp_path / "p.json"))
    plan = SimulatedTarget(H200, driver, "simulated").executable(made.document)
    x, (right,) = driver.array(X), af.interpret(made.graph, X, X)
    for _ in range(3):
        calls = asked(driver, lambda: np.testing.assert_allclose(plan.run([x, x])[0].get(), right, rtol=1e-4))
        assert not {"instantiate", "graph launch"} & calls.keys()
        assert calls["launch"] > 3


def test_a_captured_stream_is_refused(driver: SimulatedDriver) -> None:
    plan = executable(driver)
    with driver.stream() as stream:
        stream.is_captured = True
        with pytest.raises(BackendError, match=r"is being captured into a graph.*call it outside the capture"):
            plan.run([X, X])
        stream.is_captured = False
        plan.run([X, X])


def test_memory_of_a_full_device_is_an_error_and_comes_back(driver: SimulatedDriver) -> None:
    from autofuse.ir.dtypes import U8
    from autofuse.ir.types import TensorType

    plan = executable(driver)
    driver.limit_bytes = 20_000
    held = driver.empty(TensorType((19_000,), U8))
    with pytest.raises(NotEnoughMemoryError, match="H200: asked for"):
        plan.run([X, X])
    del held
    np.testing.assert_allclose(plan.run([X, X])[0], chain(X, X), rtol=1e-4, atol=1e-4)
