"""First guesses: families of kernels, the nearest of a family, and what the model prefers."""

import math
from dataclasses import replace

import numpy as np
import pytest

from autofuse.cost_models.base import Prices
from autofuse.ir.digest import digest
from autofuse.lower.lowering import lower
from autofuse.lower.schedule import Schedule
from autofuse.measurement.kernelnotes import KernelNote
from autofuse.plan.document import GraphVariant
from autofuse.search.schedules.warmstart import WarmStart, cheapest, family_of, fitting, nearest
from autofuse.targets.cpu.decisions import (
    CPU_DECISIONS,
    STREAM_STORES,
    UNROLL,
    VECTOR_BITS,
    cpu_schedule,
)
from autofuse.testing.counted.device import BATCH
from autofuse.testing.fusions import LIMITS, whole_kernel
from autofuse.testing.partitions import context_of
from autofuse.testing.sketches import Sketch, softmax_graph
from tests.fixtures.benches import MS, CountedBench
from tests.fixtures.tuning import counted, tuner_of

CHOICES = {UNROLL: (1, 2, 4, 8), VECTOR_BITS: (256, 512), STREAM_STORES: (None, True)}


def one_op(op, spec, name="made"):
    sketch = Sketch("sketch")
    return sketch.finish([sketch.op(op, sketch.arg(spec), name=name)])


def family(graph):
    return family_of(lower(whole_kernel(graph), Schedule(), "kernel", LIMITS))


# ---- families --------------------------------------------------------------------------------------------------------


def test_size_and_names_do_not_make_a_family():
    assert family(one_op("exp", "f32[64,64]")) == family(one_op("exp", "f32[300,7]", name="other"))
    assert family(softmax_graph(64, 64)) == family(softmax_graph(48, 256))


def test_operations_types_and_loops_do():
    graphs = [
        one_op("exp", "f32[64,64]"),
        one_op("tanh", "f32[64,64]"),
        one_op("exp", "f64[64,64]"),
        softmax_graph(64, 64),
    ]
    assert len({family(graph) for graph in graphs}) == len(graphs)


# ---- similar kernels -------------------------------------------------------------------------------------------------


def noted(kernel, *features, family="family"):
    return KernelNote(kernel, kernel, "loop", "program", family, features, 1.0)


def test_the_nearest_kernels_of_the_family_come_first():
    others = [
        (noted("far", 9.0, 9.0), cpu_schedule(unroll=1)),
        (noted("near", 1.0, 2.5), cpu_schedule(unroll=8)),
        (noted("stranger", 1.0, 2.0, family="other"), cpu_schedule(unroll=2)),
        (noted("older", 1.0), cpu_schedule(unroll=2)),
        (noted("as far", 9.0, 9.0), cpu_schedule(lane="grid")),
        (noted("farthest", 99.0, 9.0), cpu_schedule(unroll=8)),
    ]
    found = nearest(noted("it", 1.0, 2.0), others)
    assert found == [
        cpu_schedule(unroll=8),
        cpu_schedule(unroll=1),
        cpu_schedule(lane="grid"),
    ]


def test_only_decisions_that_a_kernel_has_are_taken_over():
    schedule = cpu_schedule(unroll=8, vector_bits=128, stream_stores=True, split=4)
    assert fitting(schedule, CHOICES) == cpu_schedule(unroll=8, stream_stores=True)


# ---- the model -------------------------------------------------------------------------------------------------------


def test_what_is_cheapest_is_found_one_decision_at_a_time():
    asked = []

    def price(schedule):
        asked.append(schedule)
        return 100.0 / schedule[UNROLL] + schedule[VECTOR_BITS] / 256

    found = cheapest(price, CHOICES, 100)
    assert found[0] == cpu_schedule(unroll=8, vector_bits=256)
    assert found == sorted(found, key=price)
    assert len(asked) - len(found) < 4 * 2 * 2  # less than the whole space
    assert all(schedule[STREAM_STORES] is None for schedule in found)  # one of each price


def test_no_more_prices_are_asked_for_than_allowed():
    asked = []
    cheapest(lambda schedule: asked.append(schedule) or -float(len(asked)), CHOICES, 5)
    assert len(asked) == 5


@pytest.mark.parametrize("price", [lambda schedule: 7.0, lambda schedule: 100.0 - (schedule[UNROLL] == 8)])
def test_a_model_that_does_not_tell_schedules_apart_proposes_nothing(price):
    assert cheapest(price, CHOICES, 100) == []


def test_schedules_that_are_no_kernel_are_never_proposed():
    found = cheapest(
        lambda schedule: math.inf if schedule[UNROLL] == 8 else 100.0 / schedule[UNROLL] ** 2, CHOICES, 100
    )
    assert found == []


class Unrolling:
    """Prices kernels by nothing but their unrolling."""

    def price(self, kernels):
        us = np.array([100.0 / facts.program.schedule[UNROLL] for facts in kernels])
        return Prices(us, np.full(len(us), 0.3), np.zeros(len(us)), ("compute",) * len(us))

    def write_us(self, value):
        return 0.0


def test_the_programs_cost_model_is_asked():
    context = context_of(one_op("exp", "f32[64,64]"), model=Unrolling())
    (candidate,) = context.space.candidates
    bench = CountedBench(context.program.graph)
    guesses = WarmStart(context, bench).guesses(candidate, CPU_DECISIONS.choices(candidate.program), 8)
    assert guesses == [cpu_schedule(unroll=8)]
    (note,) = bench.database.all_notes().values()
    assert note.kernel == candidate.digest
    assert (note.title, note.kind, note.predicted_us) == ("loop_exp", "loop", 25.0)
    assert WarmStart(context, bench).guesses(candidate, {}, 8) == []


# ---- in a tuning run -------------------------------------------------------------------------------------------------


def prefers_two(kernel, schedule, ns):
    """Nothing that a model would think of."""
    return MS * (10 if schedule[BATCH] == 2 else 20)


def tuned(bench, context=None):
    plan = tuner_of(bench.graph, bench, context=context).measured_plan()
    assert {kernel.schedule[BATCH] for kernel in plan.kernels} == {2}
    return plan


def test_a_kernel_starts_with_what_was_best_for_its_family_in_another_program():
    earlier = CountedBench(one_op("exp", "f32[64,64]"), prefers_two)
    (kernel,) = tuned(earlier).kernels
    later = CountedBench(one_op("exp", "f32[500,30]"), prefers_two, database=earlier.database)
    tuned(later)
    assert later.batches[0][1][0] == kernel.schedule


def test_a_kernel_starts_with_what_was_best_for_its_family_in_the_same_program():
    sketch = Sketch("pair")
    small, large = sketch.arg("f32[16,16]"), sketch.arg("f32[80,64]", "y")
    graph = sketch.finish([sketch.op("exp", small, name="one"), sketch.op("exp", large, name="two")])
    bench = CountedBench(graph, prefers_two)
    tuned(bench)
    first = {}
    for kernel, schedules in bench.batches:
        first.setdefault(kernel, schedules[0])
    assert list(first.values())[1][BATCH] == 2


def test_a_second_run_on_the_records_of_the_first_makes_the_same_guesses():
    first = CountedBench(softmax_graph(32, 32), prefers_two)
    plan = tuned(first)
    second = CountedBench(first.graph, lambda *call: pytest.fail("run again"), database=first.database)
    assert tuned(second).kernels == plan.kernels
    assert second.batches == first.batches


def test_variants_of_a_program_make_no_guesses_for_one_another():
    """Their kernels are in the records of the first run, and were not when it began."""
    usual, other = counted(one_op("exp", "f32[64,64]")), counted(one_op("exp", "f32[500,30]"))
    variant = replace(other.program, variant=GraphVariant("columns=joined", digest(usual.program.graph)))
    (candidate,) = usual.space.candidates
    choices = usual.limits.decisions.choices(candidate.program)
    for context, expected in ((other.about(variant, other.kernels.bounds), []), (other, [Schedule.of({BATCH: 2})])):
        earlier = CountedBench(other.program.graph, prefers_two)
        tuned(earlier, context)
        bench = CountedBench(usual.program.graph, prefers_two, database=earlier.database)
        guesses = WarmStart(usual, bench).guesses(candidate, choices, 8)
        assert [guess for guess in guesses if guess[BATCH] == 2] == expected


def test_a_variant_belongs_to_the_program_it_is_made_from():
    usual = context_of(one_op("exp", "f32[64,64]"))
    program = replace(usual.program, variant=GraphVariant("columns=joined", "the usual graph"))
    context = usual.about(program, usual.kernels.bounds)
    (candidate,) = context.space.candidates
    bench = CountedBench(context.program.graph)
    WarmStart(context, bench).guesses(candidate, CPU_DECISIONS.choices(candidate.program), 8)
    assert [note.program for note in bench.database.all_notes().values()] == ["the usual graph"]
