"""Scatters, and calls through CuPy, on a real GPU: the interpreter's answers, replayed, in any stream."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.ir.interpreter import interpret
from autofuse.lower.tile import OpaqueProgram
from autofuse.measurement.checks import check
from autofuse.measurement.errorbounds import bounds_of
from autofuse.targets.cuda.driver import Driver
from autofuse.targets.cuda.launch import cupy_with_gpu, gpu_problem
from autofuse.targets.cuda.library.cupyhas import CUPY, parameters_there
from autofuse.targets.cuda.library.forms import host_reason
from tests.targets.cuda.test_library import CALLS, X
from tests.targets.cuda.test_scatters import FUNCTIONS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(gpu_problem() is not None, reason=f"needs a GPU: {gpu_problem()}"),
    pytest.mark.filterwarnings("ignore::autofuse.errors.LeftToNumpyWarning"),
]


def assert_right(plan: Any, given: tuple[Any, ...], found: Any) -> None:
    right, bounds = interpret(plan.graph, *given), bounds_of(plan.graph, given)
    for number, (actual, expected, bound) in enumerate(zip(found, right, bounds, strict=True)):
        check(f"result {number}", actual.get(), expected, bound)


def test_the_device_has_all_that_the_table_says() -> None:
    for module, lines in CUPY.items():
        for name in (line.split()[0] for line in lines.splitlines() if line.split()):
            if name in ("svdvals", "partition", "argpartition"):  # made of others
                continue
            there = import_module(module.replace("numpy", "cupy").replace("scipy", "cupyx.scipy"))
            function, known = getattr(there, name), parameters_there(module, name)
            assert known is not None
            if inspect.isfunction(function):
                assert known[0] <= set(inspect.signature(function).parameters), name


@pytest.mark.parametrize("name", CALLS)
def test_a_call(name: str) -> None:
    cupy = cupy_with_gpu()
    function, given = CALLS[name]
    plan = af.compile(function, given, backend="cuda", policy="unfused")
    assert all(host_reason(k.program) is None for k in plan.lowered if isinstance(k.program, OpaqueProgram))
    for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)):
        with stream:
            assert_right(plan, (given,), [plan(cupy.asarray(given))])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_scatter(name: str) -> None:
    cupy = cupy_with_gpu()
    rng = np.random.default_rng(0)
    given = rng.integers(0, 50, 400), rng.standard_normal(400).astype(np.float32)
    plan = af.compile(FUNCTIONS[name], *given, backend="cuda")
    there = tuple(map(cupy.asarray, given))
    answers = [plan(*there) for _ in range(3)]
    assert_right(plan, given, [answers[0]])
    assert all(bool((answer == answers[0]).all()) for answer in answers)


def test_a_singular_matrix_is_an_error() -> None:
    plan = af.compile(np.linalg.inv, np.eye(8), backend="cuda")
    with pytest.raises(np.linalg.LinAlgError):
        plan(np.zeros((8, 8)))


def test_the_clock_is_the_devices() -> None:
    cupy = cupy_with_gpu()
    plan = af.compile(np.sort, X, backend="cuda")
    target: Any = plan.target
    driver: Driver = target.driver
    there = cupy.asarray(X)
    readings = [driver.clock() for _ in range(3) if plan(there) is not None]
    assert readings[0] < readings[1] < readings[2] < readings[0] + 10**10
