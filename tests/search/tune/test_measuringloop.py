"""How much the measuring loop measures: little where times are as the model expects, more where they are not."""

import math

from autofuse.search.budget.budget import Budget, Clock
from autofuse.search.policies.analytical import Analytical
from autofuse.search.policies.unfused import Unfused
from autofuse.search.tune import kerneltimes
from autofuse.search.tune.kerneltimes import KernelTimes
from autofuse.testing.counted.hidden import scattered
from autofuse.testing.sketches import attention_graph
from tests.fixtures.benches import CountedBench, failing
from tests.fixtures.tuning import PLENTY, counted, tuner_of

GRAPH = attention_graph(64, 32)


def looped(bench):
    """Run the loop alone: the partition that it ends with, and the loop."""
    tune = tuner_of(GRAPH, bench)
    return tune._loop.run([policy.partition(tune.context) for policy in (Unfused(), Analytical())]), tune._loop


def test_where_times_are_as_expected_less_is_measured_for_the_same_partition(monkeypatch):
    bench = CountedBench(GRAPH)  # kernels take what the model says
    found, loop = looped(bench)
    monkeypatch.setattr(kerneltimes, "_FORESEEN", 2.0)  # nothing is as expected
    other, wide = looped(CountedBench(GRAPH))
    assert found.price_us == other.price_us
    assert {kernel.candidate.digest for kernel in found.kernels} <= loop.times.us.keys()
    assert len(loop.times.us) < len(wide.times.us)


def test_where_times_are_not_kernels_of_baselines_and_single_atoms_are_measured_too():
    bench = CountedBench(GRAPH, scattered(2.0))
    _, loop = looped(bench)
    single = {digest for digest, members in loop.context.space.classes.items() if len(members[0].atoms) == 1}
    assert not loop.times.are_as_expected
    assert single <= loop.times.us.keys()


def test_from_then_on_more_is_measured_and_the_bound_is_trusted_as_before():
    _, calm = looped(CountedBench(GRAPH))
    _, wary = looped(CountedBench(GRAPH, scattered(2.0)))
    assert (calm._looked, wary._looked) == (False, True)
    assert calm._epsilon < wary._epsilon


def test_a_kernel_that_fails_is_not_as_expected():
    context = counted(GRAPH)
    (first, *_) = context.space.candidates
    bench = CountedBench(GRAPH, failing({first.digest}))
    times = KernelTimes(context, bench, Clock(Budget(PLENTY.seconds), bench, bench.clock))
    assert times.are_as_expected
    times.measure([first], 1.0)
    assert times.us == {first.digest: math.inf}
    assert not times.are_as_expected
