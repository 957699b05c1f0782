"""Lists that a loop's iterations append to: what they append is stacked, and the list gets the rows of that."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import numpy as np

from autofuse.frontend.cells import Cell, Storage
from autofuse.frontend.dispatch import call
from autofuse.frontend.forks import CannotRollError, Fork
from autofuse.frontend.regions import Region
from autofuse.frontend.rolling.carried import Carry, Name, left_as, zeros
from autofuse.frontend.rolling.frames import Frame
from autofuse.frontend.rolling.numbers import Atom, Number, Truth, truth_of
from autofuse.frontend.tracecontext import current, innermost_fork
from autofuse.frontend.tracer import TracerArray, fresh
from autofuse.ir.graph import Value
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass

_I64 = np.dtype(np.int64)
_MANY = 4
"""Rows from which on a list of them is taken for the array that they are."""


def private_lists(frame: Frame, names: Sequence[str]) -> dict[int, int]:
    """The lists that variables are bound to and that may grow here: by identity, how many others hold each."""
    around = innermost_fork()
    lists = [value for value in frame.get(names).values() if type(value) is list]
    return {id(one): int(around is not None) for one in lists if around is None or id(one) in around.objects}


class Growing:
    """The lists that the sides of a branch may append to."""

    def __init__(self, lists: Mapping[int, int], around: Fork | None) -> None:
        self._lists, self._around = lists, around

    def held(self, sides: Sequence[Fork]) -> dict[int, int]:
        """How many hold each list beside its variable. `sides`: those that were traced before."""
        forks = [*sides, *([] if self._around is None else [self._around])]
        noted = [id(receiver) for fork in forks for receiver, _ in fork.appended]
        return {one: count + noted.count(one) for one, count in self._lists.items()}

    def append(self, around: Fork | None, receiver: list[Any], value: Any) -> None:
        """Append what both sides did."""
        if around is not None and id(receiver) in around.lists:
            around.appended.append((receiver, value))
        else:
            receiver.append(value)


def growing_lists(frame: Frame, names: Sequence[str]) -> Growing:
    """Those that variables are bound to and that may grow in the region under way."""
    around = innermost_fork()
    lists = private_lists(frame, names)
    if around is not None:
        mine = {id(value) for value in frame.get(names).values()}
        lists |= {one: count for one, count in around.lists.items() if one in mine}
    return Growing(lists, around)


class Appended:
    """What the iterations of a loop append, as parts of its state: arrays that each writes a row of."""

    def __init__(
        self,
        appended: Sequence[tuple[list[Any], Any]],
        living: Living,
        region: Region,
        counter: Atom,
        trips: Any,
        made: Container[int],
    ) -> None:
        """`living`: the loop's variables. `trips`: how many iterations; an `int` where something is appended.

        `made`: the containers that an iteration makes, by identity.

        Raises CannotRollError for what is no array, and for memory that something else sees too.
        """
        self._appended, self._trips = appended, trips
        self._living, self._made_inside = living, made
        self.carries: list[Carry] = []
        self._rows: dict[int, Rows] = {}
        self._made: dict[tuple[int, int], Any] = {}
        self._whole: dict[int, TracerArray] = {}
        """Lists that are all rows of an array in turn, and that array."""
        arrays = [end for end in living.ends.values() if isinstance(end, TracerArray) and not end.is_scalar]
        seen: dict[Storage, Any] = {end.cell.storage: end for end in arrays}
        for _, value in appended:
            self._take(value, region, counter, seen)

    def _take(self, value: Any, region: Region, counter: Atom, seen: dict[Storage, Any]) -> None:
        """Have a value stacked that an iteration appends, or what a tuple or list holds."""
        if isinstance(value, TracerArray):
            if value.absent is not None:
                raise CannotRollError("it appends a number to a list that may be None, as data decide")
            if value.is_scalar or _is_own(value, region, seen):
                self._stack(value, region, counter)
        elif isinstance(value, tuple) or (type(value) is list and id(value) in self._made_inside):
            items: Sequence[Any] = value
            with region.entered():
                whole = rows_of(items) if type(value) is list else None
                array = None if whole is None or len(items) < _MANY else whole.array()
            if array is not None:
                for item in items:
                    _ = item.is_scalar or _is_own(item, region, seen)
                self._whole[id(value)] = array
                self._stack(array, region, counter)
                return
            for item in items:
                self._take(item, region, counter, seen)
        elif not isinstance(value, bool | int | float | complex | str | np.generic) and value is not None:
            raise CannotRollError(f"it appends a {type(value).__name__} to a list")

    def _stack(self, value: TracerArray, region: Region, counter: Atom) -> None:
        if id(value) not in self._rows:
            self._rows[id(value)] = rows = Rows()
            self.carries.append(_carry(value, rows, region, counter, self._trips))

    def append(self, bound: Mapping[int, Any]) -> None:
        """Have the lists grow by what all iterations append.

        `bound`: what variables are bound to behind the loop, by the identity of what the body left them bound to.
        """
        for trip in range(self._trips) if self._appended else ():
            for receiver, value in self._appended:
                receiver.append(self._of_trip(value, trip, bound))

    def _of_trip(self, value: Any, trip: int, bound: Mapping[int, Any]) -> Any:
        if isinstance(value, TracerArray):
            rows = self._rows.get(id(value))
            return value if rows is None else self._object(value, rows, trip, bound)
        if not isinstance(value, tuple | list):
            return value
        if (id(value), trip) not in self._made:
            self._made[id(value), trip] = self._container(value, trip, bound)
        return self._made[id(value), trip]

    def _container(self, value: Any, trip: int, bound: Mapping[int, Any]) -> Any:
        whole = self._whole.get(id(value))
        if whole is not None:
            inner = RowsOfRow(self._rows[id(whole)], trip, whole.cell.type)
            return [row_of(inner, number, item) for number, item in enumerate(value)]
        items: list[Any] = [self._of_trip(item, trip, bound) for item in value]
        if type(value) is list:
            return items
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)

    def _object(self, value: TracerArray, rows: Rows, trip: int, bound: Mapping[int, Any]) -> Any:
        """What an iteration appends: one object, by whatever names iterations knew it."""
        made: Any = value
        at = trip
        while not value.is_scalar and (name := self._living.stand_ins.get(id(made))) is not None:
            before, made = made, self._living.ends[name]
            if not at or made is before:
                return rows.is_at(trip, self._living.initial[name])
            at -= 1
        if not value.is_scalar and at == self._trips - 1 and id(made) in bound:
            return rows.is_at(trip, bound[id(made)])
        if (id(made), at) not in self._made:
            self._made[id(made), at] = row_of(rows, trip, value)
        return self._made[id(made), at]


def _is_own(value: TracerArray, region: Region, seen: dict[Storage, Any]) -> bool:
    """Whether each iteration makes this array; else it is the same one in all of them. `seen`: who has which memory."""
    storage = value.cell.storage
    if not region.owns(value):
        if value.cell is not storage:
            raise CannotRollError("it appends a view of an array from before to a list")
        return False
    if seen.setdefault(storage, value) is not value:
        raise CannotRollError("it appends an array to a list that shares memory with another one")
    return True


@dataclass(slots=True, eq=False)
class Living:
    """The variables of a loop that live on."""

    stand_ins: Mapping[int, Name]
    """Those that an iteration reads, by the identity of the array that stood for them."""
    initial: Mapping[Name, Any]
    """What they are bound to before the loop."""
    ends: Mapping[Name, Any]
    """What an iteration leaves those bound to that it reads, or that are read behind the loop."""


class Rows:
    """What iterations appended, stacked."""

    def __init__(self) -> None:
        self.value: Value | None = None
        self.others: dict[int, tuple[Cell, int]] = {}
        """Rows that are other arrays, too, and what version of those: equal until these are written."""

    def read(self) -> Value | None:
        """The stack; None as long as the loop is not traced."""
        return self.value

    @property
    def count(self) -> int:
        """How many there are."""
        return 0 if self.value is None else self.value.type.shape[0]

    def array(self) -> TracerArray | None:
        """The stack as an array."""
        value = self.read()
        return None if value is None else fresh(value, is_scalar=False)

    def is_at(self, number: int, array: TracerArray) -> TracerArray:
        """Note the array that a row is, and return it."""
        self.others[number] = (array.cell, array.cell.storage.version)
        return array

    def has(self, number: int, cell: Cell) -> bool:
        """Whether this is the row."""
        if isinstance(cell, _RowCell):
            return cell.rows is self and cell.number == number and cell.is_row
        return self.others.get(number) == (cell, cell.storage.version)


class RowsOfRow(Rows):
    """The rows of a row of another stack, read when one of them is."""

    def __init__(self, outer: Rows, number: int, type_: TensorType) -> None:
        super().__init__()
        self.outer, self.number = outer, number
        self._type = type_

    @property
    def count(self) -> int:
        return self._type.shape[0]

    def read(self) -> Value | None:
        return _taken(self.outer, self.number, self._type)


def _carry(value: TracerArray, rows: Rows, region: Region, counter: Atom, trips: int) -> Carry:
    """A part of the state whose row at the counter is `value`."""
    with region.entered():
        content = value.as_dtype(value.dtype) if isinstance(value, Number) else value.value
        stacked = TensorType((trips, *content.type.shape), content.type.dtype)
        given = region.input(stacked)
        row = current().emit("reshape", (content,), shape=(1, *content.type.shape))
        first = [current().scalar(0, _I64)] * len(content.type.shape)
        following = current().emit("dynamic_update_slice", (given, row, counter.value, *first))

    def done(result: Value) -> None:
        rows.value = result

    return Carry(lambda: zeros(stacked), given, following, done)


class _RowCell(Storage):
    """One row of a stack; emitted when it is read. Whoever writes into it has it first."""

    def __init__(self, rows: Rows, number: int, type_: TensorType) -> None:
        super().__init__(type_, None)
        self.rows, self.number = rows, number

    @property
    def is_row(self) -> bool:
        """Whether nobody has written into it."""
        return self.contents().value is None

    def read(self) -> Value:
        if not self.is_row:
            return super().read()
        return _taken(self.rows, self.number, self.type)


def _taken(rows: Rows, number: int, type_: TensorType) -> Value:
    """One row of a stack."""
    stack = rows.read()
    assert stack is not None
    zeros_, shape = (0,) * type_.rank, type_.shape
    taken = current().emit(
        "slice",
        (stack,),
        start_indices=(number, *zeros_),
        limit_indices=(number + 1, *shape),
        strides=(1,) * stack.type.rank,
    )
    return current().emit("reshape", (taken,), shape=shape)


def row_of(rows: Rows, number: int, like: Any) -> Any:
    """One row of a stack: an array, or a number as `like` is, which an iteration left."""
    cell = _RowCell(rows, number, like.cell.type)
    if isinstance(like, Number):
        if like.python is int:
            made = Number({Atom(cell.read(), like.low, like.high, by_data=like.by_data): 1})
        else:
            made = Number(None, source=cell.read)
            made.of_data = True
        made.cell = cell  # so that an array of all of them is known for the stack
        return made
    if isinstance(like, Truth):
        return truth_of(fresh(cell.read()))
    return left_as(TracerArray(cell, is_scalar=like.is_scalar), like)


def gathered(items: Sequence[Any], as_array: Callable[[Sequence[Any]], TracerArray]) -> TracerArray | None:
    """The array of items of which many are rows of an array in turn; None if they are not.

    Items may be lists or tuples: of rows of rows, or of rows of several arrays. `as_array`: makes an array of others.
    """
    rows = rows_of(items) or rows_of_lists(items)
    if rows is not None:
        return rows.array()
    lengths = {len(item) if isinstance(item, list | tuple) else -1 for item in items}
    if len(items) >= _MANY and len(lengths) == 1 and min(lengths) > 0:
        columns = [gathered(column, as_array) for column in zip(*items, strict=True)]
        held = [column for column in columns if column is not None]
        return call(np.stack, held, axis=1) if len(held) == len(columns) else None
    parts = _runs(items)
    if len(parts) * _MANY > len(items) or not any(isinstance(part, _Run) for part in parts):
        return None
    return call(np.concatenate, [part.array() if isinstance(part, _Run) else as_array(part) for part in parts])


@dataclass(slots=True, eq=False)
class _Run:
    """Rows that follow one another."""

    rows: Rows
    start: int
    stop: int

    def array(self) -> TracerArray:
        """As an array."""
        whole = self.rows.array()
        assert whole is not None
        return whole[self.start : self.stop]


def _runs(items: Sequence[Any]) -> list[_Run | list[Any]]:
    """Items as runs of rows, and others."""
    parts: list[_Run | list[Any]] = []
    for item in items:
        last = parts[-1] if parts else None
        cell = item.cell if isinstance(item, TracerArray) else None
        if isinstance(last, _Run) and cell is not None and last.rows.has(last.stop, cell):
            last.stop += 1
        elif isinstance(cell, _RowCell) and cell.is_row and cell.rows.read() is not None:
            parts.append(_Run(cell.rows, cell.number, cell.number + 1))
        elif isinstance(last, list):
            last.append(item)
        else:
            parts.append([item])
    return parts


def rows_of(items: Sequence[Any]) -> Rows | None:
    """The stack that items are the rows of."""
    cells = [item.cell for item in items if isinstance(item, TracerArray)]
    rows = next((cell.rows for cell in cells if isinstance(cell, _RowCell)), None)
    if rows is None or not len(items) == len(cells) == rows.count:
        return None
    return rows if all(rows.has(number, cell) for number, cell in enumerate(cells)) else None


def rows_of_lists(items: Sequence[Any]) -> Rows | None:
    """The stack whose rows' rows are held by lists."""
    inner: list[Rows | None] = [rows_of(item) if isinstance(item, list | tuple) else None for item in items]
    held = [rows for rows in inner if isinstance(rows, RowsOfRow)]
    if not held or len(held) < len(items) or held[0].outer.count != len(items):
        return None
    in_turn = all(rows.outer is held[0].outer and rows.number == number for number, rows in enumerate(held))
    return held[0].outer if in_turn else None
