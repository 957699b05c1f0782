"""What a loop walks over, with any of its items at hand: `range`, `enumerate`, `zip`, `reversed`, arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from autofuse.frontend.forks import CannotRollError
from autofuse.frontend.rolling.growing import element_of, is_common
from autofuse.frontend.rolling.numbers import Atom, Number, is_integer_of_the_run, whole_number
from autofuse.frontend.rolling.positions import ends
from autofuse.frontend.tracer import TracerArray
from autofuse.lazydataclass import dataclass

_I64 = np.dtype(np.int64)


@dataclass(frozen=True, slots=True)
class Items:
    """A sequence of items that are made when they are asked for."""

    count: Any
    """How many: an `int`, or a Number where loops around decide it."""
    item: Callable[[Any], Any]
    """The item at a position, an `int` or a Number."""
    length: Callable[[], int] | None = None
    """Of a walk over lists, which may grow and shrink meanwhile, how many there are now."""

    @property
    def is_as_long(self) -> bool:
        """Whether there are as many as in the beginning."""
        return self.length is None or self.length() == self.count


class NumberRange:
    """`range()` with a bound that loops around, or the run, decide."""

    def __init__(self, start: Any, stop: Any, step: Any) -> None:
        least, most = ends(step)
        self.rises = least is not None and least > 0
        if not self.rises and (most is None or most >= 0):
            raise CannotRollError("it has a range whose step is 0, or may be positive or negative")
        self.start, self.stop, self.step = start, stop, step
        length, by = (stop - start, step) if self.rises else (start - stop, -step)
        self.count = length if type(by) is int and by == 1 else (length + (by - 1)) // by

    def item(self, position: Any) -> Any:
        """A number of it. It is between the bounds, which the sizes of start and position alone do not say."""
        number = self.start + self.step * position
        if not (isinstance(number, Number) and (isinstance(self.start, Number) or isinstance(self.step, Number))):
            return number
        first, last = (self.start, self.stop - 1) if self.rises else (self.stop + 1, self.start)
        low = first.low if isinstance(first, Number) else first
        high = last.high if isinstance(last, Number) else last
        is_loose = any(isinstance(end, Number) and end.is_loose for end in (first, last))
        return Number({Atom(number.as_dtype(_I64), low, high, is_loose=is_loose): 1})

    def __iter__(self) -> Iterator[Any]:
        raise CannotRollError("it goes through a range with a bound that moves")


class Walk:
    """`enumerate`, `zip` or `reversed` of arguments that are still at hand. An iterator, as Python's own."""

    def __init__(self, function: type, *args: Any, **kwargs: Any) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs
        self._iterator: Iterator[Any] | None = None

    @property
    def is_begun(self) -> bool:
        return self._iterator is not None

    def __iter__(self) -> Walk:
        return self

    def __next__(self) -> Any:
        if self._iterator is None:
            self._iterator = iter(self.function(*self.args, **self.kwargs))
        return next(self._iterator)


class Places:
    """What a loop with a `break` walks over, asked for by the number of the iteration."""

    def __init__(self, given: Any) -> None:
        self._items = items_of(given)
        self._iterator = iter(given) if self._items is None else None
        self._next: Any = None

    def has(self, place: Any) -> Any:
        """Whether there is an item at a place; of an iterator, whether there is one more."""
        if self._items is not None:
            return place < self._items.count
        if self._iterator is None or isinstance(place, Number):
            raise CannotRollError("it goes through an iterator")
        try:
            self._next = next(self._iterator)
        except StopIteration:
            return False
        return True

    def item(self, place: Any) -> Any:
        """The item at a place that there is."""
        if self._items is None:
            return self._next
        count = self._items.count
        high, is_loose = (count.high, count.is_loose) if isinstance(count, Number) else (count, False)
        if isinstance(place, Number):
            most = None if high is None else high - 1
            place = Number({Atom(place.as_dtype(_I64), 0, most, is_loose=is_loose): 1})
        return self._items.item(place)


def ranged(*bounds: Any) -> Any:
    """`range()`, whose bounds may be Numbers, or integers of arrays that only the run knows."""
    bounds = tuple(whole_number(bound) if is_integer_of_the_run(bound) else bound for bound in bounds)
    if not any(isinstance(bound, Number) for bound in bounds):
        return range(*bounds)
    start, stop, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    made = NumberRange(start, stop, step)
    return made if isinstance(made.count, Number) else _fixed(made)


def _fixed(made: NumberRange) -> Any:
    """A range of known length whose start moves."""
    return Walk(_Moved, made) if made.count > 0 else range(0)


class _Moved:
    """The numbers of a range whose start moves."""

    def __init__(self, made: NumberRange) -> None:
        self.made = made

    def __iter__(self) -> Iterator[Any]:
        return (self.made.start + self.made.step * k for k in range(self.made.count))


def items_of(given: Any) -> Items | None:
    """The items of what a loop walks over; None where only Python can find them, one after the other."""
    match given:
        case range():
            return Items(len(given), lambda k: given.start + given.step * k)
        case NumberRange():
            return Items(given.count, given.item)
        case TracerArray() if type(given) is TracerArray and given.shape:
            return Items(given.shape[0], lambda k: given[k])
        case list() | tuple() if is_common(given):
            elements: Sequence[Any] = given

            def element(k: Any) -> Any:
                return elements[k] if isinstance(k, int) else element_of([*elements], k)

            return Items(len(given), element, lambda: len(elements))
        case Walk() if not given.is_begun:
            return _WALKS[given.function](*given.args, **given.kwargs)
        case _:
            return None


def _enumerated(given: Any, start: Any = 0) -> Items | None:
    inner = items_of(given)
    return inner and Items(inner.count, lambda k: (start + k, inner.item(k)), inner.length)


def _zipped(*given: Any, strict: bool = False) -> Items | None:
    parts = [items_of(one) for one in given]
    held = [part for part in parts if part is not None]
    if not held or len(held) < len(parts) or any(type(part.count) is not int for part in held):
        return None
    if strict and len({part.count for part in held}) > 1:
        return None
    lengths = [part.length or (lambda count=part.count: count) for part in held]
    is_live = any(part.length is not None for part in held)
    now = (lambda: min(length() for length in lengths)) if is_live else None
    return Items(min(part.count for part in held), lambda k: tuple(part.item(k) for part in held), now)


def _reversed(given: Any) -> Items | None:
    inner = items_of(given) if isinstance(given, range | TracerArray | list | tuple) else None
    return inner and Items(inner.count, lambda k: inner.item(inner.count - 1 - k), inner.length)


def _moved(made: NumberRange) -> Items:
    return Items(made.count, lambda k: made.start + made.step * k)


_WALKS: dict[type, Callable[..., Items | None]] = {
    enumerate: _enumerated,
    zip: _zipped,
    reversed: _reversed,
    _Moved: _moved,
}
