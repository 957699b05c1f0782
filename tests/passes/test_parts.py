"""Reductions of concatenations: what is done on the parts, and what is left whole."""

from __future__ import annotations

import pytest

from autofuse.passes.parts import SplitConcatenations


def _joined(sketch, dtype="f32", axis=1):
    shapes = {0: ("[3,5]", "[2,5]"), 1: ("[4,3]", "[4,2]")}[axis]
    parts = [sketch.arg(f"{dtype}{shape}", name) for shape, name in zip(shapes, "xy", strict=True)]
    return sketch.emit("concatenate", parts, dimension=axis)


def _reduced(sketch, value, *dimensions, combiner="add"):
    return sketch.emit("reduce", [value], dimensions=dimensions, combiner=combiner)


@pytest.mark.parametrize("combiner", ["add", "maximum", "minimum"])
@pytest.mark.parametrize("dtype", ["f32", "i32"])
def test_a_reduction_along_the_concatenation_is_a_reduction_of_each_part(
    sketch, ops, assert_same_products, combiner, dtype
):
    graph = sketch.finish([_reduced(sketch, _joined(sketch, dtype), 1, combiner=combiner)])
    after = SplitConcatenations().apply(graph)
    assert ops(after) == ["reduce", "reduce", combiner]
    assert_same_products(graph, after)
    assert SplitConcatenations().apply(after) is after


def test_a_reduction_along_another_axis_gives_a_smaller_concatenation(sketch, ops, assert_same):
    graph = sketch.finish([_reduced(sketch, _joined(sketch), 0, combiner="maximum")])
    after = SplitConcatenations().apply(graph)
    assert ops(after) == ["reduce", "reduce", "concatenate"]
    assert after.nodes[-1].attrs["dimension"] == 0
    assert_same(graph, after)


def test_a_reduction_of_everything(sketch, ops, assert_same_products):
    graph = sketch.finish([_reduced(sketch, _joined(sketch, axis=0), 0, 1)])
    after = SplitConcatenations().apply(graph)
    assert ops(after) == ["reduce", "reduce", "add"]
    assert_same_products(graph, after)


def test_what_is_only_reduced_is_computed_on_the_parts(sketch, ops, assert_same_products):
    joined = _joined(sketch)
    other = sketch.arg("f32[4,5]", "z")
    product = sketch.emit("multiply", [sketch.emit("multiply", [joined, joined]), other])
    scaled = sketch.emit("multiply", [product, sketch.splat(2.0, product)])
    graph = sketch.finish([_reduced(sketch, scaled, 1)])
    after = SplitConcatenations().apply(graph)
    assert "concatenate" not in ops(after)
    assert ops(after).count("reduce") == 2
    assert_same_products(graph, after)


def test_what_others_read_too_stays_whole(sketch, ops, assert_same_products):
    joined = _joined(sketch)
    square = sketch.emit("multiply", [joined, joined])
    graph = sketch.finish([square, _reduced(sketch, sketch.emit("add", [square, square]), 1)])
    assert SplitConcatenations().apply(graph) is graph
    graph = sketch.finish([sketch.emit("exp", [joined]), _reduced(sketch, square, 1)])
    after = SplitConcatenations().apply(graph)
    assert ops(after).count("concatenate") == 1
    assert ops(after).count("reduce") == 2


def test_operands_that_must_be_computed_first_are_not_cut(sketch):
    joined = _joined(sketch)
    other = sketch.emit("tanh", [sketch.arg("f32[4,5]", "z")])
    graph = sketch.finish([_reduced(sketch, sketch.emit("multiply", [joined, other]), 1)])
    assert SplitConcatenations().apply(graph) is graph


@pytest.mark.parametrize(("dtype", "combiner"), [("f16", "add"), ("bf16", "add"), ("f32", "multiply")])
def test_partial_results_that_round_stay_whole(sketch, dtype, combiner):
    graph = sketch.finish([_reduced(sketch, _joined(sketch, dtype), 1, combiner=combiner)])
    assert SplitConcatenations().apply(graph) is graph
