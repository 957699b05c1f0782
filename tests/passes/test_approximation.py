"""What targets may approximate is marked: of short floats, by fast numerics alone, once."""

import pytest

from autofuse.ir.digest import digest
from autofuse.passes.approximation import MarkApproximations
from autofuse.passes.pipeline import clean

PLAIN = {
    "lhs_batching_dimensions": (),
    "rhs_batching_dimensions": (),
    "lhs_contracting_dimensions": (1,),
    "rhs_contracting_dimensions": (0,),
}


def marks(graph):
    return [(node.op, node.attrs.get("numerics")) for node in graph.nodes]


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_functions_and_divisions_of_short_floats_are_marked(sketch, dtype):
    x = sketch.arg(f"{dtype}[4]")
    graph = sketch.finish([sketch.emit("divide", [sketch.emit("exp", [x]), sketch.emit("erf", [x])])])
    assert marks(MarkApproximations().apply(graph)) == [("exp", "fast"), ("erf", None), ("divide", "fast")]


@pytest.mark.parametrize("dtype", ["f64", "i32"])
def test_doubles_and_integers_are_not(sketch, dtype):
    x = sketch.arg(f"{dtype}[4,4]")
    graph = sketch.finish([sketch.emit("divide", [sketch.emit("dot_general", [x, x], **PLAIN), x])])
    assert MarkApproximations().apply(graph) is graph


@pytest.mark.parametrize(("dtype", "mark"), [("f32", "fast"), ("f16", None), ("bf16", None)])
def test_products_are_marked_where_factors_are_longer_than_units_take_them(sketch, dtype, mark):
    x = sketch.arg(f"{dtype}[4,4]")
    graph = sketch.finish([sketch.emit("dot_general", [x, x], **PLAIN)])
    assert marks(MarkApproximations().apply(graph)) == [("dot_general", mark)]


def test_strict_graphs_are_as_they_were_and_marked_ones_stay(sketch):
    x = sketch.arg("f32[4]")
    graph = sketch.finish([sketch.emit("tanh", [x])])
    assert digest(clean(graph)) == digest(graph)
    marked = clean(graph, "fast")
    assert marks(marked) == [("tanh", "fast")]
    assert digest(marked) != digest(graph)
    assert digest(clean(marked, "fast")) == digest(marked)
    assert MarkApproximations().apply(marked) is marked
