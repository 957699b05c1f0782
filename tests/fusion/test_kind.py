"""The kinds of fusion that `explain` and the plan speak of, and kernels' short names."""

import pytest

from autofuse.fusion.kind import kind_of, title_of
from autofuse.testing.fusions import whole_kernel
from autofuse.testing.sketches import Sketch, attention_graph, softmax_graph


def mean(sketch, x):
    total = sketch.reduce(x, 1)
    return [sketch.op("divide", total, sketch.splat(64, total))]


def two_sums(sketch, x):
    return [sketch.reduce(x, 1), sketch.reduce(sketch.op("multiply", x, x), 1)]


def centred(sketch, x):
    return [sketch.op("subtract", x, sketch.broadcast(sketch.reduce(x, 1), x, 0))]


def running(sketch, x):
    scanned = sketch.op("cumulative", sketch.op("exp", x), dimension=1, combiner="add", reverse=False)
    return [sketch.op("log", scanned)]


def before_dot(sketch, x):
    return [sketch.dot(sketch.op("exp", x), sketch.arg("f32[64,8]", "w"))]


def after_dot(sketch, x):
    return [sketch.op("tanh", sketch.dot(x, sketch.arg("f32[64,8]", "w")))]


def two_dots(sketch, x):
    return [sketch.dot(sketch.dot(x, sketch.arg("f32[64,8]", "w")), sketch.arg("f32[8,3]", "v"))]


@pytest.mark.parametrize(
    ("make", "kind", "title"),
    [
        (lambda s, x: [s.op("tanh", s.op("exp", x))], "loop", "tanh"),
        (lambda s, x: [s.transpose(x)], "loop", "transpose"),
        (lambda s, x: [s.op("tanh", x), s.op("exp", x)], "multi-output", "exp"),
        (lambda s, x: [s.reduce(s.op("exp", x), 1)], "reduction", "reduce_add"),
        (mean, "reduction", "reduce_add_divide"),
        (two_sums, "reduction", "reduce_add"),
        (running, "reduction", "cumulative_log"),
        (centred, "stitch", "reduce_add_subtract"),
        (before_dot, "prologue", "dot"),
        (after_dot, "epilogue", "dot_tanh"),
        (two_dots, "stitch", "dot"),
        (lambda s, x: [s.dot(x, s.arg("f32[64,8]", "w"))], "product", "dot"),
        (lambda s, x: [s.op("sort", x, dimension=1, descending=False, stable=True)], "library", "sort"),
    ],
)
def test_kinds_and_titles(make, kind, title):
    sketch = Sketch("sketch")
    kernel = whole_kernel(sketch.finish(make(sketch, sketch.arg("f32[8,64]"))))
    assert kind_of(kernel) == kind
    assert title_of(kernel) == title


def test_softmax_and_attention_are_stitched():
    assert kind_of(whole_kernel(softmax_graph())) == "stitch"
    assert title_of(whole_kernel(softmax_graph())) == "reduce_maximum_reduce_add_divide"
    assert kind_of(whole_kernel(attention_graph())) == "stitch"
