"""exp, exp2, expm1, tanh and logistic: 2**n times a polynomial on the rest, special values by clamping.

x = n*ln(2) + r with |r| <= ln(2)/2. Clamping the argument just outside the representable results lets overflow and
underflow fall out of the final scaling; NaN passes through every clamp and product.
"""

from __future__ import annotations

from autofuse.targets.cpu.vectormath import coefficients
from autofuse.targets.cpu.vectormath.formats import (
    PowerOfTwo,
    at_least,
    at_most,
    format_of,
    nearest_power,
    polynomial,
)
from autofuse.targets.cpu.vectormath.lanes import Lanes


def reduce_ln2(x: Lanes, shift: int = 0) -> tuple[Lanes, PowerOfTwo]:
    """`x - n*ln(2)`, and 2**(n + shift)."""
    high, low = format_of(x).ln2
    n, power = nearest_power(x, format_of(x).log2e[0], shift)
    return n.fma(-low, n.fma(-high, x)), power


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
    return _exp_below(x, 89.0 if x.element == "float" else 710.0)


def exp_of_negative(x: Lanes) -> Lanes:
    """e**x for x <= 0."""
    return _exp_below(x, None)


def _exp_below(x: Lanes, high: float | None) -> Lanes:
    live, safe = _without_underflow(x, -104.0 if x.element == "float" else -746.0, high)
    r, power = reduce_ln2(safe, format_of(x).bias)
    return live.select(power.times(exp_reduced(r)), 0.0)


def _without_underflow(x: Lanes, low: float, high: float | None) -> tuple[Lanes, Lanes]:
    """Where `x` is not below `low`, and `x` with 0 in the other places, at most `high`.

    Scaling e**x down for such arguments would give 0 too, but by way of subnormals, which cost a hundred cycles each: a
    masked softmax is full of them.
    """
    live = ~(x < low)
    return live, live.select(x if high is None else at_most(x, high), 0.0)


def exp2(x: Lanes) -> Lanes:
    """2**x; exact at integers."""
    single = x.element == "float"
    low, high = (-151.0, 129.0) if single else (-1076.0, 1025.0)
    live, safe = _without_underflow(x, low, high)
    n, power = nearest_power(safe, 1.0, format_of(x).bias)
    r = safe - n
    factor = polynomial(r, coefficients.EXP2_F32 if single else coefficients.EXP2_F64)
    return live.select(power.times(factor.fma(r, 1.0)), 0.0)


def expm1(x: Lanes) -> Lanes:
    """e**x - 1, accurate near 0: 2**n * (e**r - 1) + (2**n - 1), halved so that 2**n cannot overflow."""
    low, high = (-18.0, 89.0) if x.element == "float" else (-40.0, 710.0)
    r, power = reduce_ln2(at_least(at_most(x, high), low), -1)
    part = _expm1_reduced(r)
    half = power.value()
    result = part.fma(half, half - 0.5) * 2.0
    return half.equals(0.5).select(part, result).copysign(x)


def tanh(x: Lanes) -> Lanes:
    """expm1(2|x|) / (expm1(2|x|) + 2): no cancellation; beyond the clamp the quotient rounds to 1."""
    doubled = at_most(x.abs() * 2.0, 20.0 if x.element == "float" else 40.0)
    r, power = reduce_ln2(doubled)
    two_n = power.value()
    t = _expm1_reduced(r).fma(two_n, two_n - 1.0)
    return (t / (t + 2.0)).copysign(x)


def logistic(x: Lanes) -> Lanes:
    """1 / (1 + e**-x), written with e**-|x| so that small results keep their accuracy."""
    e = exp_of_negative(-x.abs())
    return (x < 0).select(e, 1.0) / (e + 1.0)
