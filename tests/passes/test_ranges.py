from __future__ import annotations

import numpy as np
import pytest

from autofuse.ir import dtypes
from autofuse.ir.interpreter import interpret
from autofuse.passes.arithmetic import SimplifyArithmetic
from autofuse.passes.facts import Facts
from autofuse.passes.pipeline import clean
from autofuse.passes.ranges import integer_range


def _range(sketch, value):
    facts = Facts({})
    for node in sketch.finish([value]).nodes:
        facts.add(node)
    return integer_range(value, facts)


@pytest.fixture
def counted(sketch):
    return sketch.emit("iota", shape=(5, 3), dtype=dtypes.I32, iota_dimension=0)


def test_ranges_of_expressions(sketch, counted):
    x = sketch.arg("i32[5,3]")
    five, minus = sketch.splat(5, counted), sketch.splat(-2, counted)
    assert _range(sketch, counted) == (0, 4)
    assert _range(sketch, sketch.emit("subtract", [counted, five])) == (-5, -1)
    assert _range(sketch, sketch.emit("multiply", [counted, minus])) == (-8, 0)
    assert _range(sketch, sketch.emit("clamp", [minus, x, five])) == (-2, 5)
    assert _range(sketch, sketch.emit("remainder", [x, five])) == (-4, 4)
    assert _range(sketch, sketch.emit("concatenate", [counted, five], dimension=0)) == (0, 5)
    assert _range(sketch, sketch.emit("argmax", [x], dimension=1, dtype=dtypes.I64)) == (0, 2)
    assert _range(sketch, sketch.emit("transpose", [counted], permutation=(1, 0))) == (0, 4)
    assert _range(sketch, x) == (-(2**31), 2**31 - 1)


def test_what_could_wrap_has_the_range_of_its_dtype(sketch):
    counted = sketch.emit("iota", shape=(100,), dtype=dtypes.I8, iota_dimension=0)
    assert _range(sketch, sketch.emit("add", [counted, counted])) == (-128, 127)
    wide = sketch.emit("iota", shape=(300,), dtype=dtypes.U8, iota_dimension=0)
    assert _range(sketch, wide) == (0, 255)
    cut = sketch.emit("convert", [sketch.emit("iota", shape=(300,), dtype=dtypes.I32, iota_dimension=0)],
                      dtype=dtypes.I8)  # fmt: skip
    assert _range(sketch, cut) == (-128, 127)


@pytest.mark.parametrize("direction", ["EQ", "NE", "LT", "LE", "GT", "GE"])
@pytest.mark.parametrize("bound", [-1, 0, 2, 4, 5])
def test_comparisons_that_ranges_decide_are_right(sketch, counted, direction, bound):
    graph = sketch.finish([sketch.emit("compare", [counted, sketch.splat(bound, counted)], direction=direction)])
    after = SimplifyArithmetic().apply(graph)
    np.testing.assert_array_equal(interpret(after)[0], interpret(graph)[0])
    decided = not any(node.op == "compare" for node in after.nodes)
    assert decided == (len(np.unique(interpret(graph)[0])) == 1)


def test_found_positions_need_no_wrapping_of_negative_indices(sketch, ops):
    x = sketch.arg("f32[4,9]")
    best = sketch.emit("argmax", [x], dimension=1, dtype=dtypes.I64)
    negative = sketch.emit("compare", [best, sketch.splat(0, best)], direction="LT")
    wrapped = sketch.emit("select", [negative, sketch.emit("add", [best, sketch.splat(9, best)]), best])
    assert ops(clean(sketch.finish([wrapped]))) == ["argmax"]
