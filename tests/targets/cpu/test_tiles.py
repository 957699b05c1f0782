"""Generated code of overlapped tiles: the interior without masks, edges with them, the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from autofuse.errors import AutofuseError, LegalityError
from autofuse.fusion.candidate import KernelCandidate
from autofuse.ir.interpreter import interpret
from autofuse.lazydataclass import replace
from autofuse.lower.lowering import lower
from autofuse.lower.overlapped import kept_values
from autofuse.lower.statements import Store
from autofuse.measurement.checks import poisoned
from autofuse.targets.cpu.codegen.accesses import Place
from autofuse.targets.cpu.codegen.alignedstores import first_aligned
from autofuse.targets.cpu.codegen.columnblocks import block_columns
from autofuse.targets.cpu.decisions import cpu_schedule
from autofuse.targets.cpu.runners import CpuRunner, cpu_runners
from autofuse.testing.fusions import LIMITS, kernel_inputs
from tests.fixtures.stencils import random_chain
from tests.lower.test_overlapped import heat, kernel_of

TILES = replace(LIMITS, overlaps=True)


def check(kernel: KernelCandidate, arrays: tuple[object, ...], **decisions: int) -> bool:
    """Whether there is such a kernel; then it gives the bits of the one without tiles, wherever it writes."""
    schedules = [cpu_schedule(**decisions), cpu_schedule(unroll=decisions.get("unroll", 4))]
    tiled, plain = cpu_runners(kernel, schedules, TILES, 2)
    if isinstance(tiled, LegalityError):
        return False
    found, whole = (run(runner, kernel, arrays) for runner in (tiled, plain))
    for one, other, right in zip(found, whole, interpret(kernel.graph, *arrays), strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_allclose(one, right, rtol=1e-5, atol=1e-6)  # tanh of vectors
    return True


def run(runner: CpuRunner | AutofuseError, kernel: KernelCandidate, arrays: tuple[object, ...]) -> list[object]:
    if isinstance(runner, AutofuseError):
        raise runner
    outs = [poisoned(value.type.shape, value.type.dtype) for value in kernel.outputs]
    assert runner.run_into(kernel_inputs(kernel, arrays), outs)
    return outs


@pytest.mark.parametrize(("rows", "columns"), [(40, 33), (35, 7), (64, 32), (12, 150), (9, 264), (11, 1001), (9, 2100)])
def test_steps_of_a_stencil(rows, columns):
    u = np.random.default_rng(1).standard_normal((rows, columns))
    assert check(kernel_of(heat(3), u), (u,), tile_bytes=60 * (columns + 8) * 8)


def test_long_rows_are_stored_at_whole_vectors():
    """A part of a vector is stored first: the edge is one element wide. Each of two kept rows is whole cache lines."""
    u = np.zeros((12, 200))
    program = lower(kernel_of(heat(3), u), cpu_schedule(tile_bytes=1 << 16), "k", TILES)
    (phase,) = program.phases()
    (group,) = phase.steps
    for stage in group.stages:
        row, column = stage.symbols
        (store,) = (s for s in stage.body if isinstance(s, Store))
        assert store.offset.coefficient(row) % 8 == 0
        assert first_aligned(stage, column, 8, 1, 199) == 8
        assert first_aligned(stage, column, 8, 16, 199) == 16
        assert first_aligned(stage, column, 8, 1, 40) == 1
        assert first_aligned(stage, row, 8, 1, 199) == 1


def test_rows_too_long_for_the_first_cache_are_walked_in_blocks_of_columns():
    """Three rows of each: 24 KiB of 1024 f64. Blocks are 4 KiB of a row, whole steps of the loop."""
    for columns, block in ((1000, None), (1100, 512), (1500, 512)):
        program = lower(kernel_of(heat(3), np.zeros((12, columns))), cpu_schedule(tile_bytes=1 << 19), "k", TILES)
        places = {buffer.name: Place(buffer, "", "") for buffer in program.buffers}
        (group,) = next(program.phases()).steps
        found = {block_columns(stage, stage.symbols[1], places, 32) for stage in group.stages}
        assert found == {block}
        assert block_columns(group.stages[0], group.stages[0].symbols[0], places, 32) is None


@pytest.mark.parametrize("seed", range(6))
def test_random_stencils(seed):
    function, arrays = random_chain(seed)
    kernel = kernel_of(function, *arrays)
    if kept_values(kernel):
        check(kernel, arrays, tile_bytes=(600, 1500, 4000)[seed % 3], unroll=1 + seed % 4)


@pytest.mark.slow
def test_many_random_stencils():
    done = 0
    for seed in range(100, 250):
        function, arrays = random_chain(seed)
        kernel = kernel_of(function, *arrays)
        if kept_values(kernel):
            done += check(kernel, arrays, tile_bytes=(600, 1500, 4000)[seed % 3], unroll=1 + seed % 4)
    assert done > 40


@pytest.mark.slow
def test_many_random_stencils_of_long_rows():
    done = 0
    for seed in range(80):
        function, arrays = random_chain(seed, wide=True)
        kernel = kernel_of(function, *arrays)
        if kept_values(kernel):
            done += check(kernel, arrays, tile_bytes=(8000, 40_000, 200_000)[seed % 3], unroll=1 + seed % 4)
    assert done > 20
