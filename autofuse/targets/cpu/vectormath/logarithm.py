"""log, log1p and log2: x = 2**e * (1 + f) with 3/4 <= 1 + f < 3/2, and log(1 + f) near zero without loss."""

from __future__ import annotations

import numpy as np

from autofuse.targets.cpu.vectormath import avx512, coefficients
from autofuse.targets.cpu.vectormath.formats import format_of, polynomial
from autofuse.targets.cpu.vectormath.lanes import Lanes


def split(x: Lanes, *, subnormals: bool = True) -> tuple[Lanes, Lanes]:
    """(e, m), both floats, with x = 2**e * m and 3/4 <= m < 3/2, for positive finite x.

    AVX-512's way also gives e = -inf, m = 1 for zeros, e = inf, m = 1 for infinity, NaN for NaN and negative numbers.
    """
    if avx512.fits(x):
        m = avx512.significand(x)
        return avx512.exponent(x) - avx512.exponent(m), m
    fmt = format_of(x)
    lifted = float(fmt.fraction + 1)
    tiny = x < fmt.smallest_normal
    if subnormals:
        x = tiny.select(x * 2.0**lifted, x)
    offset = x.bits() - fmt.three_quarters_bits
    exponent = offset.shift_right_signed(fmt.fraction)
    m = ((offset & ((1 << fmt.fraction) - 1)) + fmt.three_quarters_bits).as_float()
    e = (exponent + fmt.magic_bits).as_float() - fmt.magic
    if subnormals:
        e = tiny.select(e - lifted, e)
    return e, m


def _log1p_tail(f: Lanes) -> Lanes:
    """log(1 + f) - f.

    float: f**2 * (f*P(f) - 1/2). double: with s = f/(2 + f), log(1 + f) = 2*atanh(s) = 2s + s*R and 2s = f - s*f,
    so the tail is s*(f**2/2 + R) - f**2/2, where R = s**2 * T(s**2) is small.
    """
    if f.element == "float":
        return polynomial(f, coefficients.LOG_F32).fma(f, -0.5) * (f * f)
    half_square = f * f * 0.5
    s = f / (f + 2.0)
    z = s * s
    rest = z * polynomial(z, coefficients.ATANH_F64)
    return s.fma(half_square + rest, -half_square)


def _natural(e: Lanes, f: Lanes) -> Lanes:
    """e*ln(2) + log(1 + f). Both parts of ln(2) are positive, so infinite e makes the result infinite, not NaN."""
    high, low = format_of(f).ln2
    return e.fma(high, f + e.fma(low, _log1p_tail(f)))


def _specials(x: Lanes, pole: float, result: Lanes) -> Lanes:
    """-inf at the pole, NaN below it, and x itself for infinity and NaN, where `split` does not lead there."""
    if avx512.fits(x):
        return result
    result = (x < np.inf).select(result, x)
    result = x.equals(pole).select(x.like(-np.inf), result)
    return (x < pole).select(x.like(np.nan), result)


def log(x: Lanes) -> Lanes:
    """Natural logarithm."""
    e, m = split(x)
    return _specials(x, 0.0, _natural(e, m - 1.0))


def log2(x: Lanes) -> Lanes:
    """Logarithm to base 2; exact at powers of two."""
    high, low = format_of(x).log2e
    e, m = split(x)
    f = m - 1.0
    result = f.fma(high, _log1p_tail(f).fma(high, f * low)) + e
    return _specials(x, 0.0, result)


def log1p(x: Lanes) -> Lanes:
    """log(1 + x): the rounding error of 1 + x, found exactly, goes back into f, so e = 0 has f = x."""
    fmt = format_of(x)
    total = x + 1.0
    added = total - 1.0
    lost = (1.0 - (total - added)) + (x - added)
    e, m = split(total, subnormals=False)
    # 2**-e, or 0 where nothing that was lost matters
    back = ((fmt.magic + fmt.bias - (e > fmt.bias).select(e.like(fmt.bias), e)).bits() << fmt.fraction).as_float()
    result = _natural(e, lost.fma(back, m - 1.0)).copysign(x)
    if avx512.fits(x):
        return (x < np.inf).select(result, x)
    return _specials(x, -1.0, result)
