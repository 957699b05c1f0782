"""Sorting and searching. Sorts are stable whatever `kind` says; NaN is last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from autofuse.frontend.context import current
from autofuse.frontend.dispatch import call, implements
from autofuse.frontend.promotion import as_tracer
from autofuse.frontend.tracer import TracerArray, fresh


@implements(np.sort)
def sort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    """As `np.sort`."""
    del kind, order, stable
    array = as_tracer(a)
    if axis is None:
        array, axis = call(np.ravel, array), 0
    return fresh(_sort([array], axis)[0], is_scalar=False)


@implements(np.argsort)
def argsort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    """As `np.argsort`."""
    del kind, order, stable
    array = as_tracer(a)
    if axis is None or (not array.ndim and axis in (0, -1)):
        array, axis = call(np.ravel, array), 0
    positions = np.arange(array.shape[axis]).reshape([-1 if d == axis % array.ndim else 1 for d in range(array.ndim)])
    return fresh(_sort([array, call(np.broadcast_to, as_tracer(positions), array.shape)], axis)[1])


def _sort(arrays: Sequence[TracerArray], axis: Any) -> tuple[Any, ...]:
    """Sorted along `axis` by the first array; equal elements keep their order."""
    dimension = cast("int", axis) % max(arrays[0].ndim, 1)
    return current().builder.emit_many(
        "sort", [array.value for array in arrays], dimension=dimension, descending=False, stable=True
    )


@implements(np.searchsorted)
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """As `np.searchsorted`."""
    knots, queries = as_tracer(a), as_tracer(v)
    if sorter is not None:
        knots = call(np.take, knots, sorter)
    compare = np.less if side == "left" else np.less_equal
    return call(np.sum, compare(knots, queries[..., None]), -1, np.int64)


@implements(np.digitize)
def digitize(x: Any, bins: Any, right: bool = False) -> Any:
    """As `np.digitize`."""
    edges, values = as_tracer(bins), as_tracer(x)
    compare = np.greater if right else np.greater_equal
    return call(np.sum, compare(values[..., None], edges), -1, np.int64)


@implements(np.isin)
def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, kind: Any = None
) -> Any:
    """As `np.isin`: every element is compared with every test element."""
    del assume_unique, kind
    found = call(np.any, np.equal(as_tracer(element)[..., None], call(np.ravel, as_tracer(test_elements))), -1)
    return call(np.asarray, np.logical_not(found) if invert else found)
