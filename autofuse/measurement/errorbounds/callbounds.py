"""Calls of libraries, of which other devices have their own: what those round off, and orders that are left open.

Algorithms of linear algebra give the exact answer for operands that are a little off (backward stability; Higham,
Accuracy and Stability of Numerical Algorithms, 2002, chapters 9, 10 and 18): by some n u max |x|, n being the length of
a row. Functions of single elements are off as if each element was by some units in its last place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from autofuse.errors import GraphError
from autofuse.ir.graph import Node
from autofuse.ir.ops import numerics
from autofuse.ir.ops.library_calls import is_library_call, read
from autofuse.ir.ops.library_checks import LibraryCall, check_parameters, listed
from autofuse.ir.optable import lookup
from autofuse.measurement.errorbounds.roundings import EPSILONS, Array, Bound, distance, precision, shifted, summed

_TRIES = 2
"""Evaluations of a call of which nothing is known, on arguments moved at random within their bounds."""
_BEYOND = 8.0
"""Times what such an evaluation moved is what a call may be off by."""
_UNITS = 4.0
"""In the last place: what a library of another device rounds off, in operands."""


def called(
    node: Node, operands: Sequence[Array], bounds: Sequence[Bound], results: Sequence[Array]
) -> tuple[Bound, ...]:
    """Equal arguments give equal results, but for what the library itself rounds off or leaves open."""
    call = _library_call(node)
    rounded = () if call is None else _rounded(call, node, operands)
    given = [summed(*both) for both in zip(bounds, rounded, strict=True)] if rounded else list(bounds)
    moved = _moved(node, operands, given, results)
    if call is None or call.label not in _OPEN:
        return moved
    return tuple(summed(*both) for both in zip(moved, _OPEN[call.label](call, results), strict=True))


def _library_call(node: Node) -> LibraryCall | None:
    name = node.attrs.get("call_target_name", "")
    return read(name) if is_library_call(name) else None


def _moved(
    node: Node, operands: Sequence[Array], bounds: Sequence[Bound], results: Sequence[Array]
) -> tuple[Bound, ...]:
    """How far results move with their operands; anything where the call fails for operands that near."""
    if all(bound is None for bound in bounds):
        return (None,) * len(results)
    rng = np.random.default_rng(0)
    found: list[Bound] = [None] * len(results)
    for _ in range(_TRIES):
        given = [x if b is None else _nudged(x, b, rng) for x, b in zip(operands, bounds, strict=True)]
        try:
            moved = lookup(node.op).evaluate(given, node.attrs, ())
        except GraphError:
            kinds = (precision(value.type.dtype) for value in node.outputs)
            return tuple(np.full(right.shape, np.inf, kind) for right, kind in zip(results, kinds, strict=True))
        for number, (here, right, value) in enumerate(zip(moved, results, node.outputs, strict=True)):
            peak = np.max(distance(here, right, value.type.dtype), initial=0.0)
            found[number] = summed(found[number], np.full(right.shape, _BEYOND * peak))
    return tuple(found)


def _nudged(x: Array, bound: Array, rng: np.random.Generator) -> Array:
    """Moved by at least half of the bound: floats each their own way, others all up or all down."""
    size = bound * rng.uniform(0.5, 1.0, bound.shape)
    if x.dtype.kind in "biu":
        return shifted(x, size, 1 if rng.integers(2) else -1)
    return (numerics.widen(x) + np.where(rng.integers(2, size=x.shape), size, -size)).astype(x.dtype)


# ---- what libraries round off ----------------------------------------------------------------------------------------


def _rounded(call: LibraryCall, node: Node, operands: Sequence[Array]) -> list[Bound]:
    """By how much operands may seem to be off, for the errors of the library's own; nothing where it makes none."""
    measure = _ROUNDING.get(call.module)
    if measure is None or not any(value.type.dtype.is_float for value in node.outputs):
        return []
    kinds = [value.type.dtype for value in node.inputs]
    return [measure(x) * _UNITS * EPSILONS[k] if k in EPSILONS else None for x, k in zip(operands, kinds, strict=True)]


def _by_rows(x: Array) -> Array:
    """Of each element, as many times the largest one of its matrix as a row is long."""
    size = np.abs(numerics.widen(x))
    largest = np.max(size, axis=tuple(range(size.ndim))[-2:], keepdims=True, initial=0.0)
    return np.broadcast_to(np.where(np.isfinite(largest), largest, 0.0) * max(x.shape[-1:], default=1), x.shape)


def _by_elements(x: Array) -> Array:
    size = np.abs(numerics.widen(x))
    return np.where(np.isfinite(size), size, 0.0)


_ROUNDING: Mapping[str, Callable[[Array], Array]] = {
    "numpy.linalg": _by_rows,
    "scipy.linalg": _by_rows,
    "scipy.ndimage": _by_elements,
    "scipy.special": _by_elements,
}


# ---- orders that are left open ---------------------------------------------------------------------------------------


def _partitioned(call: LibraryCall, results: Sequence[Array]) -> list[Bound]:
    """Between the places that are asked for, elements may come in any order."""
    (result,) = results
    given = check_parameters(call)
    axis = given.get("axis", -1)
    lines = np.moveaxis(result, -1 if axis is None else axis, -1)
    extent = lines.shape[-1]
    asked = [int(k) % max(extent, 1) for k in listed(given["kth"]) or [given["kth"]]]
    starts = np.zeros(extent, np.bool_)
    starts[[0, *asked, *(k + 1 for k in asked if k + 1 < extent)]] = True
    spread = spread_of_runs(lines, np.broadcast_to(starts, lines.shape))
    return [np.moveaxis(spread, -1, -1 if axis is None else axis)]


def _positions_of_partition(_: LibraryCall, results: Sequence[Array]) -> list[Bound]:
    """Any position may stand anywhere: of equal keys, even where one is asked for."""
    return [np.full(result.shape, float(result.size)) for result in results]


_OPEN: Mapping[str, Callable[[LibraryCall, Sequence[Array]], list[Bound]]] = {
    "numpy.partition": _partitioned,
    "numpy.argpartition": _positions_of_partition,
}
"""Functions that say no more of an order than some places of it."""


_A_LITTLE_MORE = 1.0 + 2.0**-20
"""Times a difference in f64 is at least that difference in f32."""


def spread_of_runs(lines: Array, starts: Array) -> Array:
    """For each element how far apart the elements of its run are; runs begin where `starts` says, and with each line.

    `lines`: runs lie along the last dimension. Infinity for runs with a NaN and something else.
    """
    values = lines.astype(np.float64).reshape(-1)
    if not values.size:
        return np.zeros(lines.shape)
    begins = np.flatnonzero(starts)
    low, high = np.fmin.reduceat(values, begins), np.fmax.reduceat(values, begins)
    mixed = np.logical_or.reduceat(np.isnan(values), begins) & ~np.isnan(low)
    with np.errstate(invalid="ignore"):
        apart = np.where(mixed, np.inf, np.where((low == high) | np.isnan(low), 0.0, (high - low) * _A_LITTLE_MORE))
    lengths = np.diff(np.append(begins, values.size))
    return np.repeat(apart, lengths).reshape(lines.shape)
