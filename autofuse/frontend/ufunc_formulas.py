"""Ufuncs that no op computes, as formulas: logarithms, hyperbolic and inverse functions, and the like.

f16 and bf16 are computed in f32 and rounded once. The formulas hold over the whole range: no overflow on the way to a
result that is finite, NaN and infinities as in NumPy.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autofuse.frontend.eager import numpys_own
from autofuse.frontend.terms import Term
from autofuse.frontend.tracer import fresh
from autofuse.frontend.ufunc_rules import rule, widened
from autofuse.lazydataclass import dataclass

_F32 = np.dtype(np.float32)
_F64 = np.dtype(np.float64)


# exponentials and logarithms


@rule("log10")
@widened
def _log10(x: Term) -> Term:
    return x.op("log2") * math.log10(2)


@rule("logaddexp")
@widened
def _logaddexp(x: Term, y: Term) -> Term:
    spread = (-(x - y).op("abs")).op("exp").op("log1p")
    return x.equals(y).select(x + math.log(2), x.op("maximum", y) + spread)


@rule("logaddexp2")
@widened
def _logaddexp2(x: Term, y: Term) -> Term:
    spread = (-(x - y).op("abs")).op("exp2").op("log1p") * (1 / math.log(2))
    return x.equals(y).select(x + 1, x.op("maximum", y) + spread)


@rule("logit")
@widened
def _logit(x: Term) -> Term:
    return (x / (1 - x)).op("log")


@rule("log_expit")
@widened
def _log_expit(x: Term) -> Term:
    return x.op("minimum", 0) - (-x.op("abs")).op("exp").op("log1p")


@rule("xlogy")
@widened
def _xlogy(x: Term, y: Term) -> Term:
    return (x.equals(0) & ~y.is_nan()).select(0, x * y.op("log"))


@rule("xlog1py")
@widened
def _xlog1py(x: Term, y: Term) -> Term:
    return (x.equals(0) & ~y.is_nan()).select(0, x * y.op("log1p"))


@rule("entr")
@widened
def _entr(x: Term) -> Term:
    return (x < 0).select(-math.inf, x.equals(0).select(0, -(x * x.op("log"))))


# hyperbolic and inverse functions


@rule("sinh")
@widened
def _sinh(x: Term) -> Term:
    magnitude = x.op("abs")
    grown = magnitude.op("expm1")
    small = (grown + grown / (grown + 1)) * 0.5
    half = (magnitude * 0.5).op("exp")
    return (magnitude < 20).select(small, half * 0.5 * half).copysign(x)


@rule("cosh")
@widened
def _cosh(x: Term) -> Term:
    half = (x.op("abs") * 0.5).op("exp")
    grown = half * half
    return (x.op("abs") < 20).select((grown + 1 / grown) * 0.5, half * 0.5 * half)


@rule("arctan")
def _arctan(x: Term) -> Term:
    return x.op("atan2", 1)


@rule("arcsin")
@widened
def _arcsin(x: Term) -> Term:
    return x.op("atan2", ((1 - x) * (1 + x)).op("sqrt"))


@rule("arccos")
@widened
def _arccos(x: Term) -> Term:
    return ((1 - x) * (1 + x)).op("sqrt").op("atan2", x)


@rule("arcsinh")
@widened
def _arcsinh(x: Term) -> Term:
    a = x.op("abs")
    moderate = (a + a * a / (1 + (a * a + 1).op("sqrt"))).op("log1p")
    return (a < 1e8).select(moderate, a.op("log") + math.log(2)).copysign(x)


@rule("arccosh")
@widened
def _arccosh(x: Term) -> Term:
    t = x - 1
    moderate = (t + (t * (t + 2)).op("sqrt")).op("log1p")
    large = (x >= 1e8).select(x.op("log") + math.log(2), moderate)
    return (x < 1).select(math.nan, large)


@rule("arctanh")
@widened
def _arctanh(x: Term) -> Term:
    a = x.op("abs")
    return (((a + a) / (1 - a)).op("log1p") * 0.5).copysign(x)


@rule("hypot")
@widened
def _hypot(x: Term, y: Term) -> Term:
    if x.dtype == _F32:
        wide, other = x.to(_F64), y.to(_F64)
        length = (wide * wide + other * other).op("sqrt").to(_F32)
    else:
        large = x.op("abs").op("maximum", y.op("abs"))
        ratio = x.op("abs").op("minimum", y.op("abs")) / large
        length = large.equals(0).select(0, large * (ratio * ratio + 1).op("sqrt"))
    infinite = x.op("abs").equals(math.inf) | y.op("abs").equals(math.inf)
    return infinite.select(math.inf, length)


@rule("deg2rad", "radians")
@widened
def _deg2rad(x: Term) -> Term:
    return x * (math.pi / 180)


@rule("rad2deg", "degrees")
@widened
def _rad2deg(x: Term) -> Term:
    return x * (180 / math.pi)


@rule("nextafter")
def _nextafter(x: Term, y: Term) -> Term:
    bits = x.bits()
    away = (x < y).differs(x.is_negative())
    stepped = away.select(bits + 1, bits - 1).from_bits(x.dtype)
    tiny = x.lift(np.finfo(x.dtype).smallest_subnormal.item()).copysign(y)
    moved = x.equals(0).select(tiny, stepped)
    same = x if x.dtype == np.float16 else y  # they differ in the sign of zero; NumPy's f16 keeps x
    return (x.is_nan() | y.is_nan()).select(x + y, x.equals(y).select(same, moved))


@rule("spacing")
def _spacing(x: Term) -> Term:
    """The distance to the next number away from zero; of f16, as in NumPy, to the one above, and 0.0's at zero."""
    infinity = x.lift(math.inf)
    if x.dtype == np.float16:
        above = (_nextafter(x, infinity).to(_F32) - x.to(_F32)).to(x.dtype)
        return x.op("is_finite").select(above, math.nan)
    away = x.equals(0).select(infinity, infinity.copysign(x))
    return x.op("is_finite").select(_nextafter(x, away) - x, math.nan)


# significand and exponent


@dataclass(frozen=True)
class _Format:
    """A binary float format as its bits lie."""

    fraction: int
    """Bits of the significand that are stored."""
    bias: int
    """What is stored for the exponent of 1.0."""


_FORMATS = {_F32: _Format(23, 127), _F64: _Format(52, 1023)}


def _two_to(exponent: Term, dtype: np.dtype[Any]) -> Term:
    """2**exponent, for integers that are exponents of normal numbers."""
    format_ = _FORMATS[dtype]
    biased = (exponent + format_.bias).to(f"u{dtype.itemsize}")
    return biased.op("shift_left", format_.fraction).from_bits(dtype)


@rule("ldexp")
@widened
def _ldexp(x: Term, exponent: Term) -> Term:
    """Three factors: 2**exponent may be no number where the product is. Only the last product is rounded."""
    format_ = _FORMATS[x.dtype]
    most, least = format_.bias, 1 - format_.bias
    rest = exponent if exponent.dtype.itemsize >= 4 else exponent.to(np.int32)
    for _ in range(2):
        step = (rest > most).select(rest.lift(most), (rest < least).select(rest.lift(least + format_.fraction + 1), 0))
        x, rest = x * _two_to(step, x.dtype), rest - step
    return x * _two_to(rest.op("maximum", least).op("minimum", most), x.dtype)


@rule("frexp")
@widened
def _frexp(x: Term) -> tuple[Term, Term]:
    """Significand in [0.5, 1) and exponent; zeros, infinities and NaN as they are, with 0."""
    format_ = _FORMATS[x.dtype]
    scaled = x * 2.0 ** (format_.fraction + 1)  # subnormal numbers become normal ones
    tiny = x.op("abs") < float(np.finfo(x.dtype).tiny)
    bits = tiny.select(scaled, x).bits()
    stored = bits.op("shift_right_logical", format_.fraction) & (2 * format_.bias + 1)
    shift = tiny.select(stored.lift(format_.fraction + 1), 0)
    exponent = (stored - shift).to(np.int32) - (format_.bias - 1)
    mask = (2 * format_.bias + 1) << format_.fraction
    everything = (1 << (8 * x.dtype.itemsize)) - 1
    fraction = ((bits & (everything - mask)) | ((format_.bias - 1) << format_.fraction)).from_bits(x.dtype)
    special = x.equals(0) | ~x.op("is_finite")
    return special.select(x, fraction), special.select(0, exponent)


# whole numbers


@rule("gcd")
def _gcd(x: Term, y: Term) -> Term:
    return Term(numpys_own(np.gcd, x.value.type, fresh(x.value), fresh(y.value)).value)


@rule("lcm")
def _lcm(x: Term, y: Term) -> Term:
    return Term(numpys_own(np.lcm, x.value.type, fresh(x.value), fresh(y.value)).value)
