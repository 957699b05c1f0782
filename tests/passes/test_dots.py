from __future__ import annotations

import pytest

from autofuse.passes.productrules import FoldDots, SplitDepths


def _dot(sketch, lhs, rhs, contracting, batching=((), ())):
    return sketch.emit(
        "dot_general",
        [lhs, rhs],
        lhs_batching_dimensions=batching[0],
        rhs_batching_dimensions=batching[1],
        lhs_contracting_dimensions=contracting[0],
        rhs_contracting_dimensions=contracting[1],
    )


def test_attention_reads_heads_where_they_lie(sketch, ops, assert_same_products):
    q, k = sketch.arg("f32[2,5,3,4]", "q"), sketch.arg("f32[2,5,3,4]", "k")
    heads = [sketch.emit("transpose", [v], permutation=(0, 2, 1, 3)) for v in (q, k)]
    turned = sketch.emit("transpose", [heads[1]], permutation=(0, 1, 3, 2))
    graph = sketch.finish([_dot(sketch, heads[0], turned, ((3,), (2,)), ((0, 1), (0, 1)))])
    after = FoldDots().apply(graph)
    assert ops(after) == ["dot_general"]
    assert after.nodes[0].attrs["rhs_batching_dimensions"] == (0, 2)
    assert_same_products(graph, after)


def test_a_transposed_weight_is_contracted_over_its_other_dimension(sketch, ops, assert_same_products):
    x, w = sketch.arg("f64[5,4]"), sketch.arg("f64[6,4]", "w")
    graph = sketch.finish([_dot(sketch, x, sketch.emit("transpose", [w], permutation=(1, 0)), ((1,), (0,)))])
    after = FoldDots().apply(graph)
    assert ops(after) == ["dot_general"]
    assert_same_products(graph, after)


def test_free_dimensions_out_of_order_keep_their_transpose(sketch):
    x, w = sketch.arg("f32[5,3,4]"), sketch.arg("f32[4,6]", "w")
    turned = sketch.emit("transpose", [x], permutation=(1, 0, 2))
    graph = sketch.finish([_dot(sketch, turned, w, ((2,), (0,)))])
    assert FoldDots().apply(graph) is graph


@pytest.mark.parametrize("dtype", ["f32", "i32", "f16"])
def test_a_transposed_product_swaps_its_operands(sketch, ops, dtype, assert_same_products):
    x, w = sketch.arg(f"{dtype}[2,5,4]"), sketch.arg(f"{dtype}[2,4,6]", "w")
    product = _dot(sketch, x, w, ((2,), (1,)), ((0,), (0,)))
    graph = sketch.finish([sketch.emit("transpose", [product], permutation=(0, 2, 1))])
    after = FoldDots().apply(graph)
    assert ops(after) == ["dot_general"]
    assert_same_products(graph, after)


@pytest.mark.parametrize("permutation", [(0, 4, 1, 3, 2), (3, 0, 4, 1, 2), (1, 4, 3, 0, 2)])
def test_columns_that_come_before_rows_become_rows(sketch, ops, permutation, assert_same_products):
    """As JAX writes attention: values are the left operand, and heads are moved between rows and columns."""
    values, weights = sketch.arg("f32[2,7,3,5]"), sketch.arg("f32[2,3,4,6,7]", "w")
    product = _dot(sketch, values, weights, ((1,), (4,)), ((0, 2), (0, 1)))  # batches 2 and 3, rows 5, columns 4 and 6
    graph = sketch.finish([sketch.emit("transpose", [product], permutation=permutation)])
    after = FoldDots().apply(graph)
    assert ops(after) == ["dot_general", "transpose"]
    assert after.nodes[0].inputs[0].name == "w"
    assert_same_products(graph, after)
    assert FoldDots().apply(after) is after


@pytest.mark.parametrize("permutation", [(1, 0, 2, 3), (0, 2, 3, 1), (0, 3, 1, 2)])
def test_rows_that_come_before_columns_stay_rows(sketch, permutation):
    x, w = sketch.arg("f32[2,5,3,4]"), sketch.arg("f32[2,4,6]", "w")
    product = _dot(sketch, x, w, ((3,), (1,)), ((0,), (0,)))  # a batch of 2, rows 5 and 3, columns 6
    graph = sketch.finish([sketch.emit("transpose", [product], permutation=permutation)])
    after = FoldDots().apply(graph)
    assert (after is graph) == (permutation != (0, 3, 1, 2))


def test_a_product_that_others_read_is_not_computed_twice(sketch):
    x, w = sketch.arg("f32[5,4]"), sketch.arg("f32[4,6]", "w")
    product = _dot(sketch, x, w, ((1,), (0,)))
    graph = sketch.finish([product, sketch.emit("transpose", [product], permutation=(1, 0))])
    assert FoldDots().apply(graph) is graph


def test_a_weight_repeated_over_the_batch_is_read_once(sketch, ops, assert_same_products):
    x, w = sketch.arg("f32[2,3,5,4]"), sketch.arg("f32[6,4]", "w")
    wide = sketch.emit("broadcast_in_dim", [w], shape=(2, 3, 4, 6), broadcast_dimensions=(3, 2))
    graph = sketch.finish([_dot(sketch, x, wide, ((3,), (2,)), ((0, 1), (0, 1)))])
    after = FoldDots().apply(graph)
    assert ops(after) == ["dot_general"]
    assert after.nodes[0].attrs["lhs_batching_dimensions"] == ()
    assert_same_products(graph, after)


def test_a_partly_repeated_batch_keeps_the_results_order(sketch, assert_same_products):
    x, w = sketch.arg("f32[2,3,5,4]"), sketch.arg("f32[3,4,6]", "w")
    inner = sketch.emit("broadcast_in_dim", [w], shape=(2, 3, 4, 6), broadcast_dimensions=(1, 2, 3))
    graph = sketch.finish([_dot(sketch, x, inner, ((3,), (2,)), ((0, 1), (0, 1)))])
    assert FoldDots().apply(graph) is graph  # the repeated dimension would move behind the one that stays
    outer = sketch.emit("broadcast_in_dim", [sketch.arg("f32[2,4,6]", "v")], shape=(2, 3, 4, 6),
                        broadcast_dimensions=(0, 2, 3))  # fmt: skip
    graph = sketch.finish([_dot(sketch, x, outer, ((3,), (2,)), ((0, 1), (0, 1)))])
    after = FoldDots().apply(graph)
    assert after.nodes[-1].attrs["lhs_batching_dimensions"] == (0,)
    assert_same_products(graph, after)


def test_contracting_pairs_are_put_in_order(sketch, assert_same_products):
    x, y = sketch.arg("f32[5,4,3]"), sketch.arg("f32[3,4]", "y")
    graph = sketch.finish([_dot(sketch, x, y, ((2, 1), (0, 1)))])
    after = FoldDots().apply(graph)
    assert after.nodes[0].attrs["lhs_contracting_dimensions"] == (1, 2)
    assert after.nodes[0].attrs["rhs_contracting_dimensions"] == (1, 0)
    assert_same_products(graph, after)


def test_a_sum_of_shifted_products_is_one_product(sketch, ops, assert_same_products):
    x, w = sketch.arg("f32[6,4]", "x"), sketch.arg("f32[3,1,4,5]", "w")
    total = None
    for shift in range(3):
        rows = sketch.emit("slice", [x], start_indices=(shift, 0), limit_indices=(shift + 4, 4), strides=(1, 1))
        part = sketch.emit(
            "slice", [w], start_indices=(shift, 0, 0, 0), limit_indices=(shift + 1, 1, 4, 5), strides=(1,) * 4
        )
        product = _dot(sketch, rows, sketch.emit("reshape", [part], shape=(4, 5)), ((1,), (0,)))
        total = product if total is None else sketch.emit("add", [total, product])
    graph = sketch.finish([total])
    after = graph
    for _ in range(3):
        after = FoldDots().apply(after)
    assert ops(after).count("dot_general") == 1
    dot = next(node for node in after.nodes if node.op == "dot_general")
    assert dot.inputs[0].type.shape == (4, 12)
    assert_same_products(graph, after)


@pytest.mark.parametrize("starts", [(0, 5), (4, 0), (2, 6)])
def test_products_with_rows_apart_or_reversed(sketch, ops, starts, assert_same_products):
    x, y, w = sketch.arg("f32[6,4]", "x"), sketch.arg("f32[6,4]", "y"), sketch.arg("f32[10,5]", "w")
    parts = [sketch.emit("slice", [w], start_indices=(s, 0), limit_indices=(s + 4, 5), strides=(1, 1)) for s in starts]
    products = [_dot(sketch, left, part, ((1,), (0,))) for left, part in zip((x, y), parts, strict=True)]
    graph = sketch.finish([sketch.emit("add", products)])
    after = FoldDots().apply(graph)
    joined = starts != (0, 5)
    assert ops(after).count("dot_general") == (1 if joined else 2)
    assert_same_products(graph, after)


def test_products_with_columns_of_a_matrix_stay_apart(sketch, ops):
    x, w = sketch.arg("f32[6,4]", "x"), sketch.arg("f32[4,10]", "w")
    parts = [sketch.emit("slice", [w], start_indices=(0, s), limit_indices=(4, s + 5), strides=(1, 1)) for s in (0, 5)]
    graph = sketch.finish([sketch.emit("add", [_dot(sketch, x, part, ((1,), (0,))) for part in parts])])
    after = FoldDots().apply(graph)
    assert ops(after).count("dot_general") == 2


def _joined_depths(sketch, dtype="f32"):
    x, h = sketch.arg(f"{dtype}[6,4]", "x"), sketch.arg(f"{dtype}[6,3]", "h")
    w = sketch.arg(f"{dtype}[7,5]", "w")
    both = sketch.emit("concatenate", [x, h], dimension=1)
    return sketch.finish([_dot(sketch, both, w, ((1,), (0,)))])


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32"])
def test_a_product_of_a_concatenation_is_a_sum_of_products(sketch, ops, assert_same_products, dtype):
    graph = _joined_depths(sketch, dtype)
    after = SplitDepths().apply(graph)
    assert ops(after) == ["slice", "dot_general", "slice", "dot_general", "add"]
    assert [node.inputs[0].name for node in after.nodes if node.op == "dot_general"] == ["x", "h"]
    assert_same_products(graph, after)
    assert SplitDepths().apply(after) is after


def test_a_matrix_that_lies_transposed_is_cut_along_its_depth(sketch, ops, assert_same_products):
    x, h, w = sketch.arg("f32[6,4]", "x"), sketch.arg("f32[6,3]", "h"), sketch.arg("f32[5,7]", "w")
    both = sketch.emit("concatenate", [x, h], dimension=1)
    graph = sketch.finish([_dot(sketch, both, w, ((1,), (1,)))])
    after = SplitDepths().apply(graph)
    assert ops(after).count("dot_general") == 2
    assert_same_products(graph, after)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "bool"])
def test_sums_that_would_round_twice_stay_whole(sketch, dtype):
    graph = _joined_depths(sketch, dtype)
    assert SplitDepths().apply(graph) is graph


def test_a_concatenation_of_rows_stays_whole(sketch):
    x, y, w = sketch.arg("f32[6,4]", "x"), sketch.arg("f32[2,4]", "y"), sketch.arg("f32[4,5]", "w")
    both = sketch.emit("concatenate", [x, y], dimension=0)
    graph = sketch.finish([_dot(sketch, both, w, ((1,), (0,)))])
    assert SplitDepths().apply(graph) is graph


def test_products_can_be_left_apart(sketch, ops):
    x, y, w = sketch.arg("f32[6,4]", "x"), sketch.arg("f32[6,4]", "y"), sketch.arg("f32[8,5]", "w")
    parts = [sketch.emit("slice", [w], start_indices=(s, 0), limit_indices=(s + 4, 5), strides=(1, 1)) for s in (0, 4)]
    products = [_dot(sketch, left, part, ((1,), (0,))) for left, part in zip((x, y), parts, strict=True)]
    graph = sketch.finish([sketch.emit("add", products)])
    assert ops(FoldDots().apply(graph)).count("dot_general") == 1
    assert FoldDots(joins_depths=False).apply(graph) is graph
