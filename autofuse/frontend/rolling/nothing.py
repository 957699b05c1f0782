"""None as a state: `best = None`, then a number where data say so, and `best is None` asked for.

Such a number has a condition beside it, `absent`, which says where Python has None. What computes with the number does
not ask for it, as Python raises where it is None. A condition knows what it `settles`: on a side of a branch that
`best is None` leads to, or away from, the number is one or the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autofuse.frontend.cells import Cell
from autofuse.frontend.promotion import as_tracer, value_of
from autofuse.frontend.rolling.numbers import Number, Truth, floating, plain, truth_of
from autofuse.frontend.tracecontext import Tracing, current
from autofuse.frontend.tracer import TracerArray, fresh

_BOOL = np.dtype(np.bool_)


def absent_of(value: Any) -> Truth | None:
    """Where Python has None in place of a number; None if it never has, here."""
    absent = value.absent if isinstance(value, TracerArray) else None
    if absent is None:
        return None
    tracing: Tracing | None = current()
    while tracing is not None:
        if tracing.fork is not None and absent.cell in tracing.fork.present:
            return None
        tracing = tracing.parent
    return absent


def settled(value: Any) -> Any:
    """A number as it is on the side under way: one that is not None there is a number alone."""
    is_number = isinstance(value, TracerArray) and value.absent is not None
    return _copied(value) if is_number and absent_of(value) is None else value


def with_settled(test: Any, holds: frozenset[Cell], fails: frozenset[Cell]) -> Any:
    """A condition that knows what is not absent where it holds, and where it does not."""
    test.settles = holds, fails
    return test


def is_part(value: Any) -> bool:
    """Whether it is a number that may be None elsewhere."""
    return isinstance(value, bool | int | float | np.generic) or (isinstance(value, TracerArray) and value.is_scalar)


def maybe(value: Any, absent: Any) -> Any:
    """A number that is None where `absent` holds, a bool or a traced one."""
    if isinstance(absent, bool):
        return None if absent else value
    made = _copied(value)
    made.absent = with_settled(absent, frozenset(), frozenset((absent.cell,)))
    return made


def without_absent(value: Any) -> Any:
    """The number alone."""
    return value if absent_of(value) is None else _copied(value)


def parts_of(value: Any) -> tuple[Any, Any]:
    """A number and where it is None; None in place of a number is True beside nothing."""
    if value is None:
        return None, True
    absent = absent_of(value)
    return without_absent(value), False if absent is None else absent


def like(value: Any) -> Any:
    """A number of the same kind, which nobody asks for."""
    if isinstance(value, Number):
        return value.python(0)
    if isinstance(value, Truth):
        return False
    return value.dtype.type(0) if isinstance(value, TracerArray) else value


def flag(absent: Any) -> Truth:
    """A bool as a traced one, of the region under way."""
    return absent if isinstance(absent, Truth) else truth_of(fresh(current().scalar(bool(absent), _BOOL)))


def _copied(value: Any) -> Any:
    if isinstance(value, Truth):
        return truth_of(value)
    if isinstance(value, bool):
        return truth_of(fresh(value_of(value, _BOOL)))
    if isinstance(value, int | float) and not isinstance(value, np.generic):
        return floating(plain(value).as_dtype(np.dtype(np.float64))) if isinstance(value, float) else plain(value)
    if isinstance(value, Number):
        made = Number(value.terms if value.python is int else None, value.constant, value.source)
        made.asked, made.of_data = value.asked, value.of_data
        return made
    return TracerArray(as_tracer(value).cell, is_scalar=True)
