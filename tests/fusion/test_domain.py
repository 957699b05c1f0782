"""The grid of a kernel, and what is refused: users read these reasons in `explain`."""

import pytest

from autofuse.errors import LegalityError
from autofuse.fusion.domain import MAX_WINDOW, choose_domain, is_opaque
from autofuse.ir.dtypes import F32
from autofuse.testing.fusions import whole_kernel
from autofuse.testing.sketches import Sketch, attention_graph, softmax_graph


@pytest.fixture
def sketch():
    return Sketch("sketch")


def domain_of(sketch, *outputs):
    return choose_domain(whole_kernel(sketch.finish(outputs)))


def grid(domain):
    return [domain.dimensions.extent(factor) for factor in domain.grid]


def reason(sketch, *outputs):
    with pytest.raises(LegalityError) as raised:
        domain_of(sketch, *outputs)
    return str(raised.value)


# ---- loops -----------------------------------------------------------------------------------------------------------


def test_an_elementwise_kernel_walks_its_output(sketch):
    domain = domain_of(sketch, sketch.op("exp", sketch.arg("f32[8,4]")))
    assert grid(domain) == [8, 4]
    assert domain.rows == ()


def test_outputs_of_one_shape_share_a_loop_nest(sketch):
    x = sketch.arg("f32[8,4]")
    domain = domain_of(sketch, sketch.op("exp", x), sketch.op("tanh", x))
    assert grid(domain) == [8, 4]
    assert len(domain.groups) == 1


def test_loops_with_nothing_in_common_are_phases(sketch):
    first = sketch.op("exp", sketch.arg("f32[8,4]"))
    second = sketch.op("tanh", sketch.arg("f32[5]", "y"))
    domain = domain_of(sketch, first, second)
    assert domain.grid == ()
    assert domain.groups == ((first,), (second,))


def test_x_plus_its_transpose_is_a_loop(sketch):
    x = sketch.arg("f32[8,8]")
    domain = domain_of(sketch, sketch.op("add", x, sketch.transpose(x)))
    assert grid(domain) == [8, 8]


def test_a_made_value_and_its_transpose_are_a_loop_of_their_own_each(sketch):
    made = sketch.op("exp", sketch.arg("f32[8,8]"))
    mixed = sketch.op("add", made, sketch.transpose(made))
    domain = domain_of(sketch, mixed, made)
    assert domain.groups == ((mixed,), (made,))


# ---- reductions ----------------------------------------------------------------------------------------------------


def test_a_reduction_has_one_grid_point_per_result(sketch):
    assert grid(domain_of(sketch, sketch.reduce(sketch.arg("f32[8,4,2]"), 1))) == [8, 2]


def test_softmax_has_one_grid_point_per_row():
    assert grid(choose_domain(whole_kernel(softmax_graph(8, 4)))) == [8]


def test_reductions_over_different_axes_are_not_one_kernel(sketch):
    x = sketch.arg("f32[8,4]")
    rows, columns = sketch.reduce(x, 1, name="rows"), sketch.reduce(x, 0, name="columns")
    assert reason(sketch, rows, columns) == (
        "reduce %rows gives one value per point of a loop of 8 that output %columns does not have: "
        "it would be nested inside another reduction"
    )


def test_a_reduction_inside_another_is_refused(sketch):
    inner = sketch.reduce(sketch.arg("f32[8,4]"), 1, name="inner")
    outer = sketch.reduce(sketch.op("exp", inner), 0, name="outer")
    assert reason(sketch, outer) == (
        "reduce %inner gives one value per point of a loop of 8 that output %outer does not have: "
        "it would be nested inside another reduction"
    )


def test_a_reduction_over_a_sum_with_its_transpose_is_a_kernel(sketch):
    made = sketch.op("exp", sketch.arg("f32[8,8]"))
    total = sketch.reduce(sketch.op("add", made, sketch.transpose(made)), 1)
    assert grid(domain_of(sketch, total)) == [8]


def test_what_is_read_in_one_way_ties_loops_although_something_else_is_read_in_two(sketch):
    x, pairs = sketch.arg("f32[8]"), sketch.arg("f32[8,8]", "pairs")
    apart = sketch.op("subtract", sketch.broadcast(x, pairs, 1), sketch.broadcast(x, pairs, 0))
    sums = [sketch.reduce(sketch.op("multiply", sketch.op(op, apart), pairs), 1) for op in ("exp", "tanh")]
    assert grid(domain_of(sketch, *sums)) == [8]


def test_what_is_made_in_the_kernel_ties_loops_too(sketch):
    x, pairs = sketch.arg("f32[8]"), sketch.arg("f32[8,8]", "pairs")
    apart = sketch.op("subtract", sketch.broadcast(x, pairs, 1), sketch.broadcast(x, pairs, 0))
    distance = sketch.op("multiply", apart, apart, name="distance")
    sums = [sketch.reduce(sketch.op(op, distance), 1) for op in ("exp", "tanh")]
    assert grid(domain_of(sketch, *sums)) == [8]


def test_a_value_and_its_transpose_beside_a_reduction_of_both_are_refused(sketch):
    total = sketch.reduce(sketch.arg("f32[8,8]"), 1, name="total")
    row = sketch.broadcast(total, sketch.arg("f32[8,8]", "y"), 0)
    mixed = sketch.op("add", row, sketch.transpose(row))
    assert reason(sketch, mixed) == "two axes of one value would be the same loop, as in x + x.T"


# ---- contractions ----------------------------------------------------------------------------------------------------


def test_the_grid_of_a_dot_is_its_rows(sketch):
    domain = domain_of(sketch, sketch.dot(sketch.arg("f32[8,3]"), sketch.arg("f32[3,5]", "w")))
    assert grid(domain) == [8]
    assert domain.rows == domain.grid


def test_batch_axes_come_before_rows(sketch):
    domain = domain_of(sketch, sketch.dot(sketch.arg("f32[2,8,3]"), sketch.arg("f32[2,3,5]", "w"), batch=1))
    assert grid(domain) == [2, 8]
    assert [domain.dimensions.extent(factor) for factor in domain.rows] == [8]


def test_attention_is_one_kernel_over_rows():
    domain = choose_domain(whole_kernel(attention_graph(16, 4)))
    assert grid(domain) == [16]
    assert domain.rows == domain.grid


def test_a_dot_whose_columns_are_another_rows_is_refused(sketch):
    first = sketch.dot(sketch.arg("f32[8,3]"), sketch.arg("f32[3,5]", "w"), "first")
    second = sketch.dot(sketch.arg("f32[7,8]", "v"), first, "second")
    assert reason(sketch, second) == (
        "dot_general %first gives one row per point of a loop of 8 that output %second does not have: "
        "it would be nested inside another reduction"
    )


def test_a_reduction_over_rows_of_a_dot_is_refused(sketch):
    product = sketch.dot(sketch.arg("f32[8,3]"), sketch.arg("f32[3,5]", "w"), "product")
    assert "dot_general %product gives one row per point of a loop of 8" in reason(sketch, sketch.reduce(product, 0))


# ---- opaque calls ----------------------------------------------------------------------------------------------------


def test_an_opaque_call_is_a_kernel_of_its_own(sketch):
    x = sketch.arg("f32[8]")
    assert domain_of(sketch, sketch.emit("sort", [x], dimension=0, descending=False, stable=True)) is None


def test_what_moves_a_sorts_result_is_another_kernel(sketch):
    ordered = sketch.emit("sort", [sketch.arg("f32[8]")], dimension=0, descending=False, stable=True)
    assert domain_of(sketch, sketch.op("exp", ordered)) is None
    ordered = sketch.op("exp", sketch.op("reverse", ordered, dimensions=(0,)))
    assert reason(sketch, ordered) == "sort is an opaque call: nothing can be computed inside it"


@pytest.mark.parametrize(("window", "opaque"), [(MAX_WINDOW, False), (MAX_WINDOW + 1, True)])
def test_large_windows_are_calls(sketch, window, opaque):
    value = sketch.emit(
        "reduce_window",
        [sketch.arg("f32[1000]")],
        combiner="add",
        window_dimensions=(window,),
        window_strides=(1,),
        base_dilations=(1,),
        window_dilations=(1,),
        padding=((0, 0),),
    )
    assert value.type.dtype == F32
    assert is_opaque(sketch.finish([value]).producers[value]) is opaque
