"""Second times of kernels, on a bench that is wrong the first time."""

import pytest

from autofuse.search.budget import Budget
from autofuse.search.tuner import EPSILON
from autofuse.testing.benches import SyntheticBench, modelled, scattered
from autofuse.testing.partitions import context_of
from autofuse.testing.sketches import attention_graph, layers_graph
from autofuse.testing.tuning import small_graphs, tuned

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


def test_second_times_are_no_measurements_and_take_a_share_of_the_time():
    graph = attention_graph(64, 32)
    counts = {}
    for seconds in (1e9, 400.0, 10.0):
        bench = SyntheticBench(graph, step_s=10.0)
        certificate = tuned(graph, bench, budget=Budget(seconds, 20)).certificate
        assert bench.counts.measured <= 20
        assert set(bench.again) <= set(bench.records)
        counts[seconds] = len(bench.again), certificate.measured
    assert counts[1e9][0] == counts[1e9][1]  # all of them
    assert counts[400.0][0] < counts[400.0][1]
    assert counts[10.0][0] <= 1
