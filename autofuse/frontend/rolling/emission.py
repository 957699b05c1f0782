"""A traced body as a `scan` or `while` node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from autofuse.frontend.bounds import none_yet
from autofuse.frontend.promotion import value_of
from autofuse.frontend.regions import Region
from autofuse.frontend.rolling.carried import Carry
from autofuse.frontend.rolling.numbers import Atom
from autofuse.frontend.tracecontext import Checks, current
from autofuse.frontend.tracer import fresh
from autofuse.ir import dtypes
from autofuse.ir.graph import Value

_I64 = np.dtype(np.int64)

_Loop = Callable[[Sequence[Value], Sequence[Value], Sequence[Value]], Sequence[Value]]
"""From what an iteration gets, what it leaves, and what the first one gets, to what the last one left."""


def emit(region: Region, carries: Sequence[Carry], to: Mapping[Value, Value], counter: Atom, trips: Any) -> None:
    """A loop that a counter ends: a `scan`, or a `while` where its length `trips` is a Number.

    `to`: values of the region that are others. Each part of the state gets its result.
    """

    def scan(given: Sequence[Value], left: Sequence[Value], initial: Sequence[Value]) -> Sequence[Value]:
        body = region.finish_with([*given, counter.value], left, to)
        numbers = current().emit("iota", (), shape=(trips,), dtype=dtypes.I64, iota_dimension=0)
        return current().builder.emit_many(
            "scan", [*initial, numbers], regions=(body,), length=trips, carries=len(given), reverse=False
        )

    def counted(given: Sequence[Value], left: Sequence[Value], initial: Sequence[Value]) -> Sequence[Value]:
        limit = value_of(trips, _I64)
        with region.entered():
            following = current().emit("add", (counter.value, current().scalar(1, _I64)))
        body = region.finish_with([*given, counter.value], [*left, following], to)
        condition = Region("condition", [value.type for value in (*given, counter.value)], repeats=True)
        holds = _value_in(condition, lambda leaves: leaves[-1] < fresh(limit))
        start = [*initial, current().scalar(0, _I64)]
        return current().builder.emit_many("while", start, regions=(condition.finish([holds]), body))

    if carries:
        _emit(region, carries, scan if isinstance(trips, int) else counted)


def emit_while(region: Region, carries: Sequence[Carry], to: Mapping[Value, Value]) -> None:
    """A `while` whose last part of the state says whether it goes on."""
    last = len(carries) - 1

    def loop(given: Sequence[Value], left: Sequence[Value], initial: Sequence[Value]) -> Sequence[Value]:
        body = region.finish_with(given, left, to)
        condition = Region("condition", [value.type for value in given], repeats=True)
        holds = _value_in(condition, lambda leaves: leaves[last])
        return current().builder.emit_many("while", initial, regions=(condition.finish([holds]), body))

    _emit(region, carries, loop)


def _value_in(region: Region, function: Callable[[list[Any]], Any]) -> Value:
    found = region.run(function).values[0]
    with region.entered():
        return found.value


def _emit(region: Region, carries: Sequence[Carry], loop: _Loop) -> None:
    given, left = [carry.given for carry in carries], [carry.next for carry in carries]
    initial = [carry.initial() for carry in carries]
    checks = region.checks
    if checks:
        given.append(region.bounds_input(len(checks), 0))
        (numbers,) = region.numbers(0, 0)
        with region.entered():
            left.append(current().emit("minimum", (given[-1], numbers)))
        initial.append(none_yet(len(checks)))
    results = loop(given, left, initial)
    if checks:
        current().checks.append(Checks(checks, results[len(carries)]))
    for carry, result in zip(carries, results, strict=False):
        carry.done(result)
