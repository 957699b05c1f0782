"""Convolutions of dilated operands, as gradients of strided ones are, by phases of their results.

Between the elements of a dilated operand stand zeros. Which elements of the window meet them follows from a result's
place, modulo the dilation: for each such phase the others are a window of their own, over the operand as it is.

    y = convolution(x with 1 zero between elements, w of 3)
 -> y[0::2] = convolution(x, w[0::2])    y[1::2] = convolution(x, w[1::2])

A zero times an infinity is NaN; for floats, what the window's other elements would add is added up once for all places.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from autofuse.ir.graph import Attrs, Graph, Node
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.lazydataclass import dataclass
from autofuse.passes.facts import Facts
from autofuse.passes.rewriting import Call, Expression, call, rewrite

_MOST_PHASES = 16
_LEAST_PRODUCTS = 1 << 20
"""Multiply-adds below which some kernels more cost as much as is saved."""


@dataclass(frozen=True, slots=True)
class SplitPhases:
    """Writes convolutions of dilated operands as several of operands as they are.

    Products with zeros are left out, the order of sums changes. More than 16 phases, and small convolutions, stay.
    """

    name: ClassVar[str] = "convolution-phases"

    def apply(self, graph: Graph) -> Graph:
        """The graph without such convolutions; the same object if it has none."""
        return rewrite(graph, lambda: {"convolution": (split_phases,)}) if _has_dilated(graph) else graph


def _has_dilated(graph: Graph) -> bool:
    return any(_is_dilated(node.attrs) for node in graph.nodes if role_of(node) is Role.CONVOLUTION) or any(
        _has_dilated(region) for node in graph.nodes for region in node.regions
    )


def _is_dilated(attrs: Attrs) -> bool:
    return any(dilation > 1 for dilation in attrs["lhs_dilation"])


def split_phases(node: Node, facts: Facts) -> Expression | None:
    """A convolution of a dilated operand by phases; None for any other, and where it does not pay."""
    del facts
    if not _is_dilated(node.attrs) or 0 in (*node.output.type.shape, *node.inputs[0].type.shape):
        return None
    rhs = node.inputs[1].type
    depth = rhs.size // max(rhs.shape[node.attrs["kernel_output_feature_dimension"]], 1)
    if node.output.type.size * depth < _LEAST_PRODUCTS or node.output.type.dtype.kind == "bool":
        return None
    phases = _Phases(node)
    return phases.interleaved() if 1 < phases.count <= _MOST_PHASES and phases.all_touch() else None


@dataclass(frozen=True, slots=True)
class _Phase:
    """One phase along one spatial dimension: a window of its own."""

    taps: range
    """The window's elements that meet elements, by number."""
    low: int
    high: int
    stride: int
    dilation: int


class _Phases:
    """A convolution of a dilated operand."""

    def __init__(self, node: Node) -> None:
        self.attrs, (self.lhs, self.rhs), self.output = node.attrs, node.inputs, node.output.type
        self.spatial: tuple[int, ...] = self.attrs["output_spatial_dimensions"]
        self.along = [self._along(number) for number in range(len(self.spatial))]
        self.count = math.prod(map(len, self.along))
        self.extents = [
            -(-self.output.shape[d] // len(phases)) for d, phases in zip(self.spatial, self.along, strict=True)
        ]
        """Places of a phase; the last one of some may lie behind the end."""

    def _along(self, number: int) -> list[_Phase]:
        """All phases along a spatial dimension."""
        attrs = self.attrs
        window = self.rhs.type.shape[attrs["kernel_spatial_dimensions"][number]]
        extent = self.lhs.type.shape[attrs["input_spatial_dimensions"][number]]
        stride, between = attrs["window_strides"][number], attrs["lhs_dilation"][number]
        dilation, low = attrs["rhs_dilation"][number], attrs["padding"][number][0]
        count, step = between // math.gcd(stride, between), between // math.gcd(dilation, between)
        places = -(-self.output.shape[self.spatial[number]] // count)
        found: list[_Phase] = []
        for first in range(count):
            met = [t for t in range(window) if (stride * first + t * dilation - low) % between == 0]
            taps = range(met[0], window, step) if met else range(0)
            before = -(stride * first + taps.start * dilation - low) // between
            own, apart = stride * count // between, step * dilation // between
            covered = (places - 1) * own + (len(taps) - 1) * apart + 1
            found.append(_Phase(taps, before, covered - extent - before, own, apart))
        return found

    def all_touch(self) -> bool:
        """Whether no phase's windows all lie beside the operand."""
        extents = [self.lhs.type.shape[d] for d in self.attrs["input_spatial_dimensions"]]
        return all(
            not phase.taps or (phase.low > -extent and phase.high > -extent)
            for phases, extent in zip(self.along, extents, strict=True)
            for phase in phases
        )

    def interleaved(self) -> Expression:
        """The whole result."""
        places = list(itertools.product(*(range(len(phases)) for phases in self.along)))
        chosen = [[phases[n] for phases, n in zip(self.along, place, strict=True)] for place in places]
        lost = self._lost(chosen)
        parts = {
            place: self._part(phases, None if lost is None else self._row(lost, number))
            for number, (place, phases) in enumerate(zip(places, chosen, strict=True))
        }
        joined = self._joined((), parts)
        shape = list(self.output.shape)
        for d, extent, phases in zip(self.spatial, self.extents, self.along, strict=True):
            shape[d] = extent * len(phases)
        return joined if tuple(shape) == self.output.shape else _slice(joined, (0,) * len(shape), self.output.shape)

    def _joined(self, chosen: tuple[int, ...], parts: dict[tuple[int, ...], Expression]) -> Expression:
        """The phases that begin with those chosen, side by side."""
        number = len(chosen)
        if number == len(self.along):
            return parts[chosen]
        inner = [self._joined((*chosen, phase), parts) for phase in range(len(self.along[number]))]
        if len(inner) == 1:
            return inner[0]
        axis, shape = self.spatial[number], list(self.output.shape)
        for n, d in enumerate(self.spatial):
            shape[d] = self.extents[n] * (len(self.along[n]) if n > number else 1)
        apart = [_reshape(part, (*shape[: axis + 1], 1, *shape[axis + 1 :])) for part in inner]
        shape[axis] *= len(inner)
        return _reshape(call("concatenate", *apart, dimension=axis + 1), shape)

    def _part(self, phases: Sequence[_Phase], lost: Expression | None) -> Expression:
        """One phase's results. `lost`: what its features get of zeros between elements."""
        shape = list(self.output.shape)
        for d, extent in zip(self.spatial, self.extents, strict=True):
            shape[d] = extent
        if not all(phase.taps for phase in phases):
            made = _spread(call("constant", value=np.zeros((), self.output.dtype.numpy)), shape, ())
        else:
            attrs = dict(self.attrs)
            attrs["window_strides"] = tuple(phase.stride for phase in phases)
            attrs["rhs_dilation"] = tuple(phase.dilation for phase in phases)
            attrs["padding"] = tuple((phase.low, phase.high) for phase in phases)
            attrs["lhs_dilation"] = (1,) * len(phases)
            made = call("convolution", self.lhs, self._kernel(phases), **attrs)
        if lost is None:
            return made
        return call("add", made, _spread(lost, shape, (self.attrs["output_feature_dimension"],)))

    def _row(self, table: Expression, number: int) -> Expression:
        """Row `number` of a table of output features."""
        made = self.output.shape[self.attrs["output_feature_dimension"]]
        return _reshape(_slice(table, (number, 0), (number + 1, made)), (made,))

    def _kernel(self, phases: Sequence[_Phase]) -> Expression:
        shape = self.rhs.type.shape
        start, limit, steps = [0] * len(shape), list(shape), [1] * len(shape)
        for d, phase in zip(self.attrs["kernel_spatial_dimensions"], phases, strict=True):
            start[d], limit[d], steps[d] = phase.taps.start, phase.taps[-1] + 1, phase.taps.step
        return _slice(self.rhs, start, limit, steps)

    def _lost(self, chosen: Sequence[Sequence[_Phase]]) -> Expression | None:
        """`[phases, output features]`: sums of zero times what stands between the taps of a phase; None of integers."""
        if not self.output.dtype.is_float:
            return None
        attrs, rhs = self.attrs, self.rhs.type
        order = (
            *attrs["kernel_spatial_dimensions"],
            attrs["kernel_input_feature_dimension"],
            attrs["kernel_output_feature_dimension"],
        )
        window = tuple(rhs.shape[d] for d in attrs["kernel_spatial_dimensions"])
        features, made = rhs.shape[order[-2]], rhs.shape[order[-1]]
        flat = _reshape(call("transpose", self.rhs, permutation=order), (math.prod(window), features, made))
        zero = call("constant", value=np.zeros((), rhs.dtype.numpy))
        nothing = call("multiply", flat, _spread(zero, (math.prod(window), features, made), ()))
        taps = call("reduce", nothing, dimensions=(1,), combiner="add")
        between = np.ones((len(chosen), *window), np.bool_)
        for number, phases in enumerate(chosen):
            between[(number, *np.ix_(*(np.array(phase.taps, np.intp) for phase in phases)))] = False
        shape = (len(chosen), math.prod(window), made)
        mask = _spread(call("constant", value=between.reshape(shape[:2])), shape, (0, 1))
        kept = call("select", mask, _spread(taps, shape, (1, 2)), _spread(zero, shape, ()))
        return call("reduce", kept, dimensions=(1,), combiner="add")


def _reshape(value: Expression, shape: Sequence[int]) -> Call:
    return call("reshape", value, shape=tuple(shape))


def _spread(value: Expression, shape: Sequence[int], dimensions: tuple[int, ...]) -> Call:
    return call("broadcast_in_dim", value, shape=tuple(shape), broadcast_dimensions=dimensions)


def _slice(value: Expression, start: Sequence[int], limit: Sequence[int], steps: Sequence[int] = ()) -> Call:
    attrs = {"start_indices": tuple(start), "limit_indices": tuple(limit)}
    return call("slice", value, **attrs, strides=tuple(steps) or (1,) * len(start))
