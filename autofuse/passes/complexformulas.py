"""Operations on complex numbers as formulas over their real and imaginary parts.

Products, quotients and signs are NumPy's own formulas, step by step. Functions keep to what C99 (annex G) says of
zeros, infinities and NaN, overflow nowhere before the result does, and are within a few units in the last place of each
part, or of the absolute value where a part cancels; docs/ops.md has the numbers. Those that lose digits on the way
compute complex64 in f64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from autofuse.ir import dtypes
from autofuse.lazydataclass import dataclass
from autofuse.passes.realnumbers import Real


@dataclass(frozen=True, slots=True, eq=False)
class Complex:
    """A complex number in a formula."""

    re: Real
    im: Real

    def __add__(self, other: Complex) -> Complex:
        return Complex(self.re + other.re, self.im + other.im)

    def __sub__(self, other: Complex) -> Complex:
        return Complex(self.re - other.re, self.im - other.im)

    def __mul__(self, other: Complex) -> Complex:
        return Complex(self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re)

    def __neg__(self) -> Complex:
        return Complex(-self.re, -self.im)

    def __truediv__(self, other: Complex) -> Complex:
        """Smith's division, as NumPy has it: no overflow on the way; by 0 each part is divided by it."""
        tall = ~(abs(other.re) >= abs(other.im))
        large, small = tall.select(other.im, other.re), tall.select(other.re, other.im)
        zero = other.re.equals(0.0) & other.im.equals(0.0)
        ratio = small / large
        scale = 1.0 / (large + small * ratio)
        re = tall.select(self.re * ratio + self.im, self.re + self.im * ratio) * scale
        im = tall.select(self.im * ratio - self.re, self.im - self.re * ratio) * scale
        nothing = abs(other.re)
        return Complex(zero.select(self.re / nothing, re), zero.select(self.im / nothing, im))

    def times_i(self) -> Complex:
        return Complex(-self.im, self.re)

    def over_i(self) -> Complex:
        return Complex(self.im, -self.re)

    def lift(self, number: float) -> Complex:
        """A real number in this one's type."""
        return Complex(self.re.lift(number), self.im.lift(0.0))

    def where(self, condition: Real, other: Complex) -> Complex:
        """The number itself where the condition holds, else the other."""
        return Complex(condition.select(self.re, other.re), condition.select(self.im, other.im))

    def to(self, part: dtypes.DType) -> Complex:
        return Complex(self.re.to(part), self.im.to(part))


Function = Callable[[Complex], Complex]


_TINY, _HUGE = 1e-290, 1e290
"""Beyond these, sums of absolute values of f64 lose digits or overflow."""
_UP, _DOWN = 4.0**100, 4.0**-4


def _in_f64(function: Function) -> Function:
    """Of complex64: computed in f64 and rounded once."""
    return lambda z: function(z.to(dtypes.F64)).to(z.re.dtype)


def magnitude(z: Complex) -> Real:
    """hypot(re, im): infinite where a part is, else NaN where a part is."""
    if z.re.dtype is dtypes.F32:
        x, y = z.re.to(dtypes.F64), z.im.to(dtypes.F64)
        length = (x * x + y * y).op("sqrt").to(dtypes.F32)
    else:
        a, b = abs(z.re), abs(z.im)
        large, small = a.op("maximum", b), a.op("minimum", b)
        ratio = small / large
        length = large.equals(0.0).select(0.0, large * (ratio * ratio + 1.0).op("sqrt"))
    return (z.re.is_infinite() | z.im.is_infinite()).select(math.inf, length)


def _sign(z: Complex) -> Complex:
    """z / abs(z); 0 of 0. Of an infinite part alone its sign; NaN of two."""
    scale = (abs(z.re).op("maximum", abs(z.im)) > _HUGE).select(_DOWN, z.re.lift(1.0))
    z = Complex(z.re * scale, z.im * scale)
    size = magnitude(z)

    def part(own: Real, other: Real) -> Real:
        towards = own.is_infinite().select(own.op("sign"), 0.0)
        infinite = (own.is_infinite() & other.is_infinite()).select(math.nan, towards)
        finite = size.equals(0.0).select(0.0, own / size)
        return size.equals(math.inf).select(infinite, finite)

    return Complex(part(z.re, z.im), part(z.im, z.re))


_SHIFT = {"f32": 60.0, "f64": 500.0}
"""Exponents are lowered by twice as much where their exponential overflows."""
_OVERFLOWS = {"f32": 88.0, "f64": 709.0}


def _scaled_exp(x: Real, factors: tuple[Real, ...], share: float = 1.0) -> tuple[Real, ...]:
    """share * exp(x) * factor for each factor, infinite only where the product is."""
    shift = _SHIFT[x.dtype.name]
    large = x > _OVERFLOWS[x.dtype.name]
    power = large.select(x - 2 * shift, x).op("exp")
    power = power if share == 1.0 else power * share
    step = large.select(math.exp(shift), x.lift(1.0))
    return tuple(factor * step * power * step for factor in factors)  # in this order none underflows either


def _exp(z: Complex) -> Complex:
    """exp(x) (cos y + i sin y)."""
    x, y = z.re, z.im
    re, im = _scaled_exp(x, (y.op("cos"), y.op("sin")))
    im = y.equals(0.0).select(y, im)
    lost = ~y.is_finite()
    below, above = lost & x.equals(-math.inf), lost & x.equals(math.inf)
    re = below.select(0.0, above.select(x, re))
    return Complex(re, below.select(y.lift(0.0).copysign(y), im))


def _log_magnitude(x: Real, y: Real) -> Real:
    """log(hypot(x, y)); near 1 from what x^2 + y^2 - 1 is, to all digits."""
    a, b = abs(x), abs(y)
    large, small = a.op("maximum", b), a.op("minimum", b)
    ratio = large.equals(0.0).select(0.0, small / large)
    far = large.op("log") + 0.5 * (ratio * ratio).op("log1p")
    square, other = large * large, small * small
    rest = large.op("fma", large, -square) + small.op("fma", small, -other)  # what the squares were rounded by
    above = square - 1.0
    total = above + other
    carried = total - above
    rest = rest + ((above - (total - carried)) + (other - carried))
    near = 0.5 * (total + rest).op("log1p")
    length = ((large > 0.5) & (large < 2.0)).select(near, far)
    return (x.is_infinite() | y.is_infinite()).select(math.inf, length)


def _log(z: Complex) -> Complex:
    return Complex(_log_magnitude(z.re, z.im), z.im.op("atan2", z.re))


def _log1p(z: Complex) -> Complex:
    """log(1 + z): where z is small from |1 + z|^2 - 1 = x (2 + x) + y^2."""
    x, y = z.re, z.im
    small = (abs(x) < 0.5) & (abs(y) < 0.5)
    near = 0.5 * (x * (x + 2.0) + y * y).op("log1p")
    return Complex(small.select(near, _log_magnitude(x + 1.0, y)), y.op("atan2", x + 1.0))


def _expm1(z: Complex) -> Complex:
    """exp(z) - 1: expm1(x) cos y - 2 sin(y/2)^2, and the imaginary part of exp."""
    whole = _exp(z)
    half = (z.im * 0.5).op("sin")
    near = z.re.op("expm1") * z.im.op("cos") - 2.0 * half * half
    return Complex((abs(z.re) < 1.0).select(near, whole.re - 1.0), whole.im)


def _sqrt(z: Complex) -> Complex:
    """The root with re >= 0 (Kahan 1987). Of complex64 it is computed in f64, else scaled by powers of 4 far out."""
    if z.re.dtype is dtypes.F32:
        return _at_edges(z, _root(z.to(dtypes.F64)).to(dtypes.F32))
    large = abs(z.re).op("maximum", abs(z.im))
    tiny, huge = large < _TINY, large > _HUGE
    scale = tiny.select(_UP, huge.select(_DOWN, z.re.lift(1.0)))
    back = tiny.select(_UP**-0.5, huge.select(_DOWN**-0.5, z.re.lift(1.0)))
    root = _root(Complex(z.re * scale, z.im * scale))
    return _at_edges(z, Complex(root.re * back, root.im * back))


def _root(z: Complex) -> Complex:
    x, y = z.re, z.im
    root = ((abs(x) + magnitude(z)) * 0.5).op("sqrt")
    rest = y / (2.0 * root)
    left = x < 0.0
    return Complex(left.select(abs(rest), root), left.select(root.copysign(y), rest))


def _at_edges(z: Complex, root: Complex) -> Complex:
    """A square root; of 0, infinities and NaN as C99 has it."""
    re, im = root.re, root.im
    zero = z.re.equals(0.0) & z.im.equals(0.0)
    re, im = zero.select(0.0, re), zero.select(z.im, im)
    x, y = z.re, z.im
    nothing = y - y  # 0, or NaN of NaN
    backwards = x.equals(-math.inf)
    re = backwards.select(abs(nothing), x.equals(math.inf).select(x, re))
    im = backwards.select(x.copysign(y), x.equals(math.inf).select(nothing.copysign(y), im))
    tall = y.is_infinite()
    return Complex(tall.select(math.inf, re), tall.select(y, im))


def _rsqrt(z: Complex) -> Complex:
    return z.lift(1.0) / _sqrt(z)


def _logistic(z: Complex) -> Complex:
    return z.lift(1.0) / (z.lift(1.0) + _exp(-z))


def _small_sinh(x: Real) -> Real:
    grown = abs(x).op("expm1")
    return ((grown + grown / (grown + 1.0)) * 0.5).copysign(x)


def _hyperbolic(z: Complex) -> tuple[Complex, Complex]:
    """sinh and cosh: where exp(-|x|) counts for nothing both are half of exp(|x|)."""
    x, y = z.re, z.im
    cos, sin = y.op("cos"), y.op("sin")
    size = abs(x)
    power = size.op("exp")
    sinh, cosh = _small_sinh(x), (power + 1.0 / power) * 0.5
    far = size > 20.0
    turned, lifted = _scaled_exp(size, (cos, sin), 0.5)
    side = x.lift(1.0).copysign(x)
    level, upright = y.equals(0.0), x.equals(0.0)
    broken = ~y.is_finite()
    lost = broken & x.is_infinite()
    upright = upright & broken
    sinh_re = (lost | upright).select(x, far.select(turned * side, sinh * cos))
    sinh_im = level.select(y, far.select(lifted, cosh * sin))
    cosh_re = lost.select(math.inf, far.select(turned, cosh * cos))
    cosh_im = far.select(lifted * side, sinh * sin)
    cosh_im = level.select(y * side, upright.select(x, cosh_im))
    return Complex(sinh_re, sinh_im), Complex(cosh_re, cosh_im)


def _sin(z: Complex) -> Complex:
    return _hyperbolic(z.times_i())[0].over_i()


def _cos(z: Complex) -> Complex:
    return _hyperbolic(z.times_i())[1]


def _tanh(z: Complex) -> Complex:
    """Kahan's formula (1987, Branch cuts for complex elementary functions); far out 4 sin y cos y exp(-2 |x|)."""
    x, y = z.re, z.im
    tan = y.op("tan")
    sinh = _small_sinh(x)
    wide = tan * tan + 1.0
    rho = (sinh * sinh + 1.0).op("sqrt")
    below = wide * sinh * sinh + 1.0
    re, im = wide * rho * sinh / below, tan / below
    far = abs(x) > 20.0
    tail = (4.0 * y.op("sin") * y.op("cos")) * (-2.0 * abs(x)).op("exp")
    lost = x.is_infinite() & ~y.is_finite()
    settled = x.is_infinite() | (far & y.is_finite())
    re = x.equals(0.0).select(x, settled.select(x.lift(1.0).copysign(x), re))
    im = y.equals(0.0).select(y, lost.select(0.0, far.select(tail, im)))
    return Complex(re, im)


def _tan(z: Complex) -> Complex:
    return _tanh(z.times_i()).over_i()


def power(x: Complex, y: Complex) -> Complex:
    """exp(y log x); 1 where y is 0; of 0 it is 0 where y.re > 0, else NaN, as NumPy has it."""
    part = x.re.dtype
    wide, exponent = x.to(dtypes.F64), y.to(dtypes.F64)
    whole = _exp(exponent * _log(wide)).to(part)
    nothing = x.re.equals(0.0) & x.im.equals(0.0)
    of_nothing = (y.re > 0.0).select(0.0, x.re.lift(math.nan))
    found = Complex(of_nothing, of_nothing).where(nothing, whole)
    return x.lift(1.0).where(y.re.equals(0.0) & y.im.equals(0.0), found)


UNARY: Mapping[str, Function] = {
    "negate": lambda z: -z,
    "sign": _in_f64(_sign),
    "exp": _exp,
    "expm1": _in_f64(_expm1),
    "log": _in_f64(_log),
    "log1p": _in_f64(_log1p),
    "sqrt": _sqrt,
    "rsqrt": _in_f64(_rsqrt),
    "logistic": _logistic,
    "sin": _sin,
    "cos": _cos,
    "tan": _in_f64(_tan),
    "tanh": _in_f64(_tanh),
}
"""By op."""
BINARY: Mapping[str, Callable[[Complex, Complex], Complex]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / y,
    "power": power,
}
