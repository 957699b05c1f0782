"""Budgets: shares of the time."""

import math
from dataclasses import replace

import pytest

from autofuse.search.budget import ending
from autofuse.search.budget.budget import Budget, Clock
from autofuse.search.policies import pricedkernels
from autofuse.search.policies.analytical import Analytical, solve_at
from autofuse.search.prices import pricing
from autofuse.search.tune import measuringloop, runnersup
from autofuse.search.tune.kerneltimes import KernelTimes
from autofuse.testing.counted.hidden import scattered
from autofuse.testing.sketches import attention_graph, softmax_graph
from tests.fixtures.benches import MS, CountedBench
from tests.fixtures.tuning import counted, tuned, tuner_of


def test_whole_plans_are_raced_for_a_share_of_the_time():
    assert Budget(100.0).race_s(0.1) == pytest.approx(10.0)
    assert Budget(20.0).race_s(0.01) == 1.0
    assert Budget(2.0).race_s(0.05) == pytest.approx(0.2)  # a second would be half of it
    assert Budget(math.inf, 5).race_s(0.1) == Budget().race_s(0.1) == pytest.approx(6.0)


def test_enumeration_has_a_quarter_of_the_time():
    assert Budget(100.0).enumeration_s == pytest.approx(25.0)
    assert Budget(16.0).enumeration_s == 5.0
    assert Budget(2.0).enumeration_s == pytest.approx(0.7)
    assert Budget(math.inf, 5).enumeration_s == math.inf


def test_what_enumeration_takes_is_taken_from_all_that_follows(monkeypatch):
    graph = softmax_graph()
    bench, real = CountedBench(graph), pricedkernels.enumerated

    def slow(*asked):
        bench.wait(20.0)
        return real(*asked)

    monkeypatch.setattr(pricedkernels, "enumerated", slow)
    clock = tuner_of(graph, bench, Budget(100.0))._clock
    kept = 10.0 + 5.0 + 3.0  # races, the winner once more, and building plans
    assert ending.SCHEDULE_SHARE * clock.budget.seconds + kept == pytest.approx(80.0)


def test_a_kernel_is_timed_if_that_ends_in_time():
    bench = CountedBench(softmax_graph(8, 8), lambda kernel, schedule, ns: 200 * MS)
    clock = Clock(Budget(100.0), bench, bench.clock)
    KernelTimes(counted(bench.graph), bench, clock).measure(counted(bench.graph).space.candidates[:1], 1.0)
    assert 2.0 < bench.ahead_s < 8.0
    bench.wait(50.0 - bench.ahead_s - bench.clock() - 1.0)
    assert clock.kernel_left(0.5)
    assert not clock.kernel_left(0.5, 2.0)
    bench.wait(2.0)
    assert not clock.kernel_left(0.5)
    assert clock.share_left(0.5)


def test_kernels_that_there_is_no_time_to_price_are_left_out_with_a_note(monkeypatch):
    graph = attention_graph(64, 32)
    monkeypatch.setattr(pricing, "_BATCH", 8)
    monkeypatch.setattr(Budget, "pricing_s", -1.0)
    plan = tuned(graph, CountedBench(graph, scattered(0.5)), budget=Budget(100.0))
    (note,) = [note for note in plan.notes if "no time to price them" in note]
    assert int(note.split()[0]) > 0
    assert plan.certificate.measured > 0


def test_a_plan_says_where_the_time_went():
    graph = softmax_graph(64, 64)
    plan = tuned(graph, CountedBench(graph), budget=Budget(100.0, spent_s=0.75))
    assert plan.certificate.spent.startswith("0.8 s imports and tracing, 0.0 s finding kernels, ")
    assert "0.0 s measuring kernels" not in plan.certificate.spent
    endless = tuned(graph, CountedBench(graph), budget=Budget(math.inf, 20))
    assert endless.certificate.spent is None


def test_plans_that_were_not_run_are_named():
    """There is time for the last plan of a race only."""
    graph = attention_graph(64, 32)
    plan = tuned(graph, CountedBench(graph, scattered(0.5), lambda plan, ns: 3000 * MS), budget=Budget(100.0))
    (note,) = [note for note in plan.notes if "there was time to run" in note]
    assert "end to end; not run: unfused, " in note
    assert plan.certificate.unfused_us is None
    assert plan.certificate.e2e_us > 0


def test_a_budget_that_is_too_small_to_measure_is_said_to_be():
    graph = attention_graph(64, 32)
    bench = CountedBench(graph)
    bench._kernel_s = 60.0  # as the one before took
    plan = tuned(graph, bench, budget=Budget(1.0))
    assert any(note.startswith("no kernel was measured before the last race") for note in plan.notes)
    assert plan.certificate.measured == 0


def test_the_longer_solving_has_taken_the_shorter_is_the_next_solve():
    bench = CountedBench(softmax_graph())
    clock = Clock(Budget(100.0), bench, bench.clock)
    assert clock.solve_s(60.0, 0.5, 0.1) == pytest.approx(5.0)
    assert clock.solve_s(4.0, 0.5, 0.1) == 4.0
    bench.wait(30.0)
    assert clock.solve_s(60.0, 0.5, 0.1) == pytest.approx(2.0)
    bench.wait(40.0)
    assert clock.solve_s(60.0, 0.5, 0.1) == 1.0
    assert Clock(Budget(math.inf, 5), bench, bench.clock).solve_s(60.0, 0.5, 0.1) == 60.0


def test_solves_that_take_all_their_time_leave_enough_for_schedules(monkeypatch):
    graph = attention_graph(64, 32)
    bench = CountedBench(graph, scattered(0.5))
    taken = []

    def slow(context, space, price, deadline_s=None, unlike=()):
        taken.append(context.deadline_s if deadline_s is None else deadline_s)
        bench.wait(taken[-1])
        return solve_at(context, space, price, 60.0, unlike)

    monkeypatch.setattr(measuringloop, "solve_at", slow)
    monkeypatch.setattr(runnersup, "solve_at", slow)
    plan = tuned(graph, bench, budget=Budget(100.0))
    assert len(taken) > 5
    assert max(taken) <= 7.5  # 15 % of the first half of the time
    assert sum(taken) < 65.0
    assert plan.certificate.schedules_tried > 0


def test_what_a_solve_without_time_found_is_measured_only_if_it_is_better(monkeypatch):
    graph = attention_graph(64, 32)
    tune = tuner_of(graph, CountedBench(graph, scattered(0.5)))
    unknown = set()

    def hasty(loop, k):
        prices = {digest: 1.0 if digest in loop.times.us else 1e-3 for digest in loop.times.prices()}
        found = solve_at(loop.context, loop.context.space, prices)
        unknown.update(kernel.candidate.digest for kernel in found.kernels)
        return replace(found, price_us=1e9, bound_us=0.0, optimal=False)

    monkeypatch.setattr(measuringloop.MeasuringLoop, "solve", hasty)
    before = tune._loop.run([Analytical().partition(tune.context)])
    assert unknown - tune._times.us.keys()
    assert tune._loop.rounds == 1
    assert before.solution.optimal
    assert tune._loop.proved is None


def test_what_was_spent_before_is_part_of_what_was_asked_for():
    left = Budget(60.0).without(1.5).without(0.5)
    assert left.seconds == pytest.approx(58.0)
    assert left.label == "60 s"


def test_the_search_ends_when_what_comes_after_it_must_begin():
    budget = Budget(60.0)
    searching = budget.before_the_end(9.0, 0.9)
    assert 0.9 * searching.seconds + 9.0 == pytest.approx(60.0)
    assert budget.before_the_end(1.0, 0.9) == budget  # what is left of the share is enough
    assert budget.before_the_end(100.0, 0.9).seconds > 0
