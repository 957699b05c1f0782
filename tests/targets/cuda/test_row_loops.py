"""Loops over time in one kernel of blocks of rows, in generated CUDA C: in two orders of threads, races are errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.cost_models.base import KernelFacts
from autofuse.errors import LegalityError
from autofuse.ir.graph import Graph
from autofuse.ir.interpreter import interpret, interpret_values
from autofuse.lower.lowering import lower
from autofuse.lower.schedule import ITERATIONS, PANEL_ROWS, Schedule
from autofuse.lower.tile import Buffer, Space, TileProgram
from autofuse.measurement.checks import check, poisoned
from autofuse.measurement.errorbounds import bounds_of
from autofuse.measurement.workloads import load
from autofuse.targets.cuda.codegen import CudaKernel, blockplans, generate
from autofuse.targets.cuda.codegen.blockplans import RowBlockPlan
from autofuse.targets.cuda.codegen.program import Generator
from autofuse.targets.cuda.cost.counts import counted
from autofuse.targets.cuda.cost.model import GpuModel
from autofuse.targets.cuda.gpus import H200
from autofuse.targets.registry import backend_named
from autofuse.testing.simt import SimtModule
from tests.fixtures.rowprograms import PROGRAMS, Program, elman, lstm, random_cell, random_control
from tests.lower.test_loops import alone

F32 = np.float32
ARCH = "sm_90"


def lowered(function: Any, arguments: Any, most: int = 0) -> TileProgram:
    """`most`: rows of a block."""
    limits = backend_named("cuda").target(device="h200").limits
    program = lower(alone(function, arguments), Schedule.of({ITERATIONS: "rows", PANEL_ROWS: most}), "rows", limits)
    assert isinstance(program, TileProgram)
    return program


def check_rows(function: Any, arguments: Any, most: int = 0) -> CudaKernel:
    """One kernel in poisoned memory, compared with the interpreter."""
    kernel, program = alone(function, arguments), lowered(function, arguments, most)
    values = interpret_values(kernel.graph, arguments, {value.name for value in kernel.inputs})
    inputs = [np.asarray(values[value.name]) for value in kernel.inputs]
    graph = Graph("kernel", kernel.inputs, kernel.nodes, kernel.outputs)
    expected, bounds = interpret(graph, *inputs), bounds_of(graph, inputs)
    code = generate(program, ARCH)
    module = SimtModule([code], races=True)
    given = [buffer for buffer in program.buffers if buffer.space is Space.INPUT]
    made = [buffer for buffer in program.buffers if buffer.space is Space.OUTPUT]
    for order in ("forward", "reverse"):
        memory = {b.name: np.require(a, requirements=["C"]) for b, a in zip(given, inputs, strict=True)}
        memory |= {b.name: np.require(poisoned(b.type.shape, b.type.dtype), requirements=["C"]) for b in made}
        module.run(code, memory, order=order)
        for value, buffer, right, bound in zip(kernel.outputs, made, expected, bounds, strict=True):
            found = memory[buffer.name].reshape(value.type.shape)
            check(f"{order}: %{value.name}", found, right, bound)
    return code


QUICK = ("backwards", "one_row")
"""Of the first one, the last step stores what the first one of the next iteration reads: without a meeting, a race."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in PROGRAMS])
def test_programs(name: str) -> None:
    check_rows(*PROGRAMS[name])


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 7, 40])
def test_blocks_of_any_size(most: int) -> None:
    check_rows(*PROGRAMS["elman"], most)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_random_cells(seed: int) -> None:
    check_random(random_cell(seed), seed % 3 * 5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 130))
def test_random_control(seed: int) -> None:
    check_random(random_control(seed), seed % 3 * 4)


def check_random(program: Program, most: int) -> None:
    try:
        check_rows(*program, most)
    except LegalityError as refused:
        assert "more than" in str(refused), refused  # noqa: PT017


def test_rows_are_cut_until_their_state_fits() -> None:
    """A row keeps 36 KiB here: 16 of them would be more than a block has."""
    x, w, u = (np.ones(shape, F32) for shape in ((3, 32, 8), (8, 4608), (1152, 4608)))
    program = lowered(lstm, (x, w, u, np.ones(4608, F32)))
    (launch,) = generate(program, ARCH).launches
    assert launch.shared_bytes <= 227 << 10
    assert launch.grid[0] > 2


def run(code: CudaKernel, arguments: Mapping[str, Any]) -> list[Any]:
    """The outputs of a kernel, in poisoned memory."""
    given = {b.name: np.require(arguments[b.name], requirements=["C"]) for b in code.parameters if is_given(b)}
    made = {b.name: poisoned(b.type.shape, b.type.dtype) for b in code.parameters if b.space is Space.OUTPUT}
    made = {name: np.require(array, requirements=["C"]) for name, array in made.items()}
    SimtModule([code], races=True).run(code, {**given, **made})
    return list(made.values())


def is_given(buffer: Buffer) -> bool:
    return buffer.space is Space.INPUT


def cell(states: int, rows: int, dtype: Any = F32) -> dict[str, Any]:
    """Arguments of `elman`."""
    rng = np.random.default_rng(states)
    shapes = {"h": (rows, states), "x": (3, rows, 20), "w": (20, states), "u": (states, states)}
    return {name: (rng.standard_normal(shape) / np.sqrt(states)).astype(dtype) for name, shape in shapes.items()}


@pytest.mark.parametrize(
    ("arguments", "most"),
    [
        (cell(290, 5), 5),  # sums in two parts, one of which is of weights on chip; two groups of threads
        pytest.param(cell(700, 5), 3, marks=pytest.mark.slow),
        pytest.param(cell(2100, 2), 0, marks=pytest.mark.slow),
        pytest.param(cell(130, 7, np.float64), 4, marks=pytest.mark.slow),
    ],
)
def test_products_of_few_rows_have_the_bits_of_tiles(
    arguments: dict[str, Any], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = lowered(elman, tuple(arguments.values()), most)
    few = generate(program, ARCH)
    monkeypatch.setattr(blockplans, "is_few_rows", lambda *_: False)
    tiles = generate(program, ARCH)
    assert few.source != tiles.source
    for one, other in zip(run(few, arguments), run(tiles, arguments), strict=True):
        np.testing.assert_array_equal(one, other)


def plan_of(program: TileProgram) -> RowBlockPlan:
    ((planned,),) = (Generator(program, ARCH).planned(launch) for launch in program.launches)
    assert isinstance(planned.plan, RowBlockPlan)
    return planned.plan


def test_weights_stay_on_chip_as_far_as_there_is_space() -> None:
    arguments = (np.ones(shape, F32) for shape in ((9, 64, 32), (32, 256), (64, 256), (256,)))
    plan = plan_of(lowered(lstm, tuple(arguments)))
    assert [shape.kept for _, shape in plan.few_rows] == [32, 64]
    assert plan.blocks == 64  # there are more multiprocessors than rows
    arguments = (np.ones(shape, F32) for shape in ((9, 64, 32), (32, 1024), (256, 1024), (1024,)))
    kept = [shape.kept for _, shape in plan_of(lowered(lstm, tuple(arguments))).few_rows]
    assert kept == [32, 16]  # of 256


def test_products_of_few_rows_ask_for_less() -> None:
    def us(program: TileProgram) -> float:
        return float(GpuModel(H200).price([KernelFacts(program)]).us[0])

    arguments = (np.ones(shape, F32) for shape in ((64, 64, 32), (32, 256), (64, 256), (256,)))
    program = lowered(lstm, tuple(arguments))
    few = us(program)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blockplans, "is_few_rows", lambda *_: False)
        assert us(program) > 5 * few


def test_the_price_counts_all_iterations() -> None:
    def asked(steps: int) -> tuple[float, float, float, float]:
        h, _, w, u = PROGRAMS["elman"][1]
        found = counted(lowered(elman, (h, np.ones((steps, 37, 20), F32), w, u)), ARCH)
        (phase,), (launch,) = found.features.phases, found.launches
        dots = sum(dot.all_rows * dot.columns * dot.depth for dot in phase.dots)
        return dots, sum(one.flops for one in launch.products), launch.shared_wavefronts, launch.chain.steps

    few, many = asked(3), asked(6)
    assert many[0] == 2 * few[0] == 6 * 37 * 48 * (20 + 48)
    assert many[1] == 2 * few[1]
    assert few[2] < many[2] <= 2 * few[2]
    assert few[3] < many[3] < 2 * few[3]


@pytest.mark.slow
def test_a_short_loop_is_in_blocks_of_rows_only_where_that_is_cheapest() -> None:
    def us(**options: Any) -> float:
        plan = af.compile(workload.function, *arguments, backend="cuda", device="h200", deadline=None, **options)
        return sum(kernel.predicted_us or 0.0 for kernel in plan.kernels)

    workload = load("lstm_sequence")
    arguments = workload.inputs("full", 0)
    assert us() <= us(variants="unrolled=all")


def test_the_cheaper_way_is_chosen_and_runs() -> None:
    """Each iteration of a driver is several launches."""
    function, arguments = PROGRAMS["elman"]
    plan = af.compile(function, *arguments, backend="simulated", variants="unrolled=1")
    (kernel,) = plan.kernels
    assert (kernel.kind, kernel.schedule.to_json()) == ("rows", {"iterations": "rows"})
    assert "a driver would take" in plan.document.notes[0]
    expected, bounds = interpret(plan.graph, *arguments), bounds_of(plan.graph, arguments)
    found = plan(*arguments)
    for value, actual, right, bound in zip(plan.graph.outputs, found, expected, bounds, strict=True):
        check(value.name, np.asarray(actual), right, bound)
