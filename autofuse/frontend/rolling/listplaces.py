"""Elements of lists at places that only the run knows: `values[int(x)]`, `values[k[i]] += 1`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autofuse.frontend.dispatch import call
from autofuse.frontend.forks import CannotRollError
from autofuse.frontend.integerindexing import wrapped
from autofuse.frontend.promotion import value_of
from autofuse.frontend.rolling.growing import element_of
from autofuse.frontend.rolling.numbers import (
    Atom,
    Number,
    floating,
    is_integer_of_the_run,
    larger,
    plain,
    python_class,
    truth_of,
    whole_number,
)
from autofuse.frontend.tracer import TracerArray, fresh

_I64, _F64, _BOOL = np.dtype(np.int64), np.dtype(np.float64), np.dtype(np.bool_)


def moves(index: Any) -> bool:
    """Whether only the run knows a place."""
    return isinstance(index, Number) or is_integer_of_the_run(index)


def element_at(items: Sequence[Any], index: Any) -> Any:
    """`items[index]`."""
    if not moves(index):
        return items[index]
    if not items:
        raise IndexError(f"{type(items).__name__} index out of range")
    return element_of(items, _number(index))


def set_at(items: Sequence[Any], index: Any, value: Any, put: Callable[[int, Any], None]) -> None:
    """`items[index] = value`, for an index that moves: each element is the new one or the old. `put`: sets one.

    Raises CannotRollError for elements of which no number can be either.
    """
    place = wrapped(fresh(_number(index).as_dtype(_I64)), len(items), 0)
    made = [_chosen(np.equal(place, number), value, item) for number, item in enumerate(items)]  # pyright: ignore[reportCallIssue, reportArgumentType]
    for number, item in enumerate(made):
        put(number, item)


def _number(index: Any) -> Number:
    return index if isinstance(index, Number) else whole_number(index)


def _chosen(test: Any, new: Any, old: Any) -> Any:
    """`new if test else old`, of two numbers of one kind; of an integer and a float, floats."""
    pythons = [python_class(side) for side in (new, old)]
    if pythons == [bool, bool]:
        return truth_of(_either(test, _BOOL, new, old))
    if pythons == [int, int]:
        sides = plain(new), plain(old)
        lows, highs = [side.low for side in sides], [side.high for side in sides]
        ends = (None, None) if None in (*lows, *highs) else (min(lows), max(highs))  # pyright: ignore[reportArgumentType]
        atom = Atom(_either(test, _I64, new, old).value, *ends, growth=larger(*sides), by_data=True)
        return Number({atom: 1})
    if set(pythons) <= {int, float}:
        return floating(_either(test, _F64, new, old).value)
    scalars = [side for side in (new, old) if isinstance(side, TracerArray | np.generic) and not side.shape]
    dtypes = {side.dtype for side in scalars if python_class(side) is None}
    if len(dtypes) != 1 or bool in pythons or (float in pythons and dtypes != {_F64}):
        raise CannotRollError("a list gets an element of another kind, at a place that only the run knows")
    return _either(test, dtypes.pop(), new, old)


def _either(test: Any, dtype: np.dtype[Any], new: Any, old: Any) -> TracerArray:
    found = call(np.where, test, *(fresh(value_of(side, dtype)) for side in (new, old)))
    return fresh(found.value)
