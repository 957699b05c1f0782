"""Transposed values that are given a place in memory."""

from __future__ import annotations

import numpy as np

from autofuse.fusion.atoms import AtomGraph
from autofuse.passes.transposedcopies import StoreTransposes


def _dot(sketch, lhs, rhs):
    """`lhs @ rhs.T`."""
    return sketch.emit(
        "dot_general",
        [lhs, rhs],
        lhs_batching_dimensions=(),
        rhs_batching_dimensions=(),
        lhs_contracting_dimensions=(1,),
        rhs_contracting_dimensions=(1,),
    )


def _turned_twice(sketch, rows=64):
    x = sketch.arg(f"f32[{rows},32]", "x")
    turned = sketch.emit("transpose", [x], permutation=(1, 0), name="turned")
    peak = sketch.emit("reduce", [turned], dimensions=(1,), combiner="maximum")
    least = sketch.emit("reduce", [turned], dimensions=(1,), combiner="minimum")
    return sketch.finish([peak, least])


def test_what_two_read_transposed_can_be_stored(sketch, ops, assert_same):
    graph = _turned_twice(sketch)
    after = StoreTransposes().apply(graph)
    assert ops(after) == ["transpose", "convert", "reduce", "reduce"]
    assert after.value_by_name["turned"] is graph.value_by_name["turned"]
    assert_same(graph, after)
    assert StoreTransposes().apply(after) is after
    # the copy is something that a kernel can compute and write, which a view is not
    assert len(AtomGraph(after).atoms) == len(AtomGraph(graph).atoms) + 1


def test_one_reader_needs_no_copy(sketch):
    turned = sketch.emit("transpose", [sketch.arg("f32[64,32]")], permutation=(1, 0))
    graph = sketch.finish([sketch.emit("reduce", [turned], dimensions=(1,), combiner="add")])
    assert StoreTransposes().apply(graph) is graph


def test_what_fits_in_the_nearest_cache_needs_no_copy(sketch):
    graph = _turned_twice(sketch, rows=8)
    assert StoreTransposes().apply(graph) is graph


def test_a_matrix_that_several_products_read_along_its_rows_is_turned_once(sketch, ops, assert_same_products):
    x, y, w = sketch.arg("f32[3,40]", "x"), sketch.arg("f32[5,40]", "y"), sketch.arg("f32[30,40]", "w")
    graph = sketch.finish([_dot(sketch, x, w), _dot(sketch, y, w)])
    after = StoreTransposes().apply(graph)
    assert ops(after) == ["transpose", "convert", "dot_general", "dot_general"]
    assert_same_products(graph, after)
    assert StoreTransposes().apply(after) is after


def test_one_product_reads_a_matrix_as_it_lies(sketch):
    x, w = sketch.arg("f32[3,40]", "x"), sketch.arg("f32[30,40]", "w")
    graph = sketch.finish([_dot(sketch, x, w)])
    assert StoreTransposes().apply(graph) is graph


def test_a_constant_matrix_is_turned_now(sketch, ops, assert_same_products):
    x = sketch.arg("f32[3,40]", "x")
    w = sketch.constant(np.arange(1200, dtype=np.float32).reshape(30, 40))
    graph = sketch.finish([_dot(sketch, x, w)])
    after = StoreTransposes().apply(graph)
    assert ops(after) == ["dot_general"]
    assert after.nodes[0].output.type.shape == (40, 30)
    assert_same_products(graph, after)
    assert StoreTransposes().apply(after) is after
