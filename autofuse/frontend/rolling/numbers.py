"""Python numbers that a loop decides: its counter, and what Python computes of it.

They stand where Python has an `int` or `float`, and take the dtype of the arrays they meet, as those do (NEP 50). An
integer is a sum of counters with whole coefficients, and of other integers that the loop computes; where it lies is
known from where these do. So indices are proved to be in bounds, slices to have a fixed length, and comparisons to come
out the same in all iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from autofuse.frontend.cells import Storage
from autofuse.frontend.forks import CannotRollError
from autofuse.frontend.terms import Term
from autofuse.frontend.tracecontext import current, innermost_fork
from autofuse.frontend.tracer import TracerArray, WeakScalar
from autofuse.ir import dtypes
from autofuse.ir.graph import Value
from autofuse.ir.types import TensorType

_I64, _F64 = np.dtype(np.int64), np.dtype(np.float64)
_SLOW = 256
"""What a counter of 32 bits may grow by in one iteration."""
_ROOM = 1 << 63
_MOST = 1 << 31
"""What an integer of unknown size may be multiplied by."""
_MOST_CASES = 4
"""Parts of a sum that are looked at case by case."""
NUMBER_MARK = "that a loop decides>"
"""In how a number looks."""
OPERATIONS: dict[str, Callable[..., Any]] = {}
"""What operators do, by the name of the method (`arithmetic`)."""


class Atom:
    """An integer that loops decide: a counter, or something computed of counters that is no sum of them.

    Atoms of one value are equal.
    """

    __slots__ = ("by_data", "ends", "high", "is_loose", "least_of", "low", "slack", "value", "weight")

    def __init__(
        self,
        value: Value,
        low: int | None,
        high: int | None,
        ends: tuple[bool, bool] = (False, False),
        growth: tuple[Fraction, Fraction] = (Fraction(1), Fraction(0)),
        *,
        is_loose: bool = False,
        by_data: bool = False,
        least_of: tuple[Number, ...] = (),
    ) -> None:
        self.least_of = least_of
        """The integers of which it is the least one; () if it is something else."""
        self.by_data = by_data
        """Whether data decide it: Python could not tell what it is, were every iteration traced."""
        self.is_loose = is_loose
        """Whether the run decides it, and its dtype alone says what it may be: it need not come near that."""
        self.value = value
        """`i64[]`."""
        self.low = low
        """The least that it can be; None if that is not known."""
        self.high = high
        self.ends = ends
        """Of a counter: whether the first iteration, and the last, may be traced alone if that decides something."""
        known = None if low is None or high is None else Fraction(max(-low, high))
        self.weight, self.slack = growth if known is None else (Fraction(0), known)
        """It is at most `weight` times the greatest integer that the loop began an iteration with, and `slack` more."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Atom) and other.value is self.value

    def __hash__(self) -> int:
        return hash(self.value)


def _highest(*ends: int | None) -> int | None:
    """The greatest of what is known of a least one."""
    return max((end for end in ends if end is not None), default=None)


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

    __slots__ = ("asked", "computed_with", "constant", "of_data", "python", "source", "terms")

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
        self.of_data = False
        """Of a float: as `by_data` of an Atom."""
        self.computed_with = False
        """Whether Python's numbers were computed of it, or compared with it."""
        super().__init__(_Cell(self), is_scalar=True)

    def __repr__(self) -> str:
        return f"<a Python {self.python.__name__} {NUMBER_MARK}"

    def __str__(self) -> str:
        return self.__format__("")

    def __format__(self, text: str) -> str:
        if innermost_fork() is not None:
            raise CannotRollError("it makes text of a number that changes with the iteration")
        return super().__format__(text)

    # where it lies

    @property
    def low(self) -> int | None:
        found = self._end(lambda atom, by: atom.low if by > 0 else atom.high)
        return _highest(found, self._low_by_cases(_MOST_CASES))

    @property
    def high(self) -> int | None:
        low = Number({atom: -by for atom, by in self.terms.items()}, -self.constant).low if self._has_cases else None
        found = self._end(lambda atom, by: atom.high if by > 0 else atom.low)
        return found if low is None else -low if found is None else min(found, -low)

    @property
    def _has_cases(self) -> bool:
        return len(self.terms) > 1 and any(atom.least_of for atom in self.terms)

    def _low_by_cases(self, most: int) -> int | None:
        """The least that it can be, where each of what a part is the least one of stands for that part in turn.

        So `min(n, d) - max(1, d - m)` is known to be positive, though its parts move each by itself.
        """
        if not self._has_cases or not most:
            return None
        atom, by = next((atom, by) for atom, by in self.terms.items() if atom.least_of)
        lows: list[int | None] = []
        for case in atom.least_of:
            terms = {other: times for other, times in self.terms.items() if other != atom}
            for other, times in case.terms.items():
                terms[other] = terms.get(other, 0) + by * times
            number = Number(terms, self.constant + by * case.constant)
            plain = number._end(lambda atom, by: atom.low if by > 0 else atom.high)
            lows.append(_highest(plain, number._low_by_cases(most - 1)))
        known = [low for low in lows if low is not None]
        if by < 0:
            return max(known, default=None)
        return min(known) if len(known) == len(lows) else None

    @property
    def is_loose(self) -> bool:
        """As of an Atom."""
        return any(atom.is_loose for atom in self.terms)

    @property
    def by_data(self) -> bool:
        """As of an Atom."""
        return self.of_data or any(atom.by_data for atom in self.terms)

    def _end(self, end: Callable[[Atom, int], int | None]) -> int | None:
        total = self.constant
        for atom, by in self.terms.items():
            found = end(atom, by)
            if found is None:
                return None
            total += by * found
        return total

    @property
    def growth(self) -> tuple[Fraction, Fraction]:
        """A weight and a slack, as of an Atom."""
        weight = sum((abs(by) * atom.weight for atom, by in self.terms.items()), Fraction(0))
        slack = sum((abs(by) * atom.slack for atom, by in self.terms.items()), Fraction(0))
        return weight, slack + abs(self.constant)

    def grows_within(self, dtype: np.dtype[Any]) -> bool:
        """Whether an integer of unknown size may be taken to fit: a counter that only data advance, in 32 bits.

        It grows by little in each iteration; a program where it does not fit is an error in NumPy after millions.
        """
        weight, slack = self.growth
        return dtype == np.int32 and weight <= 1 and slack <= _SLOW

    # what it is in the graph

    def as_dtype(self, dtype: np.dtype[Any]) -> Value:
        """Its value in an array's dtype. Raises CannotRollError for an integer that may not fit."""
        if self.asked is not None and dtype in self.asked:
            return self.asked[dtype]
        if self.python is int and self.asked is None and dtype.kind in "iu" and dtype != _I64:
            low, high, info = self.low, self.high, np.iinfo(dtype)
            if low is None or high is None:
                fits = self.grows_within(dtype)
            else:
                fits = low >= info.min and high <= info.max
            if not fits:
                raise CannotRollError(f"it meets an array of {dtype} with an integer that may not fit")
        value = Term(self._wide()).to(dtype).value
        if self.asked is not None:
            self.asked[dtype] = value
        return value

    def _wide(self) -> Value:
        if self.python is float:
            assert self.source is not None
            return self.source()
        self._require_room()
        key = ("number", self.constant, *((atom, by) for atom, by in self.terms.items()))
        return current().once(key, self._sum)

    def _require_room(self) -> None:
        """Raise CannotRollError for an integer of Python's that 64 bits may not hold.

        One that the run decides has them all, by its type; it is taken to be small beside them.
        """
        reach = abs(self.constant)
        for atom, by in self.terms.items():
            known = atom.low is not None and atom.high is not None
            reach += abs(by) * max(abs(atom.low or 0), abs(atom.high or 0)) if known else _ROOM * (abs(by) > _MOST)
        if reach >= _ROOM:
            raise CannotRollError("it computes an integer that may not fit in 64 bits")

    def _sum(self) -> Value:
        total: Term | None = None
        for atom, by in self.terms.items():
            part = Term(atom.value) if by == 1 else Term(atom.value) * by
            total = part if total is None else total + part
        if total is None:
            return current().scalar(self.constant, _I64)
        return (total + self.constant if self.constant else total).value

    # arithmetic with Python's numbers; `arithmetic` adds the other operators

    def __add__(self, other: Any) -> Any:
        return OPERATIONS["__add__"](self, other)

    def __sub__(self, other: Any) -> Any:
        return OPERATIONS["__sub__"](self, other)

    def __mul__(self, other: Any) -> Any:
        return OPERATIONS["__mul__"](self, other)

    def __neg__(self) -> Any:
        return OPERATIONS["__neg__"](self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return OPERATIONS["__abs__"](self)

    def __hash__(self) -> int:
        if innermost_fork() is None:
            return super().__hash__()
        raise CannotRollError("it hashes a number that changes with the iteration")


class Truth(TracerArray):
    """A `bool` of Python's that only the run knows: what is computed of it is an integer (`arithmetic`)."""

    __slots__ = ()
    python: type = bool


class Comparison(Truth):
    """A comparison of Python's numbers: Python could tell what it is, were every iteration traced."""

    __slots__ = ()


def python_class(value: Any) -> type | None:
    """`int`, `float` or `bool` of one of Python's numbers, whoever decides it; None of any other value."""
    if isinstance(value, Number | Truth):
        return value.python
    return type(value) if type(value) in (int, float, bool) else None


def truth_of(test: TracerArray) -> Truth:
    """A traced bool as one of Python's."""
    return Truth(test.cell, is_scalar=True)


def plain(number: Any) -> Number:
    """A number as a sum without terms."""
    if isinstance(number, Number):
        return number
    if type(number) is int:
        return Number({}, number)
    return Number(None, source=lambda: current().scalar(number, _F64))


def simplified(number: Number) -> Any:
    """A number, as Python's where it is the same in all iterations."""
    return number.constant if number.python is int and not number.terms else number


def larger(*numbers: Any) -> tuple[Fraction, Fraction]:
    """A weight and a slack of one of several integers."""
    weights, slacks = zip(*(plain(number).growth for number in numbers), strict=True)
    return max(weights), max(slacks)


def floating(value: Value, *, by_data: bool = True) -> Number:
    """A Python float with this value, `f64[]`. `by_data`: as of an Atom."""
    made = Number(None, source=lambda: value)
    made.of_data = by_data
    return made


def whole_number(number: TracerArray) -> Number:
    """An integer of the run as one of Python's: it is taken to have 64 bits."""
    narrow = number.dtype.kind == "b" or (number.dtype.kind in "iu" and number.dtype.itemsize < 8)
    info = np.iinfo(number.dtype) if narrow and number.dtype.kind != "b" else None
    ends = (0, 1) if narrow and info is None else (None, None) if info is None else (int(info.min), int(info.max))
    value = current().first_like(Term(number.value).to(_I64).value)
    return Number({Atom(value, *ends, growth=(Fraction(0), Fraction(0)), is_loose=True, by_data=True): 1})


def is_integer_of_the_run(value: Any) -> bool:
    """Whether it is an integer of an array, which Python may ask for, and which is not known."""
    if not isinstance(value, TracerArray) or isinstance(value, Number):
        return False
    return not value.shape and value.dtype.kind in "iu" and value.known is None
