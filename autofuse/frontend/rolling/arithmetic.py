"""What Python computes of numbers that a loop decides, and how they compare."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from autofuse.frontend.bounds import check_holds
from autofuse.frontend.forks import CannotRollError
from autofuse.frontend.operators import COMPARISONS
from autofuse.frontend.promotion import as_tracer
from autofuse.frontend.rolling.numbers import (
    OPERATIONS,
    Atom,
    Comparison,
    Number,
    Truth,
    floating,
    larger,
    plain,
    simplified,
    truth_of,
    whole_number,
)
from autofuse.frontend.tracecontext import current
from autofuse.frontend.tracer import TracerArray, fresh

_I64, _F64 = np.dtype(np.int64), np.dtype(np.float64)
_EXACT = 1 << 53
"""Integers up to here are floats of 64 bits exactly."""
_BY_ZERO = "division by zero"


def _operands(a: Any, b: Any) -> tuple[Any, Any] | None:
    """Two of Python's numbers that are computed with; None if one is an array."""
    for side in (a, b):
        if not isinstance(side, Number | Truth) and type(side) not in (int, float, bool):
            return None
    first, second = map(_number, (a, b))
    return first, second


def _number(side: Any) -> Any:
    """One of Python's numbers as a number that is computed with: bools are integers."""
    if isinstance(side, Truth):
        side = whole_number(side)
    if isinstance(side, Number):
        side.computed_with = True
    return int(side) if type(side) is bool else side


def _negative(number: Number) -> Any:
    number.computed_with = True
    return _times(number, -1) if number.python is int else _float("negate", number)


def _magnitude(number: Number) -> Any:
    number.computed_with = True
    if number.python is float:
        return _float("abs", number)
    low, high = number.low, number.high
    if low is not None and low >= 0:
        return number
    if high is not None and high <= 0:
        return -number
    return greatest(number, -number)


def _compared(ufunc: Callable[..., Any], dtype: np.dtype[Any], sides: tuple[Any, Any]) -> Truth:
    kind = Truth if any(plain(side).by_data for side in sides) else Comparison
    return kind(ufunc(*(fresh(plain(side).as_dtype(dtype)) for side in sides)).cell, is_scalar=True)


def _is_float(*numbers: Any) -> bool:
    return any(n.python is float if isinstance(n, Number) else type(n) is float for n in numbers)


def _add(a: Any, b: Any) -> Any:
    if _is_float(a, b):
        return _float("add", a, b)
    first, second = plain(a), plain(b)
    terms = {atom: first.terms.get(atom, 0) + second.terms.get(atom, 0) for atom in (*first.terms, *second.terms)}
    return simplified(Number(terms, first.constant + second.constant))


def _subtract(a: Any, b: Any) -> Any:
    return _float("subtract", a, b) if _is_float(a, b) else _add(a, _times(plain(b), -1))


def _times(number: Any, by: int) -> Any:
    held = plain(number)
    return simplified(Number({atom: each * by for atom, each in held.terms.items()}, held.constant * by))


def _multiply(a: Any, b: Any) -> Any:
    if _is_float(a, b):
        return _float("multiply", a, b)
    for number, other in ((a, b), (b, a)):
        if type(other) is int:
            return _times(number, other)
    ends = _products(_ends(a), _ends(b))
    return _computed(np.multiply, a, b, (min(ends), max(ends)))


def _true_divide(a: Any, b: Any) -> Any:
    _require_divisor(b)
    for number in (a, b):
        ends = (0, 0) if _is_float(number) else (plain(number).low or 0, plain(number).high or 0)
        if max(map(abs, ends)) > _EXACT:
            raise CannotRollError("it divides integers that no float holds")
    return _float("divide", a, b)


def _floor_divide(a: Any, b: Any) -> Any:
    _require_divisor(b)
    if _is_float(a, b):
        return _by_ufunc(np.floor_divide, a, b)
    if type(b) is int and b < 0:
        return _floor_divide(_times(a, -1), -b)
    number = plain(a)
    if type(b) is int and all(by % b == 0 for by in number.terms.values()):
        return simplified(Number({atom: by // b for atom, by in number.terms.items()}, number.constant // b))
    if not _is_positive(b) or None in (number.low, number.high, plain(b).high):
        weight, slack = number.growth
        by = b if type(b) is int else 1
        return _computed(np.floor_divide, a, b, _symmetric(number, 0), (weight / by, slack / by + 1))
    (low, high), divisors = _ends(a), _ends(b)
    least, most = min(low // each for each in divisors), max(high // each for each in divisors)
    return least if least == most else _computed(np.floor_divide, a, b, (least, most))


def _remainder(a: Any, b: Any) -> Any:
    _require_divisor(b)
    if _is_float(a, b):
        return _by_ufunc(np.remainder, a, b)
    if type(b) is int and b < 0:
        return _times(_remainder(_times(a, -1), -b), -1)
    number = plain(a)
    if type(b) is int:
        if all(by % b == 0 for by in number.terms.values()):
            return number.constant % b
        if number.low is not None and number.high is not None and number.low // b == number.high // b:
            return _add(a, -(number.low // b) * b)
    low, high = _symmetric(plain(b), 1)
    return _computed(np.remainder, a, b, (0 if _is_positive(b) else low, high), plain(b).growth)


def _symmetric(number: Number, less: int) -> tuple[int | None, int | None]:
    """Ends of what is as far from 0 as an integer can be, or nearer by `less`."""
    if number.low is None or number.high is None:
        return None, None
    most = max(abs(number.low), abs(number.high)) - less
    return -most, most


def _is_positive(number: Any) -> bool:
    low = number.low if isinstance(number, Number) else number
    return low is not None and low > 0


def _power(a: Any, b: Any) -> Any:
    if _is_float(a, b):
        return _float_power(a, b)
    (low, high), (least, most) = _ends(a), _ends(b)
    if least < 0:
        raise CannotRollError("it takes a power with an exponent that may be negative")
    greatest = max(abs(low), abs(high), 1)
    if most * greatest.bit_length() > 62:
        raise CannotRollError("it takes a power that may not fit in 64 bits")
    if type(b) is int and b in (2, 3):
        return _multiply(a, a) if b == 2 else _multiply(_multiply(a, a), a)
    return _computed(np.power, a, b, (min(low, 0) and -(greatest**most), greatest**most))


def _float_power(a: Any, b: Any) -> Any:
    """Where Python has neither a complex number nor a division by 0."""
    base_low = (a.low if a.python is int else None) if isinstance(a, Number) else a
    whole = type(b) is int or (isinstance(b, Number) and b.python is int)
    least = (b.low if whole else None) if isinstance(b, Number) else b
    if not ((base_low is not None and base_low > 0) or (whole and least is not None and least >= 0)):
        raise CannotRollError("it takes a power of a number that may not be positive")
    return _float("power", a, b)


def _bitwise(ufunc: np.ufunc) -> Callable[[Any, Any], Any]:
    """`&`, `|` or `^` of integers."""

    def operation(a: Any, b: Any) -> Any:
        if _is_float(a, b):
            raise TypeError(f"unsupported operand type(s) for {ufunc.__name__}: a float is no integer")
        highs = [plain(side).high for side in (a, b) if _is_natural(side)]
        known = [high for high in highs if high is not None]
        if ufunc is np.bitwise_and and known:  # of one that is not negative, no more is left
            return _computed(ufunc, a, b, (0, min(known)))
        ends = (0, (1 << max(known).bit_length()) - 1) if len(known) == 2 else (None, None)
        return _computed(ufunc, a, b, ends, larger(a, b))

    return operation


def _is_natural(number: Any) -> bool:
    low = plain(number).low
    return low is not None and low >= 0


def _shift_left(a: Any, b: Any) -> Any:
    _require_shift(a, b)
    if type(b) is int:
        return _times(a, 1 << b)
    (low, high), (least, most) = _ends(a), _ends(b)
    return _computed(np.left_shift, a, b, (min(low << least, low << most), max(high << least, high << most)))


def _shift_right(a: Any, b: Any) -> Any:
    _require_shift(a, b)
    if type(b) is int and b < 62:
        return _floor_divide(a, 1 << b)
    held = plain(a)
    low, high = (None if end is None else bound(end, 0) for end, bound in ((held.low, min), (held.high, max)))
    return _computed(np.right_shift, a, b, (low, high), larger(a))


def _require_shift(a: Any, b: Any) -> None:
    """Raise CannotRollError for places that may be negative, or more than there are."""
    if _is_float(a, b):
        raise TypeError("unsupported operand type(s) for << or >>: a float is no integer")
    low, high = plain(b).low, plain(b).high
    if low is None or high is None or low < 0 or high > 63:
        raise CannotRollError("it shifts by a number of places that may be negative or above 63")


def _divide_both(a: Any, b: Any) -> Any:
    return _floor_divide(a, b), _remainder(a, b)


def _ends(number: Any) -> tuple[int, int]:
    low, high = (number.low, number.high) if isinstance(number, Number) else (number, number)
    if low is None or high is None:
        raise CannotRollError("it computes with an integer of unknown size")
    return low, high


def _products(a: tuple[int, int], b: tuple[int, int]) -> list[int]:
    return [x * y for x in a for y in b]


def _computed(
    ufunc: np.ufunc,
    a: Any,
    b: Any,
    ends: tuple[int | None, int | None],
    growth: tuple[Fraction, Fraction] = (Fraction(1), Fraction(0)),
    least_of: tuple[Number, ...] = (),
) -> Any:
    """An integer that is no sum of counters. `ends`: the least and the greatest it can be; the others as of an Atom."""
    if any(end is not None and abs(end) >= 1 << 62 for end in ends):
        raise CannotRollError("it computes an integer that may not fit in 64 bits")
    sides = [plain(side) for side in (a, b)]
    key = (ufunc, *((side.constant, *side.terms.items()) for side in sides))
    value = current().once_around(key, lambda: ufunc(*(fresh(side.as_dtype(_I64)) for side in sides)).value)
    is_loose, by_data = any(side.is_loose for side in sides), any(side.by_data for side in sides)
    atom = Atom(value, *ends, growth=growth, is_loose=is_loose, by_data=by_data, least_of=least_of)
    return Number({atom: 1})


def _require_divisor(number: Any) -> None:
    """Where Python raises for a divisor of 0, an array has infinity or NaN, an integer 0: so has a number of the run.

    Raises CannotRollError for one that Python knows in each iteration.
    """
    if not isinstance(number, Number):
        if not number:
            raise ZeroDivisionError("division by zero")
        return
    low, high = (None, None) if number.python is float else (number.low, number.high)
    if low is not None and high is not None and not low <= 0 <= high:
        return
    if number.python is int and not number.by_data:
        raise CannotRollError("it divides by a number that may be 0", first=True, last=True)
    dtype = _F64 if number.python is float else _I64
    check_holds(lambda: as_tracer(np.not_equal(fresh(number.as_dtype(dtype)), 0)).value, _BY_ZERO, ZeroDivisionError)


def _by_ufunc(ufunc: np.ufunc, *numbers: Any) -> Number:
    """What a ufunc makes of floats."""
    found: Any = ufunc(*(fresh(plain(number).as_dtype(_F64)) for number in numbers))
    return floating(found.value, by_data=any(plain(number).by_data for number in numbers))


def _float(op: str, *numbers: Any) -> Number:
    values = [plain(number).as_dtype(_F64) for number in numbers]
    return floating(current().emit(op, values), by_data=any(plain(number).by_data for number in numbers))


def truth(number: Number) -> Any:
    """Whether a number is not 0: a bool, or a traced one."""
    return _compare("ne")(number, 0)


def least(a: Any, b: Any) -> Any:
    """`min(a, b)` of two integers."""
    first, second = plain(a), plain(b)
    lows, highs = [n.low for n in (first, second)], [n.high for n in (first, second)]
    for one, high, low in ((a, highs[0], lows[1]), (b, highs[1], lows[0])):
        if high is not None and low is not None and high <= low:
            return one
    low = None if None in lows else min(low for low in lows if low is not None)
    high = min((high for high in highs if high is not None), default=None)
    return _computed(np.minimum, a, b, (low, high), larger(first, second), (first, second))


def greatest(a: Any, b: Any) -> Any:
    """`max(a, b)` of two integers."""
    return -least(-a, -b)


def _compare(direction: str) -> Callable[[Any, Any], Any]:
    decide, ufunc = getattr(operator, direction), COMPARISONS[direction]

    def compared(a: Any, b: Any) -> Any:
        if _is_float(a, b):
            return _compared(ufunc, _F64, (a, b))
        difference = plain(_subtract(a, b))
        low, high = difference.low, difference.high
        if low is not None and high is not None:
            answers = {bool(decide(end, 0)) for end in (low, high)}
            inside = direction in ("eq", "ne") and low < 0 < high
            if len(answers) == 1 and not inside:
                return answers.pop()
            _require_ends(difference, decide)
        return _compared(ufunc, _I64, (a, b))

    return compared


def _require_ends(difference: Number, decide: Callable[[Any, Any], Any]) -> None:
    """Raise CannotRollError if a comparison comes out the same in all iterations but the first, or the last."""
    if len(difference.terms) != 1:
        return
    ((atom, by),) = difference.terms.items()
    if atom.low is None or atom.high is None or atom.high - atom.low < 1:
        return
    for number, (low, high) in enumerate(((atom.low + 1, atom.high), (atom.low, atom.high - 1))):
        sides = [difference.constant + by * at for at in (low, high)]
        same = len({bool(decide(side, 0)) for side in sides}) == 1
        through_zero = min(sides) < 0 < max(sides) and decide(0, 0) is not decide(sides[0], 0)
        if same and not through_zero and atom.ends[number]:
            raise CannotRollError("a comparison differs at an end", first=not number, last=bool(number))


def _install() -> None:
    arithmetic: dict[str, Callable[[Any, Any], Any]] = {
        "add": _add,
        "sub": _subtract,
        "mul": _multiply,
        "truediv": _true_divide,
        "floordiv": _floor_divide,
        "mod": _remainder,
        "pow": _power,
        "divmod": _divide_both,
        "and": _bitwise(np.bitwise_and),
        "or": _bitwise(np.bitwise_or),
        "xor": _bitwise(np.bitwise_xor),
        "lshift": _shift_left,
        "rshift": _shift_right,
    }
    for name, operation in arithmetic.items():
        for prefix, swap in (("", False), ("r", True), ("i", False)):
            OPERATIONS[f"__{prefix}{name}__"] = _method(f"__{prefix}{name}__", operation, swap)
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        OPERATIONS[f"__{name}__"] = _method(f"__{name}__", _compare(name), False)
    for name, method in OPERATIONS.items():
        if name not in vars(Number) and name != "__idivmod__":
            setattr(Number, name, method)
        if name != "__idivmod__":
            setattr(Truth, name, method)
    for name in (f"__{prefix}{name}__" for name in ("and", "or", "xor") for prefix in ("", "r", "i")):
        setattr(Truth, name, _of_bools(name))
    for name, unary in {"neg": operator.neg, "pos": operator.pos, "abs": operator.abs}.items():
        setattr(Truth, f"__{name}__", _of_number(unary))
    for kind in (Number, Truth):
        setattr(kind, "__invert__", _of_number(_inverted))  # noqa: B010  # as the others
    OPERATIONS.update(__neg__=_negative, __abs__=_magnitude)


def _inverted(number: Any) -> Any:
    if _is_float(number):
        raise TypeError("bad operand type for unary ~: 'float'")
    return -number - 1


def _of_bools(name: str) -> Callable[[Any, Any], Any]:
    """`&`, `|` or `^`, which of two bools is one."""
    with_arrays = getattr(TracerArray, name)

    def method(self: Any, other: Any) -> Any:
        if isinstance(other, bool | Truth):
            return truth_of(with_arrays(self, other))
        return OPERATIONS[name](self, other)

    return method


def _of_number(operation: Callable[[Any], Any]) -> Callable[[Truth], Any]:
    return lambda self: operation(_number(self))


def _method(name: str, operation: Callable[[Any, Any], Any], swap: bool) -> Callable[[Any, Any], Any]:
    """With Python's numbers as Python computes; with arrays as an array does."""
    with_arrays = getattr(TracerArray, name, None)

    def method(self: Any, other: Any) -> Any:
        sides = _operands(other, self) if swap else _operands(self, other)
        if sides is not None:
            return operation(*sides)
        return NotImplemented if with_arrays is None else with_arrays(self, other)

    return method


_install()
