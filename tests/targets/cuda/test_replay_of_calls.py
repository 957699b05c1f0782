"""Replays of graphs with products by cuBLASLt and with scatters, whose memory is elsewhere at each call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.ir.interpreter import interpret
from autofuse.lazydataclass import replace
from autofuse.lower.plainproducts import plain_product
from autofuse.lower.tile import TileProgram
from autofuse.targets.cuda.codegen import scatterplan
from autofuse.targets.cuda.decisions import cuda_schedule
from autofuse.targets.cuda.gpus import H200
from autofuse.testing.simt.device import SimulatedDriver
from autofuse.testing.simt.target import SimulatedTarget

F32 = np.float32


def both(x: Any, w: Any, n: Any, y: Any) -> Any:
    """A product, what is added up of it by place, and an argument that is written to."""
    product = x @ w
    sums = np.zeros((9, 24), F32)
    np.add.at(sums, n, product)
    y += np.exp(product)
    return sums, product


def arguments(seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    shapes = (40, 16), (16, 24), (40, 24)
    x, w, y = (rng.standard_normal(shape).astype(F32) for shape in shapes)
    return [x, w, rng.integers(0, 9, 40), y]


@pytest.mark.parametrize("most", [4, 1000], ids=["sorted", "ranked"])
@pytest.mark.parametrize("kept", [False, True], ids=["memory is given back", "results are kept"])
def test_a_replay_sees_the_memory_of_its_own_call(most: int, kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments, results, workspaces: nothing of the call that the graph was made for is read or written again."""
    monkeypatch.setattr(scatterplan, "MOST_RANKED", most)
    driver = SimulatedDriver(H200, 3, cublaslt=True)
    target = SimulatedTarget(H200, driver, "simulated")
    plan = af.compile(both, *arguments(0), backend="simulated", policy="unfused")
    kernels = tuple(
        replace(kernel.planned, schedule=cuda_schedule(library=1))
        if isinstance(kernel.program, TileProgram) and plain_product(kernel.program) is not None
        else kernel.planned
        for kernel in plan.lowered
    )
    executable = target.executable(replace(plan.document, kernels=kernels, identity=target.identity))
    assert sum(bool(kernel.workspaces) for kernel in executable.kernels) == 2
    held: list[Any] = []
    for seed in range(6):
        given = arguments(seed)
        there = [driver.array(array) for array in given]
        sums, product, written = executable.run(there)
        held += [(there, sums, product)] if kept else []
        rights = interpret(plan.graph, *given)
        for found, right in zip((sums, product, written), rights, strict=True):
            np.testing.assert_allclose(found.get(), right, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(there[3].get(), written.get())
    assert driver.calls["instantiate"] == 1
    assert driver.calls["graph launch"] == 5
    for seed, (there, sums, product) in enumerate(held):
        rights = interpret(plan.graph, *arguments(seed))
        np.testing.assert_allclose(sums.get(), rights[0], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(product.get(), rights[1], rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(there[0].get(), arguments(seed)[0])
