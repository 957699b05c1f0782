"""Races of whole plans: in several processes, as a process may favour one of them."""

import math
from dataclasses import replace

import pytest

from autofuse.lower.schedule import SPLIT, Schedule
from autofuse.measurement.planraces import PlanTime
from autofuse.search.policies.analytical import Analytical
from autofuse.search.policies.documents import document_of
from autofuse.search.policies.unfused import Unfused
from autofuse.search.tune.finalists import REPLICAS, Finalist, Races
from autofuse.testing.counted.device import BATCH
from autofuse.testing.counted.hidden import noisy
from autofuse.testing.counted.nearworker import DeathError
from autofuse.testing.sketches import softmax_graph
from tests.fixtures.benches import MS, CountedBench
from tests.fixtures.tuning import COUNTED, counted

GRAPH = softmax_graph(64, 64)


class Favouring(CountedBench):
    """Every process has costs of its own, in milliseconds by number of kernels, and time for `most` blocks."""

    def __init__(self, *costs, noise=0.0, seconds=0.0, start_s=0.0, wrong=(), most=()):
        """`seconds`, `start_s`: that a race, and a process, take beside. `wrong`: where every answer is wrong."""
        super().__init__(GRAPH, plan=noisy(lambda plan, ns: MS * self.cost_of(plan), noise))
        self.costs, self.seconds, self.start_s, self.wrong, self.most = costs, seconds, start_s, wrong, dict(most)
        self.open_s = start_s
        self.runs = []
        """Of each race: the process, the plans by number of kernels, and the seconds."""

    def cost_of(self, plan):
        found = self.costs[self.terms[-1].replica][len(plan.kernels)]
        if found == math.inf:
            raise DeathError
        return found

    def plans(self, plans, terms):
        self.wait(self.seconds)
        self.runs.append((terms.replica, sorted(len(plan.kernels) for plan in plans), terms.seconds))
        found = super().plans(plans, replace(terms, blocks=self.most.get(terms.replica, terms.blocks)))
        self.terms[-1] = terms
        self.open_s = self.start_s
        return [PlanTime(time.samples_us, "it is wrong") for time in found] if terms.replica in self.wrong else found


def finalists():
    """One kernel, and five."""
    context = counted(GRAPH)
    chosen = [("five", Unfused().partition(context)), ("one", Analytical().partition(context))]
    return [Finalist(name, partition, document_of(context, partition, COUNTED.identity)) for name, partition in chosen]


def decide(bench, limit_s=8.0):
    return Races(bench, 0, bench.clock).decide(finalists(), 8.0, limit_s)


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_what_most_processes_say_decides(noise):
    bench = Favouring({5: 10.0, 1: 10.5}, {5: 11.0, 1: 10.5}, {5: 11.0, 1: 10.4}, noise=noise)
    ended = decide(bench)
    assert ended.winner.name == "one"
    assert [replica for replica, _, _ in bench.runs] == list(range(REPLICAS))
    assert ended.us == pytest.approx(10_400.0, rel=5 * noise + 1e-9)
    assert ended.times["five"] == pytest.approx(10_400.0 * 11.0 / 10.5, rel=5 * noise + 1e-9)


def test_a_plan_that_is_far_slower_runs_in_one_process_only():
    bench = Favouring({5: 15.0, 1: 10.0})
    ended = decide(bench)
    assert ended.winner.name == "one"
    assert ended.times["five"] == pytest.approx(15_000.0)
    assert bench.runs == [(0, [1, 5], 4.0)]


def test_a_plan_that_crashes_in_a_later_process_is_out():
    bench = Favouring({5: 10.0, 1: 10.5}, {5: math.inf, 1: 10.5}, {1: 10.5})
    ended = decide(bench)
    assert ended.winner.name == "one"
    assert bench.runs[-1] == (2, [1], 2.0)


def test_one_process_has_all_the_time_where_others_take_too_long_to_start():
    bench = Favouring({5: 10.0, 1: 10.5}, start_s=2.1)
    assert decide(bench).winner.name == "five"
    assert bench.runs == [(0, [1, 5], 8.0)]
    patient = Favouring(*[{5: 10.0, 1: 10.5}] * REPLICAS, seconds=5.0, start_s=2.1)
    decide(patient, limit_s=None)
    assert len(patient.runs) == REPLICAS


@pytest.mark.parametrize(("seconds", "replicas"), [(2.0, 3), (3.0, 2), (5.0, 1)])
def test_there_are_as_many_as_there_is_time_for(seconds, replicas):
    bench = Favouring(*[{5: 10.0, 1: 10.5}] * REPLICAS, seconds=seconds, start_s=0.5)
    decide(bench)
    assert len(bench.runs) == replicas


class Several(Favouring):
    """Costs by the way to batch the only kernel."""

    def cost_of(self, plan):
        return self.costs[self.terms[-1].replica][WAYS.index(plan.kernels[0].schedule)]


WAYS = [Schedule.of({BATCH: batch, SPLIT: split}) for batch in (1, 2, 8) for split in (0, 1)]


def several(*costs):
    """A bench, and plans of one kernel, the n-th of which costs the n-th number of a replica's."""
    _, one = finalists()
    ways = [replace(one.plan.kernels[0], schedule=way) for way in WAYS[: len(costs[0])]]
    plans = [replace(one, name=str(n), plan=replace(one.plan, kernels=(way,))) for n, way in enumerate(ways)]
    return Several(*costs), plans


def test_four_run_again_and_among_them_the_one_that_would_be_kept():
    """Of equal ones, the last."""
    bench, plans = several([10.0, 10.01, 10.02, 10.03, 10.04, 15.0], *[[10.1, 10.2, 10.3, 9.0, 10.0, 15.0]] * 2)
    ended = Races(bench, 0, bench.clock).decide(plans, 8.0, 8.0)
    assert [len(plans) for _, plans, _ in bench.runs] == [6, 4, 4]
    assert (ended.winner.name, ended.us) == ("4", 10_000.0)


def test_plans_that_ran_in_one_process_are_compared_with_the_winner_of_all():
    bench, plans = several([15.0, 10.0, 10.5], *[[15.0, 11.0, 10.5]] * 2)
    ended = Races(bench, 0, bench.clock).decide(plans, 8.0, 8.0)
    assert (ended.winner.name, ended.us) == ("2", 10_500.0)
    assert ended.times["0"] == pytest.approx(15_000.0)


def test_later_processes_have_as_many_blocks_and_drop_nobody():
    bench = Favouring(*[{5: 10.0, 1: 10.5}] * REPLICAS, most={0: 12, 1: 9})
    decide(bench)
    assert [terms.blocks for terms in bench.terms[1:]] == [12, 9]
    assert [terms.decides for terms in bench.terms] == [True, False, False]


def test_every_process_counts_the_same():
    bench = Favouring({5: 10.0, 1: 10.5}, *[{5: 11.0, 1: 10.5}] * 2, most={0: 12, 1: 5})
    assert decide(bench).winner.name == "one"


@pytest.mark.parametrize("wrong", [[1], [0, 1, 2]])
def test_where_every_answer_is_wrong_the_first_process_decides(wrong):
    bench = Favouring({5: 10.0, 1: 10.5}, *[{5: 11.0, 1: 10.5}] * 2, wrong=wrong)
    ended = decide(bench)
    assert (ended.winner.name, ended.us) == ("five", 10_000.0)
    assert bool(ended.problem) == (0 in wrong)
    assert len(bench.runs) == 2
