"""The inverse of the error function by polynomials, after Mike Giles, "Approximating the erfinv function" (2012).

With w = -log(1 - x**2), erf_inv(x) = x * P(t), where P is the polynomial of the range that w falls into and t is w or
its root, less a shift. x**2 is rounded before it is taken from 1. The formula is the op's definition: near -1 and 1 it
is 90 units in the last place off the exact inverse in f32, and more in f64, but it is what JAX computes, whose numbers
are to be met. Targets compute it in the same steps, each of a polynomial rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.lazydataclass import dataclass

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Piece:
    """The polynomial of one range of w."""

    below: float
    """Where the range ends; the last has no end."""
    root: bool
    """Whether the polynomial is one of the root of w."""
    shift: float
    """What w or its root is lessened by."""
    coefficients: tuple[float, ...]
    """Lowest power first."""


SINGLE = (
    Piece(
        5.0,
        root=False,
        shift=2.5,
        coefficients=(
            *(1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087),
            *(-4.39150654e-06, -3.5233877e-06, 3.43273939e-07, 2.81022636e-08),
        ),
    ),
    Piece(
        np.inf,
        root=True,
        shift=3.0,
        coefficients=(
            *(2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773),
            *(-0.00367342844, 0.00134934322, 0.000100950558, -0.000200214257),
        ),
    ),
)
"""For f32, and for 16-bit floats, which are computed in it."""

DOUBLE = (
    Piece(
        6.25,
        root=False,
        shift=3.125,
        coefficients=(
            *(1.6536545626831027, 0.24015818242558962, -0.006033670871430149, -0.000740702534166267),
            *(0.00018673420803405714, -1.3882523362786469e-05, -1.3654692000834679e-06, 4.2347877827932404e-07),
            *(-2.9070369957882005e-08, -4.112633980346984e-09, 1.0512122733215323e-09, -5.415412054294628e-11),
            *(-1.2975133253453532e-11, 2.6335093153082323e-12, -8.151934197605472e-14, -4.054566272975207e-14),
            *(6.637638134358324e-15, 2.0972767875968562e-17, -1.333171662854621e-16, 1.1157877678025181e-17),
            *(1.28584807152564e-18, -1.6850591381820166e-19, -3.64441206401782e-21),
        ),
    ),
    Piece(
        16.0,
        root=True,
        shift=3.25,
        coefficients=(
            *(3.0838856104922208, 1.0052589676941592, 0.005370914553590064, -0.003751208507569241),
            *(0.002491442096107851, -0.0016882755560235047, 0.0009532893797373805, -0.0003550375203628475),
            *(2.4031110387097894e-05, 6.828485145957318e-05, -4.7318229009055734e-05, 1.2475304481671779e-05),
            *(2.9234449089955446e-06, -4.013867526981546e-06, 1.5027403968909828e-06, 1.8239629214389228e-08),
            *(-2.7517406297064545e-07, 9.075656193888539e-08, 2.2137376921775787e-09),
        ),
    ),
    Piece(
        np.inf,
        root=True,
        shift=5.0,
        coefficients=(
            *(4.849906401408584, 1.0103004648645344, -0.00013871931833623122, -0.00021503011930044477),
            *(7.599527703001776e-05, -1.968177810553167e-05, 4.526062597223154e-06, -9.9298272942317e-07),
            *(2.2900482228026655e-07, -6.771199775845234e-08, 2.914795345090108e-08, -1.496002662714924e-08),
            *(7.61570120807834e-09, -3.789465440126737e-09, 1.5076572693500548e-09, -2.555641816996525e-10),
            -2.7109920616438573e-11,
        ),
    ),
)


def erf_inv(x: Array) -> Array:
    """The inverse of the error function of f32 or f64 numbers: infinite at -1 and 1, NaN beyond."""
    pieces = SINGLE if x.dtype == np.float32 else DOUBLE
    w = -np.log1p(-(x * x))
    root = np.sqrt(w)
    values = [_polynomial((root if piece.root else w) - x.dtype.type(piece.shift), piece) for piece in pieces]
    result = values.pop()
    for piece, value in zip(pieces[-2::-1], reversed(values), strict=True):
        result = np.where(w < piece.below, value, result)
    return np.where(np.abs(x) == 1, x * x.dtype.type(np.inf), result * x)


def _polynomial(t: Array, piece: Piece) -> Array:
    """By Horner's rule. Products and sums are made wider, so that a step is seldom rounded in another way than once."""
    wide = np.float64 if t.dtype == np.float32 else np.longdouble
    t, dtype = t.astype(wide), t.dtype
    total = np.full(t.shape, piece.coefficients[-1], dtype)
    for coefficient in reversed(piece.coefficients[:-1]):
        total = (total.astype(wide) * t + wide(dtype.type(coefficient))).astype(dtype)
    return total
