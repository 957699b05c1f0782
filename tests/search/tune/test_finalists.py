"""Races of whole plans: in several processes, as a process may favour one of them."""

import math
from dataclasses import replace

import pytest

from autofuse.measurement.planraces import PlanTime
from autofuse.search.policies.analytical import Analytical
from autofuse.search.policies.documents import document_of
from autofuse.search.policies.unfused import Unfused
from autofuse.search.tune.finalists import REPLICAS, Finalist, Races
from autofuse.targets.cpu.decisions import UNROLL, cpu_schedule
from autofuse.testing.partitions import context_of, identity_here
from autofuse.testing.sketches import softmax_graph
from tests.fixtures.benches import SyntheticBench

GRAPH = softmax_graph(64, 64)


class Favouring(SyntheticBench):
    """Every replica has costs of its own, by number of kernels, and time for `most` blocks."""

    costs = ()
    seconds = 0.0
    """That a race takes."""
    wrong = ()
    """Replicas in which every answer is wrong."""

    def plans(self, plans, terms):
        self.plan_cost = lambda plan: self.costs[terms.replica][len(plan.kernels)]
        self.now_s += self.seconds
        self.asked.append((terms.replica, sorted(len(plan.kernels) for plan in plans), terms.seconds))
        self.terms.append(terms)
        found = super().plans(plans, replace(terms, blocks=self.most.get(terms.replica, terms.blocks)))
        return [PlanTime(time.samples_us, "it is wrong") for time in found] if terms.replica in self.wrong else found


def bench_of(*costs, **options):
    bench = Favouring(GRAPH, **options)
    bench.costs, bench.asked, bench.terms, bench.most = costs, [], [], {}
    return bench


def finalists():
    """One kernel, and five."""
    context = context_of(GRAPH)
    chosen = [("five", Unfused().partition(context)), ("one", Analytical().partition(context))]
    return [Finalist(name, partition, document_of(context, partition, identity_here())) for name, partition in chosen]


def decide(bench, limit_s=8.0):
    return Races(bench, 0, bench.clock).decide(finalists(), 8.0, limit_s)


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_what_most_processes_say_decides(noise):
    bench = bench_of({5: 100.0, 1: 105.0}, {5: 110.0, 1: 105.0}, {5: 110.0, 1: 104.0}, noise=noise)
    ended = decide(bench)
    assert ended.winner.name == "one"
    assert [replica for replica, _, _ in bench.asked] == list(range(REPLICAS))
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
    patient = bench_of(*[{5: 100.0, 1: 105.0}] * REPLICAS, open_s=2.1)
    patient.seconds = 5.0
    decide(patient, limit_s=None)
    assert len(patient.asked) == REPLICAS


@pytest.mark.parametrize(("seconds", "replicas"), [(2.0, 3), (3.0, 2), (5.0, 1)])
def test_there_are_as_many_as_there_is_time_for(seconds, replicas):
    bench = bench_of(*[{5: 100.0, 1: 105.0}] * REPLICAS, open_s=0.5)
    bench.seconds = seconds
    decide(bench)
    assert len(bench.asked) == replicas


class Several(Favouring):
    """Costs by the way to unroll the only kernel."""

    def plan_us(self, plan):
        return self.costs[self.terms[-1].replica][plan.kernels[0].schedule[UNROLL] - 1]


def several(*costs):
    """A bench, and plans of one kernel, the n-th of which costs the n-th number of a replica's."""
    bench = Several(GRAPH)
    bench.costs, bench.asked, bench.terms, bench.most = costs, [], [], {}
    _, one = finalists()
    ways = [replace(one.plan.kernels[0], schedule=cpu_schedule(unroll=1 + way)) for way in range(len(costs[0]))]
    plans = [replace(one, name=str(n), plan=replace(one.plan, kernels=(way,))) for n, way in enumerate(ways)]
    return bench, plans


def test_four_run_again_and_among_them_the_one_that_would_be_kept():
    """Of equal ones, the last."""
    bench, plans = several([100.0, 100.1, 100.2, 100.3, 100.4, 150.0], *[[101.0, 102.0, 103.0, 90.0, 100.0, 150.0]] * 2)
    ended = Races(bench, 0, bench.clock).decide(plans, 8.0, 8.0)
    assert [len(plans) for _, plans, _ in bench.asked] == [6, 4, 4]
    assert (ended.winner.name, ended.us) == ("4", 100.0)


def test_plans_that_ran_in_one_process_are_compared_with_the_winner_of_all():
    bench, plans = several([150.0, 100.0, 105.0], *[[150.0, 110.0, 105.0]] * 2)
    ended = Races(bench, 0, bench.clock).decide(plans, 8.0, 8.0)
    assert (ended.winner.name, ended.us) == ("2", 105.0)
    assert ended.times["0"] == pytest.approx(150.0)


def test_later_processes_have_as_many_blocks_and_drop_nobody():
    bench = bench_of(*[{5: 100.0, 1: 105.0}] * REPLICAS)
    bench.most = {0: 20, 1: 9}
    decide(bench)
    assert [terms.blocks for terms in bench.terms[1:]] == [20, 9]
    assert [terms.decides for terms in bench.terms] == [True, False, False]


def test_every_process_counts_the_same():
    bench = bench_of({5: 100.0, 1: 105.0}, *[{5: 110.0, 1: 105.0}] * 2)
    bench.most = {0: 20, 1: 5}
    assert decide(bench).winner.name == "one"


@pytest.mark.parametrize("wrong", [[1], [0, 1, 2]])
def test_where_every_answer_is_wrong_the_first_process_decides(wrong):
    bench = bench_of({5: 100.0, 1: 105.0}, *[{5: 110.0, 1: 105.0}] * 2)
    bench.wrong = wrong
    ended = decide(bench)
    assert (ended.winner.name, ended.us) == ("five", 100.0)
    assert bool(ended.problem) == (0 in wrong)
    assert len(bench.asked) == 2
