"""Which whole plan the tuner keeps, of its own and of rules, where calls cost what a test says."""

from dataclasses import fields, replace

import pytest

from autofuse.errors import MeasureError
from autofuse.fusion.userrules import Forbid, Pin, bind
from autofuse.lower.schedule import Schedule
from autofuse.measurement.database import Database
from autofuse.plan.document import NOT_PROVED
from autofuse.runtime.planlowering import candidate_of
from autofuse.search.budget.budget import Budget
from autofuse.search.plans.memorylimit import MemoryLimit
from autofuse.search.policies.analytical import Analytical
from autofuse.search.policies.fixed import Fixed
from autofuse.search.policies.unfused import Unfused
from autofuse.search.space.candidates import Bounds
from autofuse.search.space.classes import class_digest
from autofuse.search.tune import tuner as tuner_module
from autofuse.testing.counted.device import BATCH
from autofuse.testing.counted.executable import CountedExecutable
from autofuse.testing.counted.hidden import noisy
from autofuse.testing.counted.target import CountedTarget
from autofuse.testing.sketches import Sketch, softmax_graph
from tests.fixtures.benches import MS, CountedBench, crashing, failing, interrupted
from tests.fixtures.tuning import counted, tuned, tuner_of

PAIRS = Schedule.of({BATCH: 2})


def largest_batch(kernel, schedule, ns):
    """The more elements are issued together, the better."""
    return ns / schedule[BATCH]


def two_are_best(plan, ns):
    """Plans of two kernels are; others the better, the fewer there are."""
    return MS * (10 if len(plan.kernels) == 2 else 11 * len(plan.kernels))


# ---- the decision ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_the_unfused_plan_is_kept_where_the_tuned_one_is_slower_as_a_whole(noise):
    graph = softmax_graph(64, 64)
    bench = CountedBench(graph, plan=noisy(lambda plan, ns: 100 * MS / len(plan.kernels), noise))
    plan = tuned(graph, bench)
    assert len(plan.kernels) == 5
    assert "accepted partition: unfused" in plan.notes
    assert plan.certificate.e2e_us == pytest.approx(plan.certificate.unfused_us)
    assert plan.certificate.e2e_us == pytest.approx(20_000.0, rel=3 * noise + 1e-9)


@pytest.mark.parametrize("unfused_wins", [False, True])
def test_every_plan_says_once_what_the_bounds_left_out(unfused_wins):
    graph = softmax_graph(64, 64)
    context = counted(graph, bounds=Bounds(sets_per_atom=1))
    bench = CountedBench(graph, plan=lambda plan, ns: 10 * MS * len(plan.kernels) ** (-1 if unfused_wins else 1))
    plan = tuned(graph, bench, context=context)
    assert ("accepted partition: unfused" in plan.notes) == unfused_wins
    assert context.space.cut_off > 0
    assert sum(note.startswith("searched among") for note in plan.notes) == 1


def test_a_runner_up_is_kept_where_it_is_faster_as_a_whole():
    """Every partition costs nearly the same in sum; those that are no baseline's are fast as a whole."""
    graph = softmax_graph(64, 64)
    steps = {"peak", "shifted", "grown", "total", "share"}
    bench = CountedBench(
        graph,
        lambda kernel, schedule, ns: MS * (0.1 + 10.0 * len(steps & {node.name for node in kernel.nodes})),
        lambda plan, ns: MS * (1 if 1 < len(plan.kernels) < 5 else 10),
    )
    plan = tuned(graph, bench)
    assert 1 < len(plan.kernels) < 5
    assert any(note.startswith("accepted partition: measured, choice") for note in plan.notes)
    assert plan.certificate.optimality == NOT_PROVED


def test_fewer_kernels_are_kept_where_kernels_cost_one_another_time(monkeypatch):
    """Alone, small kernels are a little faster than large ones; in a plan every kernel costs the others time."""
    graph = softmax_graph(64, 64)
    steps = {"peak", "shifted", "grown", "total", "share"}
    bench = CountedBench(
        graph,
        lambda kernel, schedule, ns: MS * (0.1 + 10.0 * len(steps & {node.name for node in kernel.nodes}) ** 1.05),
        lambda plan, ns: 10 * MS * len(plan.kernels),
    )
    monkeypatch.setattr(tuner_module, "BASELINES", (Unfused(),))
    plan = tuner_of(graph, bench).measured_plan()
    assert len(plan.kernels) == 1
    assert "accepted partition: measured, fewer kernels" in plan.notes
    assert plan.certificate.optimality == NOT_PROVED


def test_the_plan_that_is_the_fastest_as_a_whole_gets_its_schedules_tuned_first():
    graph = softmax_graph(64, 64)

    bench = CountedBench(graph, plan=two_are_best)
    tuner = tuner_of(graph, bench)
    tuner.measured_plan(rules=[RULE])
    first, _ = bench.batches[0]
    own = RULE.partition(tuner.context)
    assert first in {chosen.candidate.digest for chosen in own.kernels}


def test_a_plan_that_is_far_slower_gets_no_schedules_and_the_notes_say_so():
    graph = softmax_graph(64, 64)
    bench = CountedBench(graph, plan=lambda plan, ns: MS * (30 if len(plan.kernels) == 2 else 10))
    plan = tuner_of(graph, bench).measured_plan(rules=[RULE])
    assert "no schedules were tuned for rule:made, which took 3.0 times as long without" in plan.notes


def test_of_few_measurements_some_are_left_for_the_schedules_of_the_second_plan():
    graph = softmax_graph(64, 64)
    bench = CountedBench(graph, plan=two_are_best)
    tuner = tuner_of(graph, bench, Budget(1000.0, 40))
    tuner.measured_plan(rules=[RULE])
    rule = {chosen.candidate.digest for chosen in RULE.partition(tuner.context).kernels}
    tuned_digests = {digest for digest, _ in bench.batches}
    assert tuned_digests & rule
    assert tuned_digests - rule


def test_a_kernel_of_two_plans_gets_the_trials_of_the_one_that_wants_more():
    graph = softmax_graph(64, 64)
    tuner = tuner_of(graph, CountedBench(graph), Budget(1000.0, 1000))
    small, large = RULE.partition(tuner.context).kernels
    tuner._times.measure([small.candidate, large.candidate], 1.0)
    tuner._schedules.tune([small], 0.02)
    known = tuner._schedules.times[small.candidate.digest]
    assert len(known) < 22
    tuner._schedules.tune([small, large, large, large], 0.9)
    assert len(known) == 25  # all there are


def test_no_plan_is_compared_with_itself():
    graph = softmax_graph(64, 64)
    for trials in (5, 12, 40, 200):
        plan = tuned(graph, CountedBench(graph), budget=Budget(1000.0, trials))
        assert not any(
            note.startswith(("compared with measured before", "no schedules were tuned for measured,"))
            for note in plan.notes
        )


def test_a_runner_up_that_costs_much_more_is_not_tried():
    graph = softmax_graph(64, 64)
    bench = CountedBench(graph, lambda kernel, schedule, ns: 10 * MS)
    assert len(tuned(graph, bench).kernels) == 1
    assert {len(plan.kernels) for plan in bench.raced} == {1, 5}


def test_a_partition_that_knows_nothing_of_its_kernels_is_tuned_like_any_other():
    class Silent:
        name = "silent"

        def partition(self, context):
            return replace(Unfused().partition(context), known={})

    graph = softmax_graph(64, 64)
    bench = CountedBench(graph, largest_batch)
    plan = tuner_of(graph, bench).fixed_plan(Silent())
    assert {kernel.schedule[BATCH] for kernel in plan.kernels} == {16}
    assert all(kernel.measured_us is not None for kernel in plan.kernels)
    assert plan.certificate.sum_us == pytest.approx(bench.plan_us(plan))


def test_a_pinned_schedule_is_what_is_measured_and_nothing_else_is_tried():
    graph = softmax_graph(64, 64)
    bench = CountedBench(graph, largest_batch)
    context = counted(graph, control=bind([Pin("grown", schedule={"batch": 2})], graph))
    plan = tuned(graph, bench, context=context)
    (kernel,) = [kernel for kernel in plan.kernels if "grown" in kernel.nodes]
    assert kernel.schedule == PAIRS
    pinned = class_digest(candidate_of(plan.graph, kernel.nodes, kernel.outputs), {"batch": 2})
    assert {schedule for digest, schedule in bench.records if digest == pinned} == {PAIRS}
    assert any(other.schedule[BATCH] == 16 for other in plan.kernels if other is not kernel)
    assert "kept rule: Pin('grown', schedule={'batch': 2})" in plan.notes


def test_a_pinned_schedule_is_that_of_a_kernel_with_views_too():
    sketch = Sketch("twice")
    x = sketch.arg("f32[64]")
    row = sketch.op("broadcast_in_dim", x, shape=(8, 64), broadcast_dimensions=(1,))
    graph = sketch.finish([sketch.op("exp", row, name="grown")])
    context = counted(graph, control=bind([Pin("grown", schedule={"batch": 2})], graph))
    (chosen,) = Unfused().partition(context).kernels
    assert len(chosen.candidate.kernel.nodes) == 2
    assert context.control.schedule_of(chosen.candidate.kernel.nodes) == {"batch": 2}


@pytest.mark.parametrize("pinned", ["first", "second"])
def test_a_pinned_schedule_is_its_kernels_own(pinned):
    """Equal kernels that no rule is about have schedules and times of their own."""
    sketch = Sketch("twins")
    x, y = sketch.arg("f32[1024]"), sketch.arg("f32[1024]")
    first, second = sketch.op("exp", x, name="first"), sketch.op("exp", y, name="second")
    graph = sketch.finish([first, second])
    bench = CountedBench(graph, lambda kernel, schedule, ns: 16 * MS / schedule[BATCH])
    context = counted(graph, control=bind([Pin(pinned, schedule={"batch": 2}), Forbid("first", "second")], graph))
    plan = tuned(graph, bench, context=context)
    told = {kernel.nodes[0]: kernel for kernel in plan.kernels}
    other = {"first": "second", "second": "first"}[pinned]
    assert (told[pinned].schedule, told[pinned].measured_us) == (PAIRS, 8000.0)
    assert told[other].schedule[BATCH] > 2
    assert told[other].measured_us == pytest.approx(16_000.0 / told[other].schedule[BATCH])


def test_ties_go_to_the_tuned_plan():
    graph = softmax_graph(64, 64)
    plan = tuned(graph, CountedBench(graph, plan=noisy(lambda plan, ns: 5 * MS, 0.05)))
    assert "accepted partition: measured" in plan.notes


def test_a_plan_that_crashes_as_a_whole_is_not_kept():
    graph = softmax_graph(64, 64)
    bench = CountedBench(graph, plan=crashing(lambda plan: len(plan.kernels) < 5))
    assert "accepted partition: unfused" in tuned(graph, bench).notes


@pytest.mark.parametrize(("together", "alone"), [(10.0, 50.0), (50.0, 10.0), (50.0, 50.0)])
def test_concurrent_groups_are_kept_where_they_are_faster(together, alone):
    sketch = Sketch("side_by_side")
    x = sketch.arg("f32[1024]")
    tops = [sketch.reduce(sketch.op(op, x, name=op), 0, name=f"{op}s") for op in ("exp", "sin")]
    graph = sketch.finish(tops)
    separate = Fixed((("exp", "exps"), ("sin", "sins")), "separate")
    cost = lambda plan, ns: MS * (together if any(launch.group_place for launch in plan.order) else alone)  # noqa: E731
    bench = CountedBench(graph, lambda kernel, schedule, ns: 3e4, cost)
    plan = tuner_of(graph, bench).fixed_plan(separate)
    assert any(launch.group_place for launch in plan.order) == (together < alone)


@pytest.mark.parametrize(
    ("best", "kept"),
    [
        (("together",), "together"),
        (("apart",), "apart"),
        (("alone",), "alone"),
        (("apart", "together"), "together"),
        (("apart", "together", "alone"), "alone"),
    ],
)
def test_where_a_target_starts_groups_at_once_three_forms_are_compared(best, kept):
    """Groups as it starts them, groups of kernels that are started by themselves, and kernels one by one.

    Of those that are as fast, what is simplest is kept.
    """
    sketch = Sketch("side_by_side")
    x = sketch.arg("f32[1024]")
    tops = [sketch.reduce(sketch.op(op, x, name=op), 0, name=f"{op}s") for op in ("exp", "sin")]
    graph = sketch.finish(tops)

    def form(plan):
        if not any(launch.group_place for launch in plan.order):
            return "alone"
        return "apart" if all(launch.apart for launch in plan.order) else "together"

    class Joining(CountedTarget):
        def joined_us(self, kernels):
            return float(sum(self.cost_model().price(kernels).us))

    bench = CountedBench(
        graph, lambda kernel, schedule, ns: 3e4, lambda plan, ns: MS * (10 + 40 * (form(plan) not in best))
    )
    separate = Fixed((("exp", "exps"), ("sin", "sins")), "separate")
    plan = tuner_of(graph, bench, context=counted(graph, target=Joining())).fixed_plan(separate)
    assert {form(raced) for raced in bench.raced} == {"together", "apart", "alone"}
    assert form(plan) == kept


@pytest.mark.parametrize("each", [10.0, 50.0, 30.0])
def test_where_a_target_replays_kernels_starting_each_is_compared_and_kept_if_it_is_faster(each):
    class Replaying(CountedTarget):
        @property
        def limits(self):
            return replace(super().limits, replays=True)

    graph = softmax_graph(64, 64)
    bench = CountedBench(graph, plan=lambda plan, ns: MS * (30.0 if plan.replayed else each))
    plan = tuner_of(graph, bench, context=counted(graph, target=Replaying())).fixed_plan(Unfused())
    assert plan.replayed == (each >= 30.0)
    assert plan.certificate.e2e_us == pytest.approx(1e3 * min(each, 30.0))
    assert any("started by itself" in note for note in plan.notes) != plan.replayed


def test_a_plan_without_concurrent_groups_that_takes_too_much_memory_does_not_compete(monkeypatch):
    sketch = Sketch("side_by_side")
    x = sketch.arg("f32[1024]")
    tops = [sketch.reduce(sketch.op(op, x, name=op), 0, name=f"{op}s") for op in ("exp", "sin")]
    graph = sketch.finish(tops)
    separate = Fixed((("exp", "exps"), ("sin", "sins")), "separate")
    context = counted(graph, memory=1 << 20)
    monkeypatch.setattr(MemoryLimit, "fits", lambda self, plan: any(launch.group_place for launch in plan.order))
    bench = CountedBench(graph, lambda kernel, schedule, ns: 3e4, lambda plan, ns: 10 * MS)
    plan = tuner_of(graph, bench, context=context).fixed_plan(separate)
    assert any(launch.group_place for launch in plan.order)
    assert all(any(launch.group_place for launch in raced.order) for raced in bench.raced)


def test_no_plan_that_runs_is_an_error_and_leaves_none_to_use():
    graph = softmax_graph(64, 64)
    tuner = tuner_of(graph, CountedBench(graph, plan=crashing(lambda plan: True)))
    with pytest.raises(MeasureError, match="no plan can be run end to end: crash: it crashed"):
        tuner.measured_plan()
    assert tuner.best is None


def test_a_race_that_cannot_be_recorded_leaves_the_best_plan_so_far(monkeypatch):
    """The disk is full when the last race is over, after the one that decides whose schedules are tuned."""
    graph = softmax_graph(64, 64)
    bench, add_all = CountedBench(graph), Database.add_all

    def full(database, records):
        if len(bench.terms) > 1:
            raise MeasureError("the disk is full")
        return add_all(database, records)

    monkeypatch.setattr(Database, "add_all", full)
    tuner = tuner_of(graph, bench)
    with pytest.raises(MeasureError, match="the disk is full"):
        tuner.measured_plan()
    assert tuner.has_measured
    assert tuner.best is not None


class Wrong(CountedTarget):
    """Plans of less than so many kernels give wrong answers."""

    def __init__(self, most):
        super().__init__()
        self.most = most

    def executable(self, document, kernels=None):
        built = super().executable(document, kernels)
        return WrongPlan(*astuple_of(built)) if len(document.kernels) < self.most else built


class WrongPlan(CountedExecutable):
    def run(self, inputs):
        return tuple(result + 1 for result in super().run(inputs))


def astuple_of(built):
    return [getattr(built, field.name) for field in fields(built)]


def test_a_plan_with_a_wrong_answer_is_not_kept():
    graph = softmax_graph(64, 64)
    assert "accepted partition: unfused" in tuned(graph, CountedBench(graph, target=Wrong(5))).notes


def test_where_every_answer_is_off_the_plan_says_so():
    graph = softmax_graph(64, 64)
    notes = tuned(graph, CountedBench(graph, target=Wrong(6))).notes
    assert "accepted partition: measured" in notes
    (note,) = [note for note in notes if note.startswith("no plan's answer is within tolerance")]
    assert "%share" in note


# ---- rules of other compilers ----------------------------------------------------------------------------------------

RULE = Fixed((("peak",), ("shifted", "grown", "total", "share")), "rule:made")


def test_a_kernel_that_fails_among_those_that_are_being_measured_counts_at_an_interrupt():
    graph = softmax_graph(64, 64)
    first = RULE.partition(counted(graph)).kernels[0].candidate.digest
    tuner = tuner_of(graph, interrupted(graph, 1, failing([first])))
    with pytest.raises(KeyboardInterrupt):
        tuner.fixed_plan(RULE)
    assert tuner.best is None


def test_a_rules_plan_is_kept_where_it_is_faster_as_a_whole():
    graph = softmax_graph(64, 64)
    bench = CountedBench(graph, lambda kernel, schedule, ns: 10 * MS, two_are_best)
    plan = tuner_of(graph, bench).measured_plan(rules=[RULE])
    assert len(plan.kernels) == 2
    assert "accepted partition: rule:made" in plan.notes
    assert (plan.certificate.rule, plan.certificate.rule_us) == ("rule:made", plan.certificate.e2e_us)


def test_the_best_rules_compete_with_tuned_schedules():
    graph = softmax_graph(64, 64)
    bench = CountedBench(graph, largest_batch)
    plan = tuner_of(graph, bench).measured_plan(rules=[RULE, Unfused()])
    ruled = [raced for raced in bench.raced if len(raced.kernels) == 2]
    assert any({kernel.schedule[BATCH] for kernel in raced.kernels} == {16} for raced in ruled)
    assert plan.certificate.rule == "rule:made"
    assert plan.certificate.e2e_us <= plan.certificate.rule_us


def test_the_rules_that_are_the_fastest_as_a_whole_compete_whatever_their_kernels_take_alone():
    graph = softmax_graph(64, 64)
    four = Fixed((("peak", "shifted"), ("grown",), ("total",), ("share",)), "rule:four")
    other = Fixed((("peak",), ("shifted",), ("grown", "total"), ("share",)), "rule:other")
    bench = CountedBench(graph, lambda kernel, schedule, ns: MS * (100 if len(kernel.nodes) > 3 else 1), two_are_best)
    plan = tuner_of(graph, bench).measured_plan(rules=[four, other, RULE])
    assert plan.certificate.rule == "rule:made"
    assert len(plan.kernels) == 2


def test_the_models_own_choice_competes_with_tuned_schedules():
    """One kernel, measured far dearer than the parts; as a whole, and with another schedule, it is the fastest."""

    def cost(kernel, schedule, ns):
        whole = {"peak", "share"} <= {node.name for node in kernel.nodes}
        return MS * (100 if whole else 1) / schedule[BATCH]

    def plan_cost(plan, ns):
        return MS * (1 if len(plan.kernels) == 1 and plan.kernels[0].schedule != Schedule() else 10)

    graph = softmax_graph(64, 64)
    choice = Analytical().partition(counted(graph))
    assert len(choice.kernels) == 1
    plan = tuned(graph, CountedBench(graph, cost, plan_cost))
    assert "accepted partition: analytical, schedules tuned" in plan.notes


def test_rules_with_a_kernel_that_fails_do_not_compete():
    graph = softmax_graph(64, 64)
    (whole,) = [c for c in RULE.partition(counted(graph)).kernels if len(c.candidate.kernel.nodes) > 3]
    bench = CountedBench(graph, failing([whole.candidate.digest]))
    certificate = tuner_of(graph, bench).measured_plan(rules=[RULE]).certificate
    assert (certificate.rule, certificate.rule_us) == (None, None)


def test_rules_that_cannot_be_compared_are_named():
    graph = softmax_graph(64, 64)
    late = tuner_of(graph, CountedBench(graph))
    late._clock.start -= 500.0
    notes = late.measured_plan(rules=[RULE]).notes
    assert "not compared with rule:made: no time was left for it" in notes
