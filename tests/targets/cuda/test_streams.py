"""Kernels of a plan in several streams: which, what they wait for, and that waiting is enough."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.lazydataclass import replace
from autofuse.lower.limits import Limits
from autofuse.plan.document import Launch
from autofuse.runtime.planlowering import canonical
from autofuse.search.plans.concurrent_groups import Work, list_schedule
from autofuse.targets.cuda import target
from autofuse.targets.cuda.executable import CudaExecutable
from autofuse.targets.cuda.gpus import H200
from autofuse.targets.cuda.horizontal import Start, StartedProgram
from autofuse.targets.cuda.segments import Segment
from autofuse.targets.cuda.streams import BEGINNING, JOIN_US, Order, Step, spread
from autofuse.testing.simt.device import SimulatedDriver
from autofuse.testing.simt.target import SimulatedTarget

X = np.random.default_rng(0).standard_normal((40, 30)).astype(np.float32)


def branches(x: Any) -> Any:
    """Two chains of kernels that meet."""
    left = np.cumsum(np.exp(x), axis=1)
    right = np.cumsum(np.tanh(x), axis=0)
    return (left / left.sum(1, keepdims=True)) @ (right - right.max(0)).T


def planned(function: Any, *given: Any, seed: int = 0, graphs: bool = False) -> tuple[Any, SimulatedDriver]:
    """The function unfused, kernels that may run at the same time in streams, on a device of its own."""
    driver = SimulatedDriver(H200, seed, graphs=graphs)
    plan = af.compile(function, *given, backend="simulated", policy="unfused")
    works = [Work(kernel.reads, kernel.writes, 1000.0) for kernel in plan.lowered]
    grouped = list_schedule(works, Limits(small_us=math.inf))
    order = tuple(Launch(plan.document.order[number].kernel, place) for number, place in grouped)
    kernels = tuple(replace(kernel, predicted_us=1000.0) for kernel in plan.document.kernels)
    document = replace(plan.document, kernels=kernels, order=order)
    return one_by_one(SimulatedTarget(H200, driver, "simulated").executable(document)), driver


def one_by_one(executable: CudaExecutable) -> CudaExecutable:
    """The plan without kernels that are launched together."""
    return replace(executable, starts=started_alone(executable.kernels, executable.codes))


def started_alone(kernels: Any, codes: Any, *_: Any) -> tuple[Start, ...]:
    """Each kernel as a start of its own."""
    return tuple(Start((number,), codes[canonical(kernel.program)]) for number, kernel in enumerate(kernels))


# ---- which stream ----------------------------------------------------------------------------------------------------


def test_small_kernels_of_a_group_are_spread() -> None:
    assert spread([100.0, 60.0, 50.0], [0.1, 0.1, 0.1], [()] * 3) == [0, 1, 2]


def test_a_kernel_stays_where_what_it_needs_was_made() -> None:
    assert spread([100.0, 100.0], [0.1, 0.1], [{1}, {0}]) == [1, 0]


def test_kernels_that_fill_the_device_run_one_after_another() -> None:
    assert spread([100.0, 100.0], [1.0, 1.0], [()] * 2) == [0, 0]


def test_kernels_shorter_than_waiting_for_each_other_run_one_after_another() -> None:
    assert spread([JOIN_US / 2, JOIN_US / 2], [0.1, 0.1], [()] * 2) == [0, 0]


def test_explain_names_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "started", lambda *given: StartedProgram(started_alone(*given), {}))
    monkeypatch.setattr(target, "streams_of", lambda *_: (0, 1))

    def sums(x: Any, y: Any) -> Any:
        return np.cumsum(x, axis=1), np.cumsum(y, axis=1)

    text = af.compile(
        sums, np.zeros((8, 900), np.float32), np.zeros((8, 800), np.float32), backend="cuda", device="h200"
    ).explain()
    assert "stream 1 of 2" in text
    assert "stream 2 of 2" in text


# ---- what they wait for ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_any_order_that_streams_allow_gives_the_answer(seed: int) -> None:
    executable, driver = planned(branches, X, seed=seed)
    (found,) = executable.run([X])
    np.testing.assert_allclose(found, branches(X), rtol=1e-4, atol=1e-4)
    assert driver.calls["stream"] == 1


def without_waits(order: Order) -> Order:
    """The order, its streams waiting for nothing but the beginning of the call."""
    return replace(order, steps=tuple(Step(step.stream, (BEGINNING,) * bool(step.stream)) for step in order.steps))


def apart(x: Any) -> Any:
    """Two chains that do not meet."""
    return np.cumsum(np.exp(x), axis=1), np.cumsum(np.tanh(x), axis=0)


@pytest.mark.parametrize(("forget", "function"), [("waits", branches), ("join", apart), ("beginning", apart)])
def test_a_forgotten_wait_is_found(forget: str, function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the simulated device, by some order that it draws: an error, or a wrong answer."""
    init = Segment.__init__

    def forgetful(self: Segment, launches: Any, order: Order, driver: Any, replayed: bool) -> None:
        if forget == "waits":
            order = without_waits(order)
        elif forget == "join":
            order = replace(order, last=())
        else:
            order = replace(
                order, steps=tuple(replace(s, waits=tuple(w for w in s.waits if w >= 0)) for s in order.steps)
            )
        init(self, launches, order, driver, replayed)

    monkeypatch.setattr(Segment, "__init__", forgetful)
    wrong = 0
    for seed in range(12):
        executable, _ = planned(function, X, seed=seed)
        try:
            found = executable.run([X])
        except af.AutofuseError:
            wrong += 1
            continue
        right = function(X)
        right = right if isinstance(right, tuple) else (right,)
        wrong += not all(np.allclose(a, b, rtol=1e-4, atol=1e-4) for a, b in zip(found, right, strict=True))
    assert wrong
