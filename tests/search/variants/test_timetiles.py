"""Long loops of stencils: steps are joined unasked where moving arrays is what each step takes."""

from __future__ import annotations

from typing import Any

import numpy as np

import autofuse as af
from autofuse.api.partitioning import make_context, settled
from autofuse.api.programs import traced_program
from autofuse.frontend.traced import trace
from autofuse.fusion.userrules import Pin
from autofuse.search.policies.analytical import Analytical
from autofuse.search.policies.context import Context
from autofuse.search.variants.timetiles import TILED, time_tiles
from autofuse.search.variants.variants import Variants
from autofuse.targets.base import find_target
from autofuse.targets.cpu.target import CpuTarget
from autofuse.testing.devices import server


def heat(u: Any) -> Any:
    def step(_: Any, u: Any) -> Any:
        around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
        return np.pad(u[1:-1, 1:-1] * 0.6 + around * 0.1, 1)

    return af.fori_loop(0, 50, step, u)


def about(function: Any, side: int, rules: Any = ()) -> Context:
    program = traced_program(trace(function, af.spec(f"f64[{side},{side}]")))
    return make_context(program, CpuTarget(server(2)), rules)


def priced(context: Context) -> Variants:
    return time_tiles(context, Analytical().partition(context), lambda each: (each, Analytical().partition(each)))


def test_steps_of_a_large_stencil_share_a_kernel_of_tiles() -> None:
    context = about(heat, 1024)
    found = priced(context)
    best = found.predicted()
    assert best.choices == TILED
    assert best.price_us < 0.85 * found.usual.price_us
    assert settled(context).program.variant is not None
    (loop, *behind) = [chosen.candidate.kernel for chosen in best.partition.kernels]
    regions = best.context.kernels.prices.regions
    assert regions is not None
    (kernel,) = regions.plans(loop)[1].kernels
    assert kernel.kind == "loop"
    assert all(len(regions.plans(kernel)[1].kernels) == 1 for kernel in behind)  # the two steps that are left over


def test_nobody_looks_where_arrays_stay_in_caches_and_where_rules_name_the_graph() -> None:
    for context in (about(heat, 64), about(heat, 1024, [Pin("scan")])):
        assert not priced(context).others
    program = traced_program(trace(heat, af.spec("f64[1024,1024]")))
    assert not priced(make_context(program, find_target("cuda", None, "h200"))).others


def test_there_may_be_no_time_for_it() -> None:
    context = about(heat, 1024)
    found = time_tiles(context, Analytical().partition(context), lambda each: (each, found.partition), has_time=False)
    assert found.predicted() is found.usual
    assert found.left_out == ("graph variant unrolled=4 was not priced: the time was up",)
