"""What each elementwise ufunc emits, given operands already of the loop's dtypes and one shape.

Functions without an op of their own are composed. Composed functions of f16 and bf16 are computed in f32 and rounded
once, as NumPy does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from autofuse.frontend.bounds import check_holds
from autofuse.frontend.terms import Term
from autofuse.ir.dtypes import ComplexDtypeError

Rule = Callable[..., Any]
"""Terms to a Term, or to a tuple of them."""

RULES: dict[str, Rule] = {}
"""`ufunc.__name__` -> rule, for real numbers."""
COMPLEX_RULES: dict[str, Rule] = {}
"""The same for complex numbers (`autofuse.frontend.complexrules`)."""

_F32 = np.dtype(np.float32)


def apply(name: str, *terms: Term) -> Any:
    """What the ufunc of this name emits for these operands.

    Raises ComplexDtypeError for one that has no rule for complex numbers.
    """
    if all(term.kind != "complex" for term in terms):
        return RULES[name](*terms)
    if name not in COMPLEX_RULES:
        raise ComplexDtypeError(f"np.{name} of complex numbers is not supported")
    return COMPLEX_RULES[name](*terms)


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register the decorated rule for these ufuncs."""

    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return register


def widened(function: Rule) -> Rule:
    """Compute a formula over f16 or bf16 in f32, and round its results once."""

    @wraps(function)
    def compute(*terms: Term) -> Any:
        narrow = terms[0].dtype
        if terms[0].kind != "float" or narrow.itemsize != 2:
            return function(*terms)
        result = function(*(Term(t.to(_F32).value, t.static) if t.dtype == narrow else t for t in terms))
        if isinstance(result, tuple):
            return tuple(term.to(narrow) if term.dtype == _F32 else term for term in result)
        return result.to(narrow) if result.dtype == _F32 else result

    return compute


def _direct(op: str) -> Rule:
    return lambda *terms: terms[0].op(op, *terms[1:])


_SAME_OP = {
    "exp": "exp",
    "exp2": "exp2",
    "expm1": "expm1",
    "log": "log",
    "log2": "log2",
    "log1p": "log1p",
    "sqrt": "sqrt",
    "cbrt": "cbrt",
    "tanh": "tanh",
    "sin": "sin",
    "cos": "cos",
    "tan": "tan",
    "erf": "erf",
    "expit": "logistic",
    "divide": "divide",
    "arctan2": "atan2",
    "negative": "negate",
    "invert": "not",
    "left_shift": "shift_left",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
}
for _name, _op in _SAME_OP.items():
    RULES[_name] = _direct(_op)


def _on_bool(op: str, bool_op: str) -> Rule:
    """The op `op`; for bool, where NumPy's arithmetic is logic, `bool_op`."""
    return lambda x, y: x.op(bool_op if x.kind == "bool" else op, y)


RULES["add"] = _on_bool("add", "or")
RULES["multiply"] = _on_bool("multiply", "and")


def _extreme(op: str, bool_op: str) -> Rule:
    """Of zeros of both signs NumPy gives the second, and of 16-bit ones the first."""
    usual = _on_bool(op, bool_op)
    return lambda x, y: usual(y, x) if x.dtype == np.float16 else usual(x, y)


RULES["maximum"] = _extreme("maximum", "or")
RULES["minimum"] = _extreme("minimum", "and")


@rule("subtract")
def _subtract(x: Term, y: Term) -> Term:
    return x - y


@rule("positive", "conjugate")
def _identity(x: Term) -> Term:
    return x


@rule("absolute", "fabs")
def _absolute(x: Term) -> Term:
    return x if x.kind in ("uint", "bool") else x.op("abs")


def _rounding(op: str) -> Rule:
    return lambda x: x.op(op) if x.kind == "float" else x


RULES["floor"] = _rounding("floor")
RULES["ceil"] = _rounding("ceil")
RULES["rint"] = _rounding("round_nearest_even")


@rule("trunc")
def _trunc(x: Term) -> Term:
    if x.kind != "float":
        return x
    return (x < 0).select(x.op("ceil"), x.op("floor")).copysign(x)


@rule("sign")
def _sign(x: Term) -> Term:
    if x.kind == "uint":
        return x.differs(0).to(x.dtype)
    return x.op("sign") + 0 if x.kind == "float" else x.op("sign")  # NumPy's sign of -0.0 is 0.0


@rule("square")
def _square(x: Term) -> Term:
    return RULES["multiply"](x, x)


@rule("reciprocal")
def _reciprocal(x: Term) -> Term:
    if x.kind == "float":
        return 1 / x
    with np.errstate(divide="ignore", invalid="ignore"):
        of_zero = np.reciprocal(x.dtype.type(0)).item()  # C leaves it open: what NumPy gives on this machine
    return x.equals(0).select(of_zero, 1 / x)


@rule("bitwise_count")
def _bitwise_count(x: Term) -> Term:
    return _absolute(x).op("popcnt").to(np.uint8)


@rule("right_shift")
def _right_shift(x: Term, y: Term) -> Term:
    return x.op("shift_right_arithmetic" if x.kind == "int" else "shift_right_logical", y)


# comparison and logic


def _comparison(direction: str) -> Rule:
    def compare(x: Term, y: Term) -> Term:
        if x.dtype == y.dtype:
            return x.op("compare", y, direction=direction)
        return _compare_signs(x, y, direction)

    return compare


def _compare_signs(x: Term, y: Term, direction: str) -> Term:
    """Compare int64 with uint64 as NumPy does: by value, not after conversion to f64."""
    signed = x if x.kind == "int" else y
    unsigned_equal = x.to(np.uint64).op("compare", y.to(np.uint64), direction=direction)
    negative_is_left = x.kind == "int"
    answer = direction == "NE" or direction in (("LT", "LE") if negative_is_left else ("GT", "GE"))
    return (signed < 0).select(answer, unsigned_equal)


for _name, _direction in {
    "less": "LT",
    "less_equal": "LE",
    "greater": "GT",
    "greater_equal": "GE",
    "equal": "EQ",
    "not_equal": "NE",
}.items():
    RULES[_name] = _comparison(_direction)


def _truth(x: Term) -> Term:
    return x.to(np.bool_)


@rule("logical_and")
def _logical_and(x: Term, y: Term) -> Term:
    return _truth(x) & _truth(y)


@rule("logical_or")
def _logical_or(x: Term, y: Term) -> Term:
    return _truth(x) | _truth(y)


@rule("logical_xor")
def _logical_xor(x: Term, y: Term) -> Term:
    return _truth(x) ^ _truth(y)


@rule("logical_not")
def _logical_not(x: Term) -> Term:
    return ~_truth(x)


def _never(x: Term) -> Term:
    return Term(x.value).to(np.bool_).lift(False)


@rule("isnan")
def _isnan(x: Term) -> Term:
    return x.is_nan() if x.kind == "float" else _never(x)


@rule("isinf")
def _isinf(x: Term) -> Term:
    return x.op("abs").equals(math.inf) if x.kind == "float" else _never(x)


@rule("isfinite")
def _isfinite(x: Term) -> Term:
    return x.op("is_finite") if x.kind == "float" else ~_never(x)


@rule("signbit")
def _signbit(x: Term) -> Term:
    return x.is_negative()


@rule("copysign")
def _copysign(x: Term, y: Term) -> Term:
    return x.copysign(y)


@rule("fmax")
def _fmax(x: Term, y: Term) -> Term:
    larger = RULES["maximum"](x, y)
    return larger if x.kind != "float" else x.is_nan().select(y, y.is_nan().select(x, larger))


@rule("fmin")
def _fmin(x: Term, y: Term) -> Term:
    smaller = RULES["minimum"](x, y)
    return smaller if x.kind != "float" else x.is_nan().select(y, y.is_nan().select(x, smaller))


@rule("clip")
def _clip(x: Term, low: Term, high: Term) -> Term:
    """Numbers as bounds leave a zero of the other sign alone, as 16-bit bounds do; arrays of f32 and f64 do not."""
    if x.dtype == np.float16:
        raised = (x.is_nan() | (x >= low)).select(x, low)
        return (raised.is_nan() | (raised <= high)).select(raised, high)
    numbers = low.static is not None and high.static is not None
    raised = (x < low).select(low, x) if numbers and low.static == 0 else RULES["maximum"](x, low)
    return (raised > high).select(high, raised) if numbers and high.static == 0 else RULES["minimum"](raised, high)


@rule("heaviside")
def _heaviside(x: Term, at_zero: Term) -> Term:
    step = x.equals(0).select(at_zero, (x > 0).select(x.lift(1), 0))
    return x.is_nan().select(x, step)


# division


def _nonzero_divisor(y: Term, compute: Callable[[Term], Term]) -> Term:
    """An integer division by `y`; where it is zero the result is 0, as in NumPy."""
    if y.static not in (None, 0):
        return compute(y)
    is_zero = y.equals(0)
    return is_zero.select(0, compute(is_zero.select(1, y)))


def _signs_differ(remainder: Term, y: Term) -> Term:
    """Where truncated division must be corrected to floor: a remainder of the other sign than the divisor."""
    return remainder.differs(0) & (remainder < 0).differs(y < 0)


def _integer_floor_divide(x: Term, y: Term) -> Term:
    quotient = x / y
    if x.kind != "int":
        return quotient
    remainder = x - quotient * y
    return _signs_differ(remainder, y).select(quotient - 1, quotient)


def _integer_remainder(x: Term, y: Term) -> Term:
    remainder = x.op("remainder", y)
    if x.kind != "int":
        return remainder
    return _signs_differ(remainder, y).select(remainder + y, remainder)


def _float_divmod(x: Term, y: Term) -> tuple[Term, Term]:
    """Quotient and remainder of floats, step for step as NumPy's npy_divmod."""
    fmod = x.op("remainder", y)
    correct = fmod.differs(0) & (fmod < 0).differs(y < 0)
    remainder = correct.select(fmod + y, fmod)
    remainder = fmod.equals(0).select(fmod.lift(0).copysign(y), remainder)
    quotient = (x - fmod) / y
    quotient = correct.select(quotient - 1, quotient)
    floor = quotient.op("floor")
    floor = ((quotient - floor) > 0.5).select(floor + 1, floor)
    floor = quotient.equals(0).select(fmod.lift(0).copysign(x / y), floor)
    return floor, remainder


def _by_zero(x: Term, y: Term, floor: Term) -> Term:
    return floor if y.static not in (None, 0) else y.equals(0).select(x / y, floor)


@rule("floor_divide")
@widened
def _floor_divide(x: Term, y: Term) -> Term:
    if x.kind != "float":
        return _nonzero_divisor(y, lambda divisor: _integer_floor_divide(x, divisor))
    return _by_zero(x, y, _float_divmod(x, y)[0])


@rule("remainder")
@widened
def _remainder(x: Term, y: Term) -> Term:
    if x.kind != "float":
        return _nonzero_divisor(y, lambda divisor: _integer_remainder(x, divisor))
    floor_mod = _float_divmod(x, y)[1]
    return floor_mod if y.static not in (None, 0) else y.equals(0).select(x.op("remainder", y), floor_mod)


@rule("divmod")
@widened
def _divmod(x: Term, y: Term) -> tuple[Term, Term]:
    return _floor_divide(x, y), _remainder(x, y)


@rule("fmod")
def _fmod(x: Term, y: Term) -> Term:
    if x.kind == "float":
        return x.op("remainder", y)
    return _nonzero_divisor(y, lambda divisor: x.op("remainder", divisor))


@rule("modf")
def _modf(x: Term) -> tuple[Term, Term]:
    whole = _trunc(x)
    fraction = x.op("abs").equals(math.inf).select(0, x - whole)
    return fraction.copysign(x), whole


# powers


@rule("power")
def _power(x: Term, y: Term) -> Term:
    """`power`; a small constant exponent becomes products (within 2 ulp for floats, exact for integers)."""
    if x.kind != "float":
        return _integer_power(x, y)
    if y.static == 0.5 and x.dtype.itemsize > 2:
        return x.op("sqrt")  # as NumPy: NaN for -inf, -0.0 for -0.0, which pow does not give
    return _float_power(x, y)


@rule("float_power")
def _float_power(x: Term, y: Term) -> Term:
    match y.static:
        case 0:
            return x.lift(1)
        case -1:
            return 1 / x
        case 1 | 2 | 3 | 4:
            return product_power(x, int(y.static))
        case _:
            return x.op("power", y)


_NEGATIVE_POWER = "Integers to negative integer powers are not allowed."


def _integer_power(x: Term, y: Term) -> Term:
    if y.static is None or not x.value.type.size:
        if y.kind == "int":
            check_holds(lambda: (y >= 0).value, _NEGATIVE_POWER)
        return x.op("power", y)
    if y.static < 0:
        raise ValueError(_NEGATIVE_POWER)
    return product_power(x, int(y.static)) if y.static else x.lift(1)


def product_power(x: Term, exponent: int) -> Term:
    """`x ** exponent` by repeated squaring, exponent >= 1."""
    result: Term | None = None
    while True:
        if exponent & 1:
            result = x if result is None else result * x
        exponent >>= 1
        if not exponent:
            assert result is not None
            return result
        x = x * x
