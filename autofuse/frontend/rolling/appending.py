"""Lists that a loop's iterations append to: what they append is stacked, and the list gets the rows of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autofuse.frontend.cells import Cell, Storage
from autofuse.frontend.forks import CannotRollError
from autofuse.frontend.regions import Region
from autofuse.frontend.rolling.carried import Carry, left_as, zeros
from autofuse.frontend.rolling.frames import Frame
from autofuse.frontend.rolling.numbers import Atom, Number, floating
from autofuse.frontend.tracecontext import current, innermost_fork
from autofuse.frontend.tracer import TracerArray, fresh
from autofuse.ir.graph import Value
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass, field

_I64 = np.dtype(np.int64)


def private_lists(frame: Frame, names: Sequence[str]) -> dict[int, int]:
    """The lists that variables are bound to and that may grow here: by identity, how many others hold each."""
    around = innermost_fork()
    lists = [value for value in frame.get(names).values() if type(value) is list]
    return {id(one): int(around is not None) for one in lists if around is None or id(one) in around.objects}


class Appended:
    """What the iterations of a loop append, as parts of its state: arrays that each writes a row of."""

    def __init__(
        self, appended: Sequence[tuple[list[Any], Any]], living: Living, region: Region, counter: Atom, trips: Any
    ) -> None:
        """`living`: the loop's variables. `trips`: how many iterations; an `int` where something is appended.

        Raises CannotRollError for what is no array, and for memory that something else sees too.
        """
        self._appended, self._trips = appended, trips
        self._living = living
        self.carries: list[Carry] = []
        self._rows: dict[int, _Rows] = {}
        self._made: dict[tuple[int, int], Any] = {}
        arrays = [end for end in living.ends.values() if isinstance(end, TracerArray) and not end.is_scalar]
        seen: dict[Storage, Any] = {end.cell.storage: end for end in arrays}
        for _, value in appended:
            if not isinstance(value, TracerArray):
                if not isinstance(value, bool | int | float | complex | str | np.generic) and value is not None:
                    raise CannotRollError(f"it appends a {type(value).__name__} to a list")
            elif value.is_scalar or _is_own(value, region, seen):
                self._stack(value, region, counter)

    def _stack(self, value: TracerArray, region: Region, counter: Atom) -> None:
        if id(value) not in self._rows:
            self._rows[id(value)] = rows = _Rows()
            self.carries.append(_carry(value, rows, region, counter, self._trips))

    def append(self, bound: Mapping[int, Any]) -> None:
        """Have the lists grow by what all iterations append.

        `bound`: what variables are bound to behind the loop, by the identity of what the body left them bound to.
        """
        for trip in range(self._trips) if self._appended else ():
            for receiver, value in self._appended:
                rows = self._rows.get(id(value))
                receiver.append(value if rows is None else self._object(value, rows, trip, bound))

    def _object(self, value: TracerArray, rows: _Rows, trip: int, bound: Mapping[int, Any]) -> Any:
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
            self._made[id(made), at] = _row(rows, trip, value)
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

    stand_ins: Mapping[int, str]
    """Those that an iteration reads, by the identity of the array that stood for them."""
    initial: Mapping[str, Any]
    """What they are bound to before the loop."""
    ends: Mapping[str, Any]
    """What an iteration leaves those bound to that it reads, or that are read behind the loop."""


@dataclass(slots=True, eq=False)
class _Rows:
    """What iterations appended, stacked."""

    value: Value | None = None
    others: dict[int, tuple[Cell, int]] = field(default_factory=dict[int, tuple[Cell, int]])
    """Rows that are other arrays, too, and what version of those: equal until these are written."""

    def is_at(self, number: int, array: TracerArray) -> TracerArray:
        """Note the array that a row is, and return it."""
        self.others[number] = (array.cell, array.cell.storage.version)
        return array

    def has(self, number: int, cell: Cell) -> bool:
        """Whether this is the row."""
        if isinstance(cell, _RowCell):
            return cell.rows is self and cell.number == number and cell.is_row
        return self.others.get(number) == (cell, cell.storage.version)


def _carry(value: TracerArray, rows: _Rows, region: Region, counter: Atom, trips: int) -> Carry:
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

    def __init__(self, rows: _Rows, number: int, type_: TensorType) -> None:
        super().__init__(type_, None)
        self.rows, self.number = rows, number

    @property
    def is_row(self) -> bool:
        """Whether nobody has written into it."""
        return self.contents().value is None

    def read(self) -> Value:
        if not self.is_row:
            return super().read()
        stack = self.rows.value
        assert stack is not None
        zeros_, shape = (0,) * self.type.rank, self.type.shape
        taken = current().emit(
            "slice",
            (stack,),
            start_indices=(self.number, *zeros_),
            limit_indices=(self.number + 1, *shape),
            strides=(1,) * stack.type.rank,
        )
        return current().emit("reshape", (taken,), shape=shape)


def _row(rows: _Rows, number: int, like: TracerArray) -> Any:
    cell = _RowCell(rows, number, like.cell.type)
    if isinstance(like, Number):
        return floating(cell.read()) if like.python is float else Number({Atom(cell.read(), like.low, like.high): 1})
    return left_as(TracerArray(cell, is_scalar=like.is_scalar), like)


def rows_in_turn(items: Sequence[Any]) -> TracerArray | None:
    """The stack that items are the rows of, all of them and in turn; None if they are not."""
    cells = [item.cell for item in items if isinstance(item, TracerArray)]
    rows = next((cell.rows for cell in cells if isinstance(cell, _RowCell)), None)
    if rows is None or rows.value is None or not len(items) == len(cells) == rows.value.type.shape[0]:
        return None
    if not all(rows.has(number, cell) for number, cell in enumerate(cells)):
        return None
    return fresh(rows.value, is_scalar=False)
