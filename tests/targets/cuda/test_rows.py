"""Rows that several stages read are read once, and what is not kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.lazydataclass import replace
from autofuse.lower.evaluate import evaluate_program
from autofuse.lower.schedule import PLACEMENT, Schedule
from autofuse.lower.statements import Load
from autofuse.lower.tile import RowGroup, Space, TileProgram
from autofuse.targets.cuda.passes.rows import keep_rows


def normalise(x: Any) -> Any:
    return (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)


def program_of(function: Any, *arguments: Any) -> TileProgram:
    """The one kernel of a function, as it comes from lowering."""
    plan = af.compile(function, *arguments, backend="cuda", device="h200")
    (kernel,) = plan.lowered
    assert isinstance(kernel.program, TileProgram)
    return kernel.program


def loads(program: TileProgram, space: Space) -> int:
    """How many loads of buffers there are in stages with loops."""
    kinds = {buffer.name: buffer.space for buffer in program.buffers}
    steps = [step for phase in program.phases() for step in phase.steps if isinstance(step, RowGroup)]
    stages = [stage for step in steps for stage in step.stages if stage.symbols]
    return sum(isinstance(s, Load) and kinds[s.buffer] is space for stage in stages for s in stage.body)


def test_a_row_is_read_once():
    program = program_of(normalise, np.zeros((6, 300), np.float32))
    assert loads(program, Space.INPUT) == 1
    assert loads(program, Space.SCRATCH) >= 2


def test_the_answer_stays():
    x = np.random.default_rng(0).standard_normal((6, 300)).astype(np.float32)
    (found,) = evaluate_program(program_of(normalise, x), {"x": x}).values()
    np.testing.assert_allclose(found, normalise(x), rtol=1e-4, atol=1e-5)


def test_rows_that_are_too_long_are_read_again():
    """More than registers and shared memory of a cluster hold."""
    program = program_of(normalise, af.spec("f32[4096,1000000]"))
    assert loads(program, Space.INPUT) > 1


def test_a_part_of_a_row_is_read_from_what_is_kept():
    """Running sums need the whole row, and the window's end a part of it."""

    def window(x: Any) -> Any:
        total = np.cumsum(x, 1)
        return total[:, 20:] - total[:, :-20] - x[:, 20:]

    assert loads(program_of(window, np.zeros((64, 300), np.float32)), Space.INPUT) == 1


def test_what_all_rows_share_is_not_kept():
    """It stays in a cache; keeping it would take registers of every row."""

    def scaled(x: Any, g: Any) -> Any:
        y = x * g
        return y / (y + g).sum(1, keepdims=True)

    program = program_of(scaled, np.zeros((64, 300), np.float32), np.zeros(300, np.float32))
    kept = [buffer.name for buffer in program.buffers if ".row" in buffer.name]
    assert not any(name.startswith("g.") for name in kept)


def test_a_schedule_that_keeps_nothing_keeps_no_rows():
    program = program_of(normalise, np.zeros((6, 300), np.float32))
    plain = replace(program, schedule=Schedule.of({PLACEMENT: "recompute"}))
    assert keep_rows(plain, 1 << 20) is plain


@pytest.mark.parametrize("columns", [1, 33, 300, 4096])
def test_plans_give_numpys_answers(columns: int) -> None:
    x = np.random.default_rng(0).standard_normal((7, columns)).astype(np.float32)

    def centred(x: Any) -> Any:
        return x - x.mean(1, keepdims=True) + (x * x).max(1, keepdims=True)

    np.testing.assert_allclose(af.compile(centred, x, backend="simulated")(x), centred(x), rtol=1e-4, atol=1e-5)
