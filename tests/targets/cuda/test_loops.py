"""Loops inside kernels in generated CUDA C, on the simulated device, in two orders of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.ir.interpreter import interpret
from autofuse.lower.rewrite import statements
from autofuse.lower.statements import Load, Store
from autofuse.lower.tile import TileProgram
from autofuse.measurement.checks import check
from autofuse.measurement.errorbounds import bounds_of
from autofuse.runtime.planlowering import canonical
from autofuse.targets.cuda.gpus import H200
from autofuse.testing.simt.device import SimulatedDriver
from autofuse.testing.simt.target import SimulatedTarget
from tests.fixtures.loopprograms import LEFT, PROGRAMS
from tests.fixtures.randomloops import random_nest, random_program, random_updates


def compare(function: Any, arguments: tuple[Any, ...], policy: str) -> af.Plan:
    driver = SimulatedDriver(H200)
    target: Any = SimulatedTarget(H200, driver, "simulated")
    plan = af.compile(function, *arguments, backend="simulated", policy=policy, variants="unrolled=1")
    executable = target.executable(plan.document)
    flat = list(arguments)
    expected, bounds = interpret(plan.graph, *flat), bounds_of(plan.graph, flat)
    for driver.order in ("forward", "reverse"):
        for value, found, right, bound in zip(plan.graph.outputs, executable.run(flat), expected, bounds, strict=True):
            check(f"{policy}, {driver.order}: {value.name}", found, right, bound)
    return plan


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    plan = compare(*PROGRAMS[name], "analytical")
    kinds = [kernel.kind for kernel in plan.kernels]
    assert "interpreter" not in kinds
    assert ("driver" in kinds) == (name in LEFT)


@pytest.mark.parametrize("seed", range(6))
def test_random_bodies(seed: int) -> None:
    compare(*random_program(seed), "unfused" if seed % 2 else "analytical")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2000, 2040))
def test_many_random_updates(seed: int) -> None:
    compare(*random_updates(seed), "unfused" if seed % 2 else "analytical")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2000, 2060))
def test_many_random_nests(seed: int) -> None:
    compare(*random_nest(seed), "unfused" if seed % 2 else "analytical")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2000, 2100))
def test_many_random_bodies(seed: int) -> None:
    compare(*random_program(seed), "unfused" if seed % 2 else "analytical")


def test_code_is_shared_by_kernels_that_load_before_a_loop() -> None:
    """In canonical form what stands before a loop is renamed too."""

    def halved(x: Any) -> Any:
        return af.fori_loop(0, 5, lambda _, v: v * np.float32(0.5), x)

    plan = af.compile(halved, np.ones(64, np.float32), backend="cuda", device="h200", policy="unfused")
    (program,) = (canonical(kernel.program) for kernel in plan.lowered if isinstance(kernel.program, TileProgram))
    touched = {s.buffer for p in program.phases() for _, s in statements(p.steps) if isinstance(s, Load | Store)}
    assert any(stage.before for phase in program.phases() for stage, _ in statements(phase.steps))
    assert touched == {buffer.name for buffer in program.parameters()}
