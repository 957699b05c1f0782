"""Errors in units in the last place, tallied over many arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
LEVELS = (0.5, 1.0, 2.0, 4.0)
"""Results further off than each of these, in ulp, are counted."""


def ulp_errors(actual: Array, exact: Array) -> Array:
    """|actual - exact| in units in the last place of `actual`'s type at `exact`; NaN only where both are NaN.

    The unit is that of the exact value before rounding, at least the smallest subnormal; infinity counts as the number
    that follows the largest one. A NaN for a number, or the other way round, or a wrong sign, is an infinite error.
    """
    info = ml_dtypes.finfo(actual.dtype)
    got = actual.astype(exact.dtype)
    eps = float(info.eps)
    beyond = exact.dtype.type(2) ** int(info.maxexp)
    limited = np.clip(exact, -beyond, beyond)
    unit = np.clip(_power_of_two_below(limited) * eps, float(info.smallest_subnormal), beyond * eps / 2)
    error = np.abs(np.clip(got, -beyond, beyond) - limited) / unit
    neither = np.isnan(got) & np.isnan(exact)
    fault = (np.isnan(got) | np.isnan(exact) | (np.signbit(got) != np.signbit(exact))) & ~neither
    error[fault] = np.inf
    return error


def _power_of_two_below(x: Array) -> Array:
    """The greatest power of two not above |x|, 0 for 0."""
    if x.dtype == np.float64:
        return (x.view(np.uint64) & np.uint64(0x7FF0_0000_0000_0000)).view(np.float64)
    mantissa, exponent = np.frexp(x)
    return np.where(mantissa == 0, x.dtype.type(0), np.ldexp(x.dtype.type(1), exponent - 1))


@dataclass(slots=True)
class Tally:
    """What a set of results was like."""

    points: int = 0
    worst: float = 0.0
    """Largest error in ulp."""
    argument: str = ""
    """Where it was, as hexadecimal floats."""
    over: tuple[int, ...] = (0,) * len(LEVELS)
    """How many results were off by more than each of `LEVELS`."""

    def add(self, inputs: tuple[Array, ...], actual: Array, exact: Array) -> None:
        """Count results against the exact values."""
        error = ulp_errors(actual, exact)
        np.nan_to_num(error, copy=False, nan=0.0, posinf=np.inf)
        place = int(np.argmax(error))
        if error[place] > self.worst or not self.points:
            self.worst = float(error[place])
            self.argument = ", ".join(float(x[place]).hex() for x in inputs)
        self.points += len(error)
        far = error[error > LEVELS[0]]
        counts = [len(far), *(int(np.count_nonzero(far > level)) for level in LEVELS[1:])]
        self.over = tuple(a + b for a, b in zip(self.over, counts, strict=True))

    def merge(self, other: Tally) -> None:
        """Add another tally to this one."""
        if other.worst > self.worst or not self.points:
            self.worst, self.argument = other.worst, other.argument
        self.points += other.points
        self.over = tuple(a + b for a, b in zip(self.over, other.over, strict=True))


def same_bits(a: Array, b: Array) -> Array:
    """Where two arrays of floats hold the same number, or NaN both."""
    unsigned = f"u{a.itemsize}"
    return (a.view(unsigned) == b.view(unsigned)) | (np.isnan(a) & np.isnan(b))
