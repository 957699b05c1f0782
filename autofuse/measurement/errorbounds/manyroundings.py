"""What many single roundings of factors come to in a product, by probability.

Roundings of two numbers that are nearly the same differ by as much as the numbers do, and by one of two values that
are a unit apart; how far the numbers are from a halfway point is chance. So that is 0 in the mean, and within a range
of one unit u. A sum of such differences d_i y_i is beyond t with a probability of at most
2 exp(-2 t**2 / sum (u_i y_i)**2) (Hoeffding, Probability inequalities for sums of bounded random variables, 1963). Two
roundings to units of their own, as of a weight before and after it is scaled, have a smaller variance yet. What a
rounding does in the mean, as cutting off digits does, is not in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from autofuse.measurement.errorbounds.roundings import Array, Bound, summed

_REFUSED = 2.0**-20
"""How likely a right answer may be refused, at most, by what single roundings of factors do to a product's elements."""

Multiplied = Callable[[Array, Array], Array]
"""A product of two factors, in the precision of bounds."""


def deviations(count: int) -> float:
    """Roots of sums of squared units that none of so many sums of single roundings is beyond, but for `_REFUSED`."""
    return math.sqrt(math.log(2 * max(count, 1) / _REFUSED) / 2)


def beside(errors: Array, other: Array, number: int, multiplied: Multiplied) -> Array:
    """The product of errors of a factor, of this number, and the other one."""
    return multiplied(errors, other) if number == 0 else multiplied(other, errors)


def root_of_squares(factors: Sequence[Array], errors: Sequence[Bound], multiplied: Multiplied) -> Bound:
    """The root of the sum of squares of errors times the other factor, without squares that leave the range."""
    scale = max(_peak(error) for error in errors)
    if not scale:
        return None
    squares: Bound = None
    for number, error in enumerate(errors):
        if error is not None:
            other = factors[1 - number]
            most = _peak(other) or 1.0
            part = beside(np.square(error / scale), np.square(other / most), number, multiplied)
            squares = summed(squares, part * part.dtype.type(most) ** 2)
    assert squares is not None
    return np.sqrt(squares) * squares.dtype.type(scale)


def _peak(values: Bound) -> float:
    return 0.0 if values is None else float(np.max(values, initial=0.0))
