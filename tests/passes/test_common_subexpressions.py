from __future__ import annotations

import numpy as np

from autofuse.ir import dtypes
from autofuse.passes.common_subexpressions import MergeCommon


def test_equal_nodes_merge_and_the_first_name_survives(sketch, ops, assert_same):
    x, y = sketch.arg("f32[3]"), sketch.arg("f32[3]", "y")
    first = sketch.emit("multiply", [x, y], name="first")
    second = sketch.emit("multiply", [y, x], name="second")
    graph = sketch.finish([sketch.emit("subtract", [sketch.emit("exp", [first]), sketch.emit("exp", [second])])])
    after = MergeCommon().apply(graph)
    assert ops(after) == ["multiply", "exp", "subtract"]
    assert after.nodes[0].name == "first"
    assert_same(graph, after)


def test_order_counts_where_it_changes_the_result(sketch):
    x, y = sketch.arg("f32[3]"), sketch.arg("f32[3]", "y")
    graph = sketch.finish([sketch.emit(op, pair) for op in ("subtract", "maximum") for pair in ([x, y], [y, x])])
    assert MergeCommon().apply(graph) is graph


def test_repeated_and_distinct_operands_differ(sketch):
    x, y = sketch.arg("f32[3]"), sketch.arg("f32[3]", "y")
    graph = sketch.finish([sketch.emit("add", [x, x]), sketch.emit("add", [x, y])])
    assert MergeCommon().apply(graph) is graph


def test_attributes_and_types_count(sketch):
    x = sketch.arg("f32[3]")
    graph = sketch.finish([sketch.emit("convert", [x], dtype=d) for d in (dtypes.F64, dtypes.F16)])
    assert MergeCommon().apply(graph) is graph


def test_constants_merge_by_bits(sketch):
    values = np.arange(1000, dtype=np.float32)
    changed = values.copy()
    changed[501] = -1
    graph = sketch.finish([sketch.constant(v) for v in (values, values.copy(), changed, values.view(np.int32))])
    after = MergeCommon().apply(graph)
    assert [value.name for value in after.outputs] == ["constant", "constant", "constant_2", "constant_3"]


def test_results_of_one_sort_serve_for_an_equal_sort(sketch, ops):
    x = sketch.arg("f32[8]")
    keys = [sketch.emit("sort", [x], dimension=0, descending=False, stable=True) for _ in range(2)]
    assert ops(MergeCommon().apply(sketch.finish(keys))) == ["sort"]


def test_custom_calls_stay_apart(sketch):
    x = sketch.arg("f32[8]")
    calls = [sketch.emit("custom_call", [x], call_target_name="draw", results=(x.type,)) for _ in range(2)]
    graph = sketch.finish(calls)
    assert MergeCommon().apply(graph) is graph
