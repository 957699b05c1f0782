"""Python numbers that a loop decides: its counter, and what Python computes of it.

They stand where Python has an `int` or `float`, and take the dtype of the arrays they meet, as those do (NEP 50). An
integer is a sum of counters with whole coefficients, and of other integers that the loop computes; where it lies is
known from where these do. So indices are proved to be in bounds, slices to have a fixed length, and comparisons to come
out the same in all iterations.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from autofuse.frontend.cells import Storage
from autofuse.frontend.forks import CannotRollError
from autofuse.frontend.terms import Term
from autofuse.frontend.tracecontext import current
from autofuse.frontend.tracer import TracerArray, WeakScalar, fresh
from autofuse.ir import dtypes
from autofuse.ir.graph import Value
from autofuse.ir.types import TensorType

_I64, _F64 = np.dtype(np.int64), np.dtype(np.float64)
_EXACT = 1 << 53
"""Integers up to here are floats of 64 bits exactly."""


class Atom:
    """An integer that loops decide: a counter, or something computed of counters that is no sum of them."""

    __slots__ = ("ends", "high", "low", "sides", "value")

    def __init__(
        self,
        value: Value,
        low: int | None,
        high: int | None,
        ends: tuple[bool, bool] = (False, False),
        sides: tuple[Any, ...] = (),
    ) -> None:
        self.value = value
        """`i64[]`."""
        self.low = low
        """The least that it can be; None if that is not known."""
        self.high = high
        self.ends = ends
        """Of a counter: whether the first iteration, and the last, may be traced alone if that decides something."""
        self.sides = sides
        """Of one of several integers, which the run chooses: these."""


class _Cell(Storage):
    """What a number is where an array is needed: emitted then."""

    def __init__(self, number: Number) -> None:
        super().__init__(TensorType((), dtypes.I64 if number.python is int else dtypes.F64), None)
        self._number = number

    @property
    def known(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]  # never known
        return None

    def read(self) -> Value:
        return self._number.as_dtype(self.type.dtype.numpy)


class Number(WeakScalar):
    """An `int` or `float` of Python that depends on the iteration."""

    __slots__ = ("asked", "computed_with", "constant", "python", "source", "terms")

    def __init__(
        self, terms: Mapping[Atom, int] | None, constant: int = 0, source: Callable[[], Value] | None = None
    ) -> None:
        """An integer if there are `terms`, an atom and its coefficient each; else a float.

        `source` emits a float's value, `f64[]`, in the region under way.
        """
        self.python: type = float if terms is None else int
        self.terms = {atom: by for atom, by in (terms or {}).items() if by}
        self.constant = constant
        self.source = source
        self.asked: dict[np.dtype[Any], Value] | None = None
        """Where it is to be known: the dtypes that arrays asked it in, and what they got."""
        self.computed_with = False
        """Whether Python's numbers were computed of it, or compared with it."""
        super().__init__(_Cell(self), is_scalar=True)

    def __repr__(self) -> str:
        return f"<a Python {self.python.__name__} that a loop decides>"

    # where it lies

    @property
    def low(self) -> int | None:
        return self._end(lambda atom, by: atom.low if by > 0 else atom.high)

    @property
    def high(self) -> int | None:
        return self._end(lambda atom, by: atom.high if by > 0 else atom.low)

    def _end(self, end: Callable[[Atom, int], int | None]) -> int | None:
        total = self.constant
        for atom, by in self.terms.items():
            found = end(atom, by)
            if found is None:
                return None
            total += by * found
        return total

    # what it is in the graph

    def as_dtype(self, dtype: np.dtype[Any]) -> Value:
        """Its value in an array's dtype. Raises CannotRollError for an integer that may not fit."""
        if self.asked is not None and dtype in self.asked:
            return self.asked[dtype]
        if self.python is int and self.asked is None and dtype.kind in "iu" and dtype != _I64:
            low, high, info = self.low, self.high, np.iinfo(dtype)
            if low is None or high is None or low < info.min or high > info.max:
                raise CannotRollError(f"it meets an array of {dtype} with an integer that may not fit")
        value = Term(self._wide()).to(dtype).value
        if self.asked is not None:
            self.asked[dtype] = value
        return value

    def _wide(self) -> Value:
        if self.python is float:
            assert self.source is not None
            return self.source()
        key = ("number", self.constant, *((atom, by) for atom, by in self.terms.items()))
        return current().once(key, self._sum)

    def _sum(self) -> Value:
        total: Term | None = None
        for atom, by in self.terms.items():
            part = Term(atom.value) if by == 1 else Term(atom.value) * by
            total = part if total is None else total + part
        if total is None:
            return current().scalar(self.constant, _I64)
        return (total + self.constant if self.constant else total).value

    # arithmetic with Python's numbers; `_install` adds the other operators

    def __add__(self, other: Any) -> Any:
        return _method("__add__", _add, swap=False)(self, other)

    def __sub__(self, other: Any) -> Any:
        return _method("__sub__", _subtract, swap=False)(self, other)

    def __mul__(self, other: Any) -> Any:
        return _method("__mul__", _multiply, swap=False)(self, other)

    def _operate(self, other: Any, operation: Callable[[Any, Any], Any], swap: bool) -> Any:
        if not isinstance(other, Number) and type(other) not in (int, float, bool):
            return NotImplemented
        first, second = (other, self) if swap else (self, other)
        for side in (self, other):
            if isinstance(side, Number):
                side.computed_with = True
        return operation(*(int(side) if type(side) is bool else side for side in (first, second)))

    def __neg__(self) -> Any:
        self.computed_with = True
        return _times(self, -1) if self.python is int else _float("negate", self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        self.computed_with = True
        if self.python is float:
            return _float("abs", self)
        low, high = self.low, self.high
        if low is not None and low >= 0:
            return self
        if high is not None and high <= 0:
            return -self
        raise CannotRollError("it takes abs() of an integer whose sign changes")

    def __hash__(self) -> int:
        raise CannotRollError("it hashes an integer that changes with the iteration")


class Comparison(TracerArray):
    """A comparison of Python's numbers: Python could tell what it is, were every iteration traced."""

    __slots__ = ()


def _compared(ufunc: Callable[..., Any], dtype: np.dtype[Any], sides: tuple[Any, Any]) -> Comparison:
    return Comparison(ufunc(*(fresh(_plain(side).as_dtype(dtype)) for side in sides)).cell, is_scalar=True)


def _plain(number: Any) -> Number:
    """A number as a sum without terms."""
    if isinstance(number, Number):
        return number
    if type(number) is int:
        return Number({}, number)
    return Number(None, source=lambda: current().scalar(number, _F64))


def simplified(number: Number) -> Any:
    """A number, as Python's where it is the same in all iterations."""
    return number.constant if number.python is int and not number.terms else number


def _is_float(*numbers: Any) -> bool:
    return any(n.python is float if isinstance(n, Number) else type(n) is float for n in numbers)


def _add(a: Any, b: Any) -> Any:
    if _is_float(a, b):
        return _float("add", a, b)
    first, second = _plain(a), _plain(b)
    terms = {atom: first.terms.get(atom, 0) + second.terms.get(atom, 0) for atom in (*first.terms, *second.terms)}
    return simplified(Number(terms, first.constant + second.constant))


def _subtract(a: Any, b: Any) -> Any:
    return _float("subtract", a, b) if _is_float(a, b) else _add(a, _times(_plain(b), -1))


def _times(number: Any, by: int) -> Any:
    held = _plain(number)
    return simplified(Number({atom: each * by for atom, each in held.terms.items()}, held.constant * by))


def _multiply(a: Any, b: Any) -> Any:
    if _is_float(a, b):
        return _float("multiply", a, b)
    for number, other in ((a, b), (b, a)):
        if type(other) is int:
            return _times(number, other)
    ends = _products(_ends(a), _ends(b))
    return _computed(np.multiply, a, b, min(ends), max(ends))


def _true_divide(a: Any, b: Any) -> Any:
    _nonzero(b)
    for number in (a, b):
        if not _is_float(number) and max(map(abs, _ends(number))) > _EXACT:
            raise CannotRollError("it divides integers that no float holds")
    return _float("divide", a, b)


def _floor_divide(a: Any, b: Any) -> Any:
    if _is_float(a, b) or type(b) is not int or b <= 0:
        raise CannotRollError("it divides by what is no positive integer that is known")
    low, high = _ends(a)
    if low // b == high // b:
        return low // b
    return _computed(np.floor_divide, a, b, low // b, high // b)


def _remainder(a: Any, b: Any) -> Any:
    if _is_float(a, b) or type(b) is not int or b <= 0:
        raise CannotRollError("it takes a remainder by what is no positive integer that is known")
    low, high = _ends(a)
    if low // b == high // b:
        return _add(a, -(low // b) * b)
    return _computed(np.remainder, a, b, 0, b - 1)


def _power(a: Any, b: Any) -> Any:
    if _is_float(a) or type(b) is not int or b not in (2, 3):
        raise CannotRollError("it takes a power of a number that changes with the iteration")
    return _multiply(a, a) if b == 2 else _multiply(_multiply(a, a), a)


def _ends(number: Any) -> tuple[int, int]:
    low, high = (number.low, number.high) if isinstance(number, Number) else (number, number)
    if low is None or high is None:
        raise CannotRollError("it computes with an integer of unknown size")
    return low, high


def _products(a: tuple[int, int], b: tuple[int, int]) -> list[int]:
    return [x * y for x in a for y in b]


def _computed(ufunc: np.ufunc, a: Any, b: Any, low: int, high: int) -> Any:
    """An integer that is no sum of counters."""
    if max(abs(low), abs(high)) >= 1 << 62:
        raise CannotRollError("it computes an integer that may not fit in 64 bits")
    sides = [fresh(_plain(side).as_dtype(_I64)) for side in (a, b)]
    return Number({Atom(ufunc(*sides).value, low, high): 1})


def _nonzero(number: Any) -> None:
    if isinstance(number, Number):
        low, high = (None, None) if number.python is float else (number.low, number.high)
        if low is None or high is None or low <= 0 <= high:
            raise CannotRollError("it divides by a number that may be 0")
    elif not number:
        raise CannotRollError("it divides by 0")


def _float(op: str, *numbers: Any) -> Number:
    values = [_plain(number).as_dtype(_F64) for number in numbers]
    return floating(current().emit(op, values))


def truth(number: Number) -> Any:
    """Whether a number is not 0: a bool, or a traced one."""
    return _compare("ne")(number, 0)


def least(a: Any, b: Any) -> Any:
    """`min(a, b)` of two integers."""
    (a_low, a_high), (b_low, b_high) = _ends(a), _ends(b)
    if a_high <= b_low or b_high <= a_low:
        return a if a_high <= b_low else b
    return _computed(np.minimum, a, b, min(a_low, b_low), min(a_high, b_high))


def greatest(a: Any, b: Any) -> Any:
    """`max(a, b)` of two integers."""
    return -least(-a, -b)


def floating(value: Value) -> Number:
    """A Python float with this value, `f64[]`."""
    return Number(None, source=lambda: value)


_COMPARISONS: Mapping[str, Callable[..., Any]] = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}


def _compare(direction: str) -> Callable[[Any, Any], Any]:
    decide, ufunc = getattr(operator, direction), _COMPARISONS[direction]

    def compared(a: Any, b: Any) -> Any:
        if _is_float(a, b):
            return _compared(ufunc, _F64, (a, b))
        difference = _plain(_subtract(a, b))
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
    }
    for name, operation in arithmetic.items():
        for prefix, swap in (("", False), ("r", True), ("i", False)):
            setattr(Number, f"__{prefix}{name}__", _method(f"__{prefix}{name}__", operation, swap))
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(Number, f"__{name}__", _method(f"__{name}__", _compare(name), False))


def _method(name: str, operation: Callable[[Any, Any], Any], swap: bool) -> Callable[[Any, Any], Any]:
    """With Python's numbers as Python computes; with arrays as an array does."""
    with_arrays = getattr(TracerArray, name)

    def method(self: Any, other: Any) -> Any:
        found = self._operate(other, operation, swap)
        return with_arrays(self, other) if found is NotImplemented else found

    return method


_install()
