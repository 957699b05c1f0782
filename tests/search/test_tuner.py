"""The measuring loop on a bench whose times come from a hidden cost function, so that the best plan is known."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from autofuse.errors import MeasureError, SearchError
from autofuse.lower.schedule import Schedule
from autofuse.plan import codec
from autofuse.plan.document import NOT_PROVED, OPTIMAL
from autofuse.plan.verify import verify
from autofuse.search import tuner
from autofuse.search.budget import Budget
from autofuse.search.policy import Analytical, Partition, Unfused, document_of, solve_at
from autofuse.search.solver import Chosen
from autofuse.search.tuner import EPSILON, Tuner
from autofuse.testing.benches import SyntheticBench, modelled, scattered
from autofuse.testing.fusions import check_plan
from autofuse.testing.graphs import random_inputs
from autofuse.testing.partitions import context_of, identity_here
from autofuse.testing.sketches import Sketch, attention_graph, diamond_graph, layers_graph, softmax_graph
from autofuse.testing.tuning import small_graphs, tuned, tuner_of

plain = modelled()


def best_possible(graph, bench):
    """The cost of the best partition of the space, were the costs of all kernels known."""
    context = context_of(graph)
    space = context.space
    costs = {digest: bench.cost(members[0].kernel, Schedule()) for digest, members in space.classes.items()}
    solution = solve_at(context, space, costs)
    partition = Partition(space.atom_graph, solution.kernels, {}, solution.price_us)
    return bench.plan_us(document_of(context, partition, identity_here()))


SMALL = small_graphs()


# ---- what it finds ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spread", [0.0, 0.5])
@pytest.mark.parametrize("name", SMALL)
def test_it_finds_the_best_plan_under_hidden_costs(name, spread):
    graph = SMALL[name]
    bench = SyntheticBench(graph, scattered(modelled(), spread))
    plan = tuned(graph, bench)
    verify(plan)
    # the bound is statistical: a kernel more than a sigma better than the model says may be missed, and what leaving
    # out an optional write saves is only estimated
    slack = 1 + EPSILON + 0.2 * spread
    assert bench.plan_us(plan) <= slack * best_possible(graph, bench)


def test_it_measures_a_part_of_the_classes():
    graph = attention_graph(64, 32)
    bench = SyntheticBench(graph, scattered(modelled(), 0.25))
    certificate = tuned(graph, bench).certificate
    assert certificate.measured < 0.75 * certificate.classes


def test_equal_layers_are_measured_once():
    few, many = layers_graph(2, 64, 64), layers_graph(5, 64, 64)
    plans = [tuned(graph, SyntheticBench(graph)) for graph in (few, many)]
    assert plans[1].certificate.candidates > 2 * plans[0].certificate.candidates
    assert plans[1].certificate.measured < 2 * plans[0].certificate.measured


def test_its_plans_are_right():
    for graph in (softmax_graph(8, 16), diamond_graph(1024)):
        check_plan(tuned(graph, SyntheticBench(graph)), random_inputs(graph, np.random.default_rng(0)))


def test_the_best_schedule_of_each_kernel_is_in_the_plan():
    def cost(kernel, schedule):
        return plain(kernel, schedule) * (0.5 if schedule.unroll == 8 else 1.0)

    graph = layers_graph(2, 64, 64)
    bench = SyntheticBench(graph, cost)
    plan = tuned(graph, bench)
    assert {kernel.schedule.unroll for kernel in plan.kernels} == {8}
    assert plan.certificate.schedules_tried > 0
    assert plan.certificate.sum_us == pytest.approx(bench.plan_us(plan))


# ---- the budget ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trials", [1, 2, 5, 20])
def test_no_more_kernels_are_measured_than_allowed(trials):
    graph = attention_graph(64, 32)
    bench = SyntheticBench(graph)
    plan = tuned(graph, bench, budget=Budget(1000.0, trials))
    assert 0 < bench.counts.measured + bench.counts.replayed <= trials
    verify(plan)


@pytest.mark.parametrize("seconds", [0.5, 3.0, 10.0])
def test_measuring_ends_in_time(seconds):
    graph = attention_graph(64, 32)
    bench = SyntheticBench(graph, step_s=0.3)
    verify(tuned(graph, bench, budget=Budget(seconds)))
    # the last kernel begins before 90 % of the time is over
    assert bench.now_s <= 0.9 * seconds + 0.3


def test_where_only_measurements_are_limited_time_does_not_matter():
    graph, seen = attention_graph(64, 32), []
    fast, slow = (SyntheticBench(graph, step_s=step_s) for step_s in (0.0, 1000.0))
    budget = Budget(math.inf, 20)
    first, second = (
        Tuner(context_of(graph), bench, identity_here(), budget, 0, lambda *told: seen.append(told), bench.clock)
        for bench in (fast, slow)
    )
    assert codec.encode(first.measured_plan()) == codec.encode(second.measured_plan())
    assert slow.counts.measured == fast.counts.measured > 10
    done, total = zip(*((done, total) for what, done, total in seen if what == "measuring kernels"), strict=True)
    assert set(total) == {20}
    assert 0 < done[0] <= done[-1] <= 20
    assert first.best.certificate.budget == "at most 20 measurements"


def test_a_budget_for_nothing_still_gives_a_plan_that_is_no_slower_than_unfused():
    graph = SMALL["random 3"]
    bench = SyntheticBench(graph, step_s=50.0)
    plan = tuned(graph, bench, budget=Budget(1.0))
    assert bench.counts.measured == 1
    unfused = bench.plan_us(max(bench.raced, key=lambda raced: len(raced.kernels)))
    assert bench.plan_us(plan) <= unfused
    assert plan.certificate.sum_us is None


def test_the_kernels_of_the_first_guess_are_measured_before_any_other():
    graph = attention_graph(64, 32)
    bench = SyntheticBench(graph)
    tuned(graph, bench)
    guess = {c.candidate.digest for c in Analytical().partition(context_of(graph)).kernels}
    assert {digest for digest, _ in list(bench.records)[: len(guess)]} == guess


# ---- kernels that fail -----------------------------------------------------------------------------------------------


def test_a_kernel_that_fails_is_never_in_the_plan():
    graph = attention_graph(64, 32)
    failing = set()
    for _ in range(3):
        bench = SyntheticBench(graph, failing=frozenset(failing))
        plan = tuned(graph, bench)
        digests = {kernel.digest for kernel in plan.kernels}
        assert digests.isdisjoint(failing)
        assert all(failing.isdisjoint(kernel.digest for kernel in raced.kernels) for raced in bench.raced)
        # whatever it took this time fails the next time, unless only that computes the program
        failing |= {k.digest for k in plan.kernels if len(k.nodes) > 2}


def test_a_program_that_no_kernel_computes_says_why():
    graph = softmax_graph(64, 64)
    bench = SyntheticBench(graph, cost=lambda kernel, schedule: math.inf)
    with pytest.raises(MeasureError, match=r"is no plan: share: crash: it crashed"):
        tuned(graph, bench)


def test_a_baseline_of_other_kernels_is_what_remains_where_the_space_has_no_plan():
    """Neighbours that every candidate joins fail together; the unfused plan runs them one by one."""
    sketch = Sketch("chain")
    x = sketch.arg("f32[4096]")
    graph = sketch.finish([sketch.op("tanh", sketch.op("exp", x, name="grown"), name="bounded")])
    space = context_of(graph).space
    assert len(space.atom_graph.atoms) == 1
    bench = SyntheticBench(graph, failing=frozenset(space.classes))
    plan = tuned(graph, bench)
    assert [kernel.nodes for kernel in plan.kernels] == [("grown",), ("bounded",)]


def test_a_fixed_partition_with_a_kernel_that_fails_says_why():
    graph = softmax_graph(64, 64)
    bench = SyntheticBench(graph, cost=lambda kernel, schedule: math.inf)
    with pytest.raises(MeasureError, match="every plan has a kernel that fails: peak: crash: it crashed"):
        tuner_of(graph, bench).fixed_plan(Unfused())


def test_a_schedule_that_fails_is_not_taken():
    def cost(kernel, schedule):
        return math.inf if schedule.unroll != 4 else plain(kernel, schedule)

    graph = softmax_graph(64, 64)
    plan = tuned(graph, SyntheticBench(graph, cost))
    assert {kernel.schedule.unroll for kernel in plan.kernels} == {4}


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

    monkeypatch.setattr(tuner, "solve_at", failing)
    plan = tuned(graph, SyntheticBench(graph, scattered(plain, 0.6)))
    verify(plan)
    assert len(calls) > after
    assert plan.certificate.e2e_us <= plan.certificate.unfused_us


# ---- the certificate -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["softmax", "diamond", "random 1"])
def test_bounds_lie_below_what_was_measured(name):
    graph = SMALL[name]
    certificate = tuned(graph, SyntheticBench(graph)).certificate
    assert 0 < certificate.physical_bound_us <= certificate.statistical_bound_us * (1 + 1e-9)
    assert certificate.statistical_bound_us <= certificate.sum_us * (1 + 1e-6)
    assert certificate.sum_us == pytest.approx(certificate.e2e_us)
    assert certificate.e2e_us == pytest.approx(certificate.holdout_us)
    assert certificate.additivity == pytest.approx(1.0)
    assert certificate.e2e_us <= certificate.unfused_us
    assert certificate.noise_floor_us == 0


def test_the_certificate_counts(monkeypatch):
    graph = attention_graph(64, 32)
    bench = SyntheticBench(graph)
    certificate = tuned(graph, bench, budget=Budget(1000.0, 500), seed=7).certificate
    space = context_of(graph).space
    assert (certificate.candidates, certificate.classes) == (len(space.candidates), len(space.classes))
    defaults = {digest for digest, schedule in bench.records if schedule == Schedule()}
    assert certificate.measured == len(defaults & space.classes.keys())
    assert certificate.schedules_tried == len(bench.records) - len(defaults)
    assert certificate.rounds >= 1
    assert (certificate.seed, certificate.policy) == (7, "measured")
    assert certificate.budget == "1000 s, at most 500 measurements"
    assert certificate.words == OPTIMAL


def test_a_certificate_claims_no_more_than_was_proved():
    """Here the unfused plan is faster as a whole, which no sum of kernels says."""
    graph = softmax_graph(64, 64)
    bench = SyntheticBench(graph, plan_cost=lambda plan: 100.0 / len(plan.kernels))
    plan = tuned(graph, bench)
    assert "accepted partition: unfused" in plan.notes
    assert plan.certificate.words == NOT_PROVED
    verify(plan)


def test_a_certificate_of_a_run_that_was_cut_short_proves_nothing():
    graph = attention_graph(64, 32)
    bench = SyntheticBench(graph, scattered(plain, 0.6))
    assert tuned(graph, bench, budget=Budget(seconds=1000.0, max_trials=1)).certificate.words == NOT_PROVED


def test_what_was_not_proved_by_the_solver_is_not_certified(monkeypatch):
    """Solving runs out of time, and finds the best all the same."""
    graph = softmax_graph(64, 64)
    monkeypatch.setattr(tuner, "solve_at", lambda *args: replace(solve_at(*args), optimal=False))
    plan = tuned(graph, SyntheticBench(graph))
    assert plan.certificate.words == NOT_PROVED
    assert any("the time was too short to prove it the cheapest" in note for note in plan.notes)


def test_a_solve_that_runs_out_of_time_does_not_replace_what_is_known(monkeypatch):
    graph = attention_graph(64, 32)
    tune = tuner_of(graph, SyntheticBench(graph, scattered(plain, 0.5)))
    space = tune.context.space
    tune._times.measure(space.candidates, 1.0)
    best = tune._cheapest_measured(space, None)
    dear = {c.digest: us for c, us in zip(space.candidates, np.linspace(1.0, 2.0, len(space.candidates)), strict=True)}

    def hasty(context, space, price, seconds):
        found = solve_at(context, space, dear)
        return replace(found, price_us=sum(price[k.candidate.digest] for k in found.kernels), optimal=False)

    monkeypatch.setattr(tuner, "solve_at", hasty)
    kept = tune.best
    assert tune._cheapest_measured(space, None).price_us > best.price_us
    assert tune._cheapest_measured(space, best) is best
    tune._kept.pop()
    assert tune.best == kept


def test_a_kernel_that_leaves_an_output_out_is_timed_as_it_is():
    """Also where the kernel with all of them, and the one without, were measured before."""
    sketch = Sketch("two_outputs")
    x = sketch.arg("f32[4096]")
    first = sketch.op("exp", x, name="first")
    graph = sketch.finish([sketch.op("tanh", first, name="second"), sketch.op("sin", first, name="third")])
    bench = SyntheticBench(graph, lambda kernel, schedule: 10.0 * len(kernel.outputs) + len(kernel.nodes))
    tune = tuner_of(graph, bench)
    space = tune.context.space
    by_name = {node.name: atom for atom in space.atom_graph.atoms for node in atom.nodes}
    pairs = [frozenset((by_name["first"], by_name[name])) for name in ("second", "third")]
    kernels = [tune.context.try_add(atoms) for atoms in pairs]
    tune.context.try_add(pairs[0], kernels[0].outputs[-1:])
    tune._times.measure(space.candidates, 1.0)
    chosen = tuple(Chosen(kernel, kernel.outputs[-1:]) for kernel in kernels)
    document = tune._document(tune._timed(Partition(space.atom_graph, chosen, {}, 0.0)))
    assert [kernel.measured_us for kernel in document.kernels] == [None, None]
    assert [kernel.measured_us for kernel in tune._with_times(document).kernels] == [12.0, 12.0]


def test_kernels_carry_predicted_and_measured_times():
    graph = attention_graph(64, 32)
    bench = SyntheticBench(graph)
    for kernel in tuned(graph, bench).kernels:
        assert kernel.predicted_us > 0
        assert kernel.measured_us in bench.records.values()
        assert kernel.bound in ("memory", "compute", "overhead", "serial", "library")


# ---- a fixed partition -----------------------------------------------------------------------------------------------


def test_a_policys_partition_is_kept_and_its_schedules_are_tuned():
    def cost(kernel, schedule):
        return plain(kernel, schedule) / schedule.unroll

    graph = softmax_graph(64, 64)
    plan = tuner_of(graph, SyntheticBench(graph, cost)).fixed_plan(Unfused())
    assert len(plan.kernels) == 5
    assert {kernel.schedule.unroll for kernel in plan.kernels} == {8}
    assert plan.certificate.policy == "unfused"
    assert "accepted partition: unfused" in plan.notes
    assert plan.certificate.sum_us == pytest.approx(plan.certificate.e2e_us)


class Watched(SyntheticBench):
    """Remembers what each measurement had to be worth."""

    def timed(self, trial):
        self.worth = [*getattr(self, "worth", ()), (trial.digest, trial.schedule, trial.worth_us)]
        return super().timed(trial)


def test_schedules_much_slower_than_the_best_are_not_worth_timing_well():
    graph = softmax_graph(64, 64)
    bench = Watched(graph, lambda kernel, schedule: plain(kernel, schedule) / schedule.unroll)
    tuned(graph, bench)
    best = {}
    for digest, schedule, worth_us in bench.worth:
        us = bench.records[digest, schedule]
        assert worth_us == math.inf if schedule == Schedule() else worth_us >= 3 * best[digest]
        best[digest] = min(us, best.get(digest, math.inf))
    assert any(worth_us < math.inf for *_, worth_us in bench.worth)


def test_kernels_get_the_same_trials_under_every_policy():
    graph = softmax_graph(64, 64)
    benches = [SyntheticBench(graph) for _ in range(2)]
    plans = [tuned(graph, benches[0]), tuner_of(graph, benches[1]).fixed_plan(Analytical())]
    (digest,) = {kernel.digest for plan in plans for kernel in plan.kernels}
    tried = [[schedule for kernel, schedule in bench.records if kernel == digest] for bench in benches]
    assert tried[0] == tried[1]
    assert len(tried[0]) > 10


# ---- again -----------------------------------------------------------------------------------------------------------


def test_a_run_on_the_records_of_another_measures_nothing_and_gives_its_plan():
    graph = attention_graph(64, 32)
    first = SyntheticBench(graph, scattered(modelled(), 0.4))
    plan = tuned(graph, first)
    second = SyntheticBench(graph, lambda kernel, schedule: pytest.fail("measured again"))
    second.records, second.again = first.records, first.again
    second.plan_cost = first.plan_us
    assert tuned(graph, second).kernels == plan.kernels
    assert second.counts.measured == 0


SCRIPT = """
import json
from autofuse.plan import codec
from autofuse.search.budget import Budget
from autofuse.search.tuner import Tuner
from autofuse.testing.benches import *
from autofuse.testing.partitions import *
from autofuse.testing.sketches import attention_graph
graph = attention_graph(64, 32)
bench = SyntheticBench(graph, scattered(modelled(), 0.4), noise=0.02)
tuner = Tuner(context_of(graph), bench, identity_here(), Budget(1000.0, 40), 3, lambda *_: None, bench.clock)
plan = tuner.measured_plan()
print(codec.to_text(codec.encode(plan), None))
"""


def test_another_process_makes_the_same_plan():
    texts = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "22")
    ]
    graph = attention_graph(64, 32)
    bench = SyntheticBench(graph, scattered(modelled(), 0.4), noise=0.02)
    here = codec.to_text(codec.encode(tuned(graph, bench, budget=Budget(1000.0, 40), seed=3)), None)
    assert json.loads(texts[0])["kernels"]
    assert texts[0].strip() == texts[1].strip() == here.strip()


@pytest.mark.parametrize("after", [0, 4, 15])
def test_an_interrupt_leaves_a_plan_to_use(after):
    graph = attention_graph(16, 8)
    bench = SyntheticBench(graph, interrupt_after=after)
    tuner = tuner_of(graph, bench)
    with pytest.raises(KeyboardInterrupt):
        tuner.measured_plan()
    verify(tuner.best)
    check_plan(tuner.best, random_inputs(graph, np.random.default_rng(0)))


@pytest.mark.parametrize("after", range(1, 12))
def test_an_interrupt_never_leaves_a_plan_with_a_kernel_that_is_known_to_fail(after):
    graph = attention_graph(16, 8)
    guess = [chosen.candidate.digest for chosen in Analytical().partition(context_of(graph)).kernels]
    bench = SyntheticBench(graph, failing=frozenset(guess), interrupt_after=after)
    tuner = tuner_of(graph, bench)
    with pytest.raises(KeyboardInterrupt):
        tuner.measured_plan()
    failed = {digest for digest, _ in bench.counts.failing}
    assert failed
    assert failed.isdisjoint(kernel.digest for kernel in tuner.best.kernels)
