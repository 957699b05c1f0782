"""Graphs in segments: each solved by itself, equal ones once."""

import numpy as np
import pytest

from autofuse.errors import SearchError
from autofuse.search.solve import coverprogram
from autofuse.search.solve.coverprogram import MemoryConstraint
from autofuse.search.solve.solver import lower_bound, solve
from tests.fixtures.covers import brute_force, chain_of, fault_of, graph_of, priced, random_case
from tests.fixtures.milps import Late


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
        assert not fault_of(graph, candidates, solution)
        assert lower_bound(graph, candidates, segments) <= expected * (1 + 1e-6)
        assert brute_force(graph, candidates) <= expected * (1 + 1e-6)


def counted(monkeypatch):
    """How often HiGHS is called."""
    real, calls = coverprogram.minimum, []
    monkeypatch.setattr(coverprogram, "minimum", lambda *args, **options: calls.append(1) or real(*args, **options))
    return calls


def test_equal_segments_are_solved_once(monkeypatch, by_highs):
    graph, candidates = chain_of(8)
    calls = counted(monkeypatch)
    solution = solve(graph, candidates, segments=pieces(graph, 2, 4, 6))
    assert len(calls) == 1
    assert solution.price_us == pytest.approx(4 * 1.5)
    assert [len(chosen.candidate.atoms) for chosen in solution.kernels] == [2] * 4
    assert not fault_of(graph, candidates, solution)


@pytest.mark.parametrize("different", ["price", "size", "outputs"])
def test_segments_that_differ_are_solved_each(monkeypatch, different, by_highs):
    graph = graph_of([[-1], [0], [1], [2]], [2, 3] if different == "outputs" else [3])
    candidates = [priced(graph, {n}, 2.0 if different == "price" and n == 3 else 1.0) for n in range(4)]
    calls = counted(monkeypatch)
    solution = solve(graph, candidates, segments=pieces(graph, 1 if different == "size" else 2))
    assert len(calls) == 2
    assert solution.price_us == pytest.approx(5.0 if different == "price" else 4.0)
    assert not fault_of(graph, candidates, solution)


def test_segments_share_the_time_that_is_left(monkeypatch, by_highs):
    graph, candidates = chain_of(6, price=lambda number: 1.0 + number)
    late = Late()
    monkeypatch.setattr(coverprogram, "minimum", late)
    solution = solve(graph, candidates, 12.0, clock=lambda: 0.0, segments=pieces(graph, 2, 4))
    assert late.limits == pytest.approx([4.0, 6.0, 12.0])
    assert not solution.optimal
    assert not fault_of(graph, candidates, solution)


def test_a_segment_that_nothing_computes_is_named():
    graph, candidates = chain_of(4)
    crossing = [p for p in candidates if len(p.candidate.atoms) == 2]
    with pytest.raises(SearchError, match=r"none computes atom 1 \(v1\)"):
        solve(graph, [*candidates[:1], *candidates[2:4], *crossing], segments=pieces(graph, 1, 2, 3))


def without(candidates, digest):
    return [p for p in candidates if p.candidate.digest != digest]


@pytest.mark.parametrize("block", range(3))
def test_a_solution_unlike_another_lacks_a_class_of_it_and_costs_the_least(block):
    found = 0
    for seed in range(4000 + block * 30, 4030 + block * 30):
        graph, candidates = random_case(seed)
        if len(graph.atoms) < 2:
            continue
        segments = pieces(graph, len(graph.atoms) // 2)
        try:
            first = solve(graph, candidates, segments=segments)
        except SearchError:
            continue
        used = {kernel.candidate.digest for kernel in first.kernels}
        others = [brute_force(graph, inside(without(candidates, digest), segments)) for digest in used]
        expected = min((price for price in others if price is not None), default=None)
        if expected is None:
            with pytest.raises(SearchError, match="unlike the others"):
                solve(graph, candidates, segments=segments, unlike=[used])
            continue
        second = solve(graph, candidates, segments=segments, unlike=[used])
        assert not used <= {kernel.candidate.digest for kernel in second.kernels}
        assert second.price_us == pytest.approx(expected, rel=1e-5), f"seed {seed}"
        assert first.price_us <= second.price_us + 1e-6
        assert second.bound_us <= second.price_us
        assert not second.optimal
        assert not fault_of(graph, candidates, second)
        found += 1
    assert found > 5


def test_solutions_unlike_all_before_come_one_by_one_until_there_is_none():
    graph, candidates = chain_of(4, price=lambda number: 1.0 + number)
    segments, used, prices = pieces(graph, 2), [], []
    while True:
        try:
            solution = solve(graph, candidates, segments=segments, unlike=used)
        except SearchError:
            break
        used.append({kernel.candidate.digest for kernel in solution.kernels})
        prices.append(solution.price_us)
    assert len(used) == len({frozenset(digests) for digests in used}) > 1
    assert prices == sorted(prices)


def test_equal_segments_change_alike():
    graph, candidates = chain_of(8)
    segments = pieces(graph, 2, 4, 6)
    used = {kernel.candidate.digest for kernel in solve(graph, candidates, segments=segments).kernels}
    other = solve(graph, candidates, segments=segments, unlike=[used])
    assert [len(chosen.candidate.atoms) for chosen in other.kernels] == [1] * 8


def test_rows_on_all_that_exists_are_refused_in_segments():
    graph, candidates = chain_of(4)
    with pytest.raises(SearchError, match="in segments"):
        solve(graph, candidates, constraints=[MemoryConstraint({}, {}, 1)], segments=pieces(graph, 2))
