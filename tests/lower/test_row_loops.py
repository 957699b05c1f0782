"""Loops over time as one kernel of blocks of rows: what is kept where, and what is refused and why."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import LegalityError
from autofuse.lower.limits import Limits
from autofuse.lower.lowering import lower
from autofuse.lower.schedule import ITERATIONS, Schedule
from autofuse.lower.tile import Dot, OpaqueProgram, Space, TileProgram
from autofuse.report.tileprint import print_program
from autofuse.targets.cpu.cost.extract import features
from autofuse.targets.cpu.decisions import CPU_DECISIONS
from tests.fixtures.kernelchecks import fused
from tests.fixtures.rowprograms import PROGRAMS, lstm
from tests.lower.test_loops import alone

F32 = np.float32
ROWS = Schedule.of({ITERATIONS: "rows"})
H, W = np.ones((9, 80), F32), np.ones((80, 80), F32)


def lowered(function: Any, arguments: Any, limits: Limits = Limits()) -> TileProgram:  # noqa: B008 - frozen
    program = lower(alone(function, arguments), ROWS, "kernel", limits)
    assert isinstance(program, TileProgram)
    return program


def test_a_block_of_rows_does_all_iterations_of_its_products_and_stages() -> None:
    program = lowered(*PROGRAMS["lstm"])
    (phase,) = program.phases()
    assert phase.iterations is not None
    assert phase.iterations.symbol.extent == 7
    assert [number for number, step in enumerate(phase.steps) if isinstance(step, Dot)] == [1, 2]
    assert phase.iterations.steps == range(1, 4)
    assert {b.name for b in program.buffers if b.space is Space.SCRATCH and ".state" in b.name} == {
        "body_0.state",
        "body_1.state",
    }
    assert "t<7 for steps 1 to 3" in print_program(program)


def test_the_state_is_a_left_operand_where_it_lies() -> None:
    (phase,) = lowered(*PROGRAMS["elman"]).phases()
    dots = [step for step in phase.steps if isinstance(step, Dot)]
    assert [dot.lhs.buffer for dot in dots] == ["x", "body_0.state"]
    assert dots[1].accumulate


def test_a_product_that_is_stacked_is_stored_by_itself() -> None:
    *_, phase = lowered(*PROGRAMS["two_layers"]).phases()
    assert any(isinstance(step, Dot) and step.out.buffer == "scan_2" for step in phase.steps)


def test_columns_of_a_product_from_the_left_are_rows() -> None:
    program = lowered(*PROGRAMS["columns"])
    *_, phase = program.phases()
    dots = [step for step in phase.steps if isinstance(step, Dot)]
    assert [(dot.lhs.buffer, dot.rhs.buffer) for dot in dots] == [("x", "w.packed"), ("body_0.state", "u.packed")]
    assert len(program.launches) == 2  # matrices are laid out once, not in each iteration


def test_what_all_rows_share_is_a_loop_before() -> None:
    program = lowered(*PROGRAMS["sampled"])
    chain, rows = (phase for launch in program.launches for phase in launch)
    assert chain.grid == ()
    assert chain.iterations is None
    tables = {b.name: b.type.shape for b in program.buffers if b.space is Space.WORKSPACE}
    assert set(tables.values()) == {(5, 1)}
    assert len(tables) == 4  # two words of either key that is drawn from: the keys themselves stay where they are
    kept = {b.name for b in program.buffers if b.name.endswith(".state")}
    assert kept == {"body_2.state", "body_3.state"}
    assert rows.iterations is not None


def test_rows_of_a_block_fit_on_chip() -> None:
    few = lowered(*PROGRAMS["lstm"], Limits(scratch_bytes=36 << 10, workers=1))
    many = lowered(*PROGRAMS["lstm"], Limits(workers=1))
    blocks = [next(program.phases()).row_block for program in (few, many)]
    assert [block is not None and block.size for block in blocks] == [21, 41]


def test_by_default_it_is_a_call() -> None:
    program = lower(alone(*PROGRAMS["lstm"]), Schedule(), "kernel")
    assert isinstance(program, OpaqueProgram)
    assert "more than 1200 scalar values" in program.reason
    assert CPU_DECISIONS.refusal(ROWS, program) is None
    assert "iterations" not in CPU_DECISIONS.idle(program)


def test_other_calls_have_no_iterations_to_decide() -> None:
    x = np.ones((40, 40), F32)
    sort = lower(fused(lambda x: np.sort(x, axis=0), x), Schedule(), "kernel")
    assert "must be one of 'driver'" in (CPU_DECISIONS.refusal(ROWS, sort) or "")


def _scanned(step: Any, state: Any = H, rows: Any = None) -> Any:
    return lambda h, w: af.scan(lambda h, row: step(h, w, row), h, rows, length=None if rows is not None else 4)


REFUSED = {
    "neighbours": (_scanned(lambda h, w, _: (np.tanh(np.roll(h, 1, 0) @ w), None)), "at another row than its own"),
    "all rows": (_scanned(lambda h, w, _: (np.tanh(h @ w) - h.mean(0), None)), "nested inside another reduction"),
    "a number of all rows": (_scanned(lambda h, w, _: (np.tanh(h @ w), h.sum())), "output %reduce does not have"),
    "a loop inside that data end": (
        _scanned(lambda h, w, _: (af.while_loop(lambda g: g.sum() > 0, lambda g: g @ w, h), None)),
        "there is a loop in its body that data end, while %while",
    ),
    "a long loop inside": (
        _scanned(lambda h, w, _: (af.scan(lambda g, _: (g @ w, None), h, None, length=300)[0], None)),
        "more than 256 operations with the loops in it written out",
    ),
    "one iteration": (lambda h, w: af.scan(lambda h, _: (h @ w, None), h, None, length=1), "it has one iteration"),
    "no product": (_scanned(lambda h, w, _: (h / h.sum(1, keepdims=True), None)), "there is no product in its body"),
    "a sort": (_scanned(lambda h, w, _: (np.sort(h @ w, axis=1), None)), "sort is an opaque call"),
    "weights of the state": (_scanned(lambda h, w, _: (np.tanh(h @ (w * h[0])), None)), "of dot_general %dot_general"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    function, reason = REFUSED[name]
    with pytest.raises(LegalityError, match=reason):
        lowered(function, (H, W))


def test_loops_that_data_end_are_refused() -> None:
    def loop(h: Any, w: Any) -> Any:
        return af.while_loop(lambda h: h.sum() > 0, lambda h: np.tanh(h @ w), h)

    with pytest.raises(LegalityError, match="whose number of iterations is known"):
        lowered(loop, (H, W))


def test_the_price_counts_all_iterations() -> None:
    def flops(steps: int) -> tuple[float, float, float]:
        x = np.ones((steps, 41, 13), F32)
        told = features(lowered(lstm, (x, *PROGRAMS["lstm"][1][1:])))
        (phase,) = told.phases
        dots = sum(dot.all_rows * dot.columns * dot.depth for dot in phase.dots)
        return dots, sum(stage.flops for stage in phase.stages), phase.reuse.traffic(float("inf"))[0]

    few, many = flops(3), flops(6)
    assert many[0] == 2 * few[0] == 6 * 41 * 160 * (13 + 40)
    assert many[1] == 2 * few[1]
    assert few[2] < many[2] < 2 * few[2]
