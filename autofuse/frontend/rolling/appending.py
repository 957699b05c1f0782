"""Lists that a loop's iterations append to: what they append is stacked, and the list gets the rows of that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autofuse.frontend.cells import Storage
from autofuse.frontend.forks import CannotRollError
from autofuse.frontend.regions import Region
from autofuse.frontend.rolling.carried import Carry, zeros
from autofuse.frontend.rolling.frames import Frame
from autofuse.frontend.rolling.numbers import Atom, Number, floating
from autofuse.frontend.tracecontext import current, innermost_fork
from autofuse.frontend.tracer import TracerArray, fresh
from autofuse.ir.graph import Value
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass

_I64 = np.dtype(np.int64)


def private_lists(frame: Frame, names: Sequence[str]) -> dict[int, int]:
    """The lists that variables are bound to and that may grow here: by identity, how many others hold each."""
    around = innermost_fork()
    lists = [value for value in frame.get(names).values() if type(value) is list]
    return {id(one): int(around is not None) for one in lists if around is None or id(one) in around.objects}


class Appended:
    """What the iterations of a loop append, as parts of its state: arrays that each writes a row of."""

    def __init__(self, appended: Sequence[tuple[list[Any], Any]], region: Region, counter: Atom, trips: Any) -> None:
        """`trips`: how many iterations; an `int` where something is appended."""
        self._appended, self._trips = appended, trips
        self.carries: list[Carry] = []
        self._rows: dict[int, _Rows] = {}
        for number, (_, value) in enumerate(appended):
            if isinstance(value, TracerArray):
                self._rows[number] = rows = _Rows()
                self.carries.append(_carry(value, rows, region, counter, trips))
            elif not isinstance(value, bool | int | float | complex | str | np.generic) and value is not None:
                raise CannotRollError(f"it appends a {type(value).__name__} to a list")

    def append(self) -> None:
        """Have the lists grow by what all iterations append."""
        for trip in range(self._trips) if self._appended else ():
            for number, (receiver, value) in enumerate(self._appended):
                rows = self._rows.get(number)
                receiver.append(value if rows is None else _row(rows, trip, value))


@dataclass(slots=True, eq=False)
class _Rows:
    """What iterations appended, stacked."""

    value: Value | None = None


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
    return TracerArray(cell, is_scalar=like.is_scalar)


def rows_in_turn(items: Sequence[Any]) -> TracerArray | None:
    """The stack that items are the rows of, all of them and in turn; None if they are not."""
    cells = [item.cell if isinstance(item, TracerArray) else None for item in items]
    first = cells[0] if cells else None
    if not isinstance(first, _RowCell) or first.rows.value is None or first.rows.value.type.shape[0] != len(items):
        return None
    for number, cell in enumerate(cells):
        if not (isinstance(cell, _RowCell) and cell.rows is first.rows and cell.number == number and cell.is_row):
            return None
    return fresh(first.rows.value, is_scalar=False)
