"""Memory that library products and scatters work in: counted by `max_memory` and `explain` as a call takes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.api.plan import Plan
from autofuse.errors import SearchError
from autofuse.lazydataclass import replace
from autofuse.lower.tile import OpaqueProgram
from autofuse.report.explanation import build_report
from autofuse.runtime.planlowering import lower_plan
from autofuse.targets.cuda.codegen import scatterplan
from autofuse.targets.cuda.decisions import cuda_schedule
from autofuse.targets.cuda.gpus import A100, H200, Gpu
from autofuse.testing.simt.device import SimulatedDriver
from autofuse.testing.simt.target import SimulatedTarget

F32 = np.float32
KEYS, PLACES = 70_000, 50_000


def added(n: Any, v: Any) -> Any:
    x = np.zeros(PLACES, F32)
    np.add.at(x, n, v)
    return x


def scattered(**options: Any) -> Plan:
    """A plan with a scatter that is sorted."""
    rng = np.random.default_rng(0)
    n, v = rng.integers(0, PLACES, KEYS), rng.standard_normal(KEYS).astype(F32)
    return af.compile(added, n, v, backend="simulated", **options)


def sorted_bytes() -> int:
    """Keys and their order, twice, and counts of digits by tile."""
    tiles = -(-KEYS // (scatterplan.SORT_THREADS * scatterplan.SORT_ITEMS))
    return 4 * (4 * KEYS + scatterplan.DIGITS * tiles)


def peak_of(plan: Plan) -> int:
    return build_report(plan.document, plan.lowered).peak_bytes


def test_a_scatters_workspaces_are_counted() -> None:
    plan = scattered()
    (kernel,) = (kernel for kernel in plan.lowered if isinstance(kernel.program, OpaqueProgram))
    assert sum(buffer.type.nbytes for buffer in kernel.workspaces) == sorted_bytes()
    taken = SimulatedTarget(H200, SimulatedDriver(H200), "simulated").executable(plan.document).memory.peak_bytes
    assert peak_of(plan) == taken >= sorted_bytes() + 4 * (2 * KEYS + KEYS + PLACES)
    assert "workspace 1.1 MiB" in plan.explain()


def test_a_limit_on_memory_counts_a_scatters_workspaces() -> None:
    peak = peak_of(scattered())
    assert peak_of(scattered(max_memory=peak)) == peak
    with pytest.raises(SearchError, match=rf"max_memory={peak - 1}: no plan was found that takes so little"):
        scattered(max_memory=peak - 1)


@pytest.mark.parametrize(("gpu", "mib"), [(H200, 32), (A100, 4)], ids=["sm_90", "sm_80"])
def test_what_cublaslt_works_in_is_counted(gpu: Gpu, mib: int) -> None:
    target = SimulatedTarget(gpu, SimulatedDriver(gpu, cublaslt=True), "simulated")
    matrix = np.ones((64, 64), F32)
    plan = af.compile(lambda a, b: a @ b, matrix, matrix, backend="simulated")
    kernels = tuple(replace(kernel, schedule=cuda_schedule(library=1)) for kernel in plan.document.kernels)
    document = replace(plan.document, kernels=kernels, identity=target.identity)
    report = build_report(document, lower_plan(document, target.limits))
    assert [kernel.workspace_bytes for kernel in report.kernels] == [mib << 20]
    assert report.peak_bytes == target.executable(document).memory.peak_bytes == (mib << 20) + 3 * matrix.nbytes
