"""pow, cbrt and rsqrt."""

from __future__ import annotations

import numpy as np

from autofuse.targets.cpu.vectormath import avx512, coefficients
from autofuse.targets.cpu.vectormath.exponential import exp_reduced, reduce_ln2
from autofuse.targets.cpu.vectormath.formats import (
    at_least,
    at_most,
    format_of,
    nearest_power,
    polynomial,
    power_of_two,
)
from autofuse.targets.cpu.vectormath.lanes import Lanes
from autofuse.targets.cpu.vectormath.logarithm import split
from autofuse.targets.cpu.vectormath.rare import mended

# ln 2 in 40 bits, so that its product with any exponent is exact, and the rest
_LN2_SHORT, _LN2_REST = 0.6931471805601177, -1.7239444525614835e-13
# (1 - h)**(-1/2) = 1 + h * (1/2 + 3/8 h + 5/16 h**2 + 35/128 h**3 + ...)
_RECIPROCAL_ROOT = (0.5, 0.375, 0.3125, 0.2734375)
_TWO_THIRDS, _TWO_THIRDS_REST = 0.6666666666666666, 3.700743415417188e-17


def power(x: Lanes, y: Lanes) -> Lanes:
    """x**y with every special case of C99 (Annex F.10.4.4).

    Lanes that the common way does not serve are mended behind a branch.
    """
    magnitude = x.abs()
    regular = (_power_of_float if x.element == "float" else _power_of_double)(magnitude, y)
    if avx512.fits(x):  # zeros and infinities come out right where the result is a number
        rare = (x.bits() < 0) | regular.is_nan()
    else:
        rare = ~((x > 0) & (x < np.inf) & (y.abs() < np.inf))
    return mended(regular, rare, lambda: _power_specials(x, y, magnitude, regular))


def _power_of_float(x: Lanes, y: Lanes) -> Lanes:
    """2**(y * log2(x)) for positive finite x and finite y; other lanes hold anything.

    The product and its integer part in double, 2**rest in float, whose error before the last rounding is below half a
    unit: powers that floats hold are met exactly.
    """
    e, m = split(x)
    f, e, exponent = (part.cast("fpext", "double") for part in (m - 1.0, e, y))
    product = exponent * polynomial(f, coefficients.LOG2_F64_SHORT).fma(f, e)
    n, _ = nearest_power(product, 1.0)
    r = ((product - n) * np.log(2.0)).cast("fptrunc", "float")
    n = n.cast("fptrunc", "float")
    r = (r < 1.0).select(r, 1.0)  # infinite products: NaN to anything, n decides
    factor = exp_reduced(r)
    if avx512.fits(x):
        return avx512.scaled(factor, n)
    _, result = nearest_power(at_least(at_most(n, 200.0), -200.0), 1.0, format_of(x).bias)
    return result.times(factor)


def _log_double_double(x: Lanes) -> tuple[Lanes, Lanes]:
    """log(x) as a rounded value and the rest, relative error about 2**-65, for positive finite x.

    log(m) = 2s + 2/3 s**3 + s**5 P(s**2) with s = (m - 1)/(m + 1): the first two terms in doubled precision, the
    third, below 2**-12 of the first, in single. For that, and lest e*log(2) cancels half of it, m stays below sqrt(2).
    """
    e, m = split(x)
    above = m > 2**0.5
    e, m = above.select(e + 1.0, e), above.select(m * 0.5, m)
    f, d = m - 1.0, m + 1.0
    d_low = m - (d - 1.0)
    reciprocal = 1.0 / d
    s = f * reciprocal
    s_low = (-s).fma(d_low, (-s).fma(d, f)) * reciprocal
    z = s * s
    z_low = s.fma(s, -z)
    cube = z * s
    cube_low = z_low.fma(s, z.fma(s, -cube))
    second = cube * _TWO_THIRDS
    second_low = cube_low.fma(_TWO_THIRDS, cube.fma(_TWO_THIRDS_REST, cube.fma(_TWO_THIRDS, -second)))
    third = cube * z * polynomial(z, coefficients.ATANH_TAIL_F64)
    slope = z.fma(z, z).fma(2.0, 2.0)  # 2/(1 - s**2): what s_low counts for

    scaled, twice = e * _LN2_SHORT, s * 2.0
    total = scaled + twice
    low = twice - (total - scaled)
    total, before = total + second, total
    low = low + (second - (total - before))
    low = low + e.fma(_LN2_REST, s_low.fma(slope, second_low + third))
    high = total + low
    return high, low - (high - total)


def _power_of_double(x: Lanes, y: Lanes) -> Lanes:
    """exp(y * log(x)), the product in doubled precision, for positive finite x and finite y; else anything."""
    high, low = _log_double_double(x)
    whole = y * high
    product = at_least(at_most(whole, 800.0), -800.0)
    rest = whole.equals(product).select(y.fma(low, y.fma(high, -whole)), 0.0)
    r, power_of_e = reduce_ln2(product, format_of(x).bias)
    return power_of_e.times(exp_reduced(r + rest))


def _power_specials(x: Lanes, y: Lanes, magnitude: Lanes, regular: Lanes) -> Lanes:
    infinite_y, falling = y.abs().equals(np.inf), y < 0
    integer = y.intrinsic("trunc").equals(y)
    half = y * 0.5
    odd = integer & half.intrinsic("trunc").differs(half)

    zero = magnitude.equals(0)
    edge = zero | magnitude.equals(np.inf)
    infinity = x.like(np.inf)
    result = edge.select((zero ^ falling).select(x.like(0.0), infinity), regular)
    limit = ((magnitude > 1.0) ^ falling).select(infinity, 0.0)
    limit = magnitude.equals(1.0).select(x.like(1.0), limit)
    result = infinite_y.select(limit, result)

    result = (odd & (x.bits() < 0)).select(-result, result)
    invalid = (x < 0) & (magnitude < np.inf) & ~integer
    result = invalid.select(x.like(np.nan), result)
    result = (x.is_nan() | y.is_nan()).select(x + y, result)
    return (x.equals(1.0) | y.equals(0.0)).select(x.like(1.0), result)


def cbrt(x: Lanes) -> Lanes:
    """Cube root: m**(-1/3) by a polynomial and a Newton step, squared times m, then corrected by the exact residual."""
    fmt, single = format_of(x), x.element == "float"
    magnitude = x.abs()
    tiny = magnitude < fmt.smallest_normal
    lifted = 24 if single else 54  # enough for any subnormal, and a multiple of 3
    bits = tiny.select(magnitude * 2.0**lifted, magnitude).bits()
    e = bits.shift_right(fmt.fraction) + (1200 - fmt.bias)
    third = (e * 21846).shift_right(16)  # e // 3 for e below 2**14
    rest = e - third * 3
    one = fmt.bias << fmt.fraction
    mantissa = (bits & ((1 << fmt.fraction) - 1)) | one
    m = (mantissa + (rest << fmt.fraction)).as_float()
    mantissa = mantissa.as_float()

    table = coefficients.RECIPROCAL_CBRT_F32 if single else coefficients.RECIPROCAL_CBRT_F64
    factor = rest.equals(0).select(m.like(1.0), rest.equals(1).select(m.like(2 ** (-1 / 3)), 2 ** (-2 / 3)))
    q = polynomial(mantissa, table) * factor
    q = (q * (1 / 3)).fma((-m).fma(q * q * q, 1.0), q)
    square = q * q
    root = m * square
    root_square = root * root
    residual = (-root_square).fma(root, m) - root.fma(root, -root_square) * root
    root = residual.fma(square * (1 / 3), root)

    exponent = tiny.select(third - lifted // 3, third) - 400
    result = (root * power_of_two(exponent)).copysign(x)
    infinity = ((2 * fmt.bias) + 1) << fmt.fraction
    return (magnitude.bits() - 1).below(infinity - 1).select(result, x)  # neither zero, infinite nor NaN


def rsqrt(x: Lanes) -> Lanes:
    """1 / sqrt(x): half the exponent by integer arithmetic, then two steps on the residual h = 1 - x*y**2.

    1/sqrt(x) = y * (1 - h)**(-1/2), a series in h. The last h is taken of x*y in doubled precision, so that the result
    is nearly always the closest number. Zeros, subnormals, infinity and the invalid divide by the root instead.
    """
    fmt = format_of(x)
    bits = x.bits()
    smallest, infinity = 1 << fmt.fraction, (2 * fmt.bias + 1) << fmt.fraction
    rare = ~(bits - smallest).below(infinity - smallest)
    y = (x.const(fmt.integer, fmt.reciprocal_root_bits) - bits.shift_right(1)).as_float()  # within 3.5 %
    h = (-(x * y)).fma(y, 1.0)
    series = _RECIPROCAL_ROOT[:2] if x.element == "float" else _RECIPROCAL_ROOT
    y = (y * h).fma(polynomial(h, series), y)
    product = x * y
    h = (-x.fma(y, -product)).fma(y, (-product).fma(y, 1.0))
    regular = (y * h).fma(polynomial(h, _RECIPROCAL_ROOT[:2]), y)

    return mended(regular, rare, lambda: rare.select(1.0 / x.sqrt(), regular))
