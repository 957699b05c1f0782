"""Second times of kernels, on a bench that is wrong the first time."""

import pytest

from autofuse.search.budget.budget import Budget, Clock
from autofuse.search.tune.kerneltimes import KernelTimes
from autofuse.search.tune.measuringloop import EPSILON
from autofuse.testing.partitions import context_of
from autofuse.testing.sketches import attention_graph, layers_graph
from tests.fixtures.benches import SyntheticBench, modelled, scattered
from tests.fixtures.tuning import PLENTY, small_graphs, tuned

SMALL = small_graphs()


@pytest.mark.parametrize("name", SMALL)
def test_kernels_that_were_disturbed_the_first_time_are_chosen_all_the_same(name):
    graph = SMALL[name]
    cost = scattered(modelled(), 0.5)
    plan = tuned(graph, SyntheticBench(graph, cost))
    disturbed = {kernel.digest for kernel in plan.kernels}
    bench = SyntheticBench(graph, cost, disturbed=disturbed)
    other = tuned(graph, bench)
    assert bench.plan_us(other) <= (1 + EPSILON) * bench.plan_us(plan)
    assert other.certificate.sum_us == pytest.approx(bench.plan_us(other))


def test_kernels_that_fail_the_second_time_are_as_those_that_failed_at_once():
    graph = layers_graph(2, 64, 64)
    cost = scattered(modelled(), 0.5)
    failing = {kernel.digest for kernel in tuned(graph, SyntheticBench(graph, cost)).kernels}
    failing -= {digest for digest, members in context_of(graph).space.classes.items() if len(members[0].atoms) == 1}
    assert failing

    class Failing(SyntheticBench):
        def timed(self, trial):
            self.failing = failing if trial.again else ()
            return super().timed(trial)

    bench = Failing(graph, cost)
    late, early = tuned(graph, bench), tuned(graph, SyntheticBench(graph, cost, failing=failing))
    assert {digest for digest, _ in bench.counts.failing} == failing
    assert not {kernel.digest for kernel in late.kernels} & failing
    assert bench.plan_us(late) <= (1 + EPSILON) * bench.plan_us(early)


def test_a_bad_moment_the_second_time_leaves_the_first_time():
    bench = SyntheticBench(SMALL["attention"], scattered(modelled(), 0.5), failure="timeout")
    times, space = times_of(bench)
    times.measure(space.candidates, 1.0)
    before = dict(times.us)
    bench.failing = frozenset(before)
    assert times.measure_again(space) is False
    assert times.us == before


class Listening(SyntheticBench):
    """Remembers what was asked for."""

    def kernels(self, trials, go_on=lambda: True):
        self.asked = [trial.digest for trial in trials]
        return super().kernels(trials, go_on)


def test_those_that_are_slow_for_what_the_model_says_come_first():
    bench = Listening(SMALL["attention"], scattered(modelled(), 0.5))
    times, space = times_of(bench)
    times.measure(space.candidates, 1.0)
    assert times.measure_again(space) is False
    slowness = [times.us[digest] / times.prices()[digest].predicted_us for digest in bench.asked]
    assert len(slowness) == len(space.classes)
    assert slowness == sorted(slowness, reverse=True)
    assert times.measure_again(space) is False
    assert bench.asked == []


def test_second_times_share_one_part_of_the_time():
    bench = Listening(SMALL["attention"], step_s=1.0)
    times, space = times_of(bench, Budget(100.0))
    few, many = space.candidates[:4], space.candidates
    times.measure(few, 1.0)
    times.measure_again(space)
    times.measure(many, 1.0)
    times.measure_again(space)
    assert len(bench.again) == 5


def times_of(bench, budget=PLENTY):
    context = context_of(bench.graph)
    return KernelTimes(context, bench, Clock(budget, bench, bench.clock)), context.space


def test_second_times_are_no_measurements_and_take_a_share_of_the_time():
    graph = attention_graph(64, 32)
    counts = {}
    for seconds in (1e9, 400.0, 10.0):
        bench = SyntheticBench(graph, step_s=10.0)
        plan = tuned(graph, bench, budget=Budget(seconds, 20))
        certificate = plan.certificate
        assert bench.counts.measured <= 20
        assert set(bench.again) <= set(bench.records)
        counts[seconds] = len(bench.again), certificate.measured
        told = [note for note in plan.notes if "timed once, not twice" in note]
        assert bool(told) == (len(bench.again) < certificate.measured)
    assert counts[1e9][0] == counts[1e9][1]  # all of them
    assert counts[400.0][0] < counts[400.0][1]
    assert counts[10.0][0] <= 1
