"""Rules of windows: `reduce_window` with any body, and `select_and_scatter`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from autofuse.frontend.stablehlo.bodies import body_of, combiner_of, is_identity, vectorised
from autofuse.frontend.stablehlo.emitter import Emitter
from autofuse.frontend.stablehlo.operation import Operation
from autofuse.frontend.stablehlo.refusals import UnsupportedOperation
from autofuse.frontend.stablehlo.rules import Rule
from autofuse.ir import dtypes
from autofuse.ir.graph import Graph, Value
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass

_MOST_UNROLLED = 1024
"""Elements of a window of which each is looked at by operations of its own."""
_MOST_WALKED = 32
"""Elements of a window that are combined one by one; longer windows are made of windows of half the length."""
_SCANS = ("add", "multiply", "maximum", "minimum")


@dataclass(frozen=True, slots=True)
class _Windows:
    """Where windows lie on an array."""

    extents: tuple[int, ...]
    strides: tuple[int, ...]
    base_dilations: tuple[int, ...]
    dilations: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]

    @property
    def size(self) -> int:
        return math.prod(self.extents)

    def padded(self, x: Value, filler: Value, emitter: Emitter) -> Value:
        """The array that the windows lie on."""
        low, high = zip(*self.padding, strict=True) if self.padding else ((), ())
        interior = tuple(dilation - 1 for dilation in self.base_dilations)
        return emitter.emit("pad", x, filler, edge_padding_low=low, edge_padding_high=high, interior_padding=interior)

    def part(self, x: Value, filler: Value, at: Sequence[int], shape: Sequence[int], emitter: Emitter) -> Value:
        """Element `at` of every window; `shape`: how many windows there are. Outside of `x` it is `filler`."""
        padded = self.padded(x, filler, emitter)
        starts = tuple(n * dilation for n, dilation in zip(at, self.dilations, strict=True))
        limits = tuple(b + (n - 1) * s + 1 if n else b for b, n, s in zip(starts, shape, self.strides, strict=True))
        return emitter.emit("slice", padded, start_indices=starts, limit_indices=limits, strides=self.strides)

    def positions(self) -> Sequence[tuple[int, ...]]:
        """Of the elements of a window, in order. Raises UnsupportedOperation for too many."""
        if self.size > _MOST_UNROLLED:
            raise UnsupportedOperation(
                f"has windows of {self.size} elements; at most {_MOST_UNROLLED} are looked at one by one",
                "select in two steps, or give smaller windows",
            )
        return list(itertools.product(*map(range, self.extents)))


def _windows(operation: Operation, rank: int) -> _Windows:
    ones = (1,) * rank
    return _Windows(
        operation.integers("window_dimensions", ones),
        operation.integers("window_strides", ones),
        operation.integers("base_dilations", ones),
        operation.integers("window_dilations", ones),
        operation.pairs("padding", rank),
    )


def _reduce_window(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    half = len(operation.operands) // 2
    arrays, initial = operation.operands[:half], operation.operands[half:]
    windows = _windows(operation, arrays[0].type.rank)
    body = body_of(emitter, operation.regions[0], [value.type.dtype for value in (*initial, *arrays)])
    combiner = combiner_of(body, arrays[0].type.dtype) if half == 1 else None
    if combiner is not None and is_identity(initial[0], combiner, emitter):
        return (_combined(arrays[0], combiner, windows, emitter),)
    shape = operation.types[0].shape
    held = [emitter.spread(value, shape) for value in initial]
    if windows.size > _MOST_WALKED:
        return vectorised(body, emitter, [*held, *_doubled(body, arrays, initial, windows, emitter)], shape)
    for at in windows.positions():
        parts = [windows.part(x, v, at, shape, emitter) for x, v in zip(arrays, initial, strict=True)]
        held = vectorised(body, emitter, [*held, *parts], shape)
    return held


def _doubled(
    body: Graph, arrays: Sequence[Value], initial: Sequence[Value], windows: _Windows, emitter: Emitter
) -> list[Value]:
    """Every window's elements combined by any body, in their order: two windows that meet make one of both lengths."""
    held = [windows.padded(x, v, emitter) for x, v in zip(arrays, initial, strict=True)]
    for axis, extent in enumerate(windows.extents):
        held = _along(body, held, axis, extent, windows.dilations[axis], emitter)
    limits = held[0].type.shape
    origin = (0,) * len(limits)
    return [emitter.emit("slice", x, start_indices=origin, limit_indices=limits, strides=windows.strides) for x in held]


def _along(
    body: Graph, arrays: Sequence[Value], axis: int, extent: int, dilation: int, emitter: Emitter
) -> Sequence[Value]:
    """Windows along one dimension, one from each element on that has enough behind it."""
    total = arrays[0].type.shape[axis]

    def joined(first: Sequence[Value], second: Sequence[Value], before: int, size: int) -> Sequence[Value]:
        """Windows of `size` elements, of which the first `before` are those of `first`."""
        count = total - (size - 1) * dilation
        starts = (0, before * dilation)
        parts = [_span(x, axis, at, count, emitter) for at, of in zip(starts, (first, second), strict=True) for x in of]
        return vectorised(body, emitter, parts, parts[0].type.shape)

    doubled, length = arrays, 1
    whole: Sequence[Value] | None = None
    made = 0
    while True:
        if extent & length:
            whole = doubled if whole is None else joined(whole, doubled, made, made + length)
            made += length
        if made == extent:
            return whole or doubled
        doubled, length = joined(doubled, doubled, length, 2 * length), 2 * length


def _span(x: Value, axis: int, start: int, count: int, emitter: Emitter) -> Value:
    """`count` elements along one dimension."""
    shape = x.type.shape
    starts = tuple(start if d == axis else 0 for d in range(len(shape)))
    limits = tuple(start + count if d == axis else n for d, n in enumerate(shape))
    return emitter.emit("slice", x, start_indices=starts, limit_indices=limits, strides=(1,) * len(shape))


def _combined(x: Value, combiner: str, windows: _Windows, emitter: Emitter) -> Value:
    """A window that reaches from the first element to each one is a running reduction."""
    walked = [axis for axis, extent in enumerate(windows.extents) if extent != 1]
    plain = {*windows.strides, *windows.base_dilations, *windows.dilations} <= {1}
    if len(walked) == 1 and plain and combiner in _SCANS:
        (axis,) = walked
        extent, edges = x.type.shape[axis], windows.padding[axis]
        others = {edge for number, edge in enumerate(windows.padding) if number != axis}
        if windows.extents[axis] == extent and others <= {(0, 0)} and edges in ((extent - 1, 0), (0, extent - 1)):
            return emitter.emit("cumulative", x, dimension=axis, combiner=combiner, reverse=edges[0] == 0)
    return emitter.emit(
        "reduce_window",
        x,
        window_dimensions=windows.extents,
        window_strides=windows.strides,
        base_dilations=windows.base_dilations,
        window_dilations=windows.dilations,
        padding=windows.padding,
        combiner=combiner,
    )


def _select_and_scatter(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    """In every window one element is selected, and gets the window's element of `source`; what it gets is summed."""
    x, source, initial = operation.operands
    windows = _windows(operation, x.type.rank)
    select = body_of(emitter, operation.regions[0], [x.type.dtype] * 2)
    scatter = body_of(emitter, operation.regions[1], [source.type.dtype] * 2)
    if combiner_of(scatter, source.type.dtype) != "add":
        raise UnsupportedOperation("has a scatter body that is no sum", "write it as a gather and a scatter")
    places = windows.positions()
    chosen = _selected(x, select, windows, places, source.type.shape, emitter)
    zero = emitter.scalar(0, source.type.dtype)
    total = emitter.spread(initial, x.type.shape)
    for number, at in enumerate(places):
        hit = emitter.emit("compare", chosen, emitter.full(number, chosen.type), direction="EQ")
        part = emitter.emit("select", hit, source, emitter.full(0, source.type))
        total = emitter.emit("add", total, _returned(part, zero, windows, at, x.type.shape, emitter))
    return (total,)


def _selected(
    x: Value,
    select: Graph,
    windows: _Windows,
    places: Sequence[tuple[int, ...]],
    shape: tuple[int, ...],
    emitter: Emitter,
) -> Value:
    """Which element of each window is selected, by its number among `places`; those outside of `x` never are."""
    filler = emitter.scalar(0, x.type.dtype)
    best = number = None
    valid = np.zeros(shape, np.bool_)
    for position, at in enumerate(places):
        part = windows.part(x, filler, at, shape, emitter)
        here = emitter.full(position, TensorType(shape, dtypes.I32))
        inside = _inside(windows, at, shape, x.type.shape)
        if best is None or number is None:
            best, number, valid = part, here, inside
            continue
        (stays,) = vectorised(select, emitter, [best, part], shape)
        stays = _known_where(stays, ~inside, valid, emitter)
        best = emitter.emit("select", stays, best, part)
        number = emitter.emit("select", stays, number, here)
        valid = valid | inside
    if number is None:
        raise UnsupportedOperation("has windows without elements", "give windows of at least one element")
    return number


def _known_where(stays: Value, kept: np.ndarray, valid: np.ndarray, emitter: Emitter) -> Value:
    """`stays`, but true where the next element is outside, and false where all elements before it were."""
    if kept.any():
        stays = emitter.emit("or", stays, emitter.constant(kept))
    return stays if valid.all() else emitter.emit("and", stays, emitter.constant(valid | kept))


def _inside(windows: _Windows, at: Sequence[int], shape: Sequence[int], extents: Sequence[int]) -> np.ndarray:
    """For every window whether its element `at` lies in the array."""
    found = np.ones(tuple(shape), np.bool_)
    for axis, (n, extent) in enumerate(zip(shape, extents, strict=True)):
        where = np.arange(n) * windows.strides[axis] + at[axis] * windows.dilations[axis] - windows.padding[axis][0]
        fits = (where >= 0) & (where < extent)
        found &= fits.reshape([-1 if d == axis else 1 for d in range(len(shape))])
    return found


def _returned(
    part: Value, zero: Value, windows: _Windows, at: Sequence[int], shape: Sequence[int], emitter: Emitter
) -> Value:
    """What element `at` of every window gets, where it lies in the array."""
    low = tuple(n - edge[0] for n, edge in zip(at, windows.padding, strict=True))
    spans = [(n - 1) * stride + 1 if n else 0 for n, stride in zip(part.type.shape, windows.strides, strict=True)]
    high = tuple(extent - before - span for extent, before, span in zip(shape, low, spans, strict=True))
    interior = tuple(stride - 1 for stride in windows.strides)
    return emitter.emit("pad", part, zero, edge_padding_low=low, edge_padding_high=high, interior_padding=interior)


RULES: Mapping[str, Rule] = {
    "stablehlo.reduce_window": _reduce_window,
    "stablehlo.select_and_scatter": _select_and_scatter,
}
