"""Where indices and slices that move with a loop's counter lie: proved to be in bounds for all iterations."""

from __future__ import annotations

from typing import Any

import numpy as np

from autofuse.frontend.forks import CannotRollError
from autofuse.frontend.rolling.numbers import Number
from autofuse.frontend.terms import Term
from autofuse.frontend.tracer import TracerArray, fresh

_I64 = np.dtype(np.int64)


def position(index: Number, extent: int) -> TracerArray:
    """An index as a place from the start. One whose size nobody knows is left to the run, as any traced index is.

    Raises CannotRollError where it is out of bounds in some iteration, as NumPy then raises.
    """
    low, high = index.low, index.high
    if low is None or high is None:
        return _wrapped(index, extent)
    if low < -extent or high >= extent:
        raise CannotRollError("its index may be out of bounds", first=True, last=True)
    if low >= 0:
        return index
    return index + extent if high < 0 else _wrapped(index, extent)


def _wrapped(index: Number, extent: int) -> TracerArray:
    term = Term(index.as_dtype(_I64))
    return fresh((term < 0).select(term + extent, term).value)


def window(entry: slice, extent: int) -> tuple[Any, Any]:
    """Where a slice with bounds that move starts, and its length: each an `int`, or a Number where it moves.

    Raises CannotRollError for a step other than 1, and where NumPy may clip a bound.
    """
    start, stop = bounds(entry, extent)
    size = stop - start
    low, high = (size.low, size.high) if isinstance(size, Number) else (size, size)
    if low is None or high is None:
        raise CannotRollError("it slices to a place of unknown size")
    if high <= 0:
        return 0, 0
    if low < 0:
        raise CannotRollError("its slice may end before it starts", first=True, last=True)
    return start, size


def holding(start: Any, stop: Any) -> tuple[int, int]:
    """The fixed slice that holds a moving one in all iterations."""
    low, high = (start.low if isinstance(start, Number) else start), (stop.high if isinstance(stop, Number) else stop)
    assert low is not None
    assert high is not None
    return low, high


def bounds(entry: slice, extent: int) -> tuple[Any, Any]:
    """Start and stop of a slice with bounds that move, from the start of the axis. Raises as `window` does."""
    if entry.step not in (None, 1):
        raise CannotRollError("it slices with a step from or to a place that moves")
    start = 0 if entry.start is None else _bound(entry.start, extent)
    stop = extent if entry.stop is None else _bound(entry.stop, extent)
    return start, stop


def _bound(bound: Any, extent: int) -> Any:
    low, high = (bound.low, bound.high) if isinstance(bound, Number) else (bound, bound)
    if low is None or high is None:
        raise CannotRollError("it slices at a place of unknown size")
    if high < 0:
        bound, low, high = bound + extent, low + extent, high + extent
    if low == high and not isinstance(bound, Number):
        return min(max(bound, 0), extent)
    if low < 0 or high > extent:
        raise CannotRollError("its slice may go beyond the array", first=True, last=True)
    return bound
