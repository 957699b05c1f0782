"""Loops and branches that are no kernel, on the simulated device: the host starts kernels, and state stays there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.ir.interpreter import interpret
from autofuse.measurement.checks import check
from autofuse.measurement.errorbounds import bounds_of
from autofuse.targets.cuda.executable import CudaExecutable
from autofuse.targets.cuda.gpus import H200
from autofuse.testing.simt.device import SimulatedDriver
from autofuse.testing.simt.target import SimulatedTarget
from tests.fixtures.drivenprograms import PROGRAMS, random_program

DRIVEN = "unrolled=1"
"""Else loops that are this short are written out."""
QUICK = ("wave", "while_ring", "branch_in_loop", "written")
F32 = np.float32
SIDE = 13


def executable_of(plan: af.Plan, driver: SimulatedDriver) -> CudaExecutable:
    target: Any = SimulatedTarget(H200, driver, "simulated")
    return target.executable(plan.document)


def compare(function: Any, arguments: tuple[Any, ...], policy: str, seed: int = 0, variants: str = DRIVEN) -> af.Plan:
    """Twice on a device, in both orders of threads: the second call replays graphs, if the device has them."""
    driver = SimulatedDriver(H200, seed, graphs=seed % 2 == 0)
    plan = af.compile(function, *map(np.array, arguments), backend="simulated", policy=policy, variants=variants)
    executable = executable_of(plan, driver)
    expected, bounds = interpret(plan.graph, *arguments), bounds_of(plan.graph, arguments)
    for driver.order in ("forward", "reverse"):
        given = [np.array(argument) for argument in arguments]
        found = executable.run(given)
        for value, actual, right, bound in zip(plan.graph.outputs, found, expected, bounds, strict=True):
            check(f"{policy}, {driver.order}: {value.name}", actual, right, bound)
    return plan


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in PROGRAMS])
def test_programs(name: str) -> None:
    plan = compare(*PROGRAMS[name], "analytical", len(name))
    kinds = {kernel.kind for kernel in plan.kernels}
    assert "driver" in kinds
    assert "interpreter" not in kinds


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n == "moved" else pytest.mark.slow) for n in PROGRAMS])
def test_programs_whose_loops_are_written_out(name: str) -> None:
    function, arguments = PROGRAMS[name]
    assert "interpreter" not in {
        kernel.kind for kernel in compare(function, arguments, "analytical", len(name), "unrolled=all").kernels
    }


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3000, 3040))
def test_random_programs(seed: int) -> None:
    compare(*random_program(seed), ("analytical", "unfused")[seed % 2], seed)


def summed(rows: Any) -> Any:
    """Rows of 12 bytes, every other of which begins where no kernel takes an array."""

    def step(total: Any, row: Any) -> Any:
        total = np.sort(total + row)
        return total, total * F32(2)

    return af.scan(step, np.zeros(3, F32), rows)


def test_rows_that_begin_anywhere_are_copied_to_where_kernels_take_them() -> None:
    compare(summed, (np.random.default_rng(3).standard_normal((5, 3)).astype(F32),), "analytical")


def diffused(u: Any, times: int) -> Any:
    def step(u: Any, _: Any) -> Any:
        return u + F32(0.1) * (np.roll(u, 1, 0) + np.roll(u, -1, 0) - F32(2) * u), None

    return af.scan(step, u, None, length=times)[0]


def copies_of(times: int) -> int:
    """Copies of a call, those on the device included."""
    u = np.random.default_rng(1).standard_normal((SIDE, SIDE)).astype(F32)
    driver = SimulatedDriver(H200)
    plan = af.compile(lambda u: diffused(u, times), u, backend="simulated", variants=DRIVEN)
    executable = executable_of(plan, driver)
    executable.run([u])
    before = driver.calls["copy"]
    executable.run([u])
    return driver.calls["copy"] - before


def test_state_is_handed_on_without_copies() -> None:
    assert copies_of(3) == copies_of(12) == 2  # the argument to the device, and the result back


def halved(u: Any) -> Any:
    def going(u: Any) -> Any:
        return np.abs(u).sum() > F32(1)

    return af.while_loop(going, lambda u: np.roll(u, 1, 0) * F32(0.5), u)


def test_a_condition_is_all_that_is_read_back() -> None:
    u = np.full((SIDE, SIDE), 1, F32)  # the sum is 169, 84.5, .. 0.66: eight times half of it
    driver = SimulatedDriver(H200)
    executable = executable_of(af.compile(halved, u, backend="simulated"), driver)
    executable.run([u])
    before = driver.calls["copy"]
    np.testing.assert_array_equal(executable.run([u])[0], u / 256)
    assert driver.calls["copy"] - before == 2 + 9 + 1  # the argument and the result; conditions; the last state


def test_reports_say_what_runs_where(tmp_path: Path) -> None:
    function, arguments = PROGRAMS["heat"]
    plan = af.compile(function, *arguments, backend="cuda", device="h200", variants=DRIVEN)
    text = str(plan.explain())
    assert "the host starts the kernels inside; what they compute stays on the device" in text
    assert "by NumPy" not in text
    (inner,) = plan.source()
    body = text[text.index("body, 7 times") :]
    assert f"[0] {inner} (" in body
    assert "1 block of 256 threads" in body
    plan.save(tmp_path / "plan.json")
    assert str(af.load(tmp_path / "plan.json").explain()) == text
