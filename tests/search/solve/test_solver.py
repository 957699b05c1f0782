"""The solver against a brute force that knows nothing of its formulation."""

import math

import pytest

from autofuse.errors import SearchError
from autofuse.fusion.atoms import AtomGraph
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.search.solve import branching, coverprogram, solver
from autofuse.search.solve.solver import solve
from tests.fixtures.covers import VECTOR, brute_force, fault_of, graph_of, priced, random_case, real_case
from tests.fixtures.milps import Late


def check_against_brute_force(case, name):
    graph, candidates = case
    expected = brute_force(graph, candidates)
    if expected is None:
        with pytest.raises(SearchError, match="no set of candidates computes the outputs"):
            solve(graph, candidates)
        return
    solution = solve(graph, candidates)
    assert solution.optimal
    assert solution.price_us == pytest.approx(expected, rel=1e-5), name
    assert solution.bound_us == pytest.approx(expected, rel=1e-5), name
    assert not fault_of(graph, candidates, solution)


@pytest.fixture
def circles(monkeypatch):
    """The circles for which a lazy constraint was added."""
    found, forbid = [], coverprogram.CoverProgram.add_lazy_constraint

    def noted(program, stuck):
        found.append(stuck)
        forbid(program, stuck)

    monkeypatch.setattr(coverprogram.CoverProgram, "add_lazy_constraint", noted)
    return found


def test_the_random_cases_have_what_they_are_for(by_highs, circles):
    """Recompute, several outputs, unconnected parts, circles, kernels that keep a value to themselves, no solution."""
    several = unconnected = kept = unsolvable = recomputed = circular = 0
    for seed in range(150):
        graph, candidates = random_case(seed)
        several += len(graph.graph.outputs) > 1
        unconnected += parts(graph) > 1
        kept += any(
            set(p.candidate.outputs) < set(graph.required_outputs(p.candidate.atoms)) and len(p.candidate.atoms) > 1
            for p in candidates
        )
        if brute_force(graph, candidates) is None:
            unsolvable += 1
            continue
        circles.clear()
        solution = solve(graph, candidates)
        atoms = [atom for chosen in solution.kernels for atom in chosen.candidate.atoms]
        recomputed += len(atoms) > len(set(atoms))
        circular += len(circles) > 0
    assert min(several, unconnected, kept, unsolvable, recomputed, circular) >= 3


def parts(graph):
    """How many parts a graph has that share no value but the program's input."""
    joined = {atom: {atom} for atom in graph.atoms}
    for atom in graph.atoms:
        for other in graph.successors[atom]:
            union = joined[atom] | joined[other]
            for member in union:
                joined[member] = union
    return len({frozenset(members) for members in joined.values()})


@pytest.mark.parametrize("block", range(5))
def test_the_solver_finds_what_a_brute_force_finds(block):
    for seed in range(block * 30, block * 30 + 30):
        check_against_brute_force(random_case(seed), f"seed {seed}")


@pytest.mark.parametrize("block", range(5))
def test_highs_finds_what_a_brute_force_finds(block, by_highs):
    for seed in range(150 + block * 30, 180 + block * 30):
        check_against_brute_force(random_case(seed), f"seed {seed}")


@pytest.mark.parametrize("block", range(3))
def test_narrowing_loses_no_better_solution(block, monkeypatch):
    monkeypatch.setattr(solver, "_LARGE", 0)
    for seed in range(1000 + block * 30, 1030 + block * 30):
        check_against_brute_force(random_case(seed), f"seed {seed}")


def test_the_solver_finds_what_a_brute_force_finds_among_the_kernels_of_the_search():
    cases = {seed: real_case(seed) for seed in range(12)}
    assert sum(case is not None for case in cases.values()) >= 6
    for seed, case in cases.items():
        if case is not None:
            check_against_brute_force(case, f"seed {seed}")


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_the_solver_finds_what_a_brute_force_finds_thousands_of_times(block):
    for seed in range(1000 + block * 250, 1000 + block * 250 + 250):
        check_against_brute_force(random_case(seed, most=10), f"seed {seed}")


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_narrowing_loses_no_better_solution_a_thousand_times(block, monkeypatch):
    monkeypatch.setattr(solver, "_LARGE", 0)
    for seed in range(10_000 + block * 250, 10_250 + block * 250):
        check_against_brute_force(random_case(seed, most=10), f"seed {seed}")


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_the_solver_finds_what_a_brute_force_finds_among_the_kernels_of_many_programs(block):
    for seed in range(100 + block * 20, 120 + block * 20):
        case = real_case(seed, most=10)
        if case is not None:
            check_against_brute_force(case, f"seed {seed}")


def test_solutions_unlike_one_another_come_in_order_of_price():
    """Three atoms in a row: kernels for each run of them. Every later solution lacks a kernel of each earlier one."""
    graph = graph_of([[-1], [0], [1]], [2])
    runs = [{0}, {1}, {2}, {0, 1}, {1, 2}, {0, 1, 2}]
    candidates = [
        priced(graph, numbers, price) for numbers, price in zip(runs, (1.0, 1.0, 1.0, 1.5, 1.6, 2.8), strict=True)
    ]
    found, used = [], []
    for _ in range(4):
        solution = solve(graph, candidates, unlike=used)
        found.append(solution.price_us)
        used.append({chosen.candidate.digest for chosen in solution.kernels})
    assert found == pytest.approx([2.5, 2.6, 2.8, 3.0])
    with pytest.raises(SearchError):
        solve(graph, candidates, unlike=used)


# ---- circles ---------------------------------------------------------------------------------------------------------


def two_pairs():
    """a -> b and c -> d; the kernels {a, d} and {c, b} are cheap, and each needs what the other makes."""
    graph = graph_of([[-1], [0], [-1], [2]], [1, 3])
    circular = [priced(graph, {0, 3}, 1.0), priced(graph, {2, 1}, 1.0)]
    return graph, circular, [priced(graph, {n}, 2.0) for n in range(4)]


def test_two_kernels_that_need_one_another_are_not_a_solution():
    graph, circular, single = two_pairs()
    solution = solve(graph, [*circular, *single])
    # {a} runs alone, so that {c, b} can, so that {a, d} can; or the same the other way round
    assert solution.price_us == pytest.approx(4.0)
    assert len(solution.kernels) == 3
    assert not fault_of(graph, [*circular, *single], solution)


def test_a_circle_alone_computes_nothing():
    graph, circular, _ = two_pairs()
    with pytest.raises(SearchError, match="no set of candidates computes the outputs"):
        solve(graph, circular)


def test_a_circle_that_is_dear_to_break_is_avoided():
    graph, circular, _ = two_pairs()
    ab, cd = priced(graph, {0, 1}, 1.5), priced(graph, {2, 3}, 1.5)
    solution = solve(graph, [*circular, ab, cd])
    assert solution.price_us == pytest.approx(3.0)
    assert {len(chosen.candidate.atoms) for chosen in solution.kernels} == {2}


# ---- what is written -------------------------------------------------------------------------------------------------


def test_an_optional_output_is_left_out_where_the_reader_computes_it_anew():
    # both b and c read a; writing a costs more than computing it twice
    graph = graph_of([[-1], [0], [0]], [1, 2])
    ab, ac = priced(graph, {0, 1}, 2.0, {0: 5.0}), priced(graph, {0, 2}, 2.0, {0: 5.0})
    candidates = [ab, ac, priced(graph, {1}, 1.9), priced(graph, {2}, 1.9)]
    solution = solve(graph, candidates)
    assert solution.price_us == pytest.approx(4.0)
    assert [[v.name for v in chosen.outputs] for chosen in solution.kernels] == [["v1"], ["v2"]]


def test_an_optional_output_is_written_where_that_is_cheaper():
    graph = graph_of([[-1], [0], [0]], [1, 2])
    ab, ac = priced(graph, {0, 1}, 2.0, {0: 0.1}), priced(graph, {0, 2}, 2.0, {0: 0.1})
    candidates = [ab, ac, priced(graph, {1}, 1.8), priced(graph, {2}, 1.8)]
    solution = solve(graph, candidates)
    assert solution.price_us == pytest.approx(3.9)
    assert not fault_of(graph, candidates, solution)


def test_a_value_that_two_kernels_would_write_is_written_once():
    graph = graph_of([[-1], [0], [0]], [0, 1, 2])  # every kernel with a in it must write a
    candidates = [priced(graph, {0, 1}, 2.0), priced(graph, {0, 2}, 2.0)]
    solution = solve(graph, candidates)
    assert [[v.name for v in chosen.outputs] for chosen in solution.kernels] == [["v0", "v1"], ["v2"]]


def test_kernels_run_in_the_order_of_the_program():
    graph = graph_of([[-1], [-1], [0], [1], [2, 3]], [4])
    candidates = [priced(graph, {n}, 1.0) for n in (4, 3, 2, 1, 0)]
    order = [next(iter(chosen.candidate.atoms)).number for chosen in solve(graph, candidates).kernels]
    assert order == [0, 1, 2, 3, 4]


def test_a_program_that_computes_nothing_needs_no_kernel():
    build = GraphBuilder("identity")
    solution = solve(AtomGraph(build.finish([build.input(VECTOR)])), [])
    assert (solution.kernels, solution.price_us, solution.optimal) == ((), 0.0, True)


# ---- no solution -----------------------------------------------------------------------------------------------------


def test_an_atom_that_no_candidate_computes_is_named():
    graph = graph_of([[-1], [0]], [1])
    with pytest.raises(SearchError, match=r"none computes atom 1 \(v1\)"):
        solve(graph, [priced(graph, {0}, 1.0)])


# ---- deadlines -------------------------------------------------------------------------------------------------------


def test_the_best_so_far_is_returned_when_the_time_is_up(monkeypatch, by_highs):
    graph, _, single = two_pairs()
    late = Late()
    monkeypatch.setattr(coverprogram, "minimum", late)
    solution = solve(graph, single, deadline_s=12.0)
    assert not solution.optimal
    assert solution.price_us == pytest.approx(8.0)
    assert solution.bound_us == pytest.approx(2.0)
    assert late.limits == [pytest.approx(12.0, abs=1.0)]


def test_without_anything_so_far_each_value_is_made_by_its_cheapest_kernel(monkeypatch, by_highs):
    graph, circular, single = two_pairs()

    def nothing(result):
        result.x, result.cost, result.bound = None, math.inf, -math.inf

    monkeypatch.setattr(coverprogram, "minimum", Late(nothing))
    solution = solve(graph, [*circular, *single])
    assert not solution.optimal
    assert solution.bound_us == 0.0
    assert not fault_of(graph, [*circular, *single], solution)


def test_a_selection_that_narrowing_found_is_kept_where_nothing_better_comes(monkeypatch):
    """Kernels value by value cost 4, the two of the selection 3; HiGHS relaxes, finds them, and then nothing more."""
    graph = graph_of([[-1], [0], [1], [2]], [3])
    candidates = [priced(graph, {n}, 1.0) for n in range(4)] + [priced(graph, pair, 1.5) for pair in ({0, 1}, {2, 3})]
    monkeypatch.setattr(solver, "_LARGE", 0)
    calls = []

    def first_only(result):
        calls.append(1)
        if len(calls) > 2:
            result.x, result.cost, result.bound = None, math.inf, -math.inf

    monkeypatch.setattr(coverprogram, "minimum", Late(first_only))
    monkeypatch.setattr(solver, "undominated", lambda graph, candidates: list(candidates))
    solution = solve(graph, candidates)
    assert len(calls) == 3
    assert not solution.optimal
    assert solution.price_us == pytest.approx(3.0)
    assert not fault_of(graph, candidates, solution)


def test_what_is_demanded_holds_at_the_deadline_too(monkeypatch, by_highs):
    """The cheapest kernels of the values have the two classes that must not meet."""
    graph = graph_of([[-1], [0], [0]], [1, 2])
    pairs = [priced(graph, {0, 1}, 1.0), priced(graph, {0, 2}, 1.0)]
    candidates = [*pairs, *(priced(graph, {n}, 10.0) for n in range(3))]

    def nothing(result):
        result.x, result.cost, result.bound = None, math.inf, -math.inf

    monkeypatch.setattr(coverprogram, "minimum", Late(nothing))
    with pytest.raises(SearchError, match="raise the budget"):
        solve(graph, candidates, unlike=[{p.candidate.digest for p in pairs}])


def test_a_circle_at_the_deadline_is_completed(monkeypatch, by_highs):
    graph, circular, single = two_pairs()
    times = iter((0.0, 0.0, 100.0, 100.0, 100.0))
    late = Late()
    monkeypatch.setattr(coverprogram, "minimum", late)
    # the first selection is circular; the clock leaves no time to cut it off
    solution = solve(graph, [*circular, *single], 10.0, clock=lambda: next(times))
    assert len(late.limits) == 2
    assert late.limits[1] == pytest.approx(0.1)
    assert not solution.optimal
    assert not fault_of(graph, [*circular, *single], solution)


def test_a_deadline_without_any_partition_says_so(monkeypatch):
    graph, circular, _ = two_pairs()
    times = iter((0.0, 50.0))
    monkeypatch.setattr(coverprogram, "minimum", Late())
    with pytest.raises(SearchError, match="raise the budget"):
        solve(graph, circular, 10.0, clock=lambda: next(times))


def test_writes_that_the_relaxation_pays_in_parts_are_made_whole(monkeypatch):
    monkeypatch.setattr(branching, "MOST_STEPS", 0)
    graph = graph_of([[-1], [0], [0], [0]], [1, 2, 3])
    ab, ac = priced(graph, {0, 1}, 1.0, {0: 1.0}), priced(graph, {0, 2}, 1.0, {0: 1.0})
    candidates = [ab, ac, priced(graph, {3}, 1.0)]
    real, seen = coverprogram.minimum, []

    def split(program, seconds):
        result = real(program, seconds)
        seen.append(int(program.is_whole.sum()))
        if len(seen) == 1:
            result.x[3:5] = 0.5  # both kernels write half of a: their columns follow those of the three candidates
        return result

    monkeypatch.setattr(coverprogram, "minimum", split)
    solution = solve(graph, candidates)
    assert seen[0] == 3
    assert solution.price_us == pytest.approx(4.0)
    assert not fault_of(graph, candidates, solution)


def test_highs_prints_nothing(by_highs, capfd):
    """Its C++ part writes past Python's streams."""
    graph, _, single = two_pairs()
    assert solve(graph, single).optimal
    assert capfd.readouterr() == ("", "")
