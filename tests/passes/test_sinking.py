from __future__ import annotations

import pytest

from autofuse.ir import dtypes
from autofuse.passes.sinking import SinkViews


def _broadcast(sketch, value, shape, *dims):
    return sketch.emit("broadcast_in_dim", [value], shape=shape, broadcast_dimensions=dims)


def test_a_chain_on_a_transpose_is_computed_before_it(sketch, ops, assert_same):
    x = sketch.arg("f32[3,4,5]")
    value = sketch.emit("transpose", [x], permutation=(2, 0, 1))
    value = sketch.emit("multiply", [value, sketch.splat(3.0, value)])
    value = sketch.emit("convert", [sketch.emit("tanh", [value])], dtype=dtypes.F16, name="result")
    graph = sketch.finish([value])
    after = SinkViews().apply(graph)
    assert ops(after) == ["broadcast_in_dim", "multiply", "tanh", "convert", "transpose"]
    assert after.nodes[-1].name == "result"
    assert_same(graph, after)
    assert SinkViews().apply(after) is after


@pytest.mark.parametrize("is_reshaped", [False, True])
def test_a_long_chain_that_turns_its_operand_is_walked_step_by_step(sketch, ops, assert_same, is_reshaped):
    value = sketch.arg("f32[3,4]")
    for _ in range(400):
        value = sketch.emit("transpose", [value], permutation=(1, 0))
        if is_reshaped:
            value = sketch.emit("reshape", [value], shape=(3, 4))
        value = sketch.emit("multiply", [value, sketch.splat(0.5, value)])
    graph = sketch.finish([value])
    after = SinkViews().apply(graph)
    assert len(after.nodes) <= len(graph.nodes)
    assert is_reshaped or "transpose" not in ops(after)  # two are none
    assert_same(graph, after)


def test_two_equal_reshapes_sink_together(sketch, ops, assert_same):
    x, y = sketch.arg("f32[3,4]"), sketch.arg("f32[3,4]", "y")
    left, right = (sketch.emit("reshape", [v], shape=(12,)) for v in (x, y))
    graph = sketch.finish([sketch.emit("add", [left, right])])
    after = SinkViews().apply(graph)
    assert ops(after) == ["add", "reshape"]
    assert_same(graph, after)


def test_different_views_stay(sketch):
    x, y = sketch.arg("f32[3,4]"), sketch.arg("f32[4,3]", "y")
    left, right = (sketch.emit("reshape", [v], shape=(12,)) for v in (x, y))
    plain = sketch.emit("add", [sketch.emit("transpose", [x], permutation=(1, 0)), y])
    graph = sketch.finish([sketch.emit("add", [left, right]), plain])
    assert SinkViews().apply(graph) is graph


def test_ops_on_equal_broadcasts_compute_the_small_array(sketch, ops, assert_same):
    variance = sketch.arg("f32[6]")
    wide = _broadcast(sketch, variance, (6, 7), 0)
    root = sketch.emit("rsqrt", [sketch.emit("add", [wide, sketch.splat(1e-5, wide)])])
    graph = sketch.finish([root])
    after = SinkViews().apply(graph)
    assert [str(after.producers[v].inputs[0].type) for v in after.outputs] == ["f32[6]"]
    assert ops(after) == ["broadcast_in_dim", "add", "rsqrt", "broadcast_in_dim"]
    assert_same(graph, after)


def test_ops_on_broadcast_scalars_compute_one_number(sketch, ops, assert_same):
    a, b = sketch.arg("f32[]"), sketch.arg("f32[]", "b")
    graph = sketch.finish([sketch.emit("divide", [_broadcast(sketch, v, (6, 7)) for v in (a, b)])])
    after = SinkViews().apply(graph)
    assert ops(after) == ["divide", "broadcast_in_dim"]
    assert_same(graph, after)


def test_a_bias_after_a_reshape_meets_the_dot_before_it(sketch, ops, assert_same):
    x, bias = sketch.arg("f32[6,8]"), sketch.arg("f32[8]", "bias")
    shaped = sketch.emit("reshape", [x], shape=(2, 3, 2, 4))
    wide = sketch.emit("reshape", [_broadcast(sketch, bias, (6, 8), 1)], shape=(2, 3, 2, 4))
    by_axes = _broadcast(sketch, sketch.arg("f32[2,4]", "b"), (2, 3, 2, 4), 2, 3)
    graph = sketch.finish([sketch.emit("add", [sketch.emit("add", [shaped, wide]), by_axes])])
    after = SinkViews().apply(graph)
    assert ops(after)[-1] == "reshape"
    assert {str(node.output.type) for node in after.nodes if node.op == "add"} == {"f32[6,8]"}
    assert_same(graph, after)


def test_a_bias_after_a_transpose_is_broadcast_before_it(sketch, ops, assert_same):
    x, bias = sketch.arg("f32[2,5,3]"), sketch.arg("f32[3]", "bias")
    turned = sketch.emit("transpose", [x], permutation=(0, 2, 1))
    graph = sketch.finish([sketch.emit("add", [turned, _broadcast(sketch, bias, (2, 3, 5), 1)])])
    after = SinkViews().apply(graph)
    assert ops(after) == ["broadcast_in_dim", "add", "transpose"]
    assert_same(graph, after)


def test_a_broadcast_that_crosses_the_reshaped_axes_stays(sketch):
    x, column = sketch.arg("f32[6,4]"), sketch.arg("f32[3]", "column")
    shaped = sketch.emit("reshape", [x], shape=(2, 3, 4))
    graph = sketch.finish([sketch.emit("add", [shaped, _broadcast(sketch, column, (2, 3, 4), 1)])])
    assert SinkViews().apply(graph) is graph
