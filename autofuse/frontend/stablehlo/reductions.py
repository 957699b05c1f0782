"""Rules of `reduce`: by the combiner that the body is, as an argmax or argmin, or by halves for any other body."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.frontend.stablehlo.bodies import body_of, chooses, combiner_of, is_identity, vectorised
from autofuse.frontend.stablehlo.emitter import Emitter
from autofuse.frontend.stablehlo.operation import Operation
from autofuse.frontend.stablehlo.rules import Rule
from autofuse.ir.graph import Graph, Value

Array = NDArray[Any]


def _reduce(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    half = len(operation.operands) // 2
    arrays, initial = operation.operands[:half], operation.operands[half:]
    dimensions = operation.integers("dimensions")
    shape = operation.types[0].shape
    if not dimensions or not math.prod(arrays[0].type.shape[axis] for axis in dimensions):
        return _of_nothing(operation, arrays, initial, dimensions, emitter)
    body = body_of(emitter, operation.regions[0], [value.type.dtype for value in (*initial, *arrays)])
    if half == 1:
        combiner = combiner_of(body, arrays[0].type.dtype)
        if combiner is not None:
            reduced = emitter.emit("reduce", arrays[0], dimensions=dimensions, combiner=combiner)
            return (_with_initial(reduced, initial[0], combiner, emitter),)
    found = _extreme_and_place(body, arrays, initial, dimensions, emitter)
    if found is not None:
        return found
    reduced = by_halves(body, arrays, dimensions, emitter)
    return vectorised(body, emitter, [*(emitter.spread(value, shape) for value in initial), *reduced], shape)


def _with_initial(reduced: Value, initial: Value, combiner: str, emitter: Emitter) -> Value:
    if is_identity(initial, combiner, emitter):
        return reduced
    return emitter.emit(combiner, emitter.spread(initial, reduced.type.shape), reduced)


def _of_nothing(
    operation: Operation, arrays: Sequence[Value], initial: Sequence[Value], dimensions: Sequence[int], emitter: Emitter
) -> Sequence[Value]:
    """The initial values where nothing is reduced; over no dimensions each element meets them once."""
    shape = operation.types[0].shape
    starts = [emitter.spread(value, shape) for value in initial]
    if dimensions:
        return starts
    body = body_of(emitter, operation.regions[0], [value.type.dtype for value in (*initial, *arrays)])
    return vectorised(body, emitter, [*starts, *arrays], shape)


def by_halves(body: Graph, arrays: Sequence[Value], dimensions: Sequence[int], emitter: Emitter) -> list[Value]:
    """Arrays reduced together over dimensions that are not empty, by any body: each step combines halves.

    The order is the specification's to leave open; it keeps the elements' order, as a body may need.
    """
    rank = arrays[0].type.rank
    kept = tuple(axis for axis in range(rank) if axis not in dimensions)
    rest = tuple(arrays[0].type.shape[axis] for axis in kept)
    length = math.prod(arrays[0].type.shape[axis] for axis in dimensions)
    order = (*sorted(dimensions), *kept)
    held = [
        emitter.emit("reshape", emitter.emit("transpose", x, permutation=order), shape=(length, *rest)) for x in arrays
    ]
    while length > 1:
        pairs = length // 2
        joined = vectorised(
            body,
            emitter,
            [_rows(x, start, 2 * pairs, 2, emitter) for start in (0, 1) for x in held],
            (pairs, *rest),
        )
        if length % 2:
            last = [_rows(x, length - 1, length, 1, emitter) for x in held]
            joined = [emitter.emit("concatenate", a, b, dimension=0) for a, b in zip(joined, last, strict=True)]
        held, length = joined, pairs + length % 2
    return [emitter.emit("reshape", x, shape=rest) for x in held]


def _rows(x: Value, start: int, limit: int, step: int, emitter: Emitter) -> Value:
    extents = x.type.shape[1:]
    starts, limits = (start, *(0 for _ in extents)), (limit, *extents)
    steps = (step, *(1 for _ in extents))
    return emitter.emit("slice", x, start_indices=starts, limit_indices=limits, strides=steps)


def _extreme_and_place(
    body: Graph, arrays: Sequence[Value], initial: Sequence[Value], dimensions: Sequence[int], emitter: Emitter
) -> Sequence[Value] | None:
    """The greatest or least element and where it stands, if that is what two operands are reduced to."""
    if len(arrays) != 2 or len(dimensions) != 1 or len(body.outputs) != 2:
        return None
    (values, places), (axis,) = arrays, dimensions
    if not _counts_along(places, axis, emitter) or emitter.number(initial[1]) != 0:
        return None
    for op, combiner in (("argmax", "maximum"), ("argmin", "minimum")):
        if is_identity(initial[0], combiner, emitter) and chooses(body, partial(_first_extreme, combiner), _in_order):
            extreme = emitter.emit("reduce", values, dimensions=dimensions, combiner=combiner)
            return (extreme, emitter.emit(op, values, dimension=axis, dtype=places.type.dtype))
    return None


def _counts_along(value: Value, axis: int, emitter: Emitter) -> bool:
    """Whether a value is 0, 1, 2, ... along a dimension, as an iota or one that is broadcast."""
    node = emitter.builder.producer(value)
    if node is None or not value.type.dtype.is_integer:
        return False
    if node.op == "broadcast_in_dim" and axis in node.attrs["broadcast_dimensions"]:
        inner = node.attrs["broadcast_dimensions"].index(axis)
        same = node.inputs[0].type.shape[inner] == value.type.shape[axis]
        return same and _counts_along(node.inputs[0], inner, emitter)
    return node.op == "iota" and node.attrs["iota_dimension"] == axis


def _in_order(columns: Sequence[Array]) -> Array:
    """Elements come in order; the initial value stands at 0, and is infinite, or the extreme of integers."""
    a, i, b, j = columns
    return (i < j) | ((i == j) & (a == b))


def _first_extreme(combiner: str, columns: Sequence[Array]) -> Sequence[Array]:
    """Of two pairs (value, place): the greater or lesser value, NaN before all, the lesser place of equals."""
    a, i, b, j = columns
    nan_a, nan_b = a != a, b != b
    better = a > b if combiner == "maximum" else a < b
    equal = (a == b) | (nan_a & nan_b)
    first = (nan_a & ~nan_b) | (better & ~nan_b) | (equal & (i < j))
    return np.where(first, a, b), np.where(first, i, j)


RULES: Mapping[str, Rule] = {"stablehlo.reduce": _reduce}
