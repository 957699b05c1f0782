"""A graph builder with short forms, and small programs that fusion, search and run time are tried on."""

from __future__ import annotations

from typing import Any

import numpy as np

from autofuse.ir.graph import Graph, Value
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.types import parse_type


class Sketch(GraphBuilder):
    """`emit` with fewer words."""

    def arg(self, spec: str, name: str = "x") -> Value:
        """An input from its type's text: `f32[8,8]`."""
        return self.input(parse_type(spec), name)

    def op(self, op: str, *inputs: Value, name: str | None = None, **attrs: Any) -> Value:
        """A node; operands first."""
        return self.emit(op, inputs, name=name, **attrs)

    def broadcast(self, value: Value, like: Value, *dimensions: int) -> Value:
        """`value` in the shape of `like`; its axes become `dimensions`."""
        return self.emit("broadcast_in_dim", [value], shape=like.type.shape, broadcast_dimensions=dimensions)

    def splat(self, number: float, like: Value) -> Value:
        """One number in the type of `like`."""
        scalar = self.constant(np.array(number, like.type.dtype.numpy))
        return self.broadcast(scalar, like)

    def reshape(self, value: Value, *shape: int) -> Value:
        return self.emit("reshape", [value], shape=shape)

    def transpose(self, value: Value) -> Value:
        """The axes in reverse order."""
        return self.emit("transpose", [value], permutation=tuple(range(value.type.rank))[::-1])

    def reduce(self, value: Value, *dimensions: int, combiner: str = "add", name: str | None = None) -> Value:
        """A reduction."""
        return self.emit("reduce", [value], dimensions=dimensions, combiner=combiner, name=name)

    def dot(self, lhs: Value, rhs: Value, name: str | None = None, batch: int = 0) -> Value:
        """`lhs @ rhs`, with leading batch axes."""
        axes = tuple(range(batch))
        return self.emit(
            "dot_general",
            [lhs, rhs],
            name=name,
            lhs_batching_dimensions=axes,
            rhs_batching_dimensions=axes,
            lhs_contracting_dimensions=(lhs.type.rank - 1,),
            rhs_contracting_dimensions=(batch,),
        )

    def softmax(self, x: Value) -> Value:
        """Over the last axis, of rank 2: the nodes `peak`, `shifted`, `grown`, `total`, `share`."""
        peak = self.reduce(x, 1, combiner="maximum", name="peak")
        shifted = self.op("subtract", x, self.broadcast(peak, x, 0), name="shifted")
        grown = self.op("exp", shifted, name="grown")
        total = self.reduce(grown, 1, name="total")
        return self.op("divide", grown, self.broadcast(total, x, 0), name="share")


def softmax_graph(rows: int = 64, columns: int = 64) -> Graph:
    """Softmax over rows."""
    build = Sketch("softmax")
    return build.finish([build.softmax(build.arg(f"f32[{rows},{columns}]"))])


def attention_graph(length: int = 64, width: int = 32) -> Graph:
    """`softmax(q @ k) @ v`, one head."""
    build = Sketch("attention")
    q, k, v = (
        build.arg(f"f32[{length},{width}]", "q"),
        build.arg(f"f32[{width},{length}]", "k"),
        build.arg(f"f32[{length},{width}]", "v"),
    )
    return build.finish([build.dot(build.softmax(build.dot(q, k, "scores")), v, "context")])


def layers_graph(layers: int = 3, rows: int = 64, columns: int = 64) -> Graph:
    """Equal layers of `tanh(softmax(x) * row sums)`, each reading the one before."""
    build = Sketch("layers")
    x = build.arg(f"f32[{rows},{columns}]")
    for _ in range(layers):
        total = build.reduce(x, 1)
        x = build.op("tanh", build.op("multiply", build.softmax(x), build.broadcast(total, x, 0)))
    return build.finish([x])


def diamond_graph(size: int = 4096) -> Graph:
    """`e = exp(x)` summed over rows and divided by its sums over columns: two kernels, and `e` may be in both."""
    build = Sketch("diamond")
    x = build.arg(f"f32[{size // 64},64]")
    grown = build.op("exp", x, name="grown")
    columns = build.reduce(grown, 0, name="columns")
    rows = build.reduce(grown, 1, name="rows")
    return build.finish([columns, build.op("divide", grown, build.broadcast(rows, x, 0), name="share")])


def peaks_and_sums_graph() -> Graph:
    """Differences from a row's peak, which a sum along the rows and one down the columns read.

    They are large enough that writing them is not hidden behind what computes them.
    """
    sketch = Sketch("centred")
    x = sketch.arg("f32[2048,2048]")
    peak = sketch.reduce(x, 1, combiner="maximum", name="peak")
    shifted = sketch.op("subtract", x, sketch.broadcast(peak, x, 0), name="shifted")
    total = sketch.reduce(sketch.op("exp", shifted, name="grown"), 1, name="total")
    return sketch.finish([total, sketch.reduce(shifted, 0, name="columns")])
