"""exp, exp2, expm1, tanh and logistic: 2**n times a polynomial on the rest, special values by clamping.

x = n*ln(2) + r with |r| <= ln(2)/2. Clamping the argument just outside the representable results lets overflow and
underflow fall out of the final scaling; NaN passes through every clamp and product.
"""

from __future__ import annotations

from collections.abc import Callable

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
from autofuse.targets.cpu.vectormath.rare import mended


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
    single = x.element == "float"

    def scaled(safe: Lanes, shift: int) -> tuple[Lanes, PowerOfTwo]:
        r, power = reduce_ln2(safe, shift)
        return exp_reduced(r), power

    # just below ln(2**-126) and ln(2**-1022); below the second numbers e**x rounds to 0
    least, none = (-87.33655, -104.0) if single else (-708.39642, -746.0)
    return _without_underflow(x, least, none, high, scaled)


def _without_underflow(
    x: Lanes, least: float, none: float, high: float | None, scaled: Callable[[Lanes, int], tuple[Lanes, PowerOfTwo]]
) -> Lanes:
    """A power of at most `high`, by a number and the power of two that scales it (`scaled`, of x and a shift).

    Products that are subnormal cost a hundred cycles each, and a masked softmax, or distances under an exponential, are
    full of them: below `none` the power is 0, and below `least` it is made as an integer.
    """
    fmt = format_of(x)
    live = ~(x < least)
    number, power = scaled(live.select(x if high is None else at_most(x, high), 0.0), fmt.bias)
    usual = live.select(power.times(number), 0.0)
    small = ~live & ~(x < none)
    return mended(usual, small, lambda: small.select(_as_integer(*scaled(small.select(x, least), fmt.least)), usual))


def _as_integer(number: Lanes, power: PowerOfTwo) -> Lanes:
    """`number * 2**n`, rounded once, where the bits of what is subnormal are an integer: that of smallest ones in it.

    `power` is the one by which there are so many.
    """
    fmt = format_of(number)
    return ((number * power.value() + fmt.unit).bits() - fmt.unit_bits).as_float()


def exp2(x: Lanes) -> Lanes:
    """2**x; exact at integers."""
    single = x.element == "float"
    least, none, high = (-126.0, -151.0, 129.0) if single else (-1022.0, -1076.0, 1025.0)

    def scaled(safe: Lanes, shift: int) -> tuple[Lanes, PowerOfTwo]:
        n, power = nearest_power(safe, 1.0, shift)
        r = safe - n
        factor = polynomial(r, coefficients.EXP2_F32 if single else coefficients.EXP2_F64)
        return factor.fma(r, 1.0), power

    return _without_underflow(x, least, none, high, scaled)


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
