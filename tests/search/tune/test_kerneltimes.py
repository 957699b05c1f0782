"""Second times of kernels, where the first ones were disturbed."""

import pytest

from autofuse.lower.schedule import Schedule
from autofuse.search.budget.budget import Budget, Clock
from autofuse.search.space.classes import class_digest
from autofuse.search.tune.kerneltimes import KernelTimes
from autofuse.search.tune.measuringloop import EPSILON
from autofuse.testing.counted.hidden import scattered
from autofuse.testing.sketches import attention_graph
from tests.fixtures.benches import MS, CountedBench, failing
from tests.fixtures.tuning import PLENTY, counted, small_graphs, tuned

SMALL = small_graphs()


@pytest.mark.parametrize("name", ["softmax", "diamond", "random 0", "random 1"])
def test_kernels_that_were_disturbed_the_first_time_are_chosen_all_the_same(name):
    graph = SMALL[name]
    cost = scattered(0.5)
    usual = CountedBench(graph, cost)
    plan = tuned(graph, usual)
    disturbed = {kernel.digest for kernel in plan.kernels}
    bench = Disturbed(graph, cost, disturbed)
    other = tuned(graph, bench)
    assert usual.plan_us(other) <= (1 + EPSILON) * usual.plan_us(plan)
    assert other.certificate.sum_us == pytest.approx(usual.plan_us(other))


@pytest.mark.slow
def test_kernels_that_fail_the_second_time_are_as_those_that_failed_at_once():
    graph = SMALL["attention"]
    cost = scattered(0.5)
    usual = CountedBench(graph, cost)
    bad = {kernel.digest for kernel in tuned(graph, usual).kernels}
    bad -= {digest for digest, members in counted(graph).space.classes.items() if len(members[0].atoms) == 1}
    assert bad
    bench = Disturbed(graph, cost, bad, failing(bad, cost=cost))
    late, early = tuned(graph, bench), tuned(graph, CountedBench(graph, failing(bad, cost=cost)))
    assert {digest for digest, _ in bench.counts.failing} == bad
    assert not {kernel.digest for kernel in late.kernels} & bad
    assert usual.plan_us(late) <= (1 + EPSILON) * usual.plan_us(early)


class Disturbed(CountedBench):
    """Some kernels' first times are other ones than their second times."""

    def __init__(self, graph, cost, digests, later=None):
        """`later`: the cost from the second times on; by default as usual, and the first ones are three times that."""
        super().__init__(graph, lambda *call: self.cost(*call))  # noqa: PLW0108  # which changes
        self.cost = self.usual = cost
        self.digests, self.later = digests, later

    def kernels(self, trials, go_on=lambda: True):
        self.cost = self.usual
        if any(trial.again for trial in trials):
            self.cost = self.later or self.usual
        elif self.later is None:
            self.cost = self.slow
        found = super().kernels(trials, go_on)
        self.cost = self.usual
        return found

    def slow(self, kernel, schedule, ns):
        disturbed = schedule == Schedule() and class_digest(kernel) in self.digests
        return self.usual(kernel, schedule, ns) * (3.0 if disturbed else 1.0)


@pytest.mark.slow
def test_a_bad_moment_the_second_time_leaves_the_first_time():
    cost = scattered(0.5)
    bench = Disturbed(SMALL["attention"], cost, (), failing(None, "timeout", cost))
    times, space = times_of(bench)
    times.measure(space.candidates, 1.0)
    before = dict(times.us)
    assert times.measure_again(space) is False
    assert times.us == before
    assert len(bench.again) == len(before)


def test_those_that_are_slow_for_what_the_model_says_come_first():
    bench = CountedBench(SMALL["attention"], scattered(0.5))
    times, space = times_of(bench)
    times.measure(space.candidates, 1.0)
    assert times.measure_again(space) is False
    slowness = [times.us[trial.digest] / times.prices()[trial.digest].predicted_us for trial in bench.asked[-1]]
    assert len(slowness) == len(space.classes)
    assert slowness == sorted(slowness, reverse=True)
    assert times.measure_again(space) is False
    assert bench.asked[-1] == []


def test_second_times_share_one_part_of_the_time():
    bench = CountedBench(SMALL["attention"], lambda kernel, schedule, ns: 25 * MS)
    times, space = times_of(bench, Budget(120.0))
    few, many = space.candidates[:4], space.candidates
    times.measure(few, 1.0)
    times.measure_again(space)
    times.measure(many, 1.0)
    times.measure_again(space)
    assert 4 < len(bench.again) < len(space.classes)


def times_of(bench, budget=PLENTY):
    context = counted(bench.graph)
    return KernelTimes(context, bench, Clock(budget, bench, bench.clock)), context.space


def test_second_times_are_no_measurements_and_take_a_share_of_the_time():
    graph = attention_graph(64, 32)
    counts = {}
    for seconds in (1e9, 3.0, 0.01):
        bench = CountedBench(graph, lambda kernel, schedule, ns: 10 * MS)
        plan = tuned(graph, bench, budget=Budget(seconds, 20))
        certificate = plan.certificate
        assert bench.counts.measured <= 20
        assert set(bench.again) <= set(bench.records)
        counts[seconds] = len(bench.again), certificate.measured
        told = [note for note in plan.notes if "timed once, not twice" in note]
        assert bool(told) == (len(bench.again) < certificate.measured)
    assert counts[1e9][0] == counts[1e9][1]  # all of them
    assert counts[3.0][0] < counts[3.0][1]
    assert counts[0.01][0] <= 1
