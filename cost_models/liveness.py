"""How many scalars of a straight line of statements are alive at a time: what must lie in registers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from autofuse.lower.statements import (
    EFFECTS,
    ArgReduce,
    Constant,
    Leave,
    Load,
    Map,
    Next,
    Reduce,
    Repeat,
    Scan,
    Statement,
    Store,
)

_NOT_HELD = EFFECTS | {Constant, Reduce, ArgReduce}
"""Statements whose results, if they have one, take no register from here on."""


class StraightLine:
    """Statements one after another: what each reads and makes."""

    __slots__ = ("body", "last", "made", "reads")

    def __init__(self, body: Sequence[Statement]) -> None:
        told = cast("Sequence[Any]", body)
        self.body = body
        self.reads = [operands_of(statement) for statement in body]
        self.made = [-1 if type(statement) in _NOT_HELD else statement.result for statement in told]
        """The scalar that takes a register from there on; -1 for none."""
        self.last = {number: at for at, numbers in enumerate(self.reads) for number in numbers}
        """Where each scalar is read for the last time."""

    def most_live(self) -> int:
        """The most scalars alive at a time."""
        last, held, most = self.last, 0, 0
        ends = [0] * len(self.body)
        for at, number in enumerate(self.made):
            if number in last and last[number] >= at:
                ends[last[number]] += 1
        for number, end in zip(self.made, ends, strict=True):
            held += number in last
            if held > most:
                most = held
            held -= end
        return most


def most_live(body: Sequence[Statement]) -> int:
    """The most scalars alive at a time in a straight line of statements."""
    return StraightLine(body).most_live()


def operands_of(statement: Statement) -> tuple[int, ...]:
    """The scalars that a statement reads."""
    if type(statement) is Map:
        return statement.operands
    reads = _READS.get(type(statement))
    return () if reads is None else reads(statement)


def _read_by_load(load: Load) -> tuple[int, ...]:
    if load.mask is None and load.fill is None:
        return ()
    return tuple(number for number in (load.mask, load.fill) if number is not None)


_READS: Mapping[type, Callable[[Any], tuple[int, ...]]] = {
    Store: lambda store: (store.value,) if store.mask is None else (store.value, store.mask),
    Load: _read_by_load,
    **dict.fromkeys((Reduce, Scan, ArgReduce), lambda reduced: (reduced.operand,)),
    Next: lambda handed: (handed.value,),
    **dict.fromkeys((Leave, Repeat), lambda asked: (asked.settled,)),
}
