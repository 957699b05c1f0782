"""Products that are only read in slices of their columns."""

from __future__ import annotations

import pytest

from autofuse.passes.splitting import SplitColumns


def _dot(sketch, lhs, rhs, depth=0):
    return sketch.emit(
        "dot_general",
        [lhs, rhs],
        lhs_batching_dimensions=(),
        rhs_batching_dimensions=(),
        lhs_contracting_dimensions=(lhs.type.rank - 1,),
        rhs_contracting_dimensions=(depth,),
    )


def _columns(sketch, value, begin, end, stride=1):
    shape = value.type.shape
    starts, limits = (*(0 for _ in shape[:-1]), begin), (*shape[:-1], end)
    return sketch.emit(
        "slice", [value], start_indices=starts, limit_indices=limits, strides=(*(1 for _ in shape[:-1]), stride)
    )


def _gates(sketch, value, *ranges):
    return [sketch.emit("tanh", [_columns(sketch, value, *cut)]) for cut in ranges]


@pytest.mark.parametrize("depth", [0, 1])
def test_the_matrix_is_cut_instead_of_the_product(sketch, ops, assert_same_products, depth):
    x, w = sketch.arg("f32[2,5,4]", "x"), sketch.arg("f32[4,6]" if depth == 0 else "f32[6,4]", "w")
    graph = sketch.finish(_gates(sketch, _dot(sketch, x, w, depth), (0, 3), (3, 6)))
    after = SplitColumns().apply(graph)
    assert sorted(ops(after)) == ["dot_general"] * 2 + ["slice"] * 2 + ["tanh"] * 2
    assert all(node.inputs[0].name == "w" for node in after.nodes if node.op == "slice")
    assert_same_products(graph, after)
    assert SplitColumns().apply(after) is after


def test_what_lies_between_is_cut_with_all_its_operands(sketch, ops, assert_same_products):
    x, w = sketch.arg("f32[5,4]", "x"), sketch.arg("f32[4,6]", "w")
    h, u = sketch.arg("f32[5,3]", "h"), sketch.arg("f32[3,6]", "u")
    scale = sketch.emit("abs", [sketch.arg("f32[5,6]", "s")])
    total = sketch.emit("add", [_dot(sketch, x, w), _dot(sketch, h, u)])
    graph = sketch.finish(_gates(sketch, sketch.emit("multiply", [total, scale]), (0, 2), (2, 4), (4, 6)))
    after = SplitColumns().apply(graph)
    assert ops(after).count("dot_general") == 6
    assert all(node.output.type.shape == (5, 2) for node in after.nodes if node.op in ("add", "multiply", "abs"))
    assert_same_products(graph, after)


def test_columns_that_nobody_reads_are_not_computed(sketch, ops, assert_same_products):
    x, w = sketch.arg("f32[5,4]", "x"), sketch.arg("f32[4,6]", "w")
    graph = sketch.finish(_gates(sketch, _dot(sketch, x, w), (1, 2), (4, 6)))
    after = SplitColumns().apply(graph)
    assert [node.output.type.shape[-1] for node in after.nodes if node.op == "dot_general"] == [1, 2]
    assert_same_products(graph, after)


@pytest.mark.parametrize("ranges", [((0, 4), (3, 6)), ((0, 6, 2), (1, 6, 2)), ((0, 3), (0, 6))])
def test_pieces_that_overlap_or_are_none_stay_slices(sketch, ranges):
    x, w = sketch.arg("f32[5,4]", "x"), sketch.arg("f32[4,6]", "w")
    graph = sketch.finish(_gates(sketch, _dot(sketch, x, w), *ranges))
    assert SplitColumns().apply(graph) is graph


def test_a_product_that_is_read_whole_too_stays_whole(sketch):
    x, w = sketch.arg("f32[5,4]", "x"), sketch.arg("f32[4,6]", "w")
    product = _dot(sketch, x, w)
    graph = sketch.finish([sketch.emit("exp", [product]), *_gates(sketch, product, (0, 3), (3, 6))])
    assert SplitColumns().apply(graph) is graph
    graph = sketch.finish([product, *_gates(sketch, product, (0, 3), (3, 6))])
    assert SplitColumns().apply(graph) is graph


def test_slices_of_rows_stay_slices(sketch):
    x, w = sketch.arg("f32[5,4]", "x"), sketch.arg("f32[4,6]", "w")
    product = _dot(sketch, x, w)
    rows = sketch.emit("slice", [product], start_indices=(0, 0), limit_indices=(2, 6), strides=(1, 1))
    graph = sketch.finish([sketch.emit("tanh", [rows])])
    assert SplitColumns().apply(graph) is graph


def test_elementwise_work_without_a_product_stays_as_it_is(sketch):
    both = sketch.emit("exp", [sketch.arg("f32[5,6]", "x")])
    graph = sketch.finish(_gates(sketch, both, (0, 3), (3, 6)))
    assert SplitColumns().apply(graph) is graph
