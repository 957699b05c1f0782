"""Partitions next to the cheapest one by sum, found by prices alone."""

import math
from dataclasses import replace

import pytest

from autofuse.search.budget.budget import Budget, Clock
from autofuse.search.policies.analytical import solve_at
from autofuse.search.tune import runnersup
from autofuse.search.tune.runnersup import RunnersUp
from autofuse.testing.sketches import softmax_graph
from tests.fixtures.benches import CountedBench
from tests.fixtures.tuning import counted


@pytest.fixture
def near():
    """Next to partitions whose kernels cost 100 for each of the five operations in them, and 1 more."""
    graph = softmax_graph(64, 64)
    context = counted(graph)
    steps = {"peak", "shifted", "grown", "total", "share"}
    work = {c.digest: len(steps & {node.name for node in c.kernel.nodes}) for c in context.space.candidates}
    prices = {digest: 1.0 + 100.0 * operations for digest, operations in work.items()}
    bench = CountedBench(graph)
    return RunnersUp(context, Clock(Budget(100.0), bench, bench.clock), prices, 0.9)


def cheapest(near):
    return solve_at(near.context, near.context.space, near.prices)


def classes(solution):
    return frozenset(kernel.candidate.digest for kernel in solution.kernels)


def test_each_lacks_a_class_of_every_better_one_and_costs_little_more(near):
    chosen = cheapest(near)
    found = near.beside(chosen)
    assert [words for words, _ in found] == ["choice 2", "choice 3", "choice 4"]
    ranked = [chosen, *(solution for _, solution in found)]
    for number, worse in enumerate(ranked):
        assert all(classes(better) - classes(worse) for better in ranked[:number])
    sums = [solution.price_us for solution in ranked]
    assert sums == sorted(sums)
    assert sums[-1] <= 1.1 * sums[0]


def test_none_is_much_dearer_than_what_was_chosen(near, monkeypatch):
    """Where solving runs out of time, it may find nothing that is as cheap."""
    chosen = cheapest(near)
    far = replace(near, prices={d: us if d in classes(chosen) else 9.0 * us for d, us in near.prices.items()})
    asked = []

    def hasty(context, space, price, deadline_s, unlike=()):
        asked.append(price)
        dear = price if unlike else {d: math.inf if d in classes(chosen) else us for d, us in price.items()}
        return solve_at(context, space, dear, deadline_s, unlike)

    monkeypatch.setattr(runnersup, "solve_at", hasty)
    assert far.beside(chosen) == []
    assert len(asked) == 3


def test_prices_that_the_chosen_one_was_found_at_do_not_count(near):
    """It may have been chosen before anything was measured."""
    chosen = replace(cheapest(near), price_us=1.0)
    assert len(near.beside(chosen)) == 3


def test_none_is_much_dearer_than_what_is_found_where_the_chosen_one_is_dear(near):
    chosen = cheapest(near)
    dear = replace(near, prices={d: 0.01 if d in classes(chosen) else us for d, us in near.prices.items()})
    assert dear.beside(chosen) == []


def test_fewer_kernels_are_found_where_each_costs_a_little_more_than_it_saves(near):
    steps = len(near.context.space.classes)
    prices = {digest: us**1.05 for digest, us in near.prices.items()}
    several = replace(near, prices=prices)
    chosen = cheapest(several)
    assert 1 < len(chosen.kernels) < steps
    assert [len(solution.kernels) for words, solution in several.beside(chosen) if words == "fewer kernels"] == [1]


def test_nothing_is_looked_for_when_the_time_is_over(near, monkeypatch):
    chosen = cheapest(near)
    monkeypatch.setattr(runnersup, "solve_at", None)
    near.clock.bench.wait(90.1)
    assert near.beside(chosen) == []


def test_a_tenth_of_the_time_at_most_is_used(near, monkeypatch):
    chosen, taken = cheapest(near), []

    def slow(context, space, price, deadline_s, unlike=()):
        taken.append(deadline_s)
        near.clock.bench.wait(deadline_s)
        return solve_at(context, space, price, 60.0, unlike)

    monkeypatch.setattr(runnersup, "solve_at", slow)
    near.clock.bench.wait(20.0)
    assert near.beside(chosen)
    assert taken[0] == pytest.approx(3.0)
    assert sum(taken) <= 10.0


def test_no_other_choice_is_looked_for_once_its_time_is_over(near, monkeypatch):
    chosen, taken = cheapest(near), []

    def late(context, space, price, deadline_s, unlike=()):
        taken.append(deadline_s)
        near.clock.bench.wait(5.0 * deadline_s)
        return solve_at(context, space, price, 60.0, unlike)

    monkeypatch.setattr(runnersup, "solve_at", late)
    near.beside(chosen)
    assert len(taken) == 2  # the cheapest of all, and that of fewer kernels
