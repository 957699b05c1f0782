"""Small covers without HiGHS."""

import pytest

from autofuse.search.solve import branching, coverprogram
from autofuse.search.solve.coverprogram import CoverProgram
from autofuse.search.solve.solver import solve
from tests.fixtures.covers import chain_of, graph_of, priced, random_case


def program_of(case):
    graph, candidates = case
    return CoverProgram(graph, candidates, graph.atoms)


def chosen_atoms(runs, candidates):
    return [sorted(atom.number for atom in candidates[run.number].candidate.atoms) for run in runs]


def test_a_small_program_is_solved_without_highs(monkeypatch):
    monkeypatch.setattr(coverprogram, "minimum", lambda *_, **__: pytest.fail("HiGHS was asked"))
    graph, candidates = chain_of(6, price=lambda number: 1.0 + number)
    solution = solve(graph, candidates)
    assert solution.optimal
    assert solution.price_us == pytest.approx(0.75 * 21)


def test_of_covers_that_cost_the_same_one_is_taken_and_always_the_same_one():
    """Of three atoms in a row the first two are one kernel, or the last two."""
    graph, candidates = chain_of(3)
    runs = program_of((graph, candidates)).cheapest()
    assert runs is not None
    assert chosen_atoms(runs, candidates) == [[0], [1, 2]]


def test_a_program_that_takes_too_many_steps_is_left_to_highs(monkeypatch):
    case = chain_of(6, price=lambda number: 1.0 + number)
    monkeypatch.setattr(branching, "MOST_STEPS", 3)
    assert program_of(case).cheapest() is None


def test_kernels_that_wait_for_one_another_are_no_answer():
    """Two chains: the kernels of the first atom of one and the last of the other are cheap, and need one another."""
    graph = graph_of([[-1], [0], [-1], [2]], [1, 3])
    singles = [priced(graph, {n}, 1.0 + 0.1 * n) for n in range(4)]
    candidates = [*singles, priced(graph, {0, 3}, 0.5), priced(graph, {1, 2}, 0.5)]
    runs = program_of((graph, candidates)).cheapest()
    assert runs is not None
    assert chosen_atoms(runs, candidates) == [[0], [1, 2], [0, 3]]


def test_what_is_found_costs_what_highs_finds(monkeypatch):
    found = 0
    for seed in range(5000, 5060):
        program = program_of(random_case(seed))
        runs = program.cheapest()
        if runs is not None:
            found += 1
            with monkeypatch.context() as patched:
                patched.setattr(branching, "MOST_STEPS", 0)
                solution = solve(*random_case(seed))
            assert solution.price_us == pytest.approx(program.price(runs))
    assert found >= 50
