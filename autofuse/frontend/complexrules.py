"""What ufuncs emit for complex operands, and the functions of NumPy that are about complex numbers.

Inverse functions are in `complexinverses`. A ufunc without a rule is left to NumPy.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autofuse.frontend.dispatch import call, implements
from autofuse.frontend.promotion import as_tracer
from autofuse.frontend.terms import Term
from autofuse.frontend.tracer import TracerArray, fresh
from autofuse.frontend.ufunc_rules import COMPLEX_RULES, RULES, Rule, product_power


def _rule(*names: str) -> Any:
    def register(function: Rule) -> Rule:
        COMPLEX_RULES.update(dict.fromkeys(names, function))
        return function

    return register


def _parts(x: Term) -> tuple[Term, Term]:
    return x.op("real"), x.op("imag")


def _joined(re: Term, im: Term) -> Term:
    return re.op("complex", im)


def _direct(op: str) -> Rule:
    return lambda *terms: terms[0].op(op, *terms[1:])


for _name, _op in {
    **{op: op for op in ("add", "subtract", "multiply", "divide", "exp", "expm1", "log", "log1p")},
    **{op: op for op in ("sqrt", "sin", "cos", "tan", "tanh", "sign")},
    "negative": "negate",
    "absolute": "abs",
}.items():
    COMPLEX_RULES[_name] = _direct(_op)


@_rule("positive")
def _positive(x: Term) -> Term:
    return x


@_rule("conjugate")
def _conjugate(x: Term) -> Term:
    re, im = _parts(x)
    return _joined(re, -im)


@_rule("square")
def _square(x: Term) -> Term:
    return x * x


@_rule("reciprocal")
def _reciprocal(x: Term) -> Term:
    """Step by step as NumPy's."""
    re, im = _parts(x)
    flat = im.op("abs") <= re.op("abs")
    large, small = flat.select(re, im), flat.select(im, re)
    ratio = small / large
    whole = large + small * ratio
    one, other = 1 / whole, ratio / whole
    return _joined(flat.select(one, other), -flat.select(other, one))


@_rule("exp2")
def _exp2(x: Term) -> Term:
    re, im = _parts(x)
    return _joined(re * math.log(2), im * math.log(2)).op("exp")


def _log_to(base: float) -> Rule:
    def rule(x: Term) -> Term:
        re, im = _parts(x.op("log"))
        return _joined(re * (1 / math.log(base)), im * (1 / math.log(base)))

    return rule


COMPLEX_RULES["log2"] = _log_to(2)
COMPLEX_RULES["log10"] = _log_to(10)


@_rule("sinh")
def _sinh(x: Term) -> Term:
    re, im = _parts(x)
    sin_re, sin_im = _parts(_joined(-im, re).op("sin"))
    return _joined(sin_im, -sin_re)


@_rule("cosh")
def _cosh(x: Term) -> Term:
    re, im = _parts(x)
    return _joined(-im, re).op("cos")


@_rule("rint")
def _rint(x: Term) -> Term:
    return _joined(*(part.op("round_nearest_even") for part in _parts(x)))


@_rule("power", "float_power")
def _power(x: Term, y: Term) -> Term:
    """Whole numbers that are known while tracing are products, as in NumPy."""
    known = y.static
    exponent = None if known is None or isinstance(known, bool) else complex(known)
    if exponent is None or exponent.imag or not exponent.real.is_integer() or abs(exponent.real) >= 100:
        return x.op("power", y)
    count = int(exponent.real)
    if not count:
        return x.lift(1)
    product = product_power(x, abs(count))
    return product if count > 0 else 1 / product


# comparisons: by the real part, then by the imaginary one


def _ordered(x: Term, y: Term, outer: str, inner: str) -> Term:
    """NumPy's order: with NaN nothing is less or greater, unless the real parts decide and are numbers."""
    (a, b), (c, d) = _parts(x), _parts(y)
    numbers = ~(b.is_nan() | d.is_nan())
    return (a.op("compare", c, direction=outer) & numbers) | (a.equals(c) & b.op("compare", d, direction=inner))


for _name, _outer, _inner in (
    ("less", "LT", "LT"),
    ("less_equal", "LT", "LE"),
    ("greater", "GT", "GT"),
    ("greater_equal", "GT", "GE"),
):
    COMPLEX_RULES[_name] = lambda x, y, outer=_outer, inner=_inner: _ordered(x, y, outer, inner)


@_rule("equal")
def _equal(x: Term, y: Term) -> Term:
    return x.equals(y)


@_rule("not_equal")
def _not_equal(x: Term, y: Term) -> Term:
    return x.differs(y)


@_rule("maximum")
def _maximum(x: Term, y: Term) -> Term:
    return (_isnan(x) | _ordered(x, y, "GT", "GE")).select(x, y)


@_rule("minimum")
def _minimum(x: Term, y: Term) -> Term:
    return (_isnan(x) | _ordered(x, y, "LT", "LE")).select(x, y)


@_rule("clip")
def _clip(x: Term, low: Term, high: Term) -> Term:
    return _minimum(_maximum(x, low), high)


COMPLEX_RULES.update({name: RULES[name] for name in ("logical_and", "logical_or", "logical_xor", "logical_not")})


@_rule("isnan")
def _isnan(x: Term) -> Term:
    re, im = _parts(x)
    return re.is_nan() | im.is_nan()


@_rule("isinf")
def _isinf(x: Term) -> Term:
    re, im = _parts(x)
    return re.op("abs").equals(math.inf) | im.op("abs").equals(math.inf)


@_rule("isfinite")
def _isfinite(x: Term) -> Term:
    re, im = _parts(x)
    return re.op("is_finite") & im.op("is_finite")


# functions


def is_complex(array: TracerArray) -> bool:
    """Whether an array is of complex numbers."""
    return array.dtype.kind == "c"


def squares(array: TracerArray) -> Any:
    """The squares of absolute values."""
    if not is_complex(array):
        return np.multiply(array, array)
    re, im = array.real, array.imag
    return np.add(np.multiply(re, re), np.multiply(im, im))


def joined_parts(re: Any, im: Any) -> TracerArray:
    """Complex numbers of two real arrays of one shape and dtype."""
    real, imag = as_tracer(re), as_tracer(im)
    return fresh(Term(real.value).op("complex", Term(imag.value)).value, is_scalar=real.is_scalar)


def by_parts(function: Any, array: TracerArray) -> TracerArray:
    """A function of real arrays applied to both parts."""
    return joined_parts(*(function(part) for part in (array.real, array.imag)))


@implements(np.angle)
def angle(z: Any, deg: bool = False) -> Any:
    """As `np.angle`."""
    array = as_tracer(z)
    found = np.arctan2(array.imag, array.real) if is_complex(array) else np.arctan2(0, array)
    return np.multiply(found, 180 / np.pi) if deg else found


@implements(np.iscomplex)
def iscomplex(x: Any) -> Any:
    """As `np.iscomplex`."""
    array = as_tracer(x)
    return np.not_equal(array.imag, 0) if is_complex(array) else call(np.zeros_like, array, bool)[()]


@implements(np.isreal)
def isreal(x: Any) -> Any:
    """As `np.isreal`."""
    array = as_tracer(x)
    return np.equal(array.imag, 0) if is_complex(array) else call(np.ones_like, array, bool)[()]


@implements(np.iscomplexobj)
def iscomplexobj(x: Any) -> Any:
    """As `np.iscomplexobj`."""
    return is_complex(as_tracer(x))


@implements(np.isrealobj)
def isrealobj(x: Any) -> Any:
    """As `np.isrealobj`."""
    return not is_complex(as_tracer(x))


@implements(np.real)
def real(val: Any) -> Any:
    """As `np.real`."""
    return as_tracer(val).real


@implements(np.imag)
def imag(val: Any) -> Any:
    """As `np.imag`."""
    return as_tracer(val).imag
