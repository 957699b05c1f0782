"""Candidates that two smaller ones replace for no more."""

import math

import pytest

from autofuse.search.prices.priced import Priced
from autofuse.search.solve.dominance import undominated
from autofuse.search.solve.solver import solve
from tests.fixtures.covers import brute_force, candidate_of, chain_of, graph_of, priced, random_case, real_case


def left(graph, candidates):
    """The sets of atom numbers that are left."""
    return [sorted(atom.number for atom in p.candidate.atoms) for p in undominated(graph, candidates)]


def check_that_nothing_is_lost(case, name):
    graph, candidates = case
    kept = undominated(graph, candidates)
    assert {id(p) for p in kept} <= {id(p) for p in candidates}
    expected, found = brute_force(graph, candidates), brute_force(graph, kept)
    if expected is None:
        assert found is None, name
    else:
        assert found == pytest.approx(expected, rel=1e-12), name
    return len(candidates) - len(kept)


@pytest.mark.parametrize("block", range(5))
def test_the_cheapest_cover_of_those_left_is_as_cheap(block):
    cases = {seed: random_case(seed) for seed in range(3000 + block * 50, 3050 + block * 50)}
    assert sum(check_that_nothing_is_lost(case, f"seed {seed}") for seed, case in cases.items()) > 20


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_the_cheapest_cover_of_those_left_is_as_cheap_in_thousands_of_cases(block):
    for seed in range(20_000 + block * 300, 20_300 + block * 300):
        check_that_nothing_is_lost(random_case(seed, most=9), f"seed {seed}")


def test_the_same_among_the_kernels_of_the_search():
    cases = {seed: case for seed in range(40, 60) if (case := real_case(seed)) is not None}
    assert sum(check_that_nothing_is_lost(case, f"seed {seed}") for seed, case in cases.items()) > 5


def test_a_kernel_that_its_halves_undercut_is_left_out():
    graph, candidates = chain_of(3)
    dear = priced(graph, {0, 1, 2}, 2.5)  # {0, 1} and {2} take 1.5 + 1
    assert left(graph, [*candidates, dear]) == [[0], [1], [2], [0, 1], [1, 2]]
    assert left(graph, [*candidates, priced(graph, {0, 1, 2}, 2.4)])[-1] == [0, 1, 2]
    assert solve(graph, [*candidates, dear]).price_us == pytest.approx(2.5)


def test_a_half_may_be_dominated_itself():
    graph = graph_of([[-1], [0], [1]], [2])
    single = [priced(graph, {n}, 1.0) for n in range(3)]
    assert left(graph, [*single, priced(graph, {0, 1}, 2.0), priced(graph, {0, 1, 2}, 3.0)]) == [[0], [1], [2]]


def test_what_one_half_writes_for_the_other_is_paid():
    graph = graph_of([[-1], [0], [1], [1]], [2, 3])
    first = priced(graph, {0, 1}, 1.0, {1: 0.5})
    second = priced(graph, {2, 3}, 1.0)
    assert left(graph, [first, second, priced(graph, {0, 1, 2, 3}, 2.4)])[-1] == [0, 1, 2, 3]
    assert left(graph, [first, second, priced(graph, {0, 1, 2, 3}, 2.5)]) == [[0, 1], [2, 3]]


def test_outputs_that_the_whole_writes_for_less_count_against_the_halves():
    graph = graph_of([[-1], [0], [0], [0]], [1, 2, 3])

    def halves(write_us):
        return [priced(graph, {0, 1}, 1.0, {0: write_us}), priced(graph, {2}, 1.0)]

    def whole(write_us):
        return priced(graph, {0, 1, 2}, 2.5, {0: write_us})

    # v0 is read by {2}, so that one half has to write it; the whole need not
    assert left(graph, [*halves(0.5), whole(0.0)]) == [[0, 1], [2]]
    assert left(graph, [*halves(0.6), whole(0.6)])[-1] == [0, 1, 2]


@pytest.mark.parametrize("reads", [[-1], [0]])
def test_what_neither_half_writes_makes_the_whole_irreplaceable(reads):
    """v0 is needed of the whole; or by the other half, if that reads it."""
    graph = graph_of([[-1], [0], reads], [1, 2] if reads == [0] else [0, 1, 2])
    second, whole = priced(graph, {2}, 1.0), priced(graph, {0, 1, 2}, 9.0)
    both = priced(graph, {0, 1}, 1.0)
    assert [value.name for value in both.candidate.outputs] == ["v0", "v1"]
    silent = Priced(candidate_of(graph, {0, 1}, both.candidate.outputs[1:]), 0.5, {})
    assert left(graph, [silent, second, whole])[-1] == [0, 1, 2]
    assert left(graph, [silent, both, second, whole]) == [[0, 1], [0, 1], [2]]


def test_a_kernel_that_waits_for_another_is_replaced_too():
    """{0, 2} computes v0 for itself, and waits for v1, which is made of it elsewhere."""
    graph = graph_of([[-1], [0], [0, 1]], [2])
    wanted = graph.atoms[2].nodes[0].output
    waiting = Priced(candidate_of(graph, {0, 2}, (wanted,)), 2.0, {})
    single = [priced(graph, {n}, 1.0) for n in range(3)]
    assert left(graph, [*single, waiting]) == [[0], [1], [2]]
    cheaper = Priced(waiting.candidate, 1.5, {})
    assert left(graph, [*single, cheaper])[-1] == [0, 2]
    silent = Priced(candidate_of(graph, {0, 1}, graph.writes[graph.atoms[1]]), 1.2, {})
    assert solve(graph, [*single, silent, cheaper]).price_us == pytest.approx(2.7)


def test_equal_prices_are_equal_however_the_sum_is_rounded():
    graph = graph_of([[-1], [-1], [-1], [0, 1], [2, 3]], [4])
    makers = priced(graph, {0, 1, 2}, 0.1, {0: 0.1, 1: 0.7, 2: 0.2})
    reader = priced(graph, {3, 4}, 0.3)
    price = math.fsum((0.1, 0.3, 0.1, 0.7, 0.2))
    assert left(graph, [makers, reader, priced(graph, range(5), price)]) == [[0, 1, 2], [3, 4]]
    assert len(left(graph, [makers, reader, priced(graph, range(5), math.nextafter(price, 0.0))])) == 3


def test_halves_that_need_one_another_replace_nothing():
    graph = graph_of([[-1], [0], [1], [2]], [3])
    candidates = [priced(graph, {0, 2}, 1.0), priced(graph, {1, 3}, 1.0), priced(graph, {0, 1, 2, 3}, 9.0)]
    assert len(undominated(graph, candidates)) == 3


def test_with_classes_ruled_out_dominated_kernels_compete():
    graph, candidates = chain_of(2)
    dear = priced(graph, {0, 1}, 5.0)
    single = candidates[:2]
    assert solve(graph, [*single, dear]).price_us == pytest.approx(2.0)
    assert solve(graph, [*single, dear], unlike=[{"[0]"}]).price_us == pytest.approx(5.0)
