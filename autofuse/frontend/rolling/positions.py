"""Where indices and slices that move with a loop's counter lie: proved to be in bounds for all iterations."""

from __future__ import annotations

from typing import Any

import numpy as np

from autofuse.frontend.forks import CannotRollError
from autofuse.frontend.rolling.arithmetic import greatest
from autofuse.frontend.rolling.numbers import Atom, Number
from autofuse.frontend.terms import Term
from autofuse.frontend.tracecontext import current
from autofuse.frontend.tracer import TracerArray, fresh
from autofuse.lazydataclass import dataclass

_I64 = np.dtype(np.int64)


def position(index: Number, extent: int) -> TracerArray | None:
    """An index as a place from the start. None for one whose size only the run knows: it is as any traced index then.

    Raises CannotRollError where it is out of bounds in some iteration, as NumPy then raises.
    """
    low, high = index.low, index.high
    if low is None or high is None:
        return None
    if low < -extent or high >= extent:
        if index.is_loose:
            return None
        raise CannotRollError("its index may be out of bounds", first=True, last=True)
    if low >= 0:
        return index
    return index + extent if high < 0 else _wrapped(index, extent)


def _wrapped(index: Number, extent: int) -> TracerArray:
    term = Term(index.as_dtype(_I64))
    return fresh((term < 0).select(term + extent, term).value)


@dataclass(frozen=True, slots=True)
class Run:
    """The elements of an axis that a slice takes, from the least place on."""

    start: Any
    """The least place: an `int`, or a Number where it moves. So are the others."""
    count: Any
    step: Any
    """From one to the next; at least 1."""
    turned: bool
    """Whether the slice runs backwards."""

    @property
    def hull(self) -> Any:
        """How many places there are from the first to the last, where the step is known and there are some."""
        return (self.count - 1) * self.step + 1


def run_of(entry: slice, extent: Any) -> Run:
    """What a slice with bounds or a step that move takes. `extent`: of the axis; a Number where that moves too.

    Raises CannotRollError where NumPy may clip a bound in some iterations and not in others, and for a step that may be
    positive or negative.
    """
    step = 1 if entry.step is None else entry.step
    low, high = ends(step)
    turned = high is not None and high < 0
    if not turned and (low is None or low < 1):
        raise CannotRollError("it slices with a step whose sign is not known")
    first, stop = _bounds(entry, extent, turned)
    step = -step if turned else step
    size = stop - first
    if any(None in ends(bound) or _is_loose(bound) for bound in (entry.start, entry.stop) if bound is not None):
        size = greatest(size, 0)
    low, high = ends(size)
    assert low is not None
    assert high is not None
    if high <= 0:
        return Run(0, 0, 1, turned)
    if low < 0:
        raise CannotRollError("its slice may end before it starts", first=True, last=True)
    count = size if _is_one(step) else (size + (step - 1)) // step
    return Run(stop - 1 - (count - 1) * step if turned else first, count, step, turned)


def _is_loose(bound: Any) -> bool:
    return isinstance(bound, Number) and bound.is_loose


def _is_one(step: Any) -> bool:
    return type(step) is int and step == 1


def _bounds(entry: slice, extent: Any, turned: bool) -> tuple[Any, Any]:
    """The least place that a slice may take, and the place behind the greatest."""
    if turned:
        last = None if entry.start is None else _bound(entry.start, extent, extent - 1)
        first = None if entry.stop is None else _bound(entry.stop, extent, extent - 1)
        return (0 if first is None else first + 1), (extent if last is None else last + 1)
    start = 0 if entry.start is None else _bound(entry.start, extent, extent)
    stop = extent if entry.stop is None else _bound(entry.stop, extent, extent)
    return start, stop


def _bound(bound: Any, extent: Any, most: Any) -> Any:
    """A bound from the start of the axis, where NumPy clips it to `most` in no iteration, or in all."""
    low, high = ends(bound)
    if low is None or high is None or _is_loose(bound):
        return _clipped(bound, extent, most)
    if high < 0:
        bound = bound + extent
    if not isinstance(bound, Number) and not isinstance(extent, Number):
        return min(max(bound, most - extent), most)
    if not_below(bound, most):
        return most
    if not (not_below(bound, 0) and not_below(most, bound)):
        raise CannotRollError("its slice may go beyond the array", first=True, last=True)
    return bound


def _clipped(bound: Any, extent: Any, most: Any) -> Any:
    """A bound of unknown size from the start of the axis, as NumPy clips it."""
    if not (isinstance(extent, int) and isinstance(most, int)):
        raise CannotRollError("it slices a slice at a place of unknown size")
    term = Term(bound.as_dtype(_I64))
    wrapped = (term < 0).select(term + extent, term)
    clipped = wrapped.op("maximum", most - extent).op("minimum", most)
    return Number({Atom(current().first_like(clipped.value), most - extent, most): 1})


def ends(number: Any) -> tuple[int | None, int | None]:
    """The least and the greatest that an integer can be; None where that is not known."""
    return (number.low, number.high) if isinstance(number, Number) else (number, number)


def not_below(number: Any, limit: Any) -> bool:
    """Whether an integer is at least as great as another one in all iterations."""
    low, _ = ends(number - limit)
    return low is not None and low >= 0
