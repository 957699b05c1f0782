"""Kernels in overlapped tiles compute what they compute without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import LegalityError
from autofuse.fusion.candidate import KernelCandidate
from autofuse.ir.interpreter import interpret
from autofuse.lazydataclass import replace
from autofuse.lower.evaluate import evaluate_program
from autofuse.lower.lowering import lower
from autofuse.lower.overlapped import kept_values
from autofuse.lower.tile import Space, TileProgram
from autofuse.passes.pipeline import clean
from autofuse.report.tileprint import print_program
from autofuse.targets.cpu.decisions import CPU_DECISIONS, cpu_schedule
from autofuse.testing.fusions import LIMITS, kernel_inputs, whole_kernel
from tests.fixtures.stencils import random_chain

TILES = replace(LIMITS, overlaps=True)


def heat(steps: int) -> Any:
    def program(u: Any) -> Any:
        for _ in range(steps):
            around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
            u = np.pad(u[1:-1, 1:-1] * 0.2 + around * 0.2, 1)
        return u

    return program


def kernel_of(function: Any, *arrays: Any) -> KernelCandidate:
    return whole_kernel(clean(af.trace(function, *arrays)))


def evaluated(kernel: KernelCandidate, program: TileProgram, arrays: Any) -> list[Any]:
    given = dict(zip((value.name for value in kernel.inputs), kernel_inputs(kernel, arrays), strict=True))
    found = evaluate_program(program, given)
    return [found[value.name] for value in kernel.outputs]


def check(function: Any, arrays: Any, nbytes: int) -> bool:
    """Whether it was cut into tiles; then it computes the same bits."""
    kernel = kernel_of(function, *arrays)
    if not kept_values(kernel):
        return False
    try:
        program = lower(kernel, cpu_schedule(tile_bytes=nbytes), "k", TILES)
    except LegalityError:
        return False
    assert isinstance(program, TileProgram)
    for found, right in zip(evaluated(kernel, program, arrays), interpret(kernel.graph, *arrays), strict=True):
        np.testing.assert_array_equal(found, right)
    return True


U = np.random.default_rng(2).standard_normal((37, 11))


@pytest.mark.parametrize("steps", [2, 3, 5])
def test_steps_of_a_stencil(steps):
    assert check(heat(steps), (U,), 6000)


def test_a_step_is_a_stage_of_rows_and_of_those_around_them():
    kernel = kernel_of(heat(3), U)
    program = lower(kernel, cpu_schedule(tile_bytes=2000), "k", TILES)
    assert isinstance(program, TileProgram)
    (phase,) = program.phases()
    (group,) = phase.steps
    rows = [stage.symbols[0].extent for stage in group.stages]
    assert rows[0] - rows[1] == rows[1] - rows[2] == 2
    assert phase.tile == phase.grid[0]
    assert "scratch" in print_program(program)


def test_values_that_are_dead_leave_their_place():
    """Of five steps' results two are alive at once."""
    program = lower(kernel_of(heat(6), U), cpu_schedule(tile_bytes=9000), "k", TILES)
    assert len([buffer for buffer in program.buffers if buffer.space is Space.SCRATCH]) == 2


def test_without_tiles_where_little_is_computed_anew_and_with_them_where_much_is():
    two, six = (lower(kernel_of(heat(steps), U), cpu_schedule(), "k", TILES) for steps in (2, 6))
    assert not any(buffer.space is Space.SCRATCH for buffer in two.buffers)
    assert any(buffer.space is Space.SCRATCH for buffer in six.buffers)
    with pytest.raises(LegalityError, match="too much is recomputed"):
        lower(kernel_of(heat(6), U), cpu_schedule(), "k", LIMITS)


def test_the_schedule_decides_where_there_is_something_to_keep():
    two = lower(kernel_of(heat(2), U), cpu_schedule(), "k", TILES)
    assert CPU_DECISIONS.refusal(cpu_schedule(tile_bytes=64 << 10), two) is None
    plain = lower(kernel_of(np.tanh, U), cpu_schedule(), "k", TILES)
    assert (CPU_DECISIONS.refusal(cpu_schedule(tile_bytes=64 << 10), plain) or "").startswith("tile_bytes")


def test_rows_that_do_not_fit_are_refused():
    with pytest.raises(LegalityError, match=r"tiles of \d+ rows keep more than 64 bytes"):
        lower(kernel_of(heat(2), U), cpu_schedule(tile_bytes=64), "k", TILES)


def test_a_value_that_is_read_transposed_is_refused():
    def program(u: Any) -> Any:
        v = np.tanh(u) * 2
        return v[1:, 1:] + v.T[:-1, :-1]

    kernel = kernel_of(program, U[:11])
    with pytest.raises(LegalityError, match="no fixed number of rows apart"):
        lower(kernel, cpu_schedule(tile_bytes=4000), "k", TILES)


@pytest.mark.parametrize("seed", range(25))
def test_random_stencils(seed):
    function, arrays = random_chain(seed)
    check(function, arrays, (600, 1500, 4000)[seed % 3])


@pytest.mark.parametrize("seed", range(6))
def test_random_stencils_of_long_rows(seed):
    check(*random_chain(seed, wide=True), (6000, 15_000, 40_000)[seed % 3])


def test_tiles_are_as_many_for_each_worker():
    """Rows that pay, not all that fit: 15 for each that is computed again."""
    u = np.zeros((1000, 100))
    (phase,) = lower(kernel_of(heat(4), u), cpu_schedule(tile_bytes=1 << 20), "k", TILES).phases()
    (tiles,) = phase.grid
    (group,) = phase.steps
    own = group.stages[-1].symbols[0].extent
    assert 32 <= own <= 48
    assert tiles.extent == -(-1000 // own)


@pytest.mark.slow
def test_many_random_stencils():
    tiled = sum(check(*random_chain(seed), (600, 1500, 4000, 20_000)[seed % 4]) for seed in range(1000, 1600))
    assert tiled > 200
