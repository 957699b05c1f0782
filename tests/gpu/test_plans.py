"""The CUDA target on a real GPU: the contract of targets, workloads, and arrays of the device."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.ir.interpreter import interpret
from autofuse.measurement.checks import check
from autofuse.measurement.errorbounds import bounds_of
from autofuse.measurement.workloads import Workload, arrays, discover
from autofuse.targets.cuda.launch import cupy_with_gpu, gpu_problem
from autofuse.testing.targets import TargetContract

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(gpu_problem() is not None, reason=f"needs a GPU: {gpu_problem()}"),
]


class TestGpu(TargetContract):
    """The GPU of this machine."""

    name = "cuda"


@pytest.mark.parametrize("numerics", ["strict", "fast"])
@pytest.mark.parametrize("workload", discover(), ids=lambda workload: workload.name)
def test_a_workload_gives_the_interpreters_answer(workload: Workload, numerics: Any) -> None:
    given = workload.inputs("small", 0)
    plan = af.compile(workload.function, *copy.deepcopy(given), backend="cuda", numerics=numerics, deadline=None)
    used = copy.deepcopy(given)
    results = plan(*used)
    leaves = arrays(given)
    expected, bounds = interpret(plan.graph, *leaves), bounds_of(plan.graph, leaves)
    found = [*arrays(results), *(arrays(used)[number] for number in plan.document.writebacks)]
    for value, actual, right, bound in zip(plan.graph.outputs, found, expected, bounds, strict=True):
        check(value.name, np.asarray(actual), right, bound)


def test_results_of_cupy_arrays_are_cupy_arrays() -> None:
    cupy = cupy_with_gpu()
    x = np.random.default_rng(0).standard_normal((64, 300)).astype(np.float32)
    plan = af.compile(lambda x: np.exp(x).sum(-1), x, backend="cuda")
    there = plan(cupy.asarray(x))
    assert isinstance(there, cupy.ndarray)
    np.testing.assert_array_equal(there.get(), plan(x))
