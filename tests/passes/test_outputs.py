from __future__ import annotations

import numpy as np

from autofuse.ir import dtypes
from autofuse.ir.interpreter import interpret
from autofuse.passes.outputs import MaterialiseOutputs


def test_each_output_becomes_a_computed_value_of_its_own(sketch):
    x = sketch.arg("f32[3]")
    y = sketch.emit("negate", [x], name="y")
    number = sketch.constant(np.arange(3, dtype=np.float32), "number")
    counted = sketch.emit("iota", shape=(3,), dtype=dtypes.F32, iota_dimension=0, name="counted")
    graph = sketch.finish([y, x, y, number, counted, x])
    after = MaterialiseOutputs().apply(graph)
    assert [value.name for value in after.outputs] == ["y", "x_out", "y_out", "number_out", "counted_out", "x_out_1"]
    assert all(after.producers[value].op in ("negate", "reshape") for value in after.outputs)
    array = np.array([1, -2, 3], np.float32)
    for old, new in zip(interpret(graph, array), interpret(after, array), strict=True):
        np.testing.assert_array_equal(old, new)


def test_distinct_computed_outputs_are_left(sketch):
    x = sketch.arg("f32[3]")
    graph = sketch.finish([sketch.emit("negate", [x]), sketch.emit("transpose", [x], permutation=(0,))])
    assert MaterialiseOutputs().apply(graph) is graph
