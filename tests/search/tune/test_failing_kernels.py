"""The measuring loop where kernels fail, and where solving finds nothing."""

import math

import pytest

from autofuse.errors import MeasureError, SearchError
from autofuse.lower.schedule import Schedule
from autofuse.plan.verify import verify
from autofuse.search.policies.analytical import Analytical, solve_at
from autofuse.search.policies.unfused import Unfused
from autofuse.search.tune import measuringloop
from autofuse.search.tune.measuringloop import MeasuringLoop
from autofuse.search.tune.plandrafts import Drafts
from autofuse.testing.counted.device import BATCH
from autofuse.testing.counted.hidden import scattered
from autofuse.testing.counted.nearworker import DeathError
from autofuse.testing.sketches import Sketch, attention_graph, softmax_graph
from tests.fixtures.benches import CountedBench, failing, failing_at_first
from tests.fixtures.tuning import counted, tuned, tuner_of


def test_a_kernel_that_fails_is_never_in_the_plan():
    graph = softmax_graph(64, 64)
    bad = set()
    for _ in range(3):
        bench = CountedBench(graph, failing(bad))
        plan = tuned(graph, bench)
        digests = {kernel.digest for kernel in plan.kernels}
        assert digests.isdisjoint(bad)
        assert all(bad.isdisjoint(kernel.digest for kernel in raced.kernels) for raced in bench.raced)
        # whatever it took this time fails the next time, unless only that computes the program
        bad |= {k.digest for k in plan.kernels if len(k.nodes) > 2}


def test_a_program_that_no_kernel_computes_says_why():
    graph = softmax_graph(64, 64)
    bench = CountedBench(graph, failing(None))
    with pytest.raises(MeasureError, match=r"is no plan: share: crash: it crashed"):
        tuned(graph, bench)


def test_a_baseline_of_other_kernels_is_what_remains_where_the_space_has_no_plan():
    """Neighbours that every candidate joins fail together; the unfused plan runs them one by one."""
    sketch = Sketch("chain")
    x = sketch.arg("f32[4096]")
    graph = sketch.finish([sketch.op("tanh", sketch.op("exp", x, name="grown"), name="bounded")])
    space = counted(graph).space
    assert len(space.atom_graph.atoms) == 1
    bench = CountedBench(graph, failing(space.classes))
    plan = tuned(graph, bench)
    assert [kernel.nodes for kernel in plan.kernels] == [("grown",), ("bounded",)]


def test_a_fixed_partition_with_a_kernel_that_fails_says_why():
    graph = softmax_graph(64, 64)
    bench = CountedBench(graph, failing(None))
    with pytest.raises(MeasureError, match="every plan has a kernel that fails: peak: crash: it crashed"):
        tuner_of(graph, bench).fixed_plan(Unfused())


def test_a_schedule_that_fails_is_not_taken():
    def cost(kernel, schedule, ns):
        if schedule[BATCH] < 4:
            raise DeathError
        return ns * schedule[BATCH]

    graph = softmax_graph(64, 64)
    bench = CountedBench(graph, cost)
    assert {kernel.schedule[BATCH] for kernel in tuned(graph, bench).kernels} == {4}
    assert math.inf in bench.records.values()


@pytest.mark.parametrize("after", [0, 3])
def test_a_solve_that_finds_nothing_ends_the_loop_with_what_is_known(monkeypatch, after):
    """As under a limit on memory, which a solve may not find a plan for in its time."""
    graph = attention_graph(64, 32)
    calls = []

    def failing(*args):
        calls.append(args)
        if len(calls) > after:
            raise SearchError("no plan was found that takes so little")
        return solve_at(*args)

    monkeypatch.setattr(measuringloop, "solve_at", failing)
    plan = tuned(graph, CountedBench(graph, scattered(0.6)))
    verify(plan)
    assert len(calls) > after
    assert plan.certificate.e2e_us <= plan.certificate.unfused_us


def test_a_solve_that_finds_nothing_leaves_what_an_earlier_one_found(monkeypatch):
    graph = attention_graph(64, 32)
    tune = tuner_of(graph, CountedBench(graph, scattered(0.6)))
    solve = MeasuringLoop.solve

    def once(loop, k):
        if loop.rounds > 1:
            raise SearchError("no plan was found that takes so little")
        return solve(loop, k)

    monkeypatch.setattr(MeasuringLoop, "solve", once)
    found = tune._loop.run([Analytical().partition(tune.context)])
    assert tune._loop.rounds == 2
    assert found.solution is not None


def test_where_the_space_has_no_plan_a_baseline_is_known_to_run_or_may(monkeypatch):
    graph = attention_graph(64, 32)
    tune = tuner_of(graph, CountedBench(graph))
    baselines = unfused, analytical = [policy.partition(tune.context) for policy in (Unfused(), Analytical())]
    assert tune._loop.one_that_runs(baselines) is analytical
    tune._times.measure([chosen.candidate for chosen in unfused.kernels], 1.0)
    assert tune._loop.one_that_runs(baselines) is unfused
    tune._times.measure([chosen.candidate for chosen in analytical.kernels], 1.0)
    assert tune._loop.one_that_runs(baselines) is analytical
    monkeypatch.setattr(Drafts, "fits", lambda drafts, partition: partition is unfused)
    assert tune._loop.one_that_runs(baselines) is unfused
    tune._times.us[unfused.kernels[0].candidate.digest] = math.inf
    assert tune._loop.one_that_runs(baselines) is None


def test_where_kernels_fail_and_memory_is_limited_an_error_says_both(monkeypatch):
    graph = softmax_graph(64, 64)
    bench = CountedBench(graph, failing(None))
    tune = tuner_of(graph, bench, context=counted(graph, memory=1000))
    tune._times.measure(tune.context.space.candidates, 1.0)

    def solve(*args):
        raise SearchError("no plan takes 1000 bytes")

    monkeypatch.setattr(measuringloop, "solve_at", solve)
    words = "no plan takes 1000 bytes; kernels that failed are left out: .*: crash: it crashed"
    with pytest.raises(MeasureError, match=words):
        tune._loop.solve(0.0)


# ---- bad moments -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_kernel_that_no_plan_does_without_may_meet_a_bad_moment():
    graph = softmax_graph(64, 64)
    bench = CountedBench(graph, failing_at_first("timeout"))
    plan = tuned(graph, bench)
    verify(plan)
    assert plan.certificate.e2e_us == pytest.approx(bench.plan_us(plan))
    assert {schedule for _, schedule in bench.records} == {Schedule()}  # no other is tried


def test_a_kernel_that_met_a_bad_moment_is_in_no_plan_that_does_without_it():
    graph = softmax_graph(64, 64)
    usual = tuned(graph, CountedBench(graph))
    late = {kernel.digest for kernel in usual.kernels if len(kernel.nodes) > 2}
    assert late
    bench = CountedBench(graph, failing(late, "killed"))
    plan = tuned(graph, bench)
    assert late.isdisjoint(kernel.digest for kernel in plan.kernels)


def test_a_fixed_partition_may_meet_a_bad_moment():
    graph = softmax_graph(64, 64)
    bench = CountedBench(graph, failing_at_first("memory"))
    verify(tuner_of(graph, bench).fixed_plan(Unfused()))


def test_no_bad_moment_excuses_a_wrong_answer():
    graph = softmax_graph(64, 64)
    bench = CountedBench(graph, failing(None, "wrong"))
    with pytest.raises(MeasureError, match=r"is no plan: share: wrong"):
        tuned(graph, bench)
