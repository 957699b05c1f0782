from __future__ import annotations

import numpy as np
import pytest

from autofuse.ir import dtypes
from autofuse.passes.constant_folding import FoldConstants


def _fold(sketch, *outputs):
    return FoldConstants().apply(sketch.finish(outputs))


def test_numbers_stay_a_scalar_constant_and_a_broadcast(sketch, ops, assert_same):
    x = sketch.arg("f32[4,5]")
    graph = sketch.finish([sketch.emit("add", [x, sketch.emit("exp", [sketch.splat(2.0, x)], name="e")])])
    after = FoldConstants().apply(graph)
    assert ops(after) == ["broadcast_in_dim", "add"]
    assert after.nodes[0].attrs["value"].shape == ()
    assert after.nodes[1].name == "e"
    assert_same(graph, after)


def test_an_array_of_one_repeated_value_becomes_a_broadcast(sketch, ops):
    nans = sketch.constant(np.full((2, 3), np.nan, np.float32))
    after = _fold(sketch, nans)
    assert ops(after) == ["broadcast_in_dim"]


def test_zeros_of_both_signs_are_not_one_value(sketch):
    graph = sketch.finish([sketch.constant(np.array([0.0, -0.0], np.float32))])
    assert FoldConstants().apply(graph) is graph


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_every_dtype_folds_to_the_interpreters_bits(sketch, ops, assert_same, dtype):
    values = np.array([0, 1, 1, 0, 1]).astype(dtype.numpy)
    a, b = sketch.constant(values), sketch.constant(values[::-1].copy())
    graph = sketch.finish([sketch.emit("add", [a, b]), sketch.emit("convert", [a], dtype=dtypes.F16)])
    after = FoldConstants().apply(graph)
    assert ops(after) == [op for op in ops(after) if op == "broadcast_in_dim"]  # arrays of 1s are splats
    assert_same(graph, after)


def test_results_larger_than_the_limit_and_their_operands_are_left(sketch):
    half = sketch.constant(np.arange(100, dtype=np.float16))
    wider = sketch.finish([sketch.emit("convert", [half], dtype=dtypes.F64)])
    assert FoldConstants(limit_bytes=400).apply(wider) is wider
    assert len(FoldConstants(limit_bytes=800).apply(wider).nodes) == 1


def test_large_constants_fold_where_the_result_is_no_larger(sketch, ops):
    weights = sketch.constant(np.arange(30_000, dtype=np.float64))
    after = _fold(sketch, sketch.emit("convert", [weights], dtype=dtypes.F32))
    assert ops(after) == []


def test_a_broadcast_array_and_an_iota_are_not_stored(sketch):
    line = sketch.constant(np.arange(4, dtype=np.float32))
    wide = sketch.emit("broadcast_in_dim", [line], shape=(3, 4), broadcast_dimensions=(1,))
    counted = sketch.emit("iota", shape=(3, 4), dtype=dtypes.I32, iota_dimension=0)
    graph = sketch.finish([wide, sketch.emit("transpose", [counted], permutation=(1, 0))])
    assert FoldConstants().apply(graph) is graph


def test_a_small_causal_mask_becomes_a_constant(sketch, ops, assert_same):
    rows, columns = (sketch.emit("iota", shape=(6, 6), dtype=dtypes.I64, iota_dimension=d) for d in (0, 1))
    graph = sketch.finish([sketch.emit("compare", [rows, columns], direction="GE")])
    after = FoldConstants().apply(graph)
    assert ops(after) == []
    assert_same(graph, after)


def test_index_ops_on_one_repeated_value_give_it_again(sketch, ops, assert_same):
    x = sketch.arg("i32[3,4]")
    twos, two = sketch.splat(2, x), sketch.scalar(2, "i32")
    outputs = [
        sketch.emit("concatenate", [twos, twos], dimension=0),
        sketch.emit("slice", [twos], start_indices=(0, 1), limit_indices=(3, 3), strides=(1, 1)),
        sketch.emit("reshape", [twos], shape=(12,)),
        sketch.emit("reduce", [twos], dimensions=(0,), combiner="maximum"),
        sketch.emit(
            "pad",
            [twos, two],
            edge_padding_low=(1, 0),
            edge_padding_high=(0, 0),
            interior_padding=(0, 2),
        ),
    ]
    graph = sketch.finish(outputs)
    after = FoldConstants().apply(graph)
    assert set(ops(after)) == {"broadcast_in_dim"}
    assert_same(graph, after)


def test_custom_calls_are_not_run(sketch):
    number = sketch.scalar(1, "f32")
    graph = sketch.finish([sketch.emit("custom_call", [number], call_target_name="absent", results=(number.type,))])
    assert FoldConstants().apply(graph) is graph


def test_long_contractions_are_left_to_run_time(sketch):
    a, b = (sketch.constant(np.arange(400 * 400, dtype=np.float32).reshape(400, 400) + n) for n in (0, 1))
    dims = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}
    batch = {"lhs_batching_dimensions": (), "rhs_batching_dimensions": ()}
    graph = sketch.finish([sketch.emit("dot_general", [a, b], **dims, **batch)])
    assert FoldConstants().apply(graph) is graph
