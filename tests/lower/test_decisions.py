"""Which decisions a kernel has."""

from dataclasses import replace

import pytest

from autofuse.lower.lowering import lower
from autofuse.lower.schedule import Schedule
from autofuse.report.tileprint import print_program
from autofuse.targets.cpu.decisions import CPU_DECISIONS, cpu_decisions, cpu_schedule
from autofuse.testing.fusions import LIMITS, whole_kernel
from autofuse.testing.sketches import Sketch, attention_graph, softmax_graph


def lowered(graph):
    return lower(whole_kernel(graph), Schedule(), "kernel", LIMITS)


def choices_for(program, decisions=CPU_DECISIONS):
    return {decision.name: values for decision, values in decisions.choices(program).items()}


def one_op(op, spec="f32[64,64]", **attrs):
    sketch = Sketch("sketch")
    return sketch.finish([sketch.op(op, sketch.arg(spec), **attrs)])


def test_a_loop_has_width_and_unrolling():
    assert choices_for(lowered(one_op("exp"))) == {"unroll": (1, 2, 4, 8), "vector_bits": (256, 512)}


def test_a_machine_without_wide_vectors_has_no_choice_of_width():
    assert "vector_bits" not in choices_for(lowered(one_op("exp")), cpu_decisions(256))
    assert "vector_bits" in choices_for(lowered(one_op("exp")), cpu_decisions(512))


def test_a_reduction_can_be_split_and_run_along_either_loop():
    choices = choices_for(lowered(one_op("reduce", dimensions=(1,), combiner="add")))
    assert choices["lane"] == ("auto", "grid", "stream")
    assert 0 in choices["split"]
    assert "panel_rows" not in choices


def test_what_several_stages_need_is_kept_or_recomputed():
    assert choices_for(lowered(softmax_graph()))["placement"] == ("scratch", "recompute")


def test_a_kernel_with_dots_has_row_blocks_and_no_lanes_to_choose():
    choices = choices_for(lowered(attention_graph()))
    assert 256 in choices["panel_rows"]
    assert choices["dots"] == ("auto", "library")
    assert "lane" not in choices
    assert "split" not in choices


def test_large_outputs_can_be_stored_past_the_caches():
    assert choices_for(lowered(one_op("exp", "f32[2048,2048]")))["stream_stores"] == (None, True)


def test_a_library_call_has_nothing_to_decide():
    sort = lowered(one_op("sort", "f32[64]", dimension=0, descending=False, stable=True))
    assert choices_for(sort) == {}
    assert CPU_DECISIONS.idle(sort) == set(CPU_DECISIONS.by_name)


@pytest.mark.parametrize("graph", [softmax_graph(), attention_graph(), one_op("exp")])
def test_what_can_be_chosen_is_not_idle(graph):
    program = lowered(graph)
    assert CPU_DECISIONS.idle(program).isdisjoint(choices_for(program))


@pytest.mark.parametrize(("key", "value"), [("panel_rows", 32), ("dots", "library"), ("split", 8)])
def test_idle_decisions_change_no_loop(key, value):
    graph = one_op("exp")
    program = lowered(graph)
    assert key in CPU_DECISIONS.idle(program)
    other = lower(whole_kernel(graph), cpu_schedule(**{key: value}), "kernel", LIMITS)
    assert print_program(replace(other, schedule=Schedule())) == print_program(program)


@pytest.mark.parametrize("graph", [softmax_graph(), attention_graph(), one_op("exp", "f32[2048,2048]")])
def test_the_default_is_among_the_values_of_every_decision(graph):
    for decision, values in CPU_DECISIONS.choices(lowered(graph)).items():
        assert decision.default in values


@pytest.mark.parametrize(
    ("decisions", "reason"),
    [
        ({"unroll": 8, "vector_bits": 256}, None),
        ({"vector_bits": 128}, "vector_bits: must be one of 256, 512 for this kernel, got 128"),
        ({"unroll": 3}, "unroll: must be one of 1, 2, 4, 8 for this kernel, got 3"),
        ({"panel_rows": 32}, "panel_rows: must be one of 0 for this kernel, got 32"),
        ({"split": 7}, "split: must be one of 0 for this kernel, got 7"),
        ({"threads": 1024}, "threads: unknown schedule key 'threads'; known: dots, early_end, "),
        ({"unroll": 0}, "unroll: schedule unroll=0 is out of range: must be an integer from 1 to 64"),
        ({"unroll": True}, "unroll: schedule unroll=True is out of range: must be an integer from 1 to 64"),
    ],
)
def test_a_schedule_that_could_not_have_been_chosen_is_named(decisions, reason):
    found = CPU_DECISIONS.refusal(Schedule.from_json(decisions), lowered(one_op("exp")))
    assert found is None if reason is None else str(found).startswith(reason)


def test_all_choices_of_a_kernel_are_legal():
    program = lowered(attention_graph())
    for name, values in choices_for(program).items():
        assert all(CPU_DECISIONS.refusal(cpu_schedule(**{name: value}), program) is None for value in values)
