"""Fixed windows that hold slices whose place, length or step moves with a loop's counter.

Where the step is known and places move by multiples of it, a window is a slice of the array: the moving slice is a span
of it. Else each element of the window is looked for in the array (`Spread`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.frontend.countedloops import fori_loop
from autofuse.frontend.dispatch import call
from autofuse.frontend.rolling.numbers import Number
from autofuse.frontend.rolling.positions import Run, ends
from autofuse.frontend.steps import Step
from autofuse.frontend.tracecontext import current
from autofuse.frontend.tracer import fresh
from autofuse.ir.graph import Value
from autofuse.lazydataclass import dataclass

_I64 = np.dtype(np.int64)
_FEW_PLACES = 64
"""Of an axis: all of them are asked at once, as such an array is held in registers."""


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """Where a slice lies in its window, along one axis."""

    first: Any
    """Position in the window: an `int` or a Number."""
    length: Any

    def is_long_as(self, other: Span) -> bool:
        """Whether two have the same length in all iterations."""
        return is_zero(self.length - other.length)

    def turned(self, window: int) -> Span:
        """Of the window from its end."""
        return Span(window - self.first - self.length, self.length)


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """An entry of an index: so many elements from a place on, a step apart, where place or step moves."""

    start: Any
    step: Any
    """From one to the next: one sign in all iterations."""
    count: int
    """Of which some may be beyond the axis: then they are read as its last one, and never written."""
    length: Any
    """How many there are of them: `count`, or a Number."""


def held(run: Run, extent: int) -> tuple[slice | Spread, Span]:
    """The window of an axis that holds what moves, as an entry of an index, and where that lies in it."""
    (low, _), (_, count) = ends(run.start), ends(run.count)
    assert low is not None
    assert count is not None
    if not (type(run.step) is int and _is_multiple(run.start, run.step)):
        last = run.start + (run.count - 1) * run.step
        start, step = (last, -run.step) if run.turned else (run.start, run.step)
        return Spread(start, step, count, run.count), Span(0, run.count)
    _, stop = ends(run.start + run.hull)
    assert stop is not None
    places = range(low, min(stop, extent), run.step)
    span = Span((run.start - low) // run.step, run.count)
    if not run.turned:
        return slice(low, places.stop, run.step), span
    before = low - run.step
    return slice(places[-1], before if before >= 0 else None, -run.step), span.turned(len(places))


def _is_multiple(start: Any, step: int) -> bool:
    """Whether a place moves by multiples of a step."""
    return not isinstance(start, Number) or all(by % step == 0 for by in start.terms.values())


def is_zero(difference: Any) -> bool:
    """Whether an integer is 0 in all iterations."""
    return type(difference) is int and difference == 0


@dataclass(frozen=True)
class SpreadStep(Step):
    """A Spread of one axis."""

    axis: int
    spread: Spread
    fixed = False

    def numpy(self, array: NDArray[Any]) -> NDArray[Any]:
        return array[(*(slice(None),) * self.axis, slice(self.spread.count))]

    def layout(self, array: NDArray[Any]) -> NDArray[Any]:
        shape, strides = list(array.shape), array.strides
        shape[self.axis] = self.spread.count
        return np.lib.stride_tricks.as_strided(np.empty(1, array.dtype), shape, strides)

    def read(self, parent: Value) -> Value:
        places = self._number(self.spread.start) + self._places(self.spread.count) * self._number(self.spread.step)
        return _taken(parent, places, self.axis)

    def write(self, parent: Value, new: Value) -> Value:
        if self.writes_alone(parent.type.shape):
            return self._written(parent, new)
        apart, step = self._apart(parent.type.shape[self.axis])
        number = self._quotient(apart, step)
        inside = np.logical_and(number >= 0, np.logical_and(apart == number * step, number < self.spread.count))
        wide = call(np.reshape, inside, (-1, *(1,) * (parent.type.rank - self.axis - 1)))
        chosen = call(np.where, wide, fresh(_taken(new, number, self.axis)), fresh(parent, is_scalar=False))
        return chosen.value

    def writes_alone(self, shape: tuple[int, ...]) -> bool:
        """Whether elements are written one by one, and none of the window that is no element of the slice."""
        return len(shape) == 1 and shape[0] > _FEW_PLACES and isinstance(self.spread.step, Number)

    def _written(self, parent: Value, new: Value) -> Value:
        """Element by element: with a step that moves there may be few, and asking each place takes a division."""
        start, step = self._number(self.spread.start), self._number(self.spread.step)

        def store(number: Any, array: Any) -> Any:
            element = current().emit("dynamic_slice", (new, number.value), slice_sizes=(1,))
            place = start + number * step
            return fresh(current().emit("dynamic_update_slice", (array.value, element, place.value)))

        return fori_loop(0, self._number(self.spread.length), store, fresh(parent, is_scalar=False)).value

    def _quotient(self, apart: Any, step: Any) -> Any:
        """The whole part of a quotient. No integer that is a place is beyond those that floats divide right."""
        if isinstance(self.spread.step, Number):
            return np.floor(apart / step).astype(_I64)
        return np.floor_divide(apart, step)

    def _apart(self, extent: int) -> tuple[Any, Any]:
        """How far each place of the axis lies behind the first one, and the step."""
        return self._places(extent) - self._number(self.spread.start), self._number(self.spread.step)

    def _places(self, count: int) -> Any:
        return call(np.arange, count)

    def _number(self, number: Any) -> Any:
        return fresh(number.as_dtype(_I64)) if isinstance(number, Number) else np.int64(number)


def _taken(array: Value, places: Any, axis: int) -> Value:
    """Elements at places along an axis; beyond it its ends."""
    return call(np.take, fresh(array, is_scalar=False), places, axis, None, "clip").value
