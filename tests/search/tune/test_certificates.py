"""What a tuned plan claims, and what it tells of its kernels."""

from dataclasses import replace

import numpy as np
import pytest

from autofuse.lower.schedule import Schedule
from autofuse.plan.document import NOT_PROVED, OPTIMAL
from autofuse.plan.verify import verify
from autofuse.search.budget.budget import Budget
from autofuse.search.policies.analytical import solve_at
from autofuse.search.policies.policy import Partition
from autofuse.search.solve.solver import Chosen
from autofuse.search.tune import measuringloop
from autofuse.testing.counted.hidden import scattered
from autofuse.testing.sketches import Sketch, attention_graph, softmax_graph
from tests.fixtures.benches import MS, CountedBench, unscheduled
from tests.fixtures.tuning import counted, small_graphs, tuned, tuner_of

SMALL = small_graphs()


@pytest.mark.parametrize("name", ["softmax", "diamond", "random 1"])
def test_bounds_lie_below_what_was_measured(name):
    graph = SMALL[name]
    certificate = tuned(graph, CountedBench(graph, unscheduled())).certificate
    assert 0 < certificate.floor_bound_us <= certificate.statistical_bound_us * (1 + 1e-9)
    assert certificate.statistical_bound_us <= certificate.sum_us * (1 + 1e-6)
    assert certificate.sum_us == pytest.approx(certificate.e2e_us)
    assert certificate.e2e_us == pytest.approx(certificate.holdout_us)
    assert certificate.additivity == pytest.approx(1.0)
    assert certificate.e2e_us <= certificate.unfused_us
    assert certificate.noise_floor_us == 0


def test_the_certificate_counts(monkeypatch):
    graph = attention_graph(64, 32)
    bench = CountedBench(graph)
    certificate = tuned(graph, bench, budget=Budget(1000.0, 500), seed=7).certificate
    space = counted(graph).space
    assert (certificate.candidates, certificate.classes) == (len(space.candidates), len(space.classes))
    defaults = {digest for digest, schedule in bench.records if schedule == Schedule()}
    assert certificate.measured == len(defaults & space.classes.keys())
    assert certificate.schedules_tried == len(bench.records) - len(defaults)
    assert certificate.rounds >= 1
    assert (certificate.seed, certificate.policy) == (7, "measured")
    assert certificate.budget == "1000 s, at most 500 measurements"
    assert certificate.optimality == OPTIMAL


def test_a_certificate_claims_no_more_than_was_proved():
    """Here the unfused plan is faster as a whole, which no sum of kernels says."""
    graph = softmax_graph(64, 64)
    bench = CountedBench(graph, plan=lambda plan, ns: 100 * MS / len(plan.kernels))
    plan = tuned(graph, bench)
    assert "accepted partition: unfused" in plan.notes
    assert plan.certificate.optimality == NOT_PROVED
    verify(plan)


def test_a_certificate_of_a_run_that_was_cut_short_proves_nothing():
    graph = attention_graph(64, 32)
    bench = CountedBench(graph, scattered(0.6))
    assert tuned(graph, bench, budget=Budget(seconds=1000.0, max_trials=1)).certificate.optimality == NOT_PROVED


def test_what_was_not_proved_by_the_solver_is_not_certified(monkeypatch):
    """Solving runs out of time, and finds the best all the same."""
    graph = softmax_graph(64, 64)
    monkeypatch.setattr(measuringloop, "solve_at", lambda *args: replace(solve_at(*args), optimal=False))
    plan = tuned(graph, CountedBench(graph))
    assert plan.certificate.optimality == NOT_PROVED
    assert any("the time was too short to prove it the cheapest" in note for note in plan.notes)


def test_a_solve_that_runs_out_of_time_does_not_replace_what_is_known(monkeypatch):
    graph = attention_graph(64, 32)
    tune = tuner_of(graph, CountedBench(graph, scattered(0.5)))
    space = tune.context.space
    tune._times.measure(space.candidates, 1.0)
    best = tune._loop._cheapest_measured(None)
    dear = {c.digest: us for c, us in zip(space.candidates, np.linspace(1.0, 2.0, len(space.candidates)), strict=True)}

    def hasty(context, space, price, seconds):
        found = solve_at(context, space, dear)
        return replace(found, price_us=sum(price[k.candidate.digest] for k in found.kernels), optimal=False)

    monkeypatch.setattr(measuringloop, "solve_at", hasty)
    kept = tune.best
    assert tune._loop._cheapest_measured(None).price_us > best.price_us
    assert tune._loop._cheapest_measured(best) is best
    tune._drafts.kept.pop()
    assert tune.best == kept


def test_a_kernel_that_leaves_an_output_out_is_timed_as_it_is():
    """Also where the kernel with all of them, and the one without, were measured before."""
    sketch = Sketch("two_outputs")
    x = sketch.arg("f32[64]")
    first = sketch.op("exp", x, name="first")
    graph = sketch.finish([sketch.op("tanh", first, name="second"), sketch.op("sin", first, name="third")])
    bench = CountedBench(graph, lambda kernel, schedule, ns: MS * (10 * len(kernel.outputs) + len(kernel.nodes)))
    tune = tuner_of(graph, bench)
    space = tune.context.space
    by_name = {node.name: atom for atom in space.atom_graph.atoms for node in atom.nodes}
    pairs = [frozenset((by_name["first"], by_name[name])) for name in ("second", "third")]
    kernels = [tune.context.kernels.try_add(atoms) for atoms in pairs]
    tune.context.kernels.try_add(pairs[0], kernels[0].outputs[-1:])
    tune._times.measure(space.candidates, 1.0)
    chosen = tuple(Chosen(kernel, kernel.outputs[-1:]) for kernel in kernels)
    document = tune._drafts.document(tune._drafts.timed(Partition(space.atom_graph, chosen, {}, 0.0)))
    assert [kernel.measured_us for kernel in document.kernels] == [None, None]
    assert [kernel.measured_us for kernel in tune._closing.with_times(document).kernels] == [12_000.0, 12_000.0]


def test_kernels_carry_predicted_and_measured_times():
    graph = attention_graph(64, 32)
    bench = CountedBench(graph)
    for kernel in tuned(graph, bench).kernels:
        assert kernel.predicted_us > 0
        assert kernel.measured_us in bench.records.values()
        assert kernel.bound in ("memory", "compute", "overhead", "serial", "library")
