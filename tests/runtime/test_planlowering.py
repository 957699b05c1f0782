"""Lowered plans: code shared by equal kernels, groups that run together, and writing where one reads."""

import re
from dataclasses import replace

import pytest

from autofuse.errors import PlanError
from autofuse.lower.lowering import lower
from autofuse.lower.overwriting import may_write_in_place
from autofuse.lower.schedule import Schedule
from autofuse.plan.document import Launch
from autofuse.runtime.planlowering import candidate_of, canonical, groups_of, lower_plan
from autofuse.testing.fusions import LIMITS, whole_kernel
from autofuse.testing.partitions import plan_of
from autofuse.testing.sketches import Sketch, softmax_graph


@pytest.fixture
def sketch():
    return Sketch("sketch")


def lowered(graph):
    return lower(whole_kernel(graph), Schedule(), "kernel", LIMITS)


# ---- sharing code ----------------------------------------------------------------------------------------------------


def test_kernels_that_differ_in_the_sign_of_zero_are_different(sketch):
    def clipped(zero):
        build = Sketch("clipped")
        x = build.arg("f32[8]")
        return lowered(build.finish([build.op("add", x, build.splat(zero, x))]))

    assert canonical(clipped(0.0)) == canonical(clipped(0.0))
    assert canonical(clipped(0.0)) != canonical(clipped(-0.0))
    assert canonical(clipped(float("nan"))) == canonical(clipped(float("nan")))


def test_kernels_of_equal_layers_are_equal_but_for_names():
    def layer(names):
        build = Sketch(names)
        x, y = build.arg("f32[8,8]", f"{names}x"), build.arg("f32[8,8]", f"{names}y")
        return lowered(build.finish([build.op("tanh", build.op("add", x, y), name=names)]))

    first, second = layer("a"), layer("b")
    assert first != second
    assert canonical(first) == canonical(second)
    assert canonical(canonical(first)) == canonical(first)


def test_kernels_that_read_one_input_twice_differ_from_those_that_read_two(sketch):
    x, y = sketch.arg("f32[8]"), sketch.arg("f32[8]", "y")
    graph = sketch.finish([sketch.op("add", x, x, name="same"), sketch.op("add", x, y, name="two")])
    programs = [lower(candidate_of(graph, [name], [name]), Schedule(), "kernel", LIMITS) for name in ("same", "two")]
    assert canonical(programs[0]) != canonical(programs[1])


def test_all_steps_are_renamed(sketch):
    hidden = sketch.softmax(sketch.dot(sketch.arg("f32[8,4]"), sketch.arg("f32[4,8]", "w"), "product"))
    program = canonical(lowered(sketch.finish([hidden])))
    assert program.name == ""
    assert {buffer.name for buffer in program.buffers} == {f"b{n}" for n in range(len(program.buffers))}
    assert "product" not in repr(program)


def test_a_plan_lowers_in_its_running_order():
    graph = softmax_graph(8, 8)
    plan = plan_of(graph, [["peak"], ["shifted", "grown", "total"], ["share"]])
    kernels = lower_plan(plan, LIMITS)
    assert [{v.name for v in k.reads} for k in kernels] == [{"x"}, {"x", "peak"}, {"grown", "total"}]
    assert [[v.name for v in k.writes] for k in kernels] == [["peak"], ["grown", "total"], ["share"]]


def test_a_plan_with_an_illegal_fusion_is_refused_by_name():
    sketch = Sketch("two")
    x = sketch.arg("f32[8,4]")
    graph = sketch.finish([sketch.reduce(x, 0, name="columns"), sketch.reduce(x, 1, name="rows")])
    plan = plan_of(graph, [["columns"], ["rows"]])
    both = replace(plan.kernels[0], nodes=("columns", "rows"), outputs=("columns", "rows"), name="both")
    with pytest.raises(PlanError, match="kernel both of the plan is not a legal fusion: reduce %columns gives one"):
        lower_plan(replace(plan, kernels=(both,), order=(Launch(0),)), LIMITS)


@pytest.mark.parametrize(
    ("decided", "message"),
    [
        ({"unroll": 0}, "unroll: schedule unroll=0 is out of range: must be an integer from 1 to 64"),
        ({"unroll": "8"}, "unroll: schedule unroll='8' is out of range"),
        ({"speed": 9}, "speed: unknown schedule key 'speed'; known: dots, early_end, "),
        ({"unroll": 3}, "unroll: must be one of 1, 2, 4, 8 for this kernel, got 3"),
    ],
)
def test_a_plan_with_a_schedule_that_is_none_is_refused_by_path(decided, message):
    plan = plan_of(softmax_graph(8, 8), [["peak"], ["shifted", "grown", "total"], ["share"]])
    kernels = (plan.kernels[0], replace(plan.kernels[1], schedule=Schedule.from_json(decided)), plan.kernels[2])
    with pytest.raises(PlanError, match=re.escape(f"plan: kernels[1].schedule.{message}")):
        lower_plan(replace(plan, kernels=kernels), LIMITS)


# ---- groups ----------------------------------------------------------------------------------------------------------


def groups(graph, names, lanes, limits=LIMITS):
    plan = plan_of(graph, [[name] for name in names])
    by_name = {kernel.outputs[0]: number for number, kernel in enumerate(plan.kernels)}
    order = tuple(Launch(by_name[name], lane) for name, lane in zip(names, lanes, strict=True))
    return groups_of(lower_plan(replace(plan, order=order), limits))


def wide(sketch):
    x = sketch.arg("f32[8]")
    a, b = sketch.op("exp", x, name="a"), sketch.op("tanh", x, name="b")
    return sketch.finish([sketch.op("add", a, b, name="c"), sketch.op("sqrt", x, name="d")])


def test_increasing_places_are_a_group(sketch):
    assert groups(wide(sketch), ["a", "b", "c", "d"], [0, 1, 0, 1]) == [0, 0, 1, 1]


def test_one_place_is_one_after_another(sketch):
    assert groups(wide(sketch), ["a", "b", "c", "d"], [0, 0, 0, 0]) == [0, 1, 2, 3]


def test_a_reader_waits_for_its_producers_whatever_its_place(sketch):
    assert groups(wide(sketch), ["a", "b", "c", "d"], [0, 1, 2, 3]) == [0, 0, 1, 1]


def test_a_library_call_runs_alone(sketch):
    x = sketch.arg("f32[8]")
    ordered = sketch.op("sort", x, dimension=0, descending=False, stable=True, name="b")
    graph = sketch.finish([sketch.op("exp", x, name="a"), ordered, sketch.op("tanh", x, name="c")])
    assert groups(graph, ["a", "b", "c"], [0, 1, 2], replace(LIMITS, sorts=False)) == [0, 1, 2]
    assert groups(graph, ["a", "b", "c"], [0, 1, 2]) == [0, 0, 0]


# ---- in place --------------------------------------------------------------------------------------------------------


def in_place(graph, output=0):
    """Whether output number `output` may be written into the memory of the first input."""
    program = lowered(graph)
    inputs = [buffer.name for buffer in program.buffers if buffer.space.value == "input"]
    outputs = [buffer.name for buffer in program.buffers if buffer.space.value == "output"]
    return may_write_in_place(program, inputs[0], outputs[output])


def test_elementwise_work_is_done_in_place(sketch):
    x, y = sketch.arg("f32[8,8]"), sketch.arg("f32[8,8]", "y")
    assert in_place(sketch.finish([sketch.op("add", x, sketch.op("tanh", y))]))


def test_the_same_element_may_be_read_twice(sketch):
    x = sketch.arg("f32[8,8]")
    assert in_place(sketch.finish([sketch.op("multiply", x, x)]))


@pytest.mark.parametrize(
    "op",
    [
        lambda s, x: s.transpose(x),
        lambda s, x: s.op("reverse", x, dimensions=(1,)),
        lambda s, x: s.op("add", x, s.transpose(x)),
        lambda s, x: s.softmax(x),
        lambda s, x: s.op("subtract", x, s.broadcast(s.reduce(x, 1), x, 0)),
        lambda s, x: s.op("sort", x, dimension=0, descending=False, stable=True),
    ],
    ids=["transpose", "reverse", "sum with transpose", "softmax", "centred", "sorted"],
)
def test_what_reads_elsewhere_or_again_later_is_not_done_in_place(sketch, op):
    assert not in_place(sketch.finish([op(sketch, sketch.arg("f32[8,8]"))]))


def test_a_dot_is_not_done_in_place(sketch):
    x, w = sketch.arg("f32[8,8]"), sketch.arg("f32[8,8]", "w")
    assert not in_place(sketch.finish([sketch.dot(x, w)]))
    assert not in_place(sketch.finish([sketch.op("add", x, sketch.dot(w, w))]))


def test_another_output_that_reads_after_the_write_forbids_it(sketch):
    a, b, c = (sketch.arg("f32[8]", name) for name in "abc")
    first = sketch.op("add", sketch.op("tanh", b), c, name="first")
    second = sketch.op("add", a, c, name="second")
    graph = sketch.finish([first, second])
    program = lowered(graph)
    # `first` is stored before `second` loads a: written over a, it would give `second` the wrong operand
    assert not may_write_in_place(program, "a", "first")
    assert may_write_in_place(program, "a", "second")
    assert may_write_in_place(program, "b", "first")
