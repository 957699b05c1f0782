"""Lists that iterations append to and read as they grow: `xs.append(xs[-1] + h)`. They are arrays of their last length.

While a body is traced such a list is an object that knows how long it is in each iteration. Nothing else may hold it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping, Sequence
from types import CellType
from typing import Any

import numpy as np

from autofuse.frontend.cells import Storage
from autofuse.frontend.dispatch import call
from autofuse.frontend.forks import CannotRollError
from autofuse.frontend.promotion import value_of
from autofuse.frontend.regions import Region
from autofuse.frontend.rolling.appending import Rows, row_of, rows_of
from autofuse.frontend.rolling.carried import Carry, stays_small
from autofuse.frontend.rolling.frames import Frame
from autofuse.frontend.rolling.numbers import Atom, Number, floating, larger, plain, python_class, truth_of
from autofuse.frontend.rolling.positions import not_below
from autofuse.frontend.tracecontext import current, innermost_fork
from autofuse.frontend.tracer import TracerArray, fresh
from autofuse.ir import dtypes
from autofuse.ir.graph import Value
from autofuse.ir.types import TensorType

_I64 = np.dtype(np.int64)
_READ_ONLY = "it is an element of a list that a loop makes"


class Growing:
    """A list in an iteration."""

    def __init__(self, name: str, items: list[Any], region: Region, counter: Atom, each: int, trips: int) -> None:
        """`each`: how many elements an iteration appends. Raises CannotRollError where their type is not known yet."""
        self.name, self.items = name, items
        self._region, self._each, self._trips = region, each, trips
        self._kind = _kind_of(items[-1]) if items else None
        if self._kind is None or not all(self._takes(_kind_of(item)) for item in items):
            raise CannotRollError(f"{name} is a list of elements whose type is not known before", first=True)
        self._start: Any = Number({counter: each}, len(items))
        self._type = TensorType((len(items) + each * trips, *self._kind.type.shape), self._kind.type.dtype)
        self._given = self._value = region.input(self._type)
        self._new: list[Any] = []
        self._versions: list[tuple[Storage, int]] = []

    def _takes(self, kind: _Kind | None) -> bool:
        """Whether elements of a kind may be in the list: its own, and floats of Python's in a list of no integers."""
        return kind == self._kind or (kind == _FLOAT and self._kind != _INT)

    @property
    def length(self) -> Any:
        """As `len`."""
        return self._start + len(self._new)

    def append(self, value: Any) -> None:
        """As of a list."""
        assert self._kind is not None
        if not self._region.is_current:
            raise CannotRollError(f"{self.name} grows in a branch or loop of the body")
        if not self._takes(_kind_of(value)):
            raise CannotRollError(f"{self.name} gets elements of another type", first=True)
        if self._kind == _INT and not stays_small(value):
            raise CannotRollError(f"{self.name} gets integers that each iteration computes anew")
        if _is_array(value):
            if not self._region.owns(value) or value.cell is not value.cell.storage:
                raise CannotRollError(f"{self.name} gets arrays that something else sees")
            self._versions.append((value.cell.storage, value.cell.storage.version))
        content = value_of(value, self._type.dtype.numpy)
        row = current().emit("reshape", (content,), shape=(1, *self._type.shape[1:]))
        first = [current().scalar(0, _I64)] * (self._type.rank - 1)
        at = self.length
        place = at.as_dtype(_I64) if isinstance(at, Number) else current().scalar(at, _I64)
        self._value = current().emit("dynamic_update_slice", (self._value, row, place, *first))
        self._new.append(value)

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, int | np.integer | Number) or isinstance(index, bool):
            raise CannotRollError(f"{self.name} is a list, and it takes more than an element of it")
        index = int(index) if isinstance(index, np.integer) else index
        is_from_end = index < 0 if isinstance(index, int) else index.high is not None and index.high < 0
        place = self.length + index if is_from_end else index
        known = place - self._start
        if isinstance(known, int) and 0 <= known < len(self._new):
            return self._new[known]
        assert self._kind is not None
        return _element(fresh(self._value, is_scalar=False), self._kind, place, self.length)

    def __iter__(self) -> Any:
        raise CannotRollError(f"it goes through {self.name}, a list that grows")

    def settled(self, ends: Sequence[Any]) -> tuple[Carry, Rows]:
        """Its part of the state, and the rows that it gets. `ends`: what variables are bound to behind the body.

        Raises WrongCountError, and CannotRollError for arrays that something else sees.
        """
        if len(self._new) != self._each:
            raise WrongCountError(self.name, len(self._new))
        held = {end.cell.storage for end in ends if _is_array(end)}
        if any(storage.version != version or storage in held for storage, version in self._versions):
            raise CannotRollError(f"{self.name} gets arrays that something else sees")
        rows = Rows()

        def done(value: Value) -> None:
            rows.value = value

        return Carry(self._initial, self._given, self._value, done), rows

    def extend(self, rows: Rows) -> None:
        """Have the list get the rows that iterations appended."""
        for number, item in enumerate(self.items):
            if isinstance(item, TracerArray) and not isinstance(item, Number):
                rows.is_at(number, item)
        first = len(self.items)
        for number in range(self._each * self._trips):
            row = row_of(rows, first + number, self._new[number % self._each])
            if _is_array(row):
                row.cell.storage.make_read_only(_READ_ONLY)
            self.items.append(row)

    def _initial(self) -> Value:
        dtype = self._type.dtype.numpy
        held = call(np.stack, [fresh(value_of(item, dtype), is_scalar=False) for item in self.items])
        rest = self._type.shape[0] - len(self.items)
        return call(np.concatenate, [held, call(np.zeros, (rest, *self._type.shape[1:]), dtype)]).value


class WrongCountError(BaseException):
    """An iteration appends another number of elements than was supposed."""

    def __init__(self, name: str, count: int) -> None:
        super().__init__()
        self.name, self.count = name, count


class _Kind:
    """What an element is."""

    __slots__ = ("is_scalar", "is_weak", "type")

    def __init__(self, type_: TensorType, is_scalar: bool, is_weak: bool) -> None:
        self.type, self.is_scalar, self.is_weak = type_, is_scalar, is_weak

    def __eq__(self, other: object) -> bool:
        mine = (self.type, self.is_scalar, self.is_weak)
        return isinstance(other, _Kind) and (other.type, other.is_scalar, other.is_weak) == mine

    def __hash__(self) -> int:
        return hash((self.type, self.is_scalar, self.is_weak))


def _kind_of(value: Any) -> _Kind | None:
    """None for what is no number of Python's and no array."""
    if python_class(value) is int:
        return _INT
    if type(value) is float or (isinstance(value, Number) and value.python is float):
        return _FLOAT
    if isinstance(value, TracerArray) and not isinstance(value, Number):
        return _Kind(value.cell.type, value.is_scalar, is_weak=False)
    return None


def _is_array(value: Any) -> bool:
    return isinstance(value, TracerArray) and not value.is_scalar


_FLOAT = _Kind(TensorType((), dtypes.F64), is_scalar=True, is_weak=True)
_INT = _Kind(TensorType((), dtypes.I64), is_scalar=True, is_weak=True)


def is_common(items: Sequence[Any]) -> bool:
    """Whether the elements of a list or tuple are numbers or arrays of one kind."""
    if not items:
        return False
    if python_class(items[0]) in (int, bool):
        return len({python_class(item) for item in items}) == 1
    kind = _kind_of(items[0])
    return kind is not None and all(_kind_of(item) == kind for item in items)


def element_of(items: Sequence[Any], index: Number) -> Any:
    """An element of a list or tuple at a place that moves. Raises CannotRollError for elements of several kinds."""
    if items and all(python_class(item) is int for item in items):
        rows = rows_of(items)
        array = None if rows is None else rows.array()
        if array is None:
            array = _stacked(items, _I64)
        ends = [(plain(item).low, plain(item).high) for item in items]
        lows, highs = [low for low, _ in ends if low is not None], [high for _, high in ends if high is not None]
        known = (min(lows), max(highs)) if len(lows) == len(highs) == len(items) else (None, None)
        by_data = index.by_data or any(plain(item).by_data for item in items)
        return Number({Atom(array[index].value, *known, growth=larger(*items), by_data=by_data): 1})
    if items and all(python_class(item) is bool for item in items):
        bools = [fresh(value_of(item, np.dtype(np.bool_)), is_scalar=False) for item in items]
        return truth_of(call(np.stack, bools)[index])
    kinds = {_kind_of(item) for item in items}
    kind = next(iter(kinds - {_FLOAT}), _FLOAT) if items else None
    if kind is None or not kinds <= {kind, _FLOAT} or (kind != _FLOAT and _FLOAT in kinds and kind.type != _FLOAT.type):
        raise CannotRollError("its list has elements of several kinds")
    rows, dtype = rows_of(items), kind.type.dtype.numpy
    array = None if rows is None else rows.array()
    if array is None:
        array = _stacked(items, dtype)
    return _as_element(array[index], kind)


def _stacked(items: Sequence[Any], dtype: np.dtype[Any]) -> TracerArray:
    if all(isinstance(item, int | float) for item in items):
        return call(np.array, np.array(items, dtype))
    return call(np.stack, [fresh(value_of(item, dtype), is_scalar=False) for item in items])


def _element(array: TracerArray, kind: _Kind, place: Any, length: Any) -> Any:
    high = place if isinstance(place, int) else place.high
    if high is not None and high < 0:
        place = place + length
    if not (not_below(place, 0) and not_below(length - 1, place)):
        raise CannotRollError("its index may be out of bounds", first=True, last=True)
    return _as_element(array[place], kind)


def _as_element(found: TracerArray, kind: _Kind) -> Any:
    if kind == _FLOAT:
        return floating(found.value)
    if kind == _INT:
        return Number({Atom(found.value, None, None): 1})
    if not found.is_scalar:
        found = fresh(found.value, is_scalar=False)
        found.cell.storage.make_read_only(_READ_ONLY)
    return found


def growing_of(
    frame: Frame, names: Sequence[str], counts: Mapping[str, int], region: Region, counter: Atom, trips: int
) -> dict[str, Growing]:
    """The lists of variables that grow, where nothing but the variable holds them. `counts`: elements an iteration."""
    around = innermost_fork()
    found: dict[str, Growing] = {}
    for name in names:
        cell = frame.cell(name)
        items = frame.get([name])[name]
        if cell is None or type(items) is not list or (around is not None and id(items) not in around.objects):
            continue
        others = 1 + int(around is not None)  # the name here, and what the region knows of
        if references(cell) == usual_references() + others:
            found[name] = Growing(name, items, region, counter, counts.get(name, 1), trips)
    return found


def references(cell: CellType) -> int:
    """How many hold what a variable holds."""
    return sys.getrefcount(cell.cell_contents)


@functools.cache
def usual_references() -> int:
    """How many hold a list that only a variable does."""
    return references(CellType([]))
