"""Races of whole plans: in several processes, as a process may favour one of them."""

import math

import pytest

from autofuse.search.entrants import SITTINGS, Entrant, Races
from autofuse.search.policy import Analytical, Unfused, document_of
from autofuse.testing.benches import SyntheticBench
from autofuse.testing.partitions import context_of, identity_here
from autofuse.testing.sketches import softmax_graph

GRAPH = softmax_graph(64, 64)


class Favouring(SyntheticBench):
    """Every sitting has costs of its own, by number of kernels."""

    costs = ()
    seconds = 0.0
    """That a race takes."""

    def plans(self, plans, terms):
        self.plan_cost = lambda plan: self.costs[terms.sitting][len(plan.kernels)]
        self.now_s += self.seconds
        self.asked.append((terms.sitting, sorted(len(plan.kernels) for plan in plans), terms.seconds))
        return super().plans(plans, terms)


def bench_of(*costs, **options):
    bench = Favouring(GRAPH, **options)
    bench.costs, bench.asked = costs, []
    return bench


def entrants():
    """One kernel, and five."""
    context = context_of(GRAPH)
    chosen = [("five", Unfused().partition(context)), ("one", Analytical().partition(context))]
    return [Entrant(name, partition, document_of(context, partition, identity_here())) for name, partition in chosen]


def decide(bench, **options):
    return Races(bench, 0, bench.clock).decide(entrants(), 8.0, **options)


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_what_most_processes_say_decides(noise):
    bench = bench_of({5: 100.0, 1: 105.0}, {5: 110.0, 1: 105.0}, {5: 110.0, 1: 104.0}, noise=noise)
    ended = decide(bench)
    assert ended.winner.name == "one"
    assert [sitting for sitting, _, _ in bench.asked] == list(range(SITTINGS))
    assert ended.us == pytest.approx(104.0, rel=5 * noise + 1e-9)
    assert ended.times["five"] == pytest.approx(104.0 * 110.0 / 105.0, rel=5 * noise + 1e-9)


def test_a_plan_that_is_far_slower_runs_in_one_process_only():
    bench = bench_of({5: 150.0, 1: 100.0})
    ended = decide(bench)
    assert ended.winner.name == "one"
    assert ended.times["five"] == pytest.approx(150.0)
    assert bench.asked == [(0, [1, 5], 4.0)]


def test_a_plan_that_crashes_in_a_later_process_is_out():
    bench = bench_of({5: 100.0, 1: 105.0}, {5: math.inf, 1: 105.0}, {1: 105.0})
    ended = decide(bench)
    assert ended.winner.name == "one"
    assert bench.asked[-1] == (2, [1], 2.0)


def test_one_process_has_all_the_time_where_others_take_too_long_to_start():
    bench = bench_of({5: 100.0, 1: 105.0}, open_s=2.1)
    assert decide(bench).winner.name == "five"
    assert bench.asked == [(0, [1, 5], 8.0)]
    patient = bench_of(*[{5: 100.0, 1: 105.0}] * SITTINGS, open_s=2.1)
    decide(patient, limited=False)
    assert len(patient.asked) == SITTINGS


@pytest.mark.parametrize(("seconds", "sittings"), [(2.0, 3), (3.0, 2), (5.0, 1)])
def test_there_are_as_many_as_there_is_time_for(seconds, sittings):
    bench = bench_of(*[{5: 100.0, 1: 105.0}] * SITTINGS, open_s=0.5)
    bench.seconds = seconds
    decide(bench)
    assert len(bench.asked) == sittings
