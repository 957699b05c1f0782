"""Random numbers in generated CUDA C: bits of both words, and what is made of them, in two orders of threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.ir.interpreter import interpret
from autofuse.measurement.checks import check
from autofuse.measurement.errorbounds import bounds_of
from autofuse.targets.cuda import nvrtc
from autofuse.targets.cuda.codes import codes_of
from autofuse.targets.cuda.gpus import H200
from autofuse.testing.simt.device import SimulatedDriver
from autofuse.testing.simt.target import SimulatedTarget

KEY: Any = af.random.key(3)


def exact(key: Any) -> Any:
    """What has the same bits everywhere."""
    keys = af.random.split(key, 5)
    return (
        af.random.bits(keys[0], (3, 37)),
        af.random.bits(keys[1], (41,), np.uint64),
        af.random.uniform(keys[2], (5, 7, 3), np.float64),
        af.random.bernoulli(keys[3], 0.25, (100,)),
        af.random.randint(keys[4], (129,), -3, 1000),
    )


def rounded(key: Any) -> Any:
    """What goes through functions; sums, so that the draws are a part of a kernel that reduces."""
    keys = af.random.split(key, 3)
    return (
        af.random.normal(keys[0], (9, 50)).sum(1),
        af.random.normal(keys[1], (33,), np.float64),
        af.random.gumbel(keys[2], (4, 30)).max(1),
    )


@pytest.mark.parametrize("policy", ["unfused", "analytical"])
@pytest.mark.parametrize("program", [exact, rounded])
def test_draws_on_the_simulated_device(program: Callable[[Any], Any], policy: str) -> None:
    driver = SimulatedDriver(H200)
    target: Any = SimulatedTarget(H200, driver, "simulated")
    plan = af.compile(program, KEY, backend="simulated", policy=policy)
    executable = target.executable(plan.document)
    expected, bounds = interpret(plan.graph, KEY), bounds_of(plan.graph, [KEY])
    if program is exact:
        for right, at_once in zip(expected, program(KEY), strict=True):
            np.testing.assert_array_equal(right, at_once)
    for driver.order in ("forward", "reverse"):
        for value, found, right, bound in zip(plan.graph.outputs, executable.run([KEY]), expected, bounds, strict=True):
            check(f"{policy}, {driver.order}: {value.name}", found, right, bound)
            if program is exact:
                np.testing.assert_array_equal(found, right)


@pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC: pip install 'autofuse[cuda]'")
@pytest.mark.parametrize("arch", [pytest.param("sm_80", marks=pytest.mark.slow), "sm_90"])
@pytest.mark.parametrize("program", [pytest.param(exact, marks=pytest.mark.slow), rounded])
def test_nvrtc_takes_draws(program: Callable[[Any], Any], arch: str) -> None:
    """Every kernel of the draws, on its own and fused, and nothing of them in local memory."""
    for policy in ("unfused", "analytical"):
        plan = af.compile(program, KEY, backend="simulated", policy=policy)
        sources = [code.kernel for code in codes_of(plan.lowered, arch).values()]
        assert any("threefry" in kernel.source for kernel in sources)
        for kernel in sources:
            if not nvrtc.can_compile(kernel.source, arch):
                pytest.skip("needs the CUDA headers")
            resources = nvrtc.compile_source(kernel.source, arch, f"{kernel.name}.cu").resources
            for launch in kernel.launches:
                assert resources[launch.function].spill_bytes == resources[launch.function].stack_bytes == 0
