"""Budgets: shares of the time."""

import math
from dataclasses import replace

import pytest

from autofuse.search import runnersup, tuner
from autofuse.search.budget import Budget, Clock
from autofuse.search.policy import Analytical, solve_at
from autofuse.testing.benches import SyntheticBench, modelled, scattered
from autofuse.testing.sketches import attention_graph, softmax_graph
from autofuse.testing.tuning import tuned, tuner_of


def test_whole_plans_are_raced_for_a_share_of_the_time():
    assert Budget(100.0).race_s(0.1) == pytest.approx(10.0)
    assert Budget(20.0).race_s(0.01) == 1.0
    assert Budget(2.0).race_s(0.05) == pytest.approx(0.2)  # a second would be half of it
    assert Budget(math.inf, 5).race_s(0.1) == Budget().race_s(0.1) == pytest.approx(6.0)


def test_enumeration_has_a_quarter_of_the_time():
    assert Budget(100.0).enumeration_s == pytest.approx(25.0)
    assert Budget(16.0).enumeration_s == 5.0
    assert Budget(2.0).enumeration_s == 1.0
    assert Budget(math.inf, 5).enumeration_s == math.inf


def test_what_enumeration_takes_is_taken_from_all_that_follows():
    class Slow(SyntheticBench):
        def clock(self):
            self.now_s += 20.0
            return self.now_s

    graph = softmax_graph()
    clock = tuner_of(graph, Slow(graph), Budget(100.0))._clock
    ending = 10.0 + 5.0 + 3.0  # races, the winner once more, and building plans
    assert tuner._SCHEDULE_SHARE * clock.budget.seconds + ending == pytest.approx(80.0)
    assert clock.used() == pytest.approx(20.0 / clock.budget.seconds)


def test_the_longer_solving_has_taken_the_shorter_is_the_next_solve():
    bench = SyntheticBench(softmax_graph())
    clock = Clock(Budget(100.0), bench, lambda: bench.now_s)
    assert clock.solve_s(60.0, 0.5, 0.1) == pytest.approx(5.0)
    assert clock.solve_s(4.0, 0.5, 0.1) == 4.0
    bench.now_s += 30.0
    assert clock.solve_s(60.0, 0.5, 0.1) == pytest.approx(2.0)
    bench.now_s += 40.0
    assert clock.solve_s(60.0, 0.5, 0.1) == 1.0
    assert Clock(Budget(math.inf, 5), bench, lambda: bench.now_s).solve_s(60.0, 0.5, 0.1) == 60.0


def test_solves_that_take_all_their_time_leave_enough_for_schedules(monkeypatch):
    graph = attention_graph(64, 32)
    bench = SyntheticBench(graph, scattered(modelled(), 0.5))
    taken = []

    def slow(context, space, price, deadline_s=None, unlike=()):
        taken.append(context.deadline_s if deadline_s is None else deadline_s)
        bench.now_s += taken[-1]
        return solve_at(context, space, price, 60.0, unlike)

    monkeypatch.setattr(tuner, "solve_at", slow)
    monkeypatch.setattr(runnersup, "solve_at", slow)
    plan = tuned(graph, bench, budget=Budget(100.0))
    assert len(taken) > 5
    assert max(taken) <= 7.5  # 15 % of the first half of the time
    assert sum(taken) < 65.0
    assert plan.certificate.schedules_tried > 0


def test_what_a_solve_without_time_found_is_measured_only_if_it_is_better(monkeypatch):
    graph = attention_graph(64, 32)
    tune = tuner_of(graph, SyntheticBench(graph, scattered(modelled(), 0.5)))
    unknown = set()

    def hasty(self, space, k):
        prices = {digest: 1.0 if digest in self._times.us else 1e-3 for digest in self._times.prices()}
        found = solve_at(self.context, space, prices)
        unknown.update(kernel.candidate.digest for kernel in found.kernels)
        return replace(found, price_us=1e9, bound_us=0.0, optimal=False)

    monkeypatch.setattr(tuner.Tuner, "_solve", hasty)
    before = tune._measure_until_certain([Analytical().partition(tune.context)])
    assert unknown - tune._times.us.keys()
    assert tune._rounds == 1
    assert before.solution.optimal
    assert tune._proved is None


def test_what_was_spent_before_is_part_of_what_was_asked_for():
    left = Budget(60.0).without(1.5).without(0.5)
    assert left.seconds == pytest.approx(58.0)
    assert left.words == "60 s"


def test_the_search_ends_when_what_comes_after_it_must_begin():
    budget = Budget(60.0)
    searching = budget.before_the_end(9.0, 0.9)
    assert 0.9 * searching.seconds + 9.0 == pytest.approx(60.0)
    assert budget.before_the_end(1.0, 0.9) == budget  # what is left of the share is enough
    assert budget.before_the_end(100.0, 0.9).seconds > 0
