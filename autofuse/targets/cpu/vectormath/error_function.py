"""erf and its inverse."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autofuse.ir.ops.error_function_inverse import DOUBLE, SINGLE
from autofuse.targets.cpu.vectormath import coefficients
from autofuse.targets.cpu.vectormath.exponential import exp_reduced, reduce_ln2
from autofuse.targets.cpu.vectormath.formats import at_most, polynomial
from autofuse.targets.cpu.vectormath.lanes import Lanes
from autofuse.targets.cpu.vectormath.logarithm import log1p


def erf(x: Lanes) -> Lanes:
    """The error function: x * (1 + E(x**2)) below 1, and 1 - exp(-G(|x|)) beyond, where G = -log(erfc).

    Beyond 1 the result is over 0.84, so the difference cancels nothing. The clamp is where erf rounds to 1.
    """
    single = x.element == "float"
    inner, outer, limit = (
        (coefficients.ERF_F32, coefficients.LOG_ERFC_F32, 4.0)
        if single
        else (coefficients.ERF_F64, coefficients.LOG_ERFC_F64, 6.0)
    )
    magnitude = x.abs()
    near = polynomial(x * x, inner).fma(x, x)
    r, power = reduce_ln2(-polynomial(at_most(magnitude, limit), outer))
    far = (-exp_reduced(r)).fma(power.value(), 1.0)
    return (magnitude < 1.0).select(near, far.copysign(x))


def erf_inv(x: Lanes) -> Lanes:
    """Giles' polynomials (`autofuse.ir.ops.error_function_inverse`): of the one that a lane needs, by Horner's rule."""
    pieces = SINGLE if x.element == "float" else DOUBLE
    w = -log1p(-(x * x))
    root = w.sqrt()
    below = [w < piece.below for piece in pieces[:-1]]

    def of_piece(values: Sequence[Lanes]) -> Lanes:
        chosen = values[-1]
        for holds, value in zip(reversed(below), reversed(values[:-1]), strict=True):
            chosen = holds.select(value, chosen)
        return chosen

    t = of_piece([(root if piece.root else w) - piece.shift for piece in pieces])

    def coefficient(power: int) -> Lanes:
        known = (piece.coefficients for piece in pieces)
        return of_piece([x.like(one[power] if power < len(one) else 0.0) for one in known])

    degree = max(len(piece.coefficients) for piece in pieces) - 1
    result = coefficient(degree)
    for power in reversed(range(degree)):
        result = result.fma(t, coefficient(power))
    return x.abs().equals(1.0).select(x * np.inf, result * x)
