"""Variables that live from one iteration of a loop to the next: what an iteration gets of each, and what it leaves.

Before the body is traced, a variable that it reads first gets a stand-in. Behind it, what the variable is bound to must
be what the stand-in stood for: an array of the same type, a number of the same kind. Arrays are carried as values; one
that is written in place, or that is an array from outside, keeps its own identity instead (`kept`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autofuse.frontend.forks import CannotRollError, Fork
from autofuse.frontend.promotion import value_of
from autofuse.frontend.regions import Region
from autofuse.frontend.rolling.nothing import flag, is_part, like, maybe, parts_of
from autofuse.frontend.rolling.numbers import Atom, Number, Truth, floating, simplified, truth_of
from autofuse.frontend.rolling.places import Place
from autofuse.frontend.tracecontext import current
from autofuse.frontend.tracer import TracerArray, WeakScalar, fresh
from autofuse.ir import dtypes
from autofuse.ir.graph import Value
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass

Name = str | Place
"""A variable, or what else is set as one."""
_I64, _F64 = np.dtype(np.int64), np.dtype(np.float64)
_STEP = 1 << 20


class KeepError(BaseException):
    """The arrays of variables must keep their identity: the loop is to be traced again with that."""

    def __init__(self, *names: Name) -> None:
        super().__init__()
        self.names = names


class LooseError(BaseException):
    """A variable's array is written in place, and the variable bound anew: to be traced again as state that is both."""

    def __init__(self, name: Name) -> None:
        super().__init__()
        self.name = name


class NothingError(BaseException):
    """What Python knows before a loop that cannot be unrolled is the run's behind an iteration: to be traced so.

    A variable that is None becomes a number, which then may be None; or one that is a bool another one.
    """

    def __init__(self, name: Name, number: Any) -> None:
        super().__init__()
        self.name = name
        self.number = number


class ListError(BaseException):
    """A variable is bound to another list or deque in the next iteration: to be traced again as state."""

    def __init__(self, name: Name) -> None:
        super().__init__()
        self.name = name


class StepError(BaseException):
    """An integer variable grows by the same number each time: the loop is to be traced again with that."""

    def __init__(self, name: Name, step: int) -> None:
        super().__init__()
        self.name = name
        self.step = step


@dataclass(slots=True, eq=False)
class Carry:
    """One part of a loop's state."""

    initial: Callable[[], Value]
    """Emits what it is before the first iteration."""
    given: Value
    """What an iteration gets."""
    next: Value
    """What it leaves."""
    done: Callable[[Value], None]
    """Gets what the last one left."""


def nothing(value: Value) -> None:
    """For a part whose owner asks for the result itself."""
    del value


@dataclass(slots=True, eq=False)
class Outcome:
    """What became of a variable in an iteration."""

    carry: Carry | None = None
    to: dict[Value, Value] | None = None
    """Values in the region that are others, from outside or inputs."""
    after: Any = None
    """What the variable is bound to behind the loop, where no carry decides it."""


class Kept:
    """A variable that stays bound to the object it is bound to."""

    def __init__(self, name: Name, content: Any) -> None:
        self.name = name
        self.content = content
        self.stand_in = content

    def settle(self, end: Any, fork: Fork, region: Region) -> Outcome:
        """What became of it. `end`: what it is bound to behind the body."""
        same = end is self.content or is_equal(end, self.content)
        if not same and self.content is None and fork.must_roll and is_part(end):
            raise NothingError(self.name, like(end))
        if not same and type(self.content) is bool and fork.must_roll and isinstance(end, bool | Truth):
            raise NothingError(self.name, False)
        if not same and isinstance(self.content, TracerArray) and isinstance(end, TracerArray) and region.owns(end):
            raise LooseError(self.name)
        if not same and type(end) is type(self.content) and type(end) in (list, deque):
            raise ListError(self.name)
        if not same:
            raise CannotRollError(f"{self.name} is bound to something else in the next iteration", first=True)
        return Outcome(after=self.content)


class Counted:
    """An integer variable that every iteration adds the same number to."""

    def __init__(self, name: Name, content: Any, step: int, iteration: Number, count: Any) -> None:
        """`iteration`: the number of the iteration, from 0. `count`: how many there are."""
        self.name = name
        self.stand_in = content + iteration * step
        self._next = self.stand_in + step
        self._after = content + count * step

    def settle(self, end: Any, fork: Fork, region: Region) -> Outcome:
        """As of `Kept`."""
        del fork, region
        difference = end - self._next if isinstance(end, int | Number) else None
        if not (type(difference) is int and difference == 0):
            raise CannotRollError(f"{self.name} does not grow evenly")
        return Outcome(after=self._after)


class CarriedArray:
    """An array, or a NumPy scalar, as a value."""

    def __init__(self, name: Name, content: TracerArray, region: Region, *, is_loose: bool = False) -> None:
        """`is_loose`: what an iteration begins with may be written in place, as nothing else sees it."""
        self.name = name
        self.content = content
        self._is_loose = is_loose
        self.given = region.input(content.cell.type)
        given = fresh(self.given, is_scalar=content.is_scalar)
        self.stand_in = truth_of(given) if isinstance(content, Truth) else with_memory_of(given, content)

    def settle(self, end: Any, fork: Fork, region: Region) -> Outcome:
        """As of `Kept`."""
        if isinstance(self.content, Truth) and type(end) is bool:
            with region.entered():
                end = flag(end)
        if self.stand_in.cell.storage.version:
            if not self._is_loose:
                raise KeepError(self.name)
            self.stand_in.cell.storage.is_maybe_written = True
        if end is self.stand_in:
            if end.cell.storage.is_maybe_written:
                raise CannotRollError(f"{self.name} may be an array that is written, as data decide")
            return Outcome(to={self.given: self.content.value}, after=self.content)
        with region.entered():
            self._check(end, fork, region)
            carry = Carry(lambda: self.content.value, self.given, end.value, nothing)
        return Outcome(carry)

    def _check(self, end: Any, fork: Fork, region: Region) -> None:
        scalar = self.content.is_scalar
        alike = isinstance(end, TracerArray) and not isinstance(end, WeakScalar) and end.is_scalar == scalar
        alike = alike and isinstance(end, Truth) == isinstance(self.content, Truth)
        if not alike or end.cell.type != self.content.cell.type:
            raise CannotRollError(
                f"{self.name} is {_described(self.content)} before an iteration and {_described(end)} after it",
                first=True,
            )
        if scalar:
            return
        storage = end.cell.storage
        if end.cell is not storage and not region.made(storage.read()):
            raise CannotRollError(f"{self.name} is a view of an array from before", first=True)
        if not region.owns(end):
            if self._is_loose:
                raise CannotRollError(f"{self.name} is bound to something else in the next iteration", first=True)
            raise KeepError(self.name)
        before = self.content.cell.storage
        changed = fork.changed()
        if any(one in changed for one in (before, *before.possible, *storage.possible)):
            raise CannotRollError(f"{self.name} shares the memory of an array that the loop writes", first=True)
        if end.cell.layout.strides != self.stand_in.cell.layout.strides:
            raise CannotRollError(f"the memory order of {self.name} changes", first=True)


class CarriedNumber:
    """A Python number; an array's scalar where the first iteration makes it one and it met no other arrays."""

    def __init__(self, name: Name, content: Any, region: Region, *, is_counted: bool) -> None:
        """`is_counted`: whether a counter ends the loop."""
        self.name = name
        self.content = content
        self._is_counted = is_counted
        self.python: type = content.python if isinstance(content, Number) else type(content)
        self._type = TensorType((), dtypes.I64 if self.python is int else dtypes.F64)
        self.given = region.input(self._type)
        given = self.given
        by_data = isinstance(content, Number) and content.by_data
        whole = {Atom(given, None, None, by_data=by_data): 1}
        number = Number(whole) if self.python is int else floating(given, by_data=by_data)
        number.asked = {}
        self.stand_in = number

    def settle(self, end: Any, fork: Fork, region: Region) -> Outcome:
        """As of `Kept`."""
        del fork
        if end is self.stand_in or is_equal(end, self.content):
            self._require_fit()
            return Outcome(to={self.given: self._initial(self._type.dtype.numpy)}, after=self.content)
        if isinstance(end, TracerArray) and not isinstance(end, WeakScalar):
            return self._as_scalar(end, region)
        same_kind = end.python is self.python if isinstance(end, Number) else type(end) is self.python
        if not same_kind:
            raise CannotRollError(f"{self.name} is another kind of number after an iteration", first=True)
        step = end - self.stand_in if self.python is int else None  # pyright: ignore[reportOperatorIssue]
        if type(step) is int and self._is_counted:
            raise StepError(self.name, step)
        if self.python is int and not stays_small(end):
            raise CannotRollError(f"{self.name} is an integer that each iteration computes anew")
        if self.python is int:
            self._require_fit()
        dtype = self._type.dtype.numpy
        with region.entered():
            left = value_of(end, dtype)
        return Outcome(Carry(lambda: self._initial(dtype), self.given, left, nothing))

    def _require_fit(self) -> None:
        """An integer of unknown size must not have met arrays of fewer bits, where NumPy asks whether it fits."""
        asked = [dtype for dtype in self.stand_in.asked or {} if dtype.kind in "iu" and dtype != _I64]
        narrow = [dtype for dtype in asked if not self.stand_in.grows_within(dtype)]
        if self.python is int and narrow:
            raise CannotRollError(f"{self.name} meets arrays of {narrow[0]} as a Python number", first=True)

    def _initial(self, dtype: np.dtype[Any]) -> Value:
        return value_of(self.content, dtype)

    def _as_scalar(self, end: TracerArray, region: Region) -> Outcome:
        asked = self.stand_in.asked or {}
        if not end.is_scalar or not set(asked) <= {end.dtype} or self.stand_in.computed_with:
            raise CannotRollError(f"{self.name} is a Python number in the first iteration only", first=True)
        dtype = end.dtype
        given = region.input(end.cell.type)
        with region.entered():
            carry = Carry(lambda: self._initial(dtype), given, end.value, nothing)
        return Outcome(carry, to=dict.fromkeys((*asked.values(), self.given), given))


class CarriedTuple:
    """A tuple of variables: `state = (x, v)`, bound to another such tuple in each iteration."""

    def __init__(self, name: Name, content: tuple[Any, ...], parts: Sequence[Variable]) -> None:
        self.name = name
        self.content = content
        self.parts = parts
        self._stand_in = self.of([part.stand_in for part in parts])

    @property
    def stand_in(self) -> Any:
        """What an iteration begins with."""
        return self._stand_in

    def of(self, items: Sequence[Any]) -> Any:
        """A tuple of its kind."""
        kind: Any = type(self.content)
        return kind(*items) if hasattr(kind, "_fields") else tuple(items)

    def items_of(self, end: Any) -> tuple[Any, ...]:
        """The elements of what it is bound to behind the body."""
        if type(end) is not type(self.content) or len(end) != len(self.parts):
            raise CannotRollError(f"{self.name} is another kind of tuple after an iteration", first=True)
        return tuple(end)


class CarriedMaybe(CarriedTuple):
    """A number that may be None: the number, and where it is None."""

    def __init__(self, name: Name, content: Any, parts: Sequence[Variable], region: Region) -> None:
        self._region = region
        super().__init__(name, content, parts)

    def of(self, items: Sequence[Any]) -> Any:
        """A number that may be None."""
        return maybe(*items)

    def items_of(self, end: Any) -> tuple[Any, ...]:
        """As of a tuple; what is None leaves the number as it is."""
        number, absent = self.parts
        if end is self.stand_in:
            return number.stand_in, absent.stand_in
        if end is not None and not is_part(end):
            raise CannotRollError(f"{self.name} is a {type(end).__name__} or a number, as data decide", first=True)
        value, is_none = parts_of(end)
        with self._region.entered():
            return number.stand_in if value is None else value, flag(is_none)


Single = Kept | Counted | CarriedArray | CarriedNumber
Variable = Single | CarriedTuple


def is_tuple_of_state(content: tuple[Any, ...]) -> bool:
    """Whether each element is an array or a number, or such a tuple."""
    return bool(content) and all(
        is_tuple_of_state(part) if isinstance(part, tuple) else isinstance(part, TracerArray | int | float)
        for part in content
    )


def stays_small(end: Any) -> bool:
    """Whether an integer that an iteration leaves fits in 64 bits, however long a loop can run.

    It does if it is of known size, or at most a known number greater than all those that the iteration began with.
    """
    weight, slack = end.growth if isinstance(end, Number) else (0, 0)
    return weight == 0 or (weight <= 1 and slack < _STEP)


def is_equal(end: Any, before: Any) -> bool:
    """Whether two of Python's constants are the same; 0.0 and -0.0 are not."""
    is_static = end is None or isinstance(end, bool | int | float | str)
    return is_static and type(end) is type(before) and end == before and repr(end) == repr(before)


def _described(value: Any) -> str:
    return str(value.cell.type) if isinstance(value, TracerArray) else f"a {type(value).__name__}"


def last_value(end: Any, counter: Atom, last: Any, region: Region) -> Any:
    """An integer of the last iteration, of which the counter is `last`; None where only the run knows it."""
    if not isinstance(end, Number) or end.python is float:
        return None
    by = end.terms.get(counter, 0)
    others = {atom: each for atom, each in end.terms.items() if atom != counter}
    if any(region.knows(atom.value) for atom in others):
        return None
    rest = Number(others, end.constant)
    return simplified(rest) + last * by


def with_memory_of(array: TracerArray, like: TracerArray) -> TracerArray:
    """A new array, its memory in the order of another one's."""
    array.cell.layout = like.cell.layout
    array.cell.storage.order_is_guess = like.cell.storage.order_is_guess
    array.cell.storage.order_from = like.cell.storage.order_from
    return array


def left_as(array: TracerArray, end: TracerArray) -> TracerArray:
    """A new array for what iterations left behind: its memory in the same order, and as read-only."""
    if end.cell.read_only:
        array.cell.storage.make_read_only(end.cell.read_only)
    return with_memory_of(array, end)


def kind_of(value: Any) -> Any:
    """What a value is: a Python number of a type, or an array of a type."""
    if isinstance(value, Number):
        return value.python
    return (value.cell.type, value.is_scalar) if isinstance(value, TracerArray) else type(value)


def content_value(content: Any) -> Value:
    """A number or an array as a value."""
    kind = kind_of(content)
    return value_of(content, np.dtype(kind) if isinstance(kind, type) else kind[0].dtype.numpy)


def left_by(end: Any, value: Value) -> Any:
    """What a variable is bound to behind a loop, whose last iteration left it bound to `end`."""
    if isinstance(end, bool | Truth):
        return truth_of(fresh(value))
    if isinstance(end, Number) or not isinstance(end, TracerArray):
        whole = end.python is int if isinstance(end, Number) else type(end) is int
        return Number({Atom(value, None, None, by_data=True): 1}) if whole else floating(value)
    return left_as(fresh(value, is_scalar=end.is_scalar), end)


def zeros(type_: TensorType) -> Value:
    """What stands for a variable that no iteration reads before it binds it."""
    return current().splat(0, type_.dtype.numpy, type_.shape)
