"""exp, exp2, expm1, tanh and logistic: 2**n times a polynomial on the rest, special values by clamping.

x = n*ln(2) + r with |r| <= ln(2)/2. Clamping the argument just outside the representable results lets overflow and
underflow fall out of the final scaling; NaN passes through every clamp and product.
"""

from __future__ import annotations

from collections.abc import Callable

from autofuse.backends.cpu.vectormath import coefficients
from autofuse.backends.cpu.vectormath.formats import (
    at_least,
    at_most,
    format_of,
    nearest_integer,
    polynomial,
    power_of_two,
    scale,
)
from autofuse.backends.cpu.vectormath.lanes import Lanes


def reduce_ln2(x: Lanes) -> tuple[Lanes, Lanes]:
    """`x - n*ln(2)` and the integer n."""
    high, low = format_of(x).ln2
    n, exponent = nearest_integer(x, format_of(x).log2e[0])
    return n.fma(-low, n.fma(-high, x)), exponent


def _tail(r: Lanes) -> Lanes:
    """(exp(r) - 1 - r) / r**2."""
    single = r.element == "float"
    return polynomial(r, coefficients.EXPM1_F32 if single else coefficients.EXPM1_F64)


def exp_reduced(r: Lanes) -> Lanes:
    """exp(r) for |r| <= ln(2)/2."""
    return _tail(r).fma(r, 1.0).fma(r, 1.0)


def _expm1_reduced(r: Lanes) -> Lanes:
    return _tail(r).fma(r * r, r)


def exp(x: Lanes) -> Lanes:
    """e**x."""
    low, high = (-104.0, 89.0) if x.element == "float" else (-746.0, 710.0)
    return _zero_below(low, x, lambda live: _exp(at_most(live, high)))


def _exp(x: Lanes) -> Lanes:
    r, exponent = reduce_ln2(x)
    return scale(exp_reduced(r), exponent)


def _zero_below(low: float, x: Lanes, function: Callable[[Lanes], Lanes]) -> Lanes:
    """`function(x)`, and 0 where x < `low`.

    Scaling such an argument down would give 0 too, but by way of subnormals, which cost a hundred cycles each: a masked
    softmax is full of them.
    """
    gone = x < low
    zero = x.like(0.0)
    return gone.select(zero, function(gone.select(zero, x)))


def exp_of_negative(x: Lanes) -> Lanes:
    """e**x for x <= 0."""
    return _zero_below(-104.0 if x.element == "float" else -746.0, x, _exp)


def exp2(x: Lanes) -> Lanes:
    """2**x; exact at integers."""
    single = x.element == "float"
    low, high = (-151.0, 129.0) if single else (-1076.0, 1025.0)

    def scaled(live: Lanes) -> Lanes:
        live = at_most(live, high)
        n, exponent = nearest_integer(live, 1.0)
        r = live - n
        factor = polynomial(r, coefficients.EXP2_F32 if single else coefficients.EXP2_F64)
        return scale(factor.fma(r, 1.0), exponent)

    return _zero_below(low, x, scaled)


def expm1(x: Lanes) -> Lanes:
    """e**x - 1, accurate near 0: 2**n * (e**r - 1) + (2**n - 1), halved so that 2**n cannot overflow."""
    low, high = (-18.0, 89.0) if x.element == "float" else (-40.0, 710.0)
    r, exponent = reduce_ln2(at_least(at_most(x, high), low))
    part = _expm1_reduced(r)
    half = power_of_two(exponent - 1)
    result = part.fma(half, half - 0.5) * 2.0
    return exponent.equals(0).select(part, result).copysign(x)


def tanh(x: Lanes) -> Lanes:
    """expm1(2|x|) / (expm1(2|x|) + 2): no cancellation; beyond the clamp the quotient rounds to 1."""
    doubled = at_most(x.abs() * 2.0, 20.0 if x.element == "float" else 40.0)
    r, exponent = reduce_ln2(doubled)
    two_n = power_of_two(exponent)
    t = _expm1_reduced(r).fma(two_n, two_n - 1.0)
    return (t / (t + 2.0)).copysign(x)


def logistic(x: Lanes) -> Lanes:
    """1 / (1 + e**-x), written with e**-|x| so that small results keep their accuracy."""
    e = exp_of_negative(-x.abs())
    return (x < 0).select(e, 1.0) / (e + 1.0)
