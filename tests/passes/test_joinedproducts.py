"""Products that share an operand: when they become one, and what stays as it is."""

from __future__ import annotations

import numpy as np
import pytest

from autofuse.passes.joinedproducts import JoinColumns, JoinSteps


def _dot(sketch, lhs, rhs, depth=None, name=None):
    """`lhs @ rhs`; `depth`: the axis of `rhs` that is summed over."""
    depth = 0 if depth is None else depth
    return sketch.emit(
        "dot_general",
        [lhs, rhs],
        name=name,
        lhs_batching_dimensions=(),
        rhs_batching_dimensions=(),
        lhs_contracting_dimensions=(lhs.type.rank - 1,),
        rhs_contracting_dimensions=(depth,),
    )


def _row(sketch, value, at, axis=0):
    """`value[at]` along an axis, as indexing writes it."""
    shape = value.type.shape
    starts = tuple(at if d == axis else 0 for d in range(len(shape)))
    limits = tuple(at + 1 if d == axis else extent for d, extent in enumerate(shape))
    cut = sketch.emit("slice", [value], start_indices=starts, limit_indices=limits, strides=(1,) * len(shape))
    return sketch.emit("reshape", [cut], shape=(*shape[:axis], *shape[axis + 1 :]))


def _count(ops, graph, op):
    return ops(graph).count(op)


# ---- side by side ----------------------------------------------------------------------------------------------------


def test_projections_of_one_input_are_one_product(sketch, ops, assert_same_products):
    x = sketch.arg("f32[2,5,4]", "x")
    products = [_dot(sketch, x, sketch.arg(f"f32[4,{n}]", f"w{n}"), name=f"p{n}") for n in (3, 1, 6)]
    graph = sketch.finish([sketch.emit("exp", [product]) for product in products])
    after = JoinColumns().apply(graph)
    assert _count(ops, after, "dot_general") == _count(ops, after, "concatenate") == 1
    assert {"p3", "p1", "p6"} <= {node.name for node in after.nodes if node.op == "slice"}
    assert JoinColumns().apply(after) is after
    assert_same_products(graph, after)


def test_matrices_that_are_constants_are_joined_now(sketch, ops, assert_same_products):
    x = sketch.arg("f32[5,4]", "x")
    weights = [sketch.constant(np.arange(4 * n, dtype=np.float32).reshape(4, n)) for n in (3, 2)]
    graph = sketch.finish([_dot(sketch, x, w) for w in weights])
    after = JoinColumns().apply(graph)
    assert ops(after) == ["dot_general", "slice", "slice"]
    (joined,) = [node for node in after.nodes if node.op == "constant"]
    assert joined.output.type.shape == (4, 5)
    assert_same_products(graph, after)


def test_transposed_matrices_are_joined_along_their_rows(sketch, ops, assert_same_products):
    x = sketch.arg("f32[5,4]", "x")
    graph = sketch.finish([_dot(sketch, x, sketch.arg(f"f32[{n},4]", f"w{n}"), depth=1) for n in (3, 2)])
    after = JoinColumns().apply(graph)
    assert _count(ops, after, "dot_general") == 1
    assert_same_products(graph, after)


def test_vectors_that_are_added_to_all_products_are_joined_too(sketch, ops, assert_same_products):
    x = sketch.arg("f32[5,4]", "x")
    sums = []
    for n in (3, 2):
        product = _dot(sketch, x, sketch.arg(f"f32[4,{n}]", f"w{n}"))
        vector = sketch.arg(f"f32[{n}]", f"b{n}")
        wide = sketch.emit("broadcast_in_dim", [vector], shape=(5, n), broadcast_dimensions=(1,))
        sums.append(sketch.emit("add", [wide, product] if n == 3 else [product, wide], name=f"s{n}"))
    graph = sketch.finish(sums)
    after = JoinColumns().apply(graph)
    assert _count(ops, after, "add") == _count(ops, after, "dot_general") == 1
    assert [value.name for value in after.outputs] == ["s3", "s2"]
    assert_same_products(graph, after)


def test_one_product_without_a_vector_keeps_the_additions_apart(sketch, ops, assert_same_products):
    x = sketch.arg("f32[5,4]", "x")
    first, second = (_dot(sketch, x, sketch.arg(f"f32[4,{n}]", f"w{n}")) for n in (3, 2))
    wide = sketch.emit("broadcast_in_dim", [sketch.arg("f32[3]", "b")], shape=(5, 3), broadcast_dimensions=(1,))
    graph = sketch.finish([sketch.emit("add", [first, wide]), second])
    after = JoinColumns().apply(graph)
    assert _count(ops, after, "dot_general") == 1
    assert after.outputs == graph.outputs
    assert_same_products(graph, after)


def test_views_of_matrices_move_up(sketch, ops, assert_same_products):
    """The second matrix is cut out after the first product is computed."""
    x, w = sketch.arg("f32[5,4]", "x"), sketch.arg("f32[4,9]", "w")
    cuts = []
    for begin, end in ((0, 3), (5, 9)):
        part = sketch.emit("slice", [w], start_indices=(0, begin), limit_indices=(4, end), strides=(1, 1))
        cuts.append(sketch.emit("tanh", [_dot(sketch, x, part)]))
    graph = sketch.finish(cuts)
    after = JoinColumns().apply(graph)
    assert _count(ops, after, "dot_general") == 1
    assert_same_products(graph, after)


def test_a_matrix_that_is_computed_waits_for_nobody(sketch):
    """`x @ tanh(v)` may need the first product, so the two stay apart."""
    x, w = sketch.arg("f32[4,4]", "x"), sketch.arg("f32[4,4]", "w")
    first = _dot(sketch, x, w)
    graph = sketch.finish([_dot(sketch, x, sketch.emit("tanh", [first]))])
    assert JoinColumns().apply(graph) is graph


def test_products_of_different_inputs_stay_apart(sketch):
    x, y, w = sketch.arg("f32[4,4]", "x"), sketch.arg("f32[4,4]", "y"), sketch.arg("f32[4,4]", "w")
    graph = sketch.finish([_dot(sketch, x, w), _dot(sketch, y, w)])
    assert JoinColumns().apply(graph) is graph


# ---- step by step ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "axis"), [("[3,5,4]", 0), ("[5,3,4]", 1), ("[3,4]", 0), ("[3,1,4]", 0)])
def test_the_steps_of_a_sequence_are_one_product(sketch, ops, assert_same_products, shape, axis):
    x, w = sketch.arg(f"f32{shape}", "x"), sketch.arg("f32[4,6]", "w")
    graph = sketch.finish([sketch.emit("exp", [_dot(sketch, _row(sketch, x, t, axis), w)]) for t in (2, 0, 1)])
    after = JoinSteps().apply(graph)
    assert _count(ops, after, "dot_general") == 1
    dot = next(node for node in after.nodes if node.op == "dot_general")
    assert dot.inputs[0] is after.inputs[0]
    assert JoinSteps().apply(after) is after
    assert_same_products(graph, after)


def test_some_neighbouring_steps_are_cut_out_first(sketch, ops, assert_same_products):
    x, w = sketch.arg("f32[5,2,4]", "x"), sketch.arg("f32[6,4]", "w")
    graph = sketch.finish([_dot(sketch, _row(sketch, x, t), w, depth=1) for t in (1, 2, 3)])
    after = JoinSteps().apply(graph)
    assert _count(ops, after, "dot_general") == 1
    dot = next(node for node in after.nodes if node.op == "dot_general")
    assert dot.inputs[0].type.shape == (3, 2, 4)
    assert_same_products(graph, after)


@pytest.mark.parametrize("steps", [(0, 2), (1,), (0, 0)])
def test_steps_that_do_not_follow_one_another_stay_apart(sketch, steps):
    x, w = sketch.arg("f32[5,2,4]", "x"), sketch.arg("f32[4,6]", "w")
    graph = sketch.finish([_dot(sketch, _row(sketch, x, t), w) for t in steps])
    assert JoinSteps().apply(graph) is graph


def test_a_recurrence_joins_its_inputs_and_not_its_states(sketch, ops, assert_same_products):
    x, w, u = sketch.arg("f32[3,2,4]", "x"), sketch.arg("f32[4,6]", "w"), sketch.arg("f32[6,6]", "u")
    state = sketch.arg("f32[2,6]", "h")
    for t in range(3):
        state = sketch.emit("maximum", [_dot(sketch, _row(sketch, x, t), w), _dot(sketch, state, u)])
    graph = sketch.finish([state])
    after = JoinSteps().apply(graph)
    assert _count(ops, after, "dot_general") == 4
    assert_same_products(graph, after)


def test_matrices_of_their_own_stay_apart(sketch):
    x = sketch.arg("f32[2,5,4]", "x")
    graph = sketch.finish([_dot(sketch, _row(sketch, x, t), sketch.arg("f32[4,6]", f"w{t}")) for t in range(2)])
    assert JoinSteps().apply(graph) is graph
