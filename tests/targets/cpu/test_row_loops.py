"""Loops over time in one kernel of blocks of rows: what the interpreter gives, chosen where they cost less."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import ArgumentError, LegalityError
from autofuse.ir.interpreter import interpret_values
from autofuse.lower.schedule import ITERATIONS, PANEL_ROWS, Schedule
from autofuse.testing.fusions import LIMITS
from tests.fixtures.kernelchecks import check_kernel, run_native
from tests.fixtures.rowprograms import PROGRAMS, Program, elman, lstm, random_cell, random_control
from tests.lower.test_loops import alone

F32 = np.float32


def check_rows(function: Any, arguments: Any, most: int = 0, *, native: bool = True) -> None:
    """One kernel, by the evaluator and by code in poisoned memory. `most`: rows of a block."""
    kernel = alone(function, arguments)
    values = interpret_values(kernel.graph, arguments, {value.name for value in kernel.inputs})
    schedule = Schedule.of({ITERATIONS: "rows", PANEL_ROWS: most})
    check_kernel(kernel, [values[value.name] for value in kernel.inputs], schedule, limits=LIMITS, native=native)


QUICK = ("columns", "elman", "sampled")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in PROGRAMS]
)
def test_programs(name: str) -> None:
    check_rows(*PROGRAMS[name])


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_by_the_reference_executor(name: str) -> None:
    check_rows(*PROGRAMS[name], native=False)


@pytest.mark.parametrize("most", [7, *(pytest.param(most, marks=pytest.mark.slow) for most in (1, 16, 40))])
def test_blocks_of_any_size(most: int) -> None:
    check_rows(*PROGRAMS["elman"], most)


def test_state_that_is_no_number() -> None:
    function, (h, *others) = PROGRAMS["backwards"]
    h = h.copy()
    h[3, 5], h[20, 7] = np.nan, np.inf
    plan = af.compile(function, h, *others, rules=[af.Pin("scan", schedule={"iterations": "rows"})])
    last, rows = plan(h, *others)
    expected, stacked = af.interpret(plan.graph, h, *others)
    np.testing.assert_array_equal(np.isnan(last), np.isnan(expected))
    np.testing.assert_allclose(rows, stacked, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(10))
def test_random_cells_by_the_reference_executor(seed: int) -> None:
    check_random(seed, native=False)


@pytest.mark.parametrize("seed", [12, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(100, 300))])
def test_random_cells(seed: int) -> None:
    check_random(seed)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(n, marks=pytest.mark.slow) for n in range(100, 150))])
def test_random_control(seed: int) -> None:
    check_random(seed, random_control(seed), native=seed >= 100)


def check_random(seed: int, program: Program | None = None, *, native: bool = True) -> None:
    """A random cell as one kernel; some ask more of a kernel than there is, which is said."""
    try:
        check_rows(*(program or random_cell(seed)), seed % 3 * 5, native=native)
    except LegalityError as refused:
        assert "more than" in str(refused), refused  # noqa: PT017


@pytest.mark.usefixtures("on_server")
def test_the_cheaper_way_is_chosen_and_said() -> None:
    function, arguments = PROGRAMS["lstm"]
    plan = af.compile(function, *arguments)
    (kernel,) = plan.kernels
    assert (kernel.kind, kernel.schedule.to_json()) == ("rows", {"iterations": "rows"})
    (note,) = plan.document.notes
    assert "blocks of rows do all iterations in one kernel: a driver would take" in note
    assert "t<7 for steps" in plan.explain() or "dot [" in plan.explain()
    driven = af.compile(function, *arguments, rules=[af.Pin("scan", schedule={"iterations": "driver"})])
    assert driven.kernels[0].kind == "driver"
    assert "a driver runs it: one kernel of blocks of rows would take" in " ".join(driven.document.notes)
    for one, other in zip(plan(*arguments)[0], driven(*arguments)[0], strict=True):
        np.testing.assert_array_equal(one, other)


def test_why_a_driver_runs_it_is_said() -> None:
    h, w = np.ones((9, 80), F32), np.ones((80, 80), F32)

    def loop(h: Any, w: Any) -> Any:
        return af.scan(lambda h, _: (np.tanh(np.roll(h, 1, 0) @ w), None), h, None, length=4)[0]

    plan = af.compile(loop, h, w)
    assert any("no kernel of blocks of rows: %body_0 is read at another row" in note for note in plan.document.notes)
    with pytest.raises(LegalityError, match="rules: Pin: scan %scan: %body_0 is read at another row than its own"):
        af.compile(loop, h, w, rules=[af.Pin("scan", schedule={"iterations": "rows"})])
    with pytest.raises(ArgumentError, match="iterations"):
        af.compile(lambda h, w: np.tanh(h @ w), h, w, rules=[af.Pin("dot_general", schedule={"iterations": "rows"})])


def test_plans_are_saved_and_loaded(tmp_path: Any) -> None:
    function, arguments = PROGRAMS["elman"]
    plan = af.compile(function, *arguments)
    plan.save(tmp_path / "plan.json")
    for got, right in zip(af.load(tmp_path / "plan.json")(*arguments), plan(*arguments), strict=True):
        np.testing.assert_array_equal(got, right)


def test_threads_give_the_same_bits() -> None:
    rng = np.random.default_rng(0)
    x, w, u, b = (rng.standard_normal(s).astype(F32) * F32(0.1) for s in ((9, 133, 20), (20, 320), (80, 320), (320,)))
    kernel = alone(lstm, (x, w, u, b))
    values = interpret_values(kernel.graph, (x, w, u, b), {value.name for value in kernel.inputs})
    inputs = [values[value.name] for value in kernel.inputs]
    first, *others = (
        run_native(kernel, inputs, Schedule.of({ITERATIONS: "rows", PANEL_ROWS: most})) for most in (133, 50)
    )
    for other in others:
        for got, right in zip(other, first, strict=True):
            np.testing.assert_array_equal(got, right)


def test_a_loop_inside_of_one_that_a_driver_runs_is_in_blocks_of_rows() -> None:
    _, (h, x, w, u) = PROGRAMS["elman"]

    def outer(h: Any, x: Any, w: Any, u: Any) -> Any:
        def step(h: Any, _: Any) -> Any:
            h = elman(h, x, w, u)[0]
            return h - h.mean(0), None

        return af.scan(step, h, None, length=3)[0]

    plan = af.compile(outer, h, x, w, u)
    kinds = {kernel.kind for planned in plan.kernels for region in planned.regions for kernel in region.kernels}
    assert "rows" in kinds
    np.testing.assert_allclose(plan(h, x, w, u), af.interpret(plan.graph, h, x, w, u)[0], rtol=1e-4, atol=1e-5)
