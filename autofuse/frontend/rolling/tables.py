"""Lists of numbers, and lists of such lists, whose elements a loop sets at places that move: `d[i][j] = d[i - 1][j]`.

While the loop is traced an array stands in place of the list. Nothing but its variable may hold the list, and nothing
but the list its rows. Behind the loop the list has the array's elements.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

import numpy as np

from autofuse.frontend.dispatch import call
from autofuse.frontend.forks import CannotRollError
from autofuse.frontend.promotion import convert, value_of
from autofuse.frontend.rolling.appending import Rows, RowsOfRow, gathered, row_of, rows_of_lists
from autofuse.frontend.rolling.frames import Frame
from autofuse.frontend.rolling.growing import references, usual_references
from autofuse.frontend.rolling.numbers import Number, Truth, floating, is_integer_of_the_run, truth_of, whole_number
from autofuse.frontend.tracecontext import innermost_fork
from autofuse.frontend.tracer import TracerArray, fresh
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass

Kind: TypeAlias = Literal["bool", "int", "float", "scalar"]
"""What elements are: Python's bools, integers or floats, or NumPy's scalars of 64 bits."""
DTYPES: dict[Kind, np.dtype[Any]] = {
    "bool": np.dtype(np.bool_),
    "int": np.dtype(np.int64),
    "float": np.dtype(np.float64),
    "scalar": np.dtype(np.float64),
}
"""What arrays of them have."""
_WIDER: tuple[Kind, ...] = ("int", "float", "scalar")
_MOST = 1 << 22
"""Elements of a list that is taken for an array."""


class KindError(BaseException):
    """Elements of a list are of a wider kind than was supposed."""

    def __init__(self, name: str, kind: Kind) -> None:
        super().__init__()
        self.name = name
        self.kind: Kind = kind


class Table:
    """A list, or a row of one, whose elements an array has."""

    def __init__(self, name: str, array: TracerArray, kind: Kind) -> None:
        self.name, self.array = name, array
        self.kind: Kind = kind

    @property
    def length(self) -> int:
        """As `len`."""
        return self.array.shape[0]

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        return (self[k] for k in range(self.length))

    def __getitem__(self, index: Any) -> Any:
        found = self.array[_place(index)]
        if self.array.ndim > 1:
            return Table(self.name, found, self.kind)
        if self.kind == "float":
            return floating(found.value)
        if self.kind == "bool":
            return truth_of(found)
        return found if self.kind == "scalar" else whole_number(found)

    def __setitem__(self, index: Any, value: Any) -> None:
        kind = _kind_of(value)
        if self.array.ndim > 1 or kind is None or (kind == "bool") != (self.kind == "bool"):
            raise CannotRollError(f"{self.name} is a list of numbers that gets something else")
        if self.kind != "bool" and _WIDER.index(kind) > _WIDER.index(self.kind):
            raise KindError(self.name, kind)
        dtype = DTYPES[self.kind]
        self.array[_place(index)] = fresh(value_of(value, dtype))


def _place(index: Any) -> Any:
    if isinstance(index, int | Number) or is_integer_of_the_run(index):
        return index
    raise CannotRollError("it takes more than an element of a list whose elements it sets")


def _kind_of(value: Any) -> Kind | None:
    if isinstance(value, bool | Truth):
        return "bool"
    if isinstance(value, int | float):
        return "int" if isinstance(value, int) else "float"
    if isinstance(value, Number):
        return "int" if value.python is int else "float"
    is_scalar = isinstance(value, TracerArray) and value.is_scalar
    return "scalar" if is_scalar and value.dtype == np.float64 else None


@contextmanager
def tabled(frame: Frame, names: Sequence[str], kinds: dict[str, Kind]) -> Generator[None]:
    """Around the trace of a loop: arrays in place of the lists of variables. `kinds`: of those known to be wider."""
    held = {name: _held(frame, name) for name in names}
    found = {name: _made(name, items, kinds) for name, items in held.items() if items is not None}
    tables = {name: made for name, made in found.items() if made is not None}
    frame.set({name: made.table for name, made in tables.items()})
    try:
        yield
    finally:
        frame.set({name: made.items for name, made in tables.items()})
    for made in tables.values():
        made.give_back()


@dataclass(slots=True, eq=False)
class _Made:
    """A list and its table."""

    items: list[Any]
    table: Table

    def give_back(self) -> None:
        """Have the list get the array's elements."""
        found = listed(self.table.array, self.table.kind)
        if self.table.array.ndim == 1:
            self.items[:] = found
            return
        for row, elements in zip(self.items, found, strict=True):
            row[:] = elements


def listed(array: TracerArray, kind: Kind) -> list[Any]:
    """An array as a list of its elements; of such lists, where it has several axes."""
    dtype = DTYPES[kind]
    like: dict[Kind, Callable[[], Any]] = {
        "bool": lambda: truth_of(fresh(value_of(False, dtype))),
        "int": lambda: whole_number(fresh(value_of(0, dtype))),
        "float": lambda: floating(value_of(0.0, dtype)),
        "scalar": lambda: fresh(value_of(0.0, dtype)),
    }
    rows = Rows()
    rows.value = convert(array.value, dtype)
    return _rows_listed(rows, array.shape, like[kind]())


def _rows_listed(rows: Rows, shape: tuple[int, ...], one: Any) -> list[Any]:
    if len(shape) == 1:
        return [row_of(rows, number, one) for number in range(shape[0])]
    type_ = TensorType(shape[1:], one.cell.type.dtype)
    return [_rows_listed(RowsOfRow(rows, number, type_), shape[1:], one) for number in range(shape[0])]


def _made(name: str, items: list[Any], kinds: dict[str, Kind]) -> _Made | None:
    kind = common_kind(items, kinds.get(name, "int"))
    return (
        None if kind is None else _Made(items, Table(name, fresh(array_of(items, kind).value, is_scalar=False), kind))
    )


def common_kind(items: Sequence[Any], least: Kind = "int") -> Kind | None:
    """What the elements of a list, or of lists of one length, are; at least as wide as `least`. None if they differ."""
    nested = any(isinstance(row, list) for row in items)
    if nested and (not all(type(row) is list for row in items) or len({len(row) for row in items}) != 1):
        return None
    leaves = [leaf for row in items for leaf in row] if nested else items
    found = {_kind_of(leaf) for leaf in leaves}
    if None in found or not 0 < len(leaves) <= _MOST or ("bool" in found and len(found) > 1):
        return None
    if "bool" in found:
        return "bool"
    return _WIDER[max(_WIDER.index(kind) for kind in (*found, "int" if least == "bool" else least) if kind is not None)]


def array_of(items: Sequence[Any], kind: Kind) -> TracerArray:
    """The elements of a list, or of lists of one length, that are of a kind at most."""
    if isinstance(items[0], list):
        if all(isinstance(leaf, int | float) for row in items for leaf in row):
            return call(np.array, np.array(items, DTYPES[kind]))
        rows = rows_of_lists(items)
        return _converted(_stacked_rows(items, kind) if rows is None else rows.array(), kind)
    if all(isinstance(leaf, int | float) for leaf in items):
        return call(np.array, np.array(items, DTYPES[kind]))
    found = gathered(items, lambda part: _stacked(part, kind))
    return _converted(_stacked(items, kind) if found is None else found, kind)


def with_kind(items: Sequence[Any], kind: Kind) -> Any:
    """A list or deque with its numbers as those of a kind that is as wide; of lists, lists."""
    found = [with_kind(item, kind) if isinstance(item, list) else _as_kind(item, kind) for item in items]
    return deque(found, items.maxlen) if isinstance(items, deque) else found


def _as_kind(item: Any, kind: Kind) -> Any:
    if _kind_of(item) == kind:
        return item
    if kind == "float" and isinstance(item, int):
        return float(item)
    value = value_of(item, DTYPES[kind])
    return floating(value) if kind == "float" else fresh(value)


def _converted(array: TracerArray | None, kind: Kind) -> TracerArray:
    assert array is not None
    return array if array.dtype == DTYPES[kind] else fresh(convert(array.value, DTYPES[kind]), is_scalar=False)


def _stacked(items: Sequence[Any], kind: Kind) -> TracerArray:
    return call(np.stack, [fresh(value_of(item, DTYPES[kind]), is_scalar=False) for item in items])


def _stacked_rows(rows: Sequence[Any], kind: Kind) -> TracerArray:
    return call(np.stack, [array_of(row, kind) for row in rows])


def _held(frame: Frame, name: str) -> list[Any] | None:
    """The list that a variable holds, if nothing else holds it or a row of it."""
    around, cell = innermost_fork(), frame.cell(name)
    items = frame.get([name])[name]
    if cell is None or type(items) is not list or not items:
        return None

    def noted(one: Any) -> int:
        return int(around is not None and id(one) in around.objects)

    if (around is not None and not noted(items)) or references(cell) != usual_references() + 1 + noted(items):
        return None
    if not any(isinstance(row, list) for row in items):
        return items
    if not all(type(row) is list for row in items):
        return None
    usual = _row_references([[]], 0)
    alone = all(_row_references(items, k) == usual + noted(items[k]) for k in range(len(items)))
    return items if alone else None


def _row_references(items: list[Any], number: int) -> int:
    return sys.getrefcount(items[number])
