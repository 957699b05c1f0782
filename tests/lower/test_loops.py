"""Loops lowered into a stage: what is carried, what vanishes, what is refused and why."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import BackendError, LegalityError
from autofuse.fusion.atoms import AtomGraph
from autofuse.fusion.candidate import KernelCandidate
from autofuse.fusion.loops import refusal
from autofuse.fusion.nodeaxes import is_loop
from autofuse.ir.interpreter import interpret
from autofuse.lower.evaluate import evaluate_program
from autofuse.lower.limits import Limits
from autofuse.lower.lowering import lower
from autofuse.lower.schedule import Schedule
from autofuse.lower.sections import body_within, repeated
from autofuse.lower.statements import Carry, Next, Repeat, Store
from autofuse.lower.tile import OpaqueProgram, Phase, RowGroup, Space, Stage, TileProgram
from autofuse.lower.varying import recurrence, varying_scalars
from autofuse.measurement.checks import check
from autofuse.measurement.errorbounds import bounds_of
from autofuse.passes.pipeline import clean
from tests.fixtures.loopprograms import LEFT, PROGRAMS
from tests.fixtures.randomloops import random_program


def whole(function, arguments) -> KernelCandidate:
    """All of a function as one kernel."""
    graph = clean(af.trace(function, *arguments))
    atoms = AtomGraph(graph)
    return atoms.candidate(frozenset(atoms.atoms), tuple(dict.fromkeys(graph.outputs)))


def alone(function, arguments) -> KernelCandidate:
    """The last loop of a function, as a kernel."""
    atoms = AtomGraph(clean(af.trace(function, *arguments)))
    atom = next(atom for atom in reversed(atoms.atoms) if is_loop(atom.nodes[-1]))
    return atoms.candidate(frozenset([atom]), atoms.writes[atom])


def stages(program: TileProgram) -> list[Stage]:
    return [s for phase in program.phases() for step in phase.steps if isinstance(step, RowGroup) for s in step.stages]


def compare(candidate: KernelCandidate, arguments, limits: Limits = Limits()) -> None:  # noqa: B008 - frozen
    program = lower(candidate, Schedule(), "kernel", limits)
    graph = candidate.graph
    assert isinstance(program, TileProgram)
    names = {buffer.name for buffer in program.buffers if buffer.space is Space.INPUT}
    inputs = {v.name: a for v, a in zip(graph.inputs, arguments, strict=True) if v.name in names}
    found = evaluate_program(program, inputs)
    expected = zip(graph.outputs, interpret(graph, *arguments), bounds_of(graph, arguments), strict=True)
    for value, right, bound in expected:
        check(value.name, found[value.name], right, bound)


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - LEFT - {"two_loops", "in_place", "both_ways"}))
def test_programs_as_one_kernel(name):
    compare(whole(*PROGRAMS[name]), PROGRAMS[name][1])


@pytest.mark.parametrize("seed", range(500, 512))
def test_random_bodies_as_one_kernel(seed):
    function, arguments = random_program(seed)
    candidate = whole(function, arguments)
    with contextlib.suppress(LegalityError):  # what is rolled, or stacked and read in another order, is no one kernel
        compare(candidate, arguments)


def test_a_stack_of_columns_vanishes():
    program = lower(whole(*PROGRAMS["stacked_state"]), Schedule(), "kernel")
    loop, last = stages(program)
    assert [s.extent for s in program.launches[0][0].grid] == [37]
    assert sum(isinstance(s, Carry) for s in loop.body) == sum(isinstance(s, Next) for s in loop.body) == 2
    assert not any(isinstance(s, Store) for s in loop.body)
    assert sum(isinstance(s, Store) for s in last.body) == 2


def test_what_nobody_needs_is_not_carried():
    def loop(x, k):
        def step(s, row):
            return np.stack([s[:, 0] * row, s[:, 1] + s[:, 0]], axis=1), None

        return af.scan(step, np.stack([k, k], axis=1), x)[0][:, 0]

    (first, *_) = stages(lower(whole(loop, PROGRAMS["leaky"][1]), Schedule(), "kernel"))
    assert sum(isinstance(s, Next) for s in first.body) == 1


def test_what_is_the_same_in_all_iterations_is_computed_before_them():
    (first, *_) = stages(lower(whole(*PROGRAMS["leaky"]), Schedule(), "kernel"))
    assert any(getattr(s, "opcode", "") == "sin" for s in first.before)
    assert not any(getattr(s, "opcode", "") == "sin" for s in first.body)


def test_results_without_a_common_grid_are_phases_of_their_own():
    program = lower(alone(*PROGRAMS["walk"]), Schedule(), "kernel")
    (phases,) = program.launches
    assert sorted(tuple(s.extent for s in phase.grid) for phase in phases) == [(), (37,)]


def test_what_lanes_share_is_told_apart():
    program = lower(alone(*PROGRAMS["walk"]), Schedule(), "kernel")
    (phase,) = (phase for phase in program.launches[0] if phase.grid)
    (loop, _) = (stage for step in phase.steps if isinstance(step, RowGroup) for stage in step.stages)
    varying = varying_scalars(loop, frozenset(), phase.vectorised)
    carries = [s for s in loop.body if isinstance(s, Carry)]
    assert sorted((c.result in varying, c.dtype.name) for c in carries) == [
        (False, "u32"),
        (False, "u32"),
        (True, "f32"),
    ]
    assert recurrence(loop) > 20, "the rounds of threefry"


def test_a_loop_whose_lanes_need_all_of_the_state_is_left_to_the_interpreter():
    def loop(x, k):
        return af.scan(lambda h, row: (h + h.sum() * row, None), k, x)[0]

    wide = np.ones((3, 100), np.float32), np.ones(100, np.float32)
    candidate = alone(loop, wide)
    assert refusal(candidate.nodes[-1]) == (
        "an iteration depends on 100 elements of %scan at once: more than 64 do not fit registers"
    )
    assert isinstance(lower(candidate, Schedule(), "kernel"), OpaqueProgram)
    narrow = np.ones((3, 7), np.float32), np.ones(7, np.float32)
    compare(whole(loop, narrow), narrow)


@pytest.mark.parametrize("name", sorted(LEFT))
def test_refusals(name):
    (loop,) = (node for node in alone(*PROGRAMS[name]).nodes if is_loop(node))
    assert refusal(loop) == "two axes of one value in its body would be the same loop"


def test_loops_over_the_same_rows_that_run_opposite_ways_are_kernels_of_their_own():
    with pytest.raises(LegalityError, match="runs the other way than a loop over the same rows"):
        lower(whole(*PROGRAMS["both_ways"]), Schedule(), "kernel")


def test_bodies_with_calls_are_refused():
    def loop(x, k):
        return af.scan(lambda h, row: (np.sort(h + row), None), k, x)[0]

    (node,) = (n for n in alone(loop, PROGRAMS["leaky"][1]).nodes if is_loop(n))
    assert "%sort in its body is no scalar code" in str(refusal(node))


def test_the_evaluator_walks_each_loop_once_where_values_are_carried():
    program = lower(whole(*PROGRAMS["scalar_state"]), Schedule(), "kernel")
    (loop, last) = stages(program)
    twice = Stage((*loop.symbols, *loop.symbols), loop.body, None, before=loop.before)
    wrong = TileProgram("kernel", program.buffers, ((Phase((), (RowGroup((twice, last)),)),),), program.schedule)
    with pytest.raises(BackendError, match="walks loops, each once"):
        evaluate_program(wrong, {"x": PROGRAMS["scalar_state"][1][0]})


def test_a_loop_in_the_body_of_a_loop_is_walked_with_it():
    program = lower(whole(*PROGRAMS["nested"]), Schedule(), "kernel")
    loop = next(stage for stage in stages(program) if stage.symbols)
    assert [symbol.extent for symbol in loop.symbols] == [7, 1 + 5 + 1], (
        "it starts, five iterations, the end of the body"
    )
    assert [s.extent for s in program.launches[0][0].grid] == [37]
    assert sum(isinstance(s, Store) and s.mask is not None for s in loop.body) == 1, "a row of the outer loop"


def test_loops_in_a_body_follow_one_another():
    program = lower(whole(*PROGRAMS["in_turn"]), Schedule(), "kernel")
    loop = next(stage for stage in stages(program) if stage.sections)
    t, k, j = loop.symbols
    assert [s.extent for s in loop.symbols] == [4, 7 + 7 + 1, 1 + 3 + 1]
    assert dict(loop.sections) == {k: (1, 7, 8, 14), j: (1, 4)}
    first = body_within(loop, {k: (1, 6), j: (4, 4)})
    assert sum(isinstance(s, Next) for s in first) == 1, "the first loop hands on what it has"
    assert not body_within(loop, {k: (1, 6), j: (1, 3)}), "there is no third loop in the first one"
    assert sum(isinstance(s, Next) for s in body_within(loop, {k: (0, 0)})) == 1, "its state begins"
    assert t not in dict(loop.sections)


def test_what_data_end_in_a_body_is_repeated():
    (loop, *_) = stages(lower(whole(*PROGRAMS["searched"]), Schedule(), "kernel"))
    _, k = loop.symbols
    assert [s.symbol for s in loop.body if isinstance(s, Repeat)] == [k, k]
    assert [place for place in range(k.extent) if repeated(loop, k, {k: (place, place)}) is not None] == [1, 3]


def test_rows_that_the_body_reads_are_kept():
    program = lower(whole(*PROGRAMS["tridiagonal"]), Schedule(), "kernel")
    kept = [buffer.type.shape for buffer in program.buffers if buffer.space is Space.SCRATCH]
    assert kept == [(6,)] * 3


def test_a_loop_in_a_condition_is_refused():
    def loop(x, k):
        def goes_on(c):
            return af.fori_loop(0, 3, lambda _, m: m * 2, c[1]) < 60

        return af.while_loop(goes_on, lambda c: (c[0] + x[0], c[1] + 1), (k, np.int32(1)))[0]

    (node,) = (n for n in alone(loop, PROGRAMS["leaky"][1]).nodes if is_loop(n))
    assert "there is a loop in the condition of while" in str(refusal(node))


def test_a_loop_in_a_body_that_others_keep_going_must_leave_what_rests():
    def loop(x, k):
        def step(h, row):
            return af.while_loop(
                lambda c: np.any(np.abs(c) > np.float32(0.5)), lambda c: c * np.float32(0.5), h
            ) + row, None

        return af.scan(step, k, x)[0]

    candidate = alone(loop, PROGRAMS["leaky"][1])
    program = lower(candidate, Schedule(), "kernel")
    assert isinstance(program, OpaqueProgram)
    assert "a while loop changes elements for which its condition does not hold" in program.reason
