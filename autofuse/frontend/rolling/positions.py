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
    """The first place of a slice with bounds that move, and its length: each an `int`, or a Number where it moves.

    One with step -1 is turned afterwards: the first place is that of its last element. Raises CannotRollError for a
    step other than 1 and -1, and where NumPy may clip a bound.
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


def is_turned(entry: Any) -> bool:
    """Whether an index is a slice that runs backwards, element by element."""
    return isinstance(entry, slice) and type(entry.step) is int and entry.step == -1


def bounds(entry: slice, extent: Any) -> tuple[Any, Any]:
    """The least place of a slice with bounds that move, and the place behind the greatest. Raises as `window` does.

    `extent`: of the axis; a Number where that moves too.
    """
    if is_turned(entry):
        last = None if entry.start is None else _bound(entry.start, extent, extent - 1)
        first = None if entry.stop is None else _bound(entry.stop, extent, extent - 1)
        return (0 if first is None else first + 1), (extent if last is None else last + 1)
    if entry.step not in (None, 1):
        raise CannotRollError("it slices with a step other than 1 and -1 from or to a place that moves")
    start = 0 if entry.start is None else _bound(entry.start, extent, extent)
    stop = extent if entry.stop is None else _bound(entry.stop, extent, extent)
    return start, stop


def _bound(bound: Any, extent: Any, most: Any) -> Any:
    """A bound from the start of the axis, where NumPy clips it to `most` in no iteration, or in all."""
    low, high = ends(bound)
    if low is None or high is None:
        raise CannotRollError("it slices at a place of unknown size")
    if high < 0:
        bound = bound + extent
    if not isinstance(bound, Number) and not isinstance(extent, Number):
        return min(max(bound, most - extent), most)
    if not_below(bound, most):
        return most
    if not (not_below(bound, 0) and not_below(most, bound)):
        raise CannotRollError("its slice may go beyond the array", first=True, last=True)
    return bound


def ends(number: Any) -> tuple[int | None, int | None]:
    """The least and the greatest that an integer can be; None where that is not known."""
    return (number.low, number.high) if isinstance(number, Number) else (number, number)


def not_below(number: Any, limit: Any) -> bool:
    """Whether an integer is at least as great as another one in all iterations."""
    low, _ = ends(number - limit)
    return low is not None and low >= 0
