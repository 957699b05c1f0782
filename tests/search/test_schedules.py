"""Which decisions a kernel has, and the seeded search over them."""

import math

import pytest

from autofuse.lower.lowering import lower
from autofuse.lower.schedule import Schedule
from autofuse.search.schedules import choices_for, tune_schedule
from autofuse.testing.fusions import LIMITS, whole_kernel
from autofuse.testing.sketches import Sketch, attention_graph, softmax_graph

CHOICES = {"unroll": (1, 2, 4, 8), "vector_bits": (256, 512), "lane": ("auto", "grid", "stream")}
DEFAULT = {Schedule(): 100.0}


def lowered(graph):
    return lower(whole_kernel(graph), Schedule(), "kernel", LIMITS)


def one_op(op, spec="f32[64,64]", **attrs):
    sketch = Sketch("sketch")
    return sketch.finish([sketch.op(op, sketch.arg(spec), **attrs)])


# ---- decisions -------------------------------------------------------------------------------------------------------


def test_a_loop_has_width_and_unrolling():
    assert choices_for(lowered(one_op("exp"))) == {"unroll": (1, 2, 4, 8), "vector_bits": (256, 512)}


def test_a_machine_without_wide_vectors_has_no_choice_of_width():
    assert "vector_bits" not in choices_for(lowered(one_op("exp")), vector_bits=256)
    assert "vector_bits" in choices_for(lowered(one_op("exp")), vector_bits=512)


def test_a_reduction_can_be_split_and_run_along_either_loop():
    choices = choices_for(lowered(one_op("reduce", dimensions=(1,), combiner="add")))
    assert choices["lane"] == ("auto", "grid", "stream")
    assert 0 in choices["split"]
    assert "panel_rows" not in choices


def test_what_several_stages_need_is_kept_or_recomputed():
    assert choices_for(lowered(softmax_graph()))["placement"] == ("scratch", "recompute")


def test_a_kernel_with_dots_has_panels_and_no_lanes_to_choose():
    choices = choices_for(lowered(attention_graph()))
    assert 256 in choices["panel_rows"]
    assert choices["dots"] == ("auto", "library")
    assert "lane" not in choices
    assert "split" not in choices


def test_large_outputs_can_be_stored_past_the_caches():
    assert choices_for(lowered(one_op("exp", "f32[2048,2048]")))["stream_stores"] == (None, True)


def test_a_library_call_has_nothing_to_decide():
    assert choices_for(lowered(one_op("sort", "f32[64]", dimension=0, descending=False, stable=True))) == {}


@pytest.mark.parametrize("graph", [softmax_graph(), attention_graph(), one_op("exp", "f32[2048,2048]")])
def test_the_default_is_among_the_values_of_every_decision(graph):
    for name, values in choices_for(lowered(graph)).items():
        assert getattr(Schedule(), name) in values


# ---- the search ------------------------------------------------------------------------------------------------------


class Meter:
    """Times by a formula; counts how often it is asked about each schedule."""

    def __init__(self, cost, budget=math.inf):
        self.cost, self.budget, self.asked = cost, budget, []

    def __call__(self, schedule):
        if len(self.asked) >= self.budget:
            return None
        self.asked.append(schedule)
        return self.cost(schedule)


def by_unroll(schedule):
    return 100.0 / schedule.unroll + (schedule.lane != "stream") + schedule.vector_bits / 1e6


def test_the_best_of_a_small_space_is_found():
    meter = Meter(by_unroll)
    best, us, tried = tune_schedule(CHOICES, meter, 24, 0, DEFAULT)
    assert (best.unroll, best.lane, best.vector_bits) == (8, "stream", 256)
    assert us == pytest.approx(by_unroll(best))
    assert tried == len(meter.asked)


def test_no_schedule_is_measured_twice_and_no_more_than_allowed():
    for trials in (1, 2, 7, 100):
        meter = Meter(by_unroll)
        _, _, tried = tune_schedule(CHOICES, meter, trials, 0, DEFAULT)
        assert len(meter.asked) == len(set(meter.asked)) == tried <= trials - 1
        assert Schedule() not in meter.asked


def test_the_same_seed_asks_the_same_questions():
    meters = [Meter(by_unroll) for _ in range(3)]
    for meter, seed in zip(meters, (5, 5, 6), strict=True):
        tune_schedule(CHOICES, meter, 10, seed, DEFAULT)
    assert meters[0].asked == meters[1].asked
    assert meters[0].asked != meters[2].asked


def test_the_default_stays_where_nothing_is_faster():
    best, us, _ = tune_schedule(CHOICES, Meter(lambda schedule: 200.0), 12, 0, DEFAULT)
    assert (best, us) == (Schedule(), 100.0)


def test_schedules_that_fail_are_passed_over():
    def cost(schedule):
        return math.inf if schedule.unroll == 8 else by_unroll(schedule)

    best, us, _ = tune_schedule(CHOICES, Meter(cost), 24, 0, DEFAULT)
    assert best.unroll == 4
    assert us < math.inf


def test_the_search_ends_with_the_budget():
    meter = Meter(by_unroll, budget=3)
    _, _, tried = tune_schedule(CHOICES, meter, 24, 0, DEFAULT)
    assert tried == 3


def test_without_choices_nothing_is_measured():
    assert tune_schedule({}, Meter(by_unroll), 24, 0, DEFAULT) == (Schedule(), 100.0, 0)
