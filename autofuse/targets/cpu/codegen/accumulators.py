"""Accumulators of Reduce and Scan: one per vector in flight, combined in a fixed order at the end.

They live on the stack and become registers when LLVM promotes memory to registers.

A greatest or least float is found by the machine's one-instruction maximum, which forgets NaN, beside a flag per lane
that remembers it: the NaN-keeping maximum would be a chain of three instructions from one iteration to the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from autofuse.ir.dtypes import DType
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.statements import Reduce, Scan
from autofuse.targets.cpu.codegen.values import Group, Value
from autofuse.targets.cpu.llvmtext import FunctionText, Vec, vector_of
from autofuse.targets.cpu.scalars import (
    Combiner,
    emit_combine,
    emit_constant,
    emit_horizontal,
    emit_map,
    identity,
)

_ORDERS: Mapping[str, str] = {"maximum": "ogt", "minimum": "olt"}


@dataclass(frozen=True, slots=True)
class Accumulator:
    """The running value of a Reduce or Scan of one vector in flight."""

    statement: Reduce | Scan
    lanes: int
    cell: str
    """Stack address of the running value."""
    flags: str = ""
    """Stack address of the lanes that have met NaN; empty where the running value itself keeps it."""
    along: bool = False
    """A scan whose lanes are neighbouring iterations: the running value, equal in all lanes, goes on behind them."""

    @property
    def _vec(self) -> Vec:
        return Vec(self.statement.dtype, self.lanes)

    @property
    def _combiner(self) -> Combiner:
        return cast("Combiner", self.statement.combiner)

    def element(self, fn: FunctionText, number: str) -> Accumulator:
        """The running value of vector `number`, an i64 operand, where there are several."""
        cell = fn.emit(f"getelementptr inbounds {self._vec.llvm}, ptr {self.cell}, i64 {number}")
        if not self.flags:
            return replace(self, cell=cell)
        flag = vector_of("i1", self.lanes)
        return replace(self, cell=cell, flags=fn.emit(f"getelementptr inbounds {flag}, ptr {self.flags}, i64 {number}"))

    def start(self, fn: FunctionText, group: Group) -> None:  # noqa: ARG002 - an ArgReduce needs the position
        """Set the running value to the combiner's identity; a sum, unlike a running one, starts at +0.0 as NumPy's."""
        initial = identity(self._combiner, self.statement.dtype, self.lanes)
        if isinstance(self.statement, Reduce) and self._combiner == "add":
            initial = emit_constant(self.statement.dtype, 0, self.lanes)
        fn.line(f"store {self._vec.llvm} {initial}, ptr {self.cell}")
        if self.flags:
            fn.line(
                f"store {vector_of('i1', self.lanes)} {'false' if self.lanes == 1 else 'zeroinitializer'}, "
                f"ptr {self.flags}"
            )

    def step(self, fn: FunctionText, group: Group) -> None:
        """Take in this iteration's operand. Inactive lanes change nothing."""
        dtype, type_ = self.statement.dtype, self._vec.llvm
        operand = group.operand(fn, self.statement.operand, self.lanes)
        operand = _converted(fn, operand, group.values[self.statement.operand].dtype, dtype, self.lanes)
        seen = fn.emit(f"load {type_}, ptr {self.cell}")
        if self.along and isinstance(self.statement, Scan):
            group.values[self.statement.result] = self._run(fn, seen, operand, self.statement.reverse, group.active)
            return
        combined = self._combined(fn, seen, operand, group.active)
        if group.active is not None:
            combined = fn.emit(f"select <{self.lanes} x i1> {group.active}, {type_} {combined}, {type_} {seen}")
        fn.line(f"store {type_} {combined}, ptr {self.cell}")
        if isinstance(self.statement, Scan):
            group.values[self.statement.result] = Value(combined, dtype, self.lanes > 1)

    def _run(self, fn: FunctionText, seen: str, operand: str, reverse: bool, active: str | None) -> Value:
        """One vector of a scan along the lanes: prefixes within the vector in log steps, then what came before it."""
        dtype, type_, lanes = self.statement.dtype, self._vec.llvm, self.lanes
        neutral = identity(self._combiner, dtype, lanes)
        if active is not None:
            operand = fn.emit(f"select <{lanes} x i1> {active}, {type_} {operand}, {type_} {neutral}")
        distance = 1
        while distance < lanes:
            step = -distance if reverse else distance
            moved = _picked(fn, type_, operand, neutral, [lane - step for lane in range(lanes)])
            operand = emit_combine(fn, self._combiner, moved, operand, dtype, lanes)
            distance *= 2
        whole = _picked(fn, type_, operand, neutral, [0 if reverse else lanes - 1] * lanes)
        fn.line(f"store {type_} {emit_combine(fn, self._combiner, seen, whole, dtype, lanes)}, ptr {self.cell}")
        return Value(emit_combine(fn, self._combiner, seen, operand, dtype, lanes), dtype, varying=True)

    def _combined(self, fn: FunctionText, seen: str, operand: str, active: str | None) -> str:
        if not self.flags:
            return emit_combine(fn, self._combiner, seen, operand, self.statement.dtype, self.lanes)
        type_, flag = self._vec.llvm, vector_of("i1", self.lanes)
        unordered = fn.emit(f"fcmp uno {type_} {operand}, {operand}")
        if active is not None:
            unordered = fn.emit(f"and {flag} {unordered}, {active}")
        flags = fn.emit(f"load {flag}, ptr {self.flags}")
        fn.line(f"store {flag} {fn.emit(f'or {flag} {flags}, {unordered}')}, ptr {self.flags}")
        better = fn.emit(f"fcmp {_ORDERS[self._combiner]} {type_} {operand}, {seen}")
        return fn.emit(f"select {flag} {better}, {type_} {operand}, {type_} {seen}")

    def _value(self, fn: FunctionText) -> str:
        type_ = self._vec.llvm
        value = fn.emit(f"load {type_}, ptr {self.cell}")
        if not self.flags:
            return value
        flag = vector_of("i1", self.lanes)
        flags = fn.emit(f"load {flag}, ptr {self.flags}")
        nan = emit_constant(self.statement.dtype, math.nan, self.lanes)
        return fn.emit(f"select {flag} {flags}, {type_} {nan}, {type_} {value}")

    def lane_values(self, fn: FunctionText) -> Value:
        """The result of each lane by itself."""
        return Value(self._value(fn), self.statement.dtype, self.lanes > 1)

    def total(self, fn: FunctionText, all_in_flight: Sequence[Accumulator]) -> Value:
        """The result over all lanes of all vectors in flight (this one among them): a tree over vectors, then lanes."""
        if self.flags:
            return self._total_of_flagged(fn, all_in_flight)
        dtype = self.statement.dtype
        partial = [cell._value(fn) for cell in all_in_flight]
        total = _tree(partial, lambda a, b: emit_combine(fn, self._combiner, a, b, dtype, self.lanes))
        return Value(emit_horizontal(fn, self._combiner, total, dtype, self.lanes), dtype, varying=False)

    def _total_of_flagged(self, fn: FunctionText, all_in_flight: Sequence[Accumulator]) -> Value:
        """The same where lanes remember NaN beside their values: it is looked for once, at the end."""
        dtype, flag = self.statement.dtype, vector_of("i1", self.lanes)
        best = _tree(
            [fn.emit(f"load {self._vec.llvm}, ptr {cell.cell}") for cell in all_in_flight],
            lambda a, b: self._better(fn, a, b, self.lanes),
        )
        met = _tree(
            [fn.emit(f"load {flag}, ptr {cell.flags}") for cell in all_in_flight],
            lambda a, b: fn.emit(f"or {flag} {a}, {b}"),
        )
        lanes = self.lanes
        while lanes > 1:
            lanes //= 2
            whole, half = Vec(dtype, 2 * lanes).llvm, ", ".join(f"i32 {lane}" for lane in range(lanes))
            upper = ", ".join(f"i32 {lane + lanes}" for lane in range(lanes))
            parts = [
                fn.emit(f"shufflevector {whole} {best}, {whole} poison, <{lanes} x i32> <{order}>")
                for order in (half, upper)
            ]
            if lanes == 1:
                element = Vec(dtype, 1).llvm
                parts = [fn.emit(f"extractelement <1 x {element}> {part}, i32 0") for part in parts]
            best = self._better(fn, parts[0], parts[1], lanes)
        if self.lanes > 1:
            bits = fn.emit(f"bitcast {flag} {met} to i{self.lanes}")
            met = fn.emit(f"icmp ne i{self.lanes} {bits}, 0")
        type_, nan = Vec(dtype, 1).llvm, emit_constant(dtype, math.nan)
        return Value(fn.emit(f"select i1 {met}, {type_} {nan}, {type_} {best}"), dtype, varying=False)

    def _better(self, fn: FunctionText, a: str, b: str, lanes: int) -> str:
        """The greater or the lesser of two values that are no NaN, in one instruction."""
        type_, test = Vec(self.statement.dtype, lanes).llvm, vector_of("i1", lanes)
        chosen = fn.emit(f"fcmp {_ORDERS[self._combiner]} {type_} {a}, {b}")
        return fn.emit(f"select {test} {chosen}, {type_} {a}, {type_} {b}")


def _tree(values: Sequence[str], combine: Callable[[str, str], str]) -> str:
    """Neighbours combined, then their results, until one is left."""
    partial = list(values)
    while len(partial) > 1:
        pairs = [combine(a, b) for a, b in zip(partial[::2], partial[1::2], strict=False)]
        partial = pairs + ([partial[-1]] if len(partial) % 2 else [])
    return partial[0]


def _picked(fn: FunctionText, type_: str, vector: str, outside: str, lanes: Sequence[int]) -> str:
    """The named lanes of a vector; those that it does not have are taken from `outside`."""
    count = len(lanes)
    order = ", ".join(f"i32 {lane if 0 <= lane < count else count}" for lane in lanes)
    return fn.emit(f"shufflevector {type_} {vector}, {type_} {outside}, <{count} x i32> <{order}>")


def make_accumulator(
    fn: FunctionText, statement: Reduce | Scan, lanes: int, count: int = 1, *, along: bool = False
) -> Accumulator:
    """Stack space for the running values of `count` vectors; `along`: the lanes are iterations, not grid points."""
    flags = ""
    if isinstance(statement, Reduce) and statement.combiner in _ORDERS and statement.dtype.is_float:
        flags = fn.alloca(vector_of("i1", lanes), count)
    return Accumulator(statement, lanes, fn.alloca(Vec(statement.dtype, lanes).llvm, count), flags, along and lanes > 1)


def _converted(fn: FunctionText, name: str, source: DType, target: DType, lanes: int) -> str:
    return name if source == target else emit_map(fn, "convert", (name,), (source,), target, lanes)
