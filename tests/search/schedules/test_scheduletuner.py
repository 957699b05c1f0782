"""Which schedules are tried in whole plans beside those that are the fastest alone."""

import math
from dataclasses import replace
from functools import partial

import pytest

from autofuse.fusion.userrules import Pin, bind
from autofuse.lower.decisions import Decisions, Rule
from autofuse.lower.schedule import Schedule
from autofuse.search.plans.planning import Tuned
from autofuse.search.policies.analytical import Analytical
from autofuse.search.tune.finalists import OTHER_SCHEDULES, Finalist
from autofuse.search.tune.tuner import Tuner
from autofuse.targets.cpu.decisions import cpu_schedule
from autofuse.testing.counted.device import BATCH
from autofuse.testing.counted.hidden import Hidden
from autofuse.testing.counted.target import CountedTarget
from autofuse.testing.partitions import context_of
from autofuse.testing.sketches import Sketch
from tests.fixtures.benches import MS, CountedBench
from tests.fixtures.tuning import tuner_of


def bent():
    """One kernel."""
    sketch = Sketch("bent")
    return sketch.finish([sketch.op("tanh", sketch.arg("f32[16,16]"), name="bent")])


GRAPH = bent()


class Contextual(CountedTarget):
    """Its batches say little of a kernel alone: what is before and after it in a plan matters."""

    @property
    def limits(self):
        rule = Rule(BATCH, lambda shape: (2, 4, 8), contextual=True)
        return replace(super().limits, decisions=Decisions((rule,)))


def bench_of(slower, plan):
    """Alone, batches of 8 take so many times as long as those of 4, and of 2 far longer. `plan`: what plans cost."""
    hidden = Hidden(lambda kernel, schedule, ns: 10 * MS * {2: 5.0, 4: 1.0, 8: slower}[schedule[BATCH]], plan)
    return CountedBench(GRAPH, target=Contextual(hidden=hidden))


def tuner_on(bench, **options):
    return tuner_of(GRAPH, bench, context=context_of(GRAPH, target=Contextual(), **options))


def as_a_whole(plan, ns):
    return MS * (5 if in_eights(plan) else 10)


def in_eights(plan):
    return any(kernel.schedule[BATCH] == 8 for kernel in plan.kernels)


def test_what_is_faster_as_a_whole_is_kept_though_it_is_slower_alone():
    bench = bench_of(1.1, as_a_whole)
    plan = tuner_on(bench).measured_plan()
    assert in_eights(plan)
    assert "accepted partition: measured, other schedules" in plan.notes
    assert plan.kernels[0].measured_us == pytest.approx(11_000.0)
    assert plan.certificate.e2e_us == 5000.0


def test_fixed_policies_have_it_too():
    bench = bench_of(1.1, as_a_whole)
    plan = tuner_on(bench).fixed_plan(Analytical())
    assert in_eights(plan)
    assert "accepted partition: analytical, other schedules" in plan.notes


def test_a_tie_goes_to_what_is_faster_alone():
    for tune in (Tuner.measured_plan, partial(Tuner.fixed_plan, policy=Analytical())):
        bench = bench_of(1.1, lambda plan, ns: 10 * MS)
        assert not in_eights(tune(tuner_on(bench)))
        assert any(in_eights(plan) for plan in bench.raced)


def test_what_is_far_slower_alone_does_not_take_part():
    bench = bench_of(1.2, as_a_whole)
    assert not in_eights(tuner_on(bench).measured_plan())
    assert not any(in_eights(plan) for plan in bench.raced)


def test_decisions_of_the_user_stay():
    bench = bench_of(1.1, as_a_whole)
    pinned = tuner_on(bench, control=bind([Pin("bent", schedule={"batch": 2})], GRAPH)).measured_plan()
    assert pinned.kernels[0].schedule == Schedule.of({BATCH: 2})
    assert not any(in_eights(plan) for plan in bench.raced)


def test_a_plan_without_memory_for_other_schedules_has_the_best_ones(monkeypatch):
    class Limit:
        def fits(self, document):
            return not in_eights(document)

        def solve(self, atoms, solve_within, seconds, known):
            return solve_within((), seconds)

    bench = bench_of(1.1, as_a_whole)
    usual = context_of(GRAPH, target=Contextual())
    tuner = tuner_of(GRAPH, bench, context=replace(usual, problem=replace(usual.problem, memory=Limit())))
    names = []
    decide = tuner._closing.races.decide

    def noted(finalists, *terms):
        names.extend(finalist.name for finalist in finalists)
        return decide(finalists, *terms)

    monkeypatch.setattr(tuner._closing.races, "decide", noted)
    assert not in_eights(tuner.measured_plan())
    assert not any(in_eights(plan) for plan in bench.raced)
    assert "measured" in names
    assert not any(name.endswith(OTHER_SCHEDULES) for name in names)


def test_a_plan_is_compared_with_in_its_best_form():
    bench = bench_of(1.1, as_a_whole)
    tuner = tuner_on(bench)
    plain = Analytical().partition(tuner.context)
    digest = plain.kernels[0].candidate.digest
    other = replace(plain, known={digest: Tuned(Schedule.of({BATCH: 8}))})
    forms = [("rule", plain), ("rule" + OTHER_SCHEDULES, other), ("measured", plain)]
    finalists = [Finalist(name, form, tuner._drafts.document(form)) for name, form in forms]
    ended = tuner._closing.races.decide(finalists, 1.0)
    assert ended.times == {"rule": pytest.approx(5000.0), "measured": pytest.approx(10_000.0)}


# ---- near ties -------------------------------------------------------------------------------------------------------

BEST, SLOWER, OTHER = (
    cpu_schedule(unroll=2),
    cpu_schedule(stream_stores=True),
    cpu_schedule(stream_stores=True, unroll=8),
)
STREAM, GRID = cpu_schedule(lane="stream"), cpu_schedule(lane="grid")


def two_kernels(times):
    """The schedule tuner after trials of two kernels that never fuse, with their times by schedule."""
    sketch = Sketch("two")
    x, y = sketch.arg("f32[64,64]"), sketch.arg("f32[32,16]")
    graph = sketch.finish([sketch.reduce(x, 0, name="first"), sketch.reduce(y, 1, name="second")])
    tuner = tuner_of(graph, CountedBench(graph), context=context_of(graph))
    partition = Analytical().partition(tuner.context)
    kernels = sorted(partition.kernels, key=lambda chosen: chosen.outputs[0].name)
    schedules = tuner._schedules
    for chosen, known in zip(kernels, times, strict=True):
        digest = chosen.candidate.digest
        tuner._times.us[digest] = known.get(Schedule(), math.inf)
        schedules.times[digest] = known
        best = min(known, key=known.__getitem__)
        if best != Schedule():
            schedules.faster[digest] = best, known[best]
    first, second = (chosen.candidate.digest for chosen in kernels)
    names = {first: "first", second: "second"}
    return [{names[digest]: found for digest, found in near.items()} for near in schedules.near_ties(kernels)]


def test_kernels_walk_memory_in_one_way_together():
    first = {Schedule(): 12.0, BEST: 10.0, SLOWER: 11.0, OTHER: 10.5, STREAM: 11.2}
    second = {Schedule(): 9.0, SLOWER: 7.0, STREAM: 7.5}
    assert two_kernels([first, second]) == [
        {"first": (OTHER, 10.5)},
        {"first": (STREAM, 11.2), "second": (STREAM, 7.5)},
    ]


def test_only_the_cheapest_ways_are_tried():
    first = {Schedule(): 10.0, STREAM: 10.4, GRID: 10.2, SLOWER: 10.3}
    second = {Schedule(): 10.0}
    assert two_kernels([first, second]) == [{"first": (GRID, 10.2)}, {"first": (SLOWER, 10.3)}]


def test_a_kernel_that_takes_little_of_the_time_keeps_its_schedule():
    assert two_kernels([{Schedule(): 100.0}, {Schedule(): 1.0, STREAM: 1.0}]) == []


def test_kernels_that_fail_are_left_out():
    times = {Schedule(): 10.0, STREAM: math.inf, GRID: 10.0}
    assert two_kernels([times, {Schedule(): 9.0}]) == [{"first": (GRID, 10.0)}]
    assert two_kernels([{Schedule(): math.inf, GRID: math.inf}, {Schedule(): 9.0}]) == []
