"""Loops that end early: what is proved to be at rest, what is not, and loops that data end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import LegalityError
from autofuse.fusion.conditions import ending
from autofuse.fusion.nodeaxes import is_loop
from autofuse.ir.optable import role_of
from autofuse.lazydataclass import replace
from autofuse.lower import settling
from autofuse.lower.evaluate import evaluate_program
from autofuse.lower.lowering import lower
from autofuse.lower.schedule import EARLY_END, Schedule
from autofuse.lower.statements import Leave
from autofuse.lower.tile import OpaqueProgram, TileProgram
from autofuse.passes.pipeline import clean
from autofuse.report.tileprint import loop_lines, print_program
from tests.fixtures.loopprograms import PROGRAMS
from tests.lower.test_loops import alone, compare, stages, whole

F32 = np.float32
X: Any = np.linspace(-2, 2, 9 * 37, dtype=F32).reshape(9, 37)
K: Any = np.linspace(-3, 3, 37, dtype=F32)


def leave_of(function: Any, *arguments: Any, schedule: Schedule | None = None) -> Leave | None:
    program = lower(whole(function, arguments), schedule or Schedule(), "kernel")
    assert isinstance(program, TileProgram)
    found = [stage.leave for stage in stages(program) if stage.leave is not None]
    return found[0] if found else None


def frozen(new: Any, rests: Any, *, rows: Any = None, more: Any = None) -> Any:
    """A scan of 20 iterations over K whose elements that rest keep their state."""

    def program(k: Any) -> Any:
        def step(carry: Any, row: Any) -> Any:
            z, total = carry
            still = rests(z, row)
            return (np.where(still, z, new(z)), total if more is None else more(total, still)), None

        start = (k, np.zeros(k.shape, F32))
        return af.scan(step, start, rows, length=20 if rows is None else None)[0]

    return program


def test_elements_that_rest_end_the_loop() -> None:
    assert leave_of(frozen(lambda z: z + 1, lambda z, _: z > 2), K) == Leave(3)


def test_looking_for_an_end_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop over a matrix has as many carries as elements, and as many conditions for each."""
    monkeypatch.setattr(settling, "_MOST_LOOKED_AT", 3)
    assert leave_of(frozen(lambda z: z + 1, lambda z, _: z > 2), K) is None


def test_opposite_conditions_are_not_asked_for_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search by halves keeps one end where the other one moves: no condition keeps both."""
    monkeypatch.setattr(settling, "_MOST_LOOKED_AT", 10_000)
    keeps, tried = settling._Body._keeps, []

    def counted(body: Any, *arguments: Any) -> bool:
        tried.append(arguments)
        return keeps(body, *arguments)

    monkeypatch.setattr(settling._Body, "_keeps", counted)

    def search(k: Any) -> Any:
        def step(ends: Any, _: Any) -> Any:
            low, high = ends
            middle = (low + high) * F32(0.5)
            below = middle * middle < k
            return (np.where(below, middle, low), np.where(below, high, middle)), None

        return af.scan(step, (np.zeros(k.shape, F32), np.abs(k) + F32(1)), None, length=20)[0]

    assert leave_of(search, K) is None
    assert len(tried) < 20


@pytest.mark.parametrize("term", [F32(0), F32(-0.0)])
def test_a_sum_that_nothing_is_added_to_rests(term: Any) -> None:
    def more(total: Any, still: Any) -> Any:
        return total + np.where(still, term, F32(1))

    assert leave_of(frozen(lambda z: z + 1, lambda z, _: z > 2, more=more), K) is not None


def test_adding_zero_to_what_may_be_negative_zero_is_a_change() -> None:
    def program(k: Any, total: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            z, total = carry
            rests = z > 2
            return (np.where(rests, z, z + 1), total + np.where(rests, F32(0), F32(1))), None

        return af.scan(step, (k, total), None, length=20)[0]

    assert leave_of(program, K, -np.zeros(37, F32)) is None


def test_a_condition_on_a_row_may_fail_in_the_next_iteration() -> None:
    program = frozen(lambda z: z + 1, lambda z, row: row > 0, rows=X)
    assert leave_of(program, K) is None


def test_a_condition_on_a_part_that_goes_on_may_fail_in_the_next_iteration() -> None:
    def program(k: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            z, n = carry
            return (np.where(n % 3 == 0, z, z + 1), n + 1), None

        return af.scan(step, (k, np.arange(37)), None, length=20)[0][0]

    assert leave_of(program, K) is None


def test_rows_that_are_stored_need_all_iterations() -> None:
    def program(k: Any) -> Any:
        return af.scan(lambda z, _: (np.where(z > 2, z, z + 1), z), k, None, length=20)

    assert leave_of(program, K) is None


def test_parts_that_nobody_reads_behind_the_loop_may_go_on() -> None:
    assert leave_of(*_flat("escape_stacked")) is not None


def test_a_schedule_walks_all_iterations() -> None:
    assert leave_of(*_flat("escape"), schedule=Schedule.of({EARLY_END: False})) is None


def _flat(name: str) -> tuple[Any, ...]:
    function, arguments = PROGRAMS[name]
    return function, *arguments


def test_a_wrong_end_is_found_by_the_evaluator() -> None:
    """It lets each point rest as soon as a kernel might."""
    candidate = whole(*PROGRAMS["escape"])
    program = lower(candidate, Schedule(), "kernel")
    assert isinstance(program, TileProgram)
    (loop, last) = stages(program)
    assert loop.leave is not None
    wrong = next(s.operands[0] for s in loop.body if getattr(s, "opcode", "") == "not")
    body = tuple(Leave(wrong) if isinstance(s, Leave) else s for s in loop.body)
    step = type(program.launches[0][0].steps[0])((replace(loop, body=body), last))
    broken = replace(program, launches=((replace(program.launches[0][0], steps=(step,)),),))
    inputs = dict(zip((v.name for v in candidate.graph.inputs), PROGRAMS["escape"][1], strict=True))
    right, found = evaluate_program(program, inputs), evaluate_program(broken, inputs)
    assert any((right[name] != found[name]).any() for name in right)


def test_prices_count_half_of_the_iterations() -> None:
    (loop, _) = stages(lower(whole(*PROGRAMS["escape"]), Schedule(), "kernel"))
    assert loop.symbols[0].extent == 200
    assert loop.trips == (100,)


def test_reports_say_how_a_loop_ends() -> None:
    program = lower(whole(*PROGRAMS["escape"]), Schedule(), "kernel")
    assert "stage(k0<200, or until all is settled)" in loop_lines(program)[0]
    assert "may leave where %" in print_program(program)
    assert "stage(until all is settled)" in loop_lines(lower(whole(*PROGRAMS["converged"]), Schedule(), "kernel"))[0]


# ---- loops that data end -------------------------------------------------------------------------------------------


def loop_of(function: Any, *arguments: Any) -> Any:
    return next(node for node in clean(af.trace(function, *arguments)).nodes if is_loop(node))


def test_any_all_and_bounds_are_told_apart() -> None:
    any_of = ending(loop_of(*_flat("converged")))
    assert any_of is not None
    assert (len(any_of.elements), any_of.truth, any_of.others) == (1, True, ())
    all_of = ending(loop_of(*_flat("bounded")))
    assert all_of is not None
    assert (len(all_of.elements), all_of.truth, [truth for _, truth in all_of.others]) == (1, False, [False])
    assert ending(loop_of(*_flat("newton"))) is None


def test_a_while_that_changes_resting_elements_is_left_to_the_interpreter() -> None:
    def halved(k: Any) -> Any:
        return af.while_loop(lambda z: np.any(np.abs(z) > 1), lambda z: z * F32(0.5), k)

    candidate = alone(halved, (np.linspace(-3, 3, 100, dtype=F32),))
    assert isinstance(lower(candidate, Schedule(), "kernel"), OpaqueProgram)

    def doubled_before(k: Any) -> Any:
        return halved(k * 2)

    with pytest.raises(LegalityError, match="changes elements for which its condition does not hold"):
        lower(whole(doubled_before, (np.linspace(-3, 3, 100, dtype=F32),)), Schedule(), "kernel")


def test_a_while_whose_condition_may_hold_again_is_left_to_the_interpreter() -> None:
    """What an element's condition asks goes on to change while others keep the loop running."""

    def moves(carry: Any) -> Any:
        return (carry[0] > 1) & (carry[1] % 2 == 0)

    def flickers(k: Any) -> Any:
        def step(carry: Any) -> Any:
            return np.where(moves(carry), carry[0] * F32(0.5), carry[0]), carry[1] + 1

        return af.while_loop(lambda c: np.any(moves(c)), step, (k, np.arange(k.shape[0])))[0]

    candidate = alone(flickers, (np.linspace(-3, 3, 100, dtype=F32),))
    assert isinstance(lower(candidate, Schedule(), "kernel"), OpaqueProgram)


def test_a_while_whose_rounds_are_asked_for_is_left_to_the_interpreter() -> None:
    def rounds(k: Any) -> Any:
        def step(carry: Any) -> Any:
            return np.where(carry[0] > 1, carry[0] * F32(0.5), carry[0]), carry[1] + 1

        return af.while_loop(lambda c: np.any(c[0] > 1), step, (k, np.int32(0)))

    candidate = alone(rounds, (np.linspace(-3, 3, 100, dtype=F32),))
    assert isinstance(lower(candidate, Schedule(), "kernel"), OpaqueProgram)


@pytest.mark.parametrize("start", [0.0, 5.0, float("nan"), float("inf")])
def test_loops_that_never_run_and_odd_numbers(start: float) -> None:
    def program(k: Any) -> Any:
        def step(carry: Any) -> Any:
            z, n = carry
            moves = (np.abs(z) > 1) & (n < 30)
            return np.where(moves, z * F32(0.5), z), n + moves

        return af.while_loop(lambda c: np.any((np.abs(c[0]) > 1) & (c[1] < 30)), step, (k, np.zeros(k.shape, np.int32)))

    arguments = (np.full(37, start, F32),)
    assert role_of(loop_of(program, *arguments)).is_control
    compare(whole(program, arguments), arguments)
