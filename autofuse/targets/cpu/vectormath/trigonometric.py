"""sin, cos, tan and atan2.

Arguments are reduced by multiples of pi/2. n*pi/2 is subtracted in three parts with fma while n is small: the first
difference is exact (a multiple of the unit of the first part, below 1), so only the two later roundings count, even
next to a multiple of pi/2. Larger arguments take an exact reduction behind one branch (see `far_reduction`).
"""

from __future__ import annotations

import numpy as np

from autofuse.targets.cpu.vectormath import coefficients
from autofuse.targets.cpu.vectormath.far_reduction import reduce_far
from autofuse.targets.cpu.vectormath.formats import format_of, nearest_integer, polynomial
from autofuse.targets.cpu.vectormath.lanes import Lanes, width

# Beyond this the reduction in three parts loses accuracy. float: n from a rounded 2/pi stays within 1 % of the nearest.
_NEAR = {"float": 2.0**16, "double": 2.0**30}


def _reduce(x: Lanes) -> tuple[Lanes, Lanes]:
    """`x - n*pi/2` and the integer n (its low two bits are right) for every finite x; NaN for the others."""
    first, second, third = format_of(x).half_pi
    n, quadrant = nearest_integer(x, 2 / np.pi)
    r = n.fma(-third, n.fma(-second, n.fma(-first, x)))
    magnitude = x.abs()
    far = (magnitude > _NEAR[x.element]) & (magnitude < np.inf)

    fn = x.fn
    start, slow, done = fn.current, fn.label("far"), fn.label("reduced")
    fn.branch_if(far.any(), slow, done, unlikely=True)
    fn.block(slow)
    far_r, far_quadrant = reduce_far(x)
    far_r, far_quadrant = far.select(far_r, r), far.select(far_quadrant, quadrant)
    end = fn.current
    fn.branch(done)
    fn.block(done)
    return _merge(r, start, far_r, end), _merge(quadrant, start, far_quadrant, end)


def _merge(near: Lanes, near_block: str, far: Lanes, far_block: str) -> Lanes:
    name = near.fn.phi(near.type, [(near.name, near_block), (far.name, far_block)])
    return Lanes(near.fn, name, near.element, near.lanes)


def _sine(r: Lanes, z: Lanes) -> Lanes:
    single = r.element == "float"
    return polynomial(z, coefficients.SIN_F32 if single else coefficients.SIN_F64).fma(z * r, r)


def _cosine(r: Lanes, z: Lanes) -> Lanes:
    single = r.element == "float"
    tail = polynomial(z, coefficients.COS_F32 if single else coefficients.COS_F64)
    return tail.fma(z, -0.5).fma(z, 1.0)


def _with_sign_of(bit: Lanes, x: Lanes) -> Lanes:
    """`x` negated where bit 1 of the integer lanes is set."""
    return (x.bits() ^ ((bit & 2) << (width(x.element) - 2))).as_float()


def _wave(x: Lanes, shift: int) -> Lanes:
    """sin(x + shift*pi/2)."""
    r, quadrant = _reduce(x)
    quadrant = quadrant + shift if shift else quadrant
    z = r * r
    odd = (quadrant & 1).differs(0)
    return _with_sign_of(quadrant, odd.select(_cosine(r, z), _sine(r, z)))


def sin(x: Lanes) -> Lanes:
    """Sine; the zero keeps its sign."""
    return x.equals(0).select(x, _wave(x, 0))


def cos(x: Lanes) -> Lanes:
    """Cosine."""
    return _wave(x, 1)


def tan(x: Lanes) -> Lanes:
    """sin/cos, or -cos/sin in odd quadrants."""
    r, quadrant = _reduce(x)
    z = r * r
    sine, cosine = _sine(r, z), _cosine(r, z)
    odd = (quadrant & 1).differs(0)
    result = odd.select(-cosine, sine) / odd.select(sine, cosine)
    return x.equals(0).select(x, result)


def atan2(y: Lanes, x: Lanes) -> Lanes:
    """The angle of (x, y): atan of the smaller over the larger magnitude, then reflected into its octant."""
    single = x.element == "float"
    ax, ay = x.abs(), y.abs()
    steep = ay > ax
    larger, smaller = steep.select(ay, ax), steep.select(ax, ay)
    equal_ratio = larger.equals(0).select(x.like(0.0), 1.0)
    ratio = larger.equals(smaller).select(equal_ratio, smaller / larger)
    z = ratio * ratio
    angle = polynomial(z, coefficients.ATAN_F32 if single else coefficients.ATAN_F64).fma(z * ratio, ratio)

    half, rest, _ = format_of(x).half_pi
    angle = steep.select(half - (angle - rest), angle)
    left = x.bits() < 0
    angle = left.select(2 * half - (angle - 2 * rest), angle)
    return (ax.is_nan() | ay.is_nan()).select(x + y, angle.copysign(y))
