"""Sorting and searching. NaN is last; equal elements keep their order if `kind` or `stable` says so, as in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autofuse.frontend.axes import one_axis
from autofuse.frontend.bounds import check_holds
from autofuse.frontend.complexrules import is_complex
from autofuse.frontend.complexsorting import sorted_complex
from autofuse.frontend.dispatch import call, implements
from autofuse.frontend.eager import numpys_own
from autofuse.frontend.promotion import as_tracer
from autofuse.frontend.tracecontext import current
from autofuse.frontend.tracer import TracerArray, fresh
from autofuse.ir.dtypes import BOOL, I64
from autofuse.ir.graph import Value
from autofuse.ir.types import TensorType

_FEW = 128
"""Up to so many knots, comparing with all of them is faster than a binary search, which waits for memory."""
_FEW_MEMBERS = 32
"""The same for `isin`; NumPy looks integers up in a table."""


@implements(np.sort)
def sort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    """As `np.sort`."""
    del order
    array = as_tracer(a)
    if axis is None:
        array, axis = call(np.ravel, array), 0
    return fresh(_sort([array], axis, kind, stable)[0], is_scalar=False)


@implements(np.argsort)
def argsort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    """As `np.argsort`."""
    del order
    array = as_tracer(a)
    if axis is None or (not array.ndim and axis in (0, -1)):
        array, axis = call(np.ravel, array), 0
    axis = one_axis(axis, array.ndim)
    positions = np.arange(array.shape[axis]).reshape([-1 if d == axis else 1 for d in range(array.ndim)])
    return fresh(_sort([array, call(np.broadcast_to, as_tracer(positions), array.shape)], axis, kind, stable)[1])


def _sort(arrays: Sequence[TracerArray], axis: Any, kind: Any, stable: Any) -> tuple[Any, ...]:
    """Sorted along `axis` by the first array."""
    dimension = one_axis(axis, arrays[0].ndim)
    keeps_order = bool(stable) or kind in ("stable", "mergesort")
    keys, *others = (array.value for array in arrays)
    if is_complex(arrays[0]):
        return tuple(sorted_complex(keys, others, dimension, stable=keeps_order))
    return current().builder.emit_many(
        "sort", [keys, *others], dimension=dimension, descending=False, stable=keeps_order
    )


def _numpy_orders(*arrays: TracerArray) -> bool:
    """Whether NumPy itself knows these dtypes."""
    return all(array.dtype.kind in "biuf" for array in arrays)


@implements(np.searchsorted)
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """As `np.searchsorted`."""
    if side not in ("left", "right"):
        raise ValueError(f"side must be 'left' or 'right' (got {side!r:.80})")
    knots, queries = as_tracer(a), as_tracer(v)
    if sorter is not None:
        knots = call(np.take, knots, sorter)
    if knots.size > _FEW and _numpy_orders(knots, queries):
        return numpys_own(np.searchsorted, TensorType(queries.shape, I64), knots, queries, side)
    queries = queries[..., None]
    # in the order of a sort, NaN is behind all numbers
    if side == "left":
        before = np.less(knots, queries) | (np.isnan(queries) & ~np.isnan(knots))
    else:
        before = np.less_equal(knots, queries) | np.isnan(queries)
    return call(np.sum, before, -1, np.int64)


@implements(np.digitize)
def digitize(x: Any, bins: Any, right: bool = False) -> Any:
    """As `np.digitize`, but for NaN before numbers among traced bins: there NumPy's answers depend on those before."""
    edges, values = as_tracer(bins), as_tracer(x)
    if edges.ndim != 1:
        raise ValueError("object of too small depth for desired array" if not edges.ndim else "object too deep")
    side = "left" if right else "right"
    if edges.size > _FEW and _numpy_orders(edges, values):
        return numpys_own(np.digitize, TensorType(values.shape, I64), values, edges, bool(right))
    if edges.known is not None:
        np.digitize(np.empty(0), edges.known())  # raises unless they are monotonic
        if np.isnan(edges.known()).any():  # in places where no order puts them
            return numpys_own(np.digitize, TensorType(values.shape, I64), values, edges, bool(right))
    ascending = searchsorted(edges, values, side)
    if edges.size < 2:
        return ascending
    descends = _descends(edges)
    check_holds(lambda: _is_monotonic(edges, descends), "bins must be monotonically increasing or decreasing")
    descending = np.subtract(edges.size, searchsorted(edges[::-1], values, side))
    if descends.known is not None:
        return descending if descends else ascending
    found = call(np.where, descends, descending, ascending)
    return found[()] if not values.ndim else found


def _descends(edges: TracerArray) -> Any:
    """Whether NumPy takes monotonic edges to be falling: the first that differs from the one before it is not larger.

    NaN differs from everything, and is not larger.
    """
    if edges.dtype.kind != "f":
        return np.greater(edges[0], edges[-1])
    differs = np.not_equal(edges[1:], edges[0])
    following = edges[1:][call(np.argmax, differs)]
    return call(np.any, differs) & ~np.less(edges[0], following)


def _is_monotonic(edges: TracerArray, descends: TracerArray) -> Value:
    """Whether no step goes the other way; NaN is no step."""
    rises, falls = np.less(edges[:-1], edges[1:]), np.greater(edges[:-1], edges[1:])
    return np.logical_not(call(np.any, call(np.where, descends, rises, falls))).value


@implements(np.isin)
def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, kind: Any = None
) -> Any:
    """As `np.isin`: every element is compared with every test element, where those are few."""
    del kind
    elements, wanted = as_tracer(element), as_tracer(test_elements)
    if wanted.size > _FEW_MEMBERS and _numpy_orders(elements, wanted):
        own = TensorType(elements.shape, BOOL)
        found = numpys_own(np.isin, own, elements, wanted, bool(assume_unique), bool(invert))
        return call(np.asarray, found)
    found = call(np.any, np.equal(elements[..., None], call(np.ravel, wanted)), -1)
    return call(np.asarray, np.logical_not(found) if invert else found)
