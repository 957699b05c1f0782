"""Accumulators of ArgReduce: pairs of value and position; the first of equals wins, and the first NaN beats all."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.ir.dtypes import I32, I64, DType
from autofuse.ir.index import Affine, Symbol
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.statements import ArgReduce
from autofuse.lower.tile import Stage
from autofuse.targets.cpu.codegen.offsets import index_bits, narrowed, scalar_index, vector_index
from autofuse.targets.cpu.codegen.values import Group, Index, Value, splat_integer
from autofuse.targets.cpu.llvmtext import FunctionText, Vec, vector_of
from autofuse.targets.cpu.scalars import emit_map, identity

Pair = tuple[str, str]
"""A value and its position."""


@dataclass(frozen=True, slots=True)
class Best:
    """The best value so far and its position, of one vector in flight."""

    statement: ArgReduce
    dtype: DType
    """Of the values."""
    lanes: int
    bits: int
    """Width in which positions are kept."""
    ordered: bool
    """Positions only grow from iteration to iteration, so that a later equal value never wins."""
    corner: tuple[tuple[Symbol, Index], ...]
    """The iteration with the least position."""
    value_cell: str
    place_cell: str

    def element(self, fn: FunctionText, number: str) -> Best:
        """The best of vector `number`, an i64 operand, where there are several."""
        types = Vec(self.dtype, self.lanes).llvm, vector_of(f"i{self.bits}", self.lanes)
        cells = [
            fn.emit(f"getelementptr inbounds {type_}, ptr {cell}, i64 {number}")
            for type_, cell in zip(types, (self.value_cell, self.place_cell), strict=True)
        ]
        return replace(self, value_cell=cells[0], place_cell=cells[1])

    def start(self, fn: FunctionText, group: Group) -> None:
        """The worst value at the least position: the answer where all values are the worst, as then nothing wins."""
        worst = identity("maximum" if self.statement.direction == "argmax" else "minimum", self.dtype, self.lanes)
        fn.line(f"store {Vec(self.dtype, self.lanes).llvm} {worst}, ptr {self.value_cell}")
        at_corner = group.nested(dict(self.corner))
        place = narrowed(fn, scalar_index(fn, self.statement.position, at_corner), self.bits)
        splat = place if self.lanes == 1 else splat_integer(fn, place, self.bits, self.lanes)
        fn.line(f"store {vector_of(f'i{self.bits}', self.lanes)} {splat}, ptr {self.place_cell}")

    def step(self, fn: FunctionText, group: Group) -> None:
        """Take this iteration's operand where it wins. Inactive lanes change nothing."""
        value = group.operand(fn, self.statement.operand, self.lanes)
        place = _position(fn, self, group)
        old = self._pair(fn)
        wins = (
            self._beats(fn, value, old[0], self.lanes)
            if self.ordered
            else self._precedes(fn, (value, place), old, self.lanes)
        )
        if group.active is not None:
            wins = fn.emit(f"and <{self.lanes} x i1> {wins}, {group.active}")
        kept = self._choose(fn, wins, (value, place), old, self.lanes)
        fn.line(f"store {Vec(self.dtype, self.lanes).llvm} {kept[0]}, ptr {self.value_cell}")
        fn.line(f"store {vector_of(f'i{self.bits}', self.lanes)} {kept[1]}, ptr {self.place_cell}")

    def lane_values(self, fn: FunctionText) -> Value:
        """The position found by each lane by itself."""
        return self._result(fn, self._pair(fn)[1], self.lanes)

    def total(self, fn: FunctionText, all_in_flight: Sequence[Best]) -> Value:
        """The position over all lanes of all vectors in flight, this one among them."""
        lanes = self.lanes
        best = self._pair(fn)
        for other in all_in_flight[1:]:
            best = self._better(fn, best, other._pair(fn), lanes)
        while lanes > 1:
            low, high = (self._half(fn, best, lanes, start) for start in (0, lanes // 2))
            lanes //= 2
            best = self._better(fn, low, high, lanes)
        return self._result(fn, best[1], 1)

    def _pair(self, fn: FunctionText) -> Pair:
        value = fn.emit(f"load {Vec(self.dtype, self.lanes).llvm}, ptr {self.value_cell}")
        return value, fn.emit(f"load {vector_of(f'i{self.bits}', self.lanes)}, ptr {self.place_cell}")

    def _result(self, fn: FunctionText, place: str, lanes: int) -> Value:
        source = I32 if self.bits == 32 else I64
        dtype = self.statement.dtype
        if source != dtype:
            place = emit_map(fn, "convert", (place,), (source,), dtype, lanes)
        return Value(place, dtype, lanes > 1)

    def _half(self, fn: FunctionText, pair: Pair, lanes: int, start: int) -> Pair:
        half = lanes // 2
        order = ", ".join(f"i32 {lane}" for lane in range(start, start + half))
        found: list[str] = []
        for element, name in ((Vec(self.dtype, 1).element, pair[0]), (f"i{self.bits}", pair[1])):
            type_ = f"<{lanes} x {element}>"
            if half == 1:
                found.append(fn.emit(f"extractelement {type_} {name}, i32 {start}"))
            else:
                found.append(fn.emit(f"shufflevector {type_} {name}, {type_} poison, <{half} x i32> <{order}>"))
        return found[0], found[1]

    def _better(self, fn: FunctionText, a: Pair, b: Pair, lanes: int) -> Pair:
        return self._choose(fn, self._precedes(fn, b, a, lanes), b, a, lanes)

    def _choose(self, fn: FunctionText, wins: str, new: Pair, old: Pair, lanes: int) -> Pair:
        test = vector_of("i1", lanes)
        value, place = Vec(self.dtype, lanes).llvm, vector_of(f"i{self.bits}", lanes)
        return (
            fn.emit(f"select {test} {wins}, {value} {new[0]}, {value} {old[0]}"),
            fn.emit(f"select {test} {wins}, {place} {new[1]}, {place} {old[1]}"),
        )

    def _beats(self, fn: FunctionText, value: str, old: str, lanes: int) -> str:
        """Strictly better, or the only one of the two that is NaN."""
        order = "gt" if self.statement.direction == "argmax" else "lt"
        type_ = Vec(self.dtype, lanes).llvm
        if not self.dtype.is_float:
            sign = "s" if self.dtype.kind == "int" else "u"
            return fn.emit(f"icmp {sign}{order} {type_} {value}, {old}")
        better = fn.emit(f"fcmp u{order} {type_} {value}, {old}")
        return fn.emit(f"and {vector_of('i1', lanes)} {better}, {fn.emit(f'fcmp ord {type_} {old}, {old}')}")

    def _precedes(self, fn: FunctionText, new: Pair, old: Pair, lanes: int) -> str:
        """Better, or as good and at a lesser position."""
        type_, test = Vec(self.dtype, lanes).llvm, vector_of("i1", lanes)
        if self.dtype.is_float:
            equal = fn.emit(f"fcmp oeq {type_} {new[0]}, {old[0]}")
            nans = [fn.emit(f"fcmp uno {type_} {name}, {name}") for name in (new[0], old[0])]
            equal = fn.emit(f"or {test} {equal}, {fn.emit(f'and {test} {nans[0]}, {nans[1]}')}")
        else:
            equal = fn.emit(f"icmp eq {type_} {new[0]}, {old[0]}")
        earlier = fn.emit(f"icmp slt {vector_of(f'i{self.bits}', lanes)} {new[1]}, {old[1]}")
        tie = fn.emit(f"and {test} {equal}, {earlier}")
        return fn.emit(f"or {test} {self._beats(fn, new[0], old[0], lanes)}, {tie}")


def make_best(fn: FunctionText, statement: ArgReduce, dtype: DType, stage: Stage, group: Group, count: int = 1) -> Best:
    """Stack space for the best of `count` vectors like `group`, or of scalars where it has one lane."""
    lanes = group.lanes.count
    bits = 64 if lanes == 1 else index_bits(statement.position, group)
    corner = tuple((symbol, _least(statement.position, symbol)) for symbol in stage.symbols)
    return Best(
        statement=statement,
        dtype=dtype,
        lanes=lanes,
        bits=bits,
        ordered=_grows(statement.position, stage),
        corner=corner,
        value_cell=fn.alloca(Vec(dtype, lanes).llvm, count),
        place_cell=fn.alloca(vector_of(f"i{bits}", lanes), count),
    )


def _least(position: Affine, symbol: Symbol) -> Index:
    return Index("", max(symbol.extent - 1, 0) if position.coefficient(symbol) < 0 else 0)


def _grows(position: Affine, stage: Stage) -> bool:
    """Whether one lane meets positions in increasing order: loops run as listed, the vectorised one innermost."""
    order = [symbol for symbol in stage.symbols if symbol != stage.vectorised]
    if stage.vectorised is not None:
        order.append(stage.vectorised)
    inner = 0
    for symbol in reversed(order):
        coefficient = position.coefficient(symbol)
        if symbol.extent > 1:
            if coefficient <= inner:
                return False
            inner += coefficient * (symbol.extent - 1)
    return all(isinstance(variable, Symbol) for variable, _ in position.terms)


def _position(fn: FunctionText, best: Best, group: Group) -> str:
    if best.lanes > 1:
        return vector_index(fn, best.statement.position, group, best.bits)
    return narrowed(fn, scalar_index(fn, best.statement.position, group), best.bits)
