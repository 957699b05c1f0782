"""Inverse trigonometric and hyperbolic functions of complex numbers, by real ones of their parts.

W. Kahan, Branch cuts for complex elementary functions (1987): two square roots whose signs of zero tell the sides of
the branch cuts apart, so `1 - z` must keep the sign of the imaginary part, which is why it is written by parts.
Infinities are as in C (C99, annex G), which NumPy follows.
"""

from __future__ import annotations

import math

from autofuse.frontend.terms import Term
from autofuse.frontend.ufunc_rules import COMPLEX_RULES, RULES

_SMALL = 1e-9
"""Its square is nothing beside 4, but may be too small for a number."""


def _parts(z: Term) -> tuple[Term, Term]:
    return z.op("real"), z.op("imag")


def _joined(re: Term, im: Term) -> Term:
    return re.op("complex", im)


def _arcsinh_of(x: Term) -> Term:
    return RULES["arcsinh"](x)


def _roots(z: Term) -> tuple[tuple[Term, Term], tuple[Term, Term]]:
    """The parts of the roots of 1 - z and 1 + z."""
    re, im = _parts(z)
    return _parts(_joined(1 - re, -im).op("sqrt")), _parts(_joined(1 + re, im).op("sqrt"))


def _is_infinite(re: Term, im: Term) -> Term:
    return re.op("abs").equals(math.inf) | im.op("abs").equals(math.inf)


def _infinity(sign: Term) -> Term:
    return sign.lift(math.inf).copysign(sign)


def _arcsin(z: Term) -> Term:
    (re, im), ((a, b), (c, d)) = _parts(z), _roots(z)
    infinite = _is_infinite(re, im)
    angle = infinite.select(re.op("atan2", im.op("abs")), re.op("atan2", a * c - b * d))
    return _joined(angle, infinite.select(_infinity(im), _arcsinh_of(a * d - b * c)))


def _arccos(z: Term) -> Term:
    (re, im), ((a, b), (c, d)) = _parts(z), _roots(z)
    infinite = _is_infinite(re, im)
    angle = infinite.select(im.op("abs").op("atan2", re), a.op("atan2", c) * 2)
    return _joined(angle, infinite.select(_infinity(-im), _arcsinh_of(c * b - d * a)))


def _arccosh(z: Term) -> Term:
    """The roots of z - 1 and z + 1."""
    re, im = _parts(z)
    (a, b), (c, d) = _parts(_joined(re - 1, im).op("sqrt")), _parts(_joined(re + 1, im).op("sqrt"))
    infinite = _is_infinite(re, im)
    size = infinite.select(math.inf, _arcsinh_of(a * c + b * d))
    return _joined(size, infinite.select(im.op("atan2", re), b.op("atan2", c) * 2))


def _turned(z: Term) -> Term:
    """`i z`."""
    re, im = _parts(z)
    return _joined(-im, re)


def _turned_back(z: Term) -> Term:
    """`-i z`."""
    re, im = _parts(z)
    return _joined(im, -re)


def _arcsinh(z: Term) -> Term:
    return _turned_back(_arcsin(_turned(z)))


def _arctanh(z: Term) -> Term:
    """Of |re|, for which the logarithm's argument loses nothing."""
    re, im = _parts(z)
    x = re.op("abs")
    size = (x / ((1 - x) * (1 - x) + im * im) * 4).op("log1p") * 0.25
    beside_one = x.equals(1) & (im.op("abs") < _SMALL)
    size = beside_one.select((2 / im.op("abs")).op("log") * 0.5, size)
    angle = im.op("atan2", ((1 - x) * (1 + x) - im * im) * 0.5) * 0.5
    infinite = _is_infinite(re, im)
    size = infinite.select(0, size)
    angle = infinite.select(re.lift(math.pi / 2).copysign(im), angle)
    return _joined(size.copysign(re), angle)


def _arctan(z: Term) -> Term:
    return _turned_back(_arctanh(_turned(z)))


COMPLEX_RULES.update(
    arcsin=_arcsin, arccos=_arccos, arctan=_arctan, arcsinh=_arcsinh, arccosh=_arccosh, arctanh=_arctanh
)
