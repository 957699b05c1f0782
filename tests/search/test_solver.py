"""The solver against a brute force that knows nothing of its formulation."""

import heapq
import itertools
import math

import numpy as np
import pytest

from autofuse.errors import SearchError
from autofuse.fusion.atoms import AtomGraph
from autofuse.ir.builder import GraphBuilder
from autofuse.ir.dtypes import F32
from autofuse.ir.types import TensorType
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import TileProgram
from autofuse.search import solver
from autofuse.search.solver import Priced, lower_bound, solve
from autofuse.search.space import Candidate, SpaceBuilder
from autofuse.testing.fusions import LIMITS
from autofuse.testing.graphs import random_graph

VECTOR = TensorType((8,), F32)
NO_PROGRAM = TileProgram("none", (), (), Schedule())


def graph_of(reads, outputs):
    """Atom n adds what `reads[n]` lists: numbers of earlier atoms, or -1 for the graph's input."""
    build = GraphBuilder("random")
    x = build.input(VECTOR, "x")
    values = []
    for number, sources in enumerate(reads):
        operands = [x if source < 0 else values[source] for source in sources]
        op = "tanh" if len(operands) == 1 else "add"
        values.append(build.emit(op, operands, name=f"v{number}"))
    return AtomGraph(build.finish([values[n] for n in outputs]), contract=False)


def candidate_of(graph, numbers, outputs=None):
    atoms = frozenset(graph.atoms[n] for n in numbers)
    outputs = graph.required_outputs(atoms) if outputs is None else outputs
    return Candidate(atoms, graph.candidate(atoms, outputs), str(sorted(numbers)), NO_PROGRAM)


def priced(graph, numbers, price, writes=None):
    """A priced candidate; `writes`: price by atom number of the outputs that it may leave out."""
    values = {graph.atoms[n].nodes[0].output: us for n, us in (writes or {}).items()}
    return Priced(candidate_of(graph, numbers), price, values)


def brute_force(graph, candidates):
    """The price of the cheapest way to make the outputs: a shortest path over sets of values in memory."""
    made = graph.value_order(v for a in graph.atoms for v in graph.writes[a])
    bit = {value: 1 << n for n, value in enumerate(made)}

    def bits(values):
        return sum(bit[value] for value in set(values))

    goal = bits(v for v in graph.graph.outputs if graph.maker(v) is not None)
    moves = {}
    for p in candidates:
        atoms = p.candidate.atoms
        needs = bits(v for atom in atoms for v in graph.reads[atom] if graph.maker(v) not in (None, *atoms))
        always = bits(v for v in p.candidate.outputs if v not in p.write_us)
        for size in range(len(p.write_us) + 1):
            for chosen in itertools.combinations(p.write_us.items(), size):
                move = needs, always | bits(v for v, _ in chosen)
                moves[move] = min(p.price_us + sum(us for _, us in chosen), moves.get(move, math.inf))
    best = {0: 0.0}
    todo = [(0.0, 0)]
    while todo:
        price, there = heapq.heappop(todo)
        if there & goal == goal:
            return price
        if price > best[there]:
            continue
        for (needs, written), us in moves.items():
            then = there | written
            if not needs & ~there and then != there and price + us < best.get(then, math.inf):
                best[then] = price + us
                heapq.heappush(todo, (price + us, then))
    return None


def random_case(seed, most=8):
    """A random graph of up to `most` atoms, with several outputs and unconnected parts, and a random space of kernels.

    Kernels overlap, so that values are computed more than once; some compute a value only for themselves; some are
    unconnected; and some need one another.
    """
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, most + 1))
    reads = [[int(s) for s in rng.integers(-1, n, size=int(rng.integers(1, 3)))] if n else [-1] for n in range(count)]
    sinks = [n for n in range(count) if not any(n in sources for sources in reads)]
    outputs = sinks + [n for n in range(count) if n not in sinks and rng.random() < 0.2]
    graph = graph_of(reads, outputs)
    sets = [{n} for n in range(count) if rng.random() < 0.9]
    sets += [{n for n in range(count) if rng.random() < 0.5} for _ in range(int(rng.integers(0, 16)))]
    candidates = []
    for numbers in sets:
        written = outputs_of(graph, numbers, rng) if numbers else ()
        if not written:
            continue
        inner = {v for n in numbers for v in graph.reads[graph.atoms[n]]} - set(graph.graph.outputs)
        optional = [v for v in written if v in inner and rng.random() < 0.8]
        # few distinct prices, so that ties and kernels for nothing occur too
        scale = 1.0 if seed % 2 else float(rng.uniform(0.5, 2))
        writes = {v: float(rng.integers(0, 4)) * scale for v in optional}
        candidates.append(Priced(candidate_of(graph, numbers, written), float(rng.integers(1, 9)) * scale, writes))
    return graph, candidates


def outputs_of(graph, numbers, rng):
    """What a kernel writes: all that others may need or, where it waits for what is made from it, less than that."""
    atoms = frozenset(graph.atoms[n] for n in numbers)
    left = graph.left_to_others(atoms) if rng.random() < 0.5 else ()
    return tuple(value for value in graph.required_outputs(atoms) if value not in left)


def real_case(seed, most=8):
    """A random program of up to `most` atoms with the kernels that the search has for it; None for a larger one."""
    rng = np.random.default_rng(seed)
    graph = AtomGraph(random_graph(rng, 10))
    if len(graph.atoms) > most:
        return None
    candidates = []
    for candidate in SpaceBuilder(graph, LIMITS).build().candidates:
        inner = {v for atom in candidate.atoms for v in graph.reads[atom]} - set(graph.graph.outputs)
        writes = {v: float(rng.uniform(0, 2)) for v in candidate.outputs if v in inner}
        candidates.append(Priced(candidate, float(rng.uniform(1, 4)) + 0.2 * len(candidate.atoms), writes))
    return graph, candidates


def check_solution(graph, candidates, solution):
    """Every kernel's inputs are there when it runs, the outputs are made once, and the price is what it says."""
    prices = {id(p.candidate): p for p in candidates}
    there = set()
    total = 0.0
    for chosen in solution.kernels:
        p = prices[id(chosen.candidate)]
        atoms = chosen.candidate.atoms
        assert all(v in there for a in atoms for v in graph.reads[a] if graph.maker(v) not in (None, *atoms))
        assert chosen.outputs
        assert there.isdisjoint(chosen.outputs)
        assert set(chosen.outputs) <= set(chosen.candidate.outputs)
        there |= set(chosen.outputs)
        total += p.price_us + sum(p.write_us.get(v, 0.0) for v in chosen.outputs)
    assert there.issuperset(v for v in graph.graph.outputs if graph.maker(v) is not None)
    assert solution.price_us == pytest.approx(total, rel=1e-9)
    assert solution.bound_us <= solution.price_us


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
    check_solution(graph, candidates, solution)


def test_the_random_cases_have_what_they_are_for():
    """Recompute, several outputs, unconnected parts, circles, kernels that keep a value to themselves, no solution."""
    several = unconnected = kept = unsolvable = recomputed = cuts = 0
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
        solution = solve(graph, candidates)
        atoms = [atom for chosen in solution.kernels for atom in chosen.candidate.atoms]
        recomputed += len(atoms) > len(set(atoms))
        cuts += solution.cuts > 0
    assert min(several, unconnected, kept, unsolvable, recomputed, cuts) >= 3


def parts(graph):
    """How many parts a graph has that share no value but the program's input."""
    joined = {atom: {atom} for atom in graph.atoms}
    for atom in graph.atoms:
        for other in graph.successors[atom]:
            union = joined[atom] | joined[other]
            for member in union:
                joined[member] = union
    return len({frozenset(members) for members in joined.values()})


@pytest.mark.parametrize("block", range(10))
def test_the_solver_finds_what_a_brute_force_finds(block):
    for seed in range(block * 30, block * 30 + 30):
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
    assert solution.cuts >= 1
    check_solution(graph, [*circular, *single], solution)


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
    check_solution(graph, candidates, solution)


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


class Late:
    """HiGHS that meets its time limit: gives `change(result)` and calls it late."""

    def __init__(self, monkeypatch, change):
        self.change = change
        self.limits = []
        self.real = solver.milp
        monkeypatch.setattr(solver, "milp", self)

    def __call__(self, *args, **options):
        self.limits.append(options["options"]["time_limit"])
        result = self.real(*args, **options)
        result.status = 1
        result.mip_dual_bound = 0.25 * result.fun
        self.change(result)
        return result


def test_the_best_so_far_is_returned_when_the_time_is_up(monkeypatch):
    graph, _, single = two_pairs()
    late = Late(monkeypatch, lambda result: None)
    solution = solve(graph, single, deadline_s=12.0)
    assert not solution.optimal
    assert solution.price_us == pytest.approx(8.0)
    assert solution.bound_us == pytest.approx(2.0)
    assert late.limits == [pytest.approx(12.0, abs=1.0)]


def test_without_anything_so_far_each_value_is_made_by_its_cheapest_kernel(monkeypatch):
    graph, circular, single = two_pairs()

    def nothing(result):
        result.x, result.fun, result.mip_dual_bound = None, None, None

    Late(monkeypatch, nothing)
    solution = solve(graph, [*circular, *single])
    assert not solution.optimal
    assert solution.bound_us == 0.0
    check_solution(graph, [*circular, *single], solution)


def test_a_circle_at_the_deadline_is_completed(monkeypatch):
    graph, circular, single = two_pairs()
    times = iter((0.0, 0.0, 100.0, 100.0, 100.0))
    late = Late(monkeypatch, lambda result: None)
    # the first selection is circular; the clock leaves no time to cut it off
    solution = solve(graph, [*circular, *single], 10.0, clock=lambda: next(times))
    assert len(late.limits) == 2
    assert late.limits[1] == pytest.approx(0.1)
    assert not solution.optimal
    check_solution(graph, [*circular, *single], solution)


def test_a_deadline_without_any_partition_says_so(monkeypatch):
    graph, circular, _ = two_pairs()
    times = iter((0.0, 50.0))
    Late(monkeypatch, lambda result: None)
    with pytest.raises(SearchError, match="raise the budget"):
        solve(graph, circular, 10.0, clock=lambda: next(times))


def test_writes_that_the_relaxation_pays_in_parts_are_made_whole(monkeypatch):
    graph = graph_of([[-1], [0], [0], [0]], [1, 2, 3])
    ab, ac = priced(graph, {0, 1}, 1.0, {0: 1.0}), priced(graph, {0, 2}, 1.0, {0: 1.0})
    candidates = [ab, ac, priced(graph, {3}, 1.0)]
    real, seen = solver.milp, []

    def split(cost, *, integrality, **options):
        result = real(cost, integrality=integrality, **options)
        seen.append(int(integrality.sum()))
        if len(seen) == 1:
            result.x[3:5] = 0.5  # both kernels write half of a: their columns follow those of the three candidates
        return result

    monkeypatch.setattr(solver, "milp", split)
    solution = solve(graph, candidates)
    assert seen[0] == 3
    assert solution.price_us == pytest.approx(4.0)
    check_solution(graph, candidates, solution)


# ---- segments --------------------------------------------------------------------------------------------------------


def pieces(graph, *cuts):
    """The atoms in segments that begin at these positions."""
    begins = [0, *cuts]
    return [graph.atoms[begin:end] for begin, end in zip(begins, [*cuts, len(graph.atoms)], strict=True)]


def inside(candidates, segments):
    """The candidates that cross no cut."""
    return [p for p in candidates if any(p.candidate.atoms <= set(segment) for segment in segments)]


@pytest.mark.parametrize("block", range(6))
def test_segments_are_solved_as_well_as_all_that_does_not_cross_a_cut(block):
    for seed in range(2000 + block * 30, 2030 + block * 30):
        graph, candidates = random_case(seed)
        rng = np.random.default_rng(seed)
        segments = pieces(graph, *(n for n in range(1, len(graph.atoms)) if rng.random() < 0.4))
        expected = brute_force(graph, inside(candidates, segments))
        if expected is None:
            with pytest.raises(SearchError, match="no set of candidates computes the outputs"):
                solve(graph, candidates, segments=segments)
            continue
        solution = solve(graph, candidates, segments=segments)
        assert solution.segments == len(segments)
        assert solution.optimal
        assert solution.price_us == pytest.approx(expected, rel=1e-5), f"seed {seed}"
        assert solution.bound_us == pytest.approx(expected, rel=1e-5), f"seed {seed}"
        check_solution(graph, candidates, solution)
        assert lower_bound(graph, candidates, segments) <= expected * (1 + 1e-6)
        assert brute_force(graph, candidates) <= expected * (1 + 1e-6)


def chain_of(length, price=lambda number: 1.0):
    """A chain, with a kernel for each atom and one for each two neighbours, a quarter cheaper than both."""
    graph = graph_of([[n - 1] for n in range(length)], [length - 1])
    single = [priced(graph, {n}, price(n)) for n in range(length)]
    return graph, [*single, *(priced(graph, {n, n + 1}, 0.75 * (price(n) + price(n + 1))) for n in range(length - 1))]


def counted(monkeypatch):
    """How often HiGHS is called."""
    real, calls = solver.milp, []
    monkeypatch.setattr(solver, "milp", lambda *args, **options: calls.append(1) or real(*args, **options))
    return calls


def test_equal_segments_are_solved_once(monkeypatch):
    graph, candidates = chain_of(8)
    calls = counted(monkeypatch)
    solution = solve(graph, candidates, segments=pieces(graph, 2, 4, 6))
    assert len(calls) == 1
    assert solution.price_us == pytest.approx(4 * 1.5)
    assert [len(chosen.candidate.atoms) for chosen in solution.kernels] == [2] * 4
    check_solution(graph, candidates, solution)


@pytest.mark.parametrize("different", ["price", "size", "outputs"])
def test_segments_that_differ_are_solved_each(monkeypatch, different):
    graph = graph_of([[-1], [0], [1], [2]], [2, 3] if different == "outputs" else [3])
    candidates = [priced(graph, {n}, 2.0 if different == "price" and n == 3 else 1.0) for n in range(4)]
    calls = counted(monkeypatch)
    solution = solve(graph, candidates, segments=pieces(graph, 1 if different == "size" else 2))
    assert len(calls) == 2
    assert solution.price_us == pytest.approx(5.0 if different == "price" else 4.0)
    check_solution(graph, candidates, solution)


def test_segments_share_the_time_that_is_left(monkeypatch):
    graph, candidates = chain_of(6, price=lambda number: 1.0 + number)
    late = Late(monkeypatch, lambda result: None)
    solution = solve(graph, candidates, 12.0, clock=lambda: 0.0, segments=pieces(graph, 2, 4))
    assert late.limits == pytest.approx([4.0, 6.0, 12.0])
    assert not solution.optimal
    check_solution(graph, candidates, solution)


def test_a_segment_that_nothing_computes_is_named():
    graph, candidates = chain_of(4)
    crossing = [p for p in candidates if len(p.candidate.atoms) == 2]
    with pytest.raises(SearchError, match=r"none computes atom 1 \(v1\)"):
        solve(graph, [*candidates[:1], *candidates[2:4], *crossing], segments=pieces(graph, 1, 2, 3))


def test_solutions_unlike_others_are_not_looked_for_in_segments():
    graph, candidates = chain_of(4)
    with pytest.raises(SearchError, match="in segments"):
        solve(graph, candidates, unlike=[{"[0]"}], segments=pieces(graph, 2))


@pytest.mark.parametrize(("once", "price"), [(False, 5.9), (True, 10.8)])
def test_in_segments_too_no_atom_runs_twice_where_it_may_not(once, price):
    graph = graph_of([[-1], [0], [0], [1]], [2, 3])
    ab, ac = priced(graph, {0, 1}, 2.0, {0: 5.0}), priced(graph, {0, 2}, 2.0, {0: 5.0})
    candidates = [ab, ac, *(priced(graph, {n}, 1.9) for n in (1, 2, 3))]
    solution = solve(graph, candidates, once=once, segments=pieces(graph, 3))
    assert solution.price_us == pytest.approx(price)
