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
from autofuse.search.policies.regionplans import RegionPlans
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


def jacobi(u: Any) -> Any:
    """Two arrays by turns."""

    def half(u: Any, v: Any) -> Any:
        v[1:-1, 1:-1] = 0.2 * (u[1:-1, 1:-1] + u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2])

    u, v = u.copy(), u.copy()
    for _ in range(40):
        half(u, v)
        half(v, u)
    return u, v


def cube(u: Any) -> Any:
    """Planes too large for tiles of planes, and too many neighbours to compute steps anew."""

    def step(_: Any, u: Any) -> Any:
        inner = u[1:-1, 1:-1, 1:-1]
        for axis in range(3):
            for side in (slice(2, None), slice(None, -2)):
                at = [slice(1, -1)] * 3
                at[axis] = side
                inner = inner + 0.1 * u[tuple(at)]
        return np.pad(inner, 1)

    return af.fori_loop(0, 50, step, u)


def about(function: Any, *shape: int, rules: Any = ()) -> Context:
    program = traced_program(trace(function, af.spec(f"f64[{','.join(map(str, shape))}]")))
    return make_context(program, CpuTarget(server(2)), rules)


def priced(context: Context) -> Variants:
    return time_tiles(context, Analytical().partition(context), lambda each: (each, Analytical().partition(each)))


def test_steps_of_a_large_stencil_share_a_kernel_of_tiles() -> None:
    context = about(heat, 1024, 1024)
    found = priced(context)
    best = found.predicted()
    assert best.choices == TILED[0]
    assert len(found.others) == 1
    assert best.price_us < 0.85 * found.usual.price_us
    assert settled(context).program.variant is not None
    (loop, *behind) = [chosen.candidate.kernel for chosen in best.partition.kernels]
    regions = best.context.kernels.prices.regions
    assert regions is not None
    (kernel,) = regions.plans(loop)[1].kernels
    assert kernel.kind == "loop"
    assert all(len(regions.plans(kernel)[1].kernels) == 1 for kernel in behind)  # the two steps that are left over


def test_nobody_looks_where_arrays_stay_in_caches_and_where_rules_name_the_graph() -> None:
    for context in (about(heat, 64, 64), about(heat, 1024, 1024, rules=[Pin("scan")])):
        assert not priced(context).others
    program = traced_program(trace(heat, af.spec("f64[1024,1024]")))
    assert not priced(make_context(program, find_target("cuda", None, "h200"))).others


def test_there_may_be_no_time_for_it() -> None:
    context = about(heat, 1024, 1024)
    found = time_tiles(context, Analytical().partition(context), lambda each: (each, found.partition), has_time=False)
    assert found.predicted() is found.usual
    assert found.left_out == ("graph variant unrolled=4 was not priced: the time was up",)


def test_arrays_that_take_turns_leave_their_edges_where_they_are() -> None:
    found = priced(about(jacobi, 1000, 1000))
    best = found.predicted()
    assert best.choices in TILED
    body = next(node for node in best.context.program.graph.nodes if "unrolled" in node.attrs).regions[0]
    updates = [node for node in body.nodes if node.op == "dynamic_update_slice"]
    assert len(updates) == 2 * int(best.choices.unrolled)
    assert all(node.inputs[0] in body.inputs for node in updates)


def test_two_steps_are_tried_where_four_are_not_clearly_cheaper() -> None:
    context = about(heat, 1024, 1024)
    usual = Analytical().partition(context)
    found = time_tiles(context, usual, lambda each: (each, usual))
    assert [each.choices for each in found.others] == list(TILED)
    assert found.predicted() is found.usual


def test_steps_that_cannot_share_a_kernel_are_not_searched() -> None:
    context = about(cube, 160, 300, 300)
    usual = Analytical().partition(context)
    found = time_tiles(context, usual, lambda each: (each, usual))
    assert [each.choices for each in found.others] == [TILED[1]]  # 25 neighbours of each element, computed anew
    (why,) = found.left_out
    assert why.startswith("graph variant unrolled=4 cannot be planned: the steps of")


def test_tuning_keeps_them_in_one_kernel() -> None:
    context = about(heat, 1024, 1024)
    best = priced(context).predicted()
    loop = best.partition.kernels[0].candidate.kernel
    regions = best.context.kernels.prices.regions
    assert isinstance(regions, RegionPlans)
    (node,) = (node for node in loop.nodes if node.regions)
    assert len(regions.context(node, 0).space.atom_graph.atoms) == 1
