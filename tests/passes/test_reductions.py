from __future__ import annotations

import numpy as np
import pytest

from autofuse.ir import dtypes
from autofuse.ir.interpreter import interpret
from autofuse.passes.reductionrules import SimplifyReductions


def _reduce(sketch, x, *dimensions, combiner="add"):
    return sketch.emit("reduce", [x], dimensions=dimensions, combiner=combiner)


@pytest.mark.parametrize("combiner", ["add", "multiply", "minimum", "maximum"])
@pytest.mark.parametrize("dtype", ["f16", "f32", "f64", "i8", "u32"])
def test_reductions_over_unit_axes_are_reshapes(sketch, ops, assert_same, dtype, combiner):
    x = sketch.arg(f"{dtype}[50,1,1]")
    graph = sketch.finish([_reduce(sketch, x, 2, 1, combiner=combiner), _reduce(sketch, x, combiner=combiner)])
    after = SimplifyReductions().apply(graph)
    assert "reduce" not in ops(after)
    assert_same(graph, after)  # a sum of -0. alone is 0.


def test_unit_axes_are_left_out_of_a_reduction(sketch, ops, assert_same):
    x = sketch.arg("i32[3,1,4]")
    graph = sketch.finish([_reduce(sketch, x, 2, 1)])
    after = SimplifyReductions().apply(graph)
    assert ops(after) == ["reduce", "reshape"]
    assert after.nodes[0].attrs["dimensions"] == (2,)
    assert_same(graph, after)


@pytest.mark.parametrize(
    ("dtype", "combiner"), [("f32", "maximum"), ("i16", "add"), ("bool", "or"), ("u8", "multiply")]
)
def test_nested_reductions_merge(sketch, ops, assert_same, dtype, combiner):
    x = sketch.arg(f"{dtype}[3,4,5,2]")
    inner = _reduce(sketch, x, 1, combiner=combiner)
    graph = sketch.finish([_reduce(sketch, inner, 2, 0, combiner=combiner)])
    after = SimplifyReductions().apply(graph)
    assert ops(after) == ["reduce"]
    assert after.nodes[0].attrs["dimensions"] == (0, 1, 3)
    assert_same(graph, after)


def test_nested_float_sums_merge_in_fast_numerics_only(sketch, ops):
    x = sketch.arg("f32[3,4,5]")
    graph = sketch.finish([_reduce(sketch, _reduce(sketch, x, 1), 0)])
    assert SimplifyReductions().apply(graph) is graph
    assert ops(SimplifyReductions("fast").apply(graph)) == ["reduce"]


def test_different_combiners_do_not_merge(sketch):
    x = sketch.arg("i32[3,4,5]")
    graph = sketch.finish([_reduce(sketch, _reduce(sketch, x, 1, combiner="maximum"), 0, combiner="minimum")])
    assert SimplifyReductions().apply(graph) is graph


@pytest.mark.parametrize("dimensions", [(0,), (1,), (2, 0)])
def test_a_reduction_goes_before_a_transpose(sketch, ops, assert_same, dimensions):
    x = sketch.arg("i32[3,4,5]")
    turned = sketch.emit("transpose", [x], permutation=(2, 0, 1))
    graph = sketch.finish([_reduce(sketch, turned, *dimensions)])
    after = SimplifyReductions().apply(graph)
    assert ops(after)[0] == "reduce"
    assert_same(graph, after)


def test_a_reduction_of_whole_runs_goes_before_a_reshape(sketch, ops, assert_same):
    x = sketch.arg("i32[2,3,20]")
    shaped = sketch.emit("reshape", [x], shape=(6, 4, 5))
    graph = sketch.finish([_reduce(sketch, shaped, 1, 2), _reduce(sketch, shaped, 0)])
    after = SimplifyReductions().apply(graph)
    assert ops(after) == ["reduce", "reshape", "reduce", "reshape"]
    assert_same(graph, after)


def test_a_reduction_of_part_of_a_run_stays(sketch):
    x = sketch.arg("i32[2,3,20]")
    graph = sketch.finish([_reduce(sketch, sketch.emit("reshape", [x], shape=(6, 4, 5)), 2)])
    assert SimplifyReductions().apply(graph) is graph


@pytest.mark.parametrize(("dtype", "combiner"), [("f32", "minimum"), ("i8", "add"), ("bool", "and")])
def test_repeated_elements_are_reduced_once(sketch, ops, assert_same, dtype, combiner):
    x = sketch.arg(f"{dtype}[4,1]")
    wide = sketch.emit("broadcast_in_dim", [x], shape=(3, 4, 50), broadcast_dimensions=(1, 2))
    graph = sketch.finish([_reduce(sketch, wide, *dims, combiner=combiner) for dims in ((0,), (1, 2), (0, 1, 2))])
    after = SimplifyReductions().apply(graph)
    largest = max(node.inputs[0].type.size for node in after.nodes if node.op == "reduce")
    assert largest <= 12
    assert_same(graph, after)


def test_a_float_sum_of_repeated_elements_is_a_product_in_fast_numerics(sketch, ops):
    x = sketch.arg("f32[4]")
    wide = sketch.emit("broadcast_in_dim", [x], shape=(4, 8), broadcast_dimensions=(0,))
    graph = sketch.finish([_reduce(sketch, wide, 1)])
    assert SimplifyReductions().apply(graph) is graph
    after = SimplifyReductions("fast").apply(graph)
    assert "reduce" not in ops(after)
    array = np.array([1, -2, 3.5, 0], np.float32)
    np.testing.assert_array_equal(interpret(after, array)[0], array * 8)


@pytest.mark.parametrize("op", ["argmin", "argmax"])
def test_positions_of_transposes_and_of_single_elements(sketch, ops, assert_same, op):
    x, y = sketch.arg("f32[3,4,5]"), sketch.arg("f32[7,1]", "y")
    turned = sketch.emit("transpose", [x], permutation=(2, 0, 1))
    found = [sketch.emit(op, [turned], dimension=d, dtype=dtypes.I64) for d in range(3)]
    graph = sketch.finish([*found, sketch.emit(op, [y], dimension=1, dtype=dtypes.I32)])
    after = SimplifyReductions().apply(graph)
    assert ops(after).count(op) == 3
    assert all(node.inputs[0] is x for node in after.nodes if node.op == op)
    assert_same(graph, after)


def test_running_reductions_windows_and_sorts_of_one_element_vanish(sketch, ops, assert_same):
    x = sketch.arg("f32[1,6]")
    ones = (1, 1)
    graph = sketch.finish(
        [
            sketch.emit("cumulative", [x], dimension=0, combiner="add", reverse=False),
            *sketch.emit_many("sort", [x, x], dimension=0, descending=False, stable=True),
            sketch.emit(
                "reduce_window",
                [x],
                window_dimensions=ones,
                window_strides=ones,
                base_dilations=ones,
                window_dilations=(3, 4),
                padding=((0, 0), (0, 0)),
                combiner="maximum",
            ),
        ]
    )
    after = SimplifyReductions().apply(graph)
    assert after.nodes == ()
    assert_same(graph, after)


def test_a_running_reduction_goes_before_a_transpose(sketch, ops, assert_same):
    x = sketch.arg("i32[3,4]")
    turned = sketch.emit("transpose", [x], permutation=(1, 0))
    graph = sketch.finish([sketch.emit("cumulative", [turned], dimension=0, combiner="add", reverse=True)])
    after = SimplifyReductions().apply(graph)
    assert ops(after) == ["cumulative", "transpose"]
    assert_same(graph, after)
