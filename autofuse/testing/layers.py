"""The layers of neural networks as sketches: what a NumPy user would write for them."""

from __future__ import annotations

import math

from autofuse.ir.graph import Value
from autofuse.testing.sketches import Sketch


class Layers(Sketch):
    """The operations of neural networks, as NumPy would write them."""

    def number(self, op: str, x: Value, number: float, name: str | None = None) -> Value:
        return self.op(op, x, self.splat(number, x), name=name)

    def from_number(self, op: str, number: float, x: Value, name: str | None = None) -> Value:
        return self.op(op, self.splat(number, x), x, name=name)

    def bias(self, y: Value, name: str = "biased", axis: int | None = None) -> Value:
        axis = y.type.rank - 1 if axis is None else axis
        vector = self.arg(f"{y.type.dtype.name}[{y.type.shape[axis]}]", "bias")
        return self.op("add", y, self.broadcast(vector, y, axis), name=name)

    def relu(self, x: Value) -> Value:
        return self.number("maximum", x, 0, "positive")

    def product(self, dtype: str = "f32", name: str = "product") -> Value:
        return self.dot(self.arg(f"{dtype}[64,32]"), self.arg(f"{dtype}[32,48]", "w"), name)

    def convolution(self, x: Value, w: Value, *, first: bool = False, groups: int = 1) -> Value:
        """Same-size; channels last or first, the filter's channels last."""
        rank = x.type.rank
        spatial = tuple(range(rank - 2))
        space = tuple(axis + (2 if first else 1) for axis in spatial)
        channel = 1 if first else rank - 1
        one = (1,) * (rank - 2)
        return self.op(
            "convolution",
            x,
            w,
            name="image",
            window_strides=one,
            padding=tuple((w.type.shape[axis] // 2, w.type.shape[axis] // 2) for axis in spatial),
            lhs_dilation=one,
            rhs_dilation=one,
            input_batch_dimension=0,
            input_feature_dimension=channel,
            input_spatial_dimensions=space,
            kernel_input_feature_dimension=rank - 2,
            kernel_output_feature_dimension=rank - 1,
            kernel_spatial_dimensions=spatial,
            output_batch_dimension=0,
            output_feature_dimension=channel,
            output_spatial_dimensions=space,
            feature_group_count=groups,
            batch_group_count=1,
        )

    def image(self, dtype: str = "f32") -> Value:
        return self.convolution(self.arg(f"{dtype}[2,14,14,8]"), self.arg(f"{dtype}[3,3,8,16]", "w"))

    def batch_norm(self, x: Value) -> Value:
        """At inference: the nodes `shifted epsilon root normal scaled moved`."""
        vectors = [self.arg(f"{x.type.dtype.name}[{x.type.shape[-1]}]", n) for n in ("mean", "var", "gamma", "beta")]
        mean, variance, gamma, beta = vectors
        axis = x.type.rank - 1
        shifted = self.op("subtract", x, self.broadcast(mean, x, axis), name="shifted")
        root = self.op("sqrt", self.number("add", variance, 1e-3, "epsilon"), name="root")
        normal = self.op("divide", shifted, self.broadcast(root, x, axis), name="normal")
        scaled = self.op("multiply", normal, self.broadcast(gamma, x, axis), name="scaled")
        return self.op("add", scaled, self.broadcast(beta, x, axis), name="moved")

    def mean(self, x: Value, axes: tuple[int, ...], name: str) -> Value:
        """The nodes `{name}_sum {name}`."""
        total = self.fold(x, *axes, name=f"{name}_sum")
        return self.number("divide", total, math.prod([x.type.shape[axis] for axis in axes]), name)

    def layer_norm(self, x: Value, epsilon: float = 1e-3) -> Value:
        """The nodes `mean_sum mean centred square var_sum var epsilon root normal scaled moved`."""
        rows, last = tuple(range(x.type.rank - 1)), x.type.rank - 1
        mean = self.mean(x, (last,), "mean")
        centred = self.op("subtract", x, self.broadcast(mean, x, *rows), name="centred")
        square = self.op("multiply", centred, centred, name="square")
        variance = self.mean(square, (last,), "var")
        root = self.op("sqrt", self.number("add", variance, epsilon, "epsilon"), name="root")
        normal = self.op("divide", centred, self.broadcast(root, x, *rows), name="normal")
        gamma, beta = (self.arg(f"f32[{x.type.shape[-1]}]", name) for name in ("gamma", "beta"))
        scaled = self.op("multiply", normal, self.broadcast(gamma, x, last), name="scaled")
        return self.op("add", scaled, self.broadcast(beta, x, last), name="moved")
