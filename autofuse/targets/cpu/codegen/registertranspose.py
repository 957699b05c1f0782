"""Squares of grid points, contiguous in memory along another symbol than the vectorised one: transposed in registers.

A vector of lanes would gather one element from each of many cache lines. A square of as many rows as there are lanes
loads whole vectors along the rows' symbol instead, and transposes them by shuffles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from autofuse.ir.index import Affine, Symbol
from autofuse.lazydataclass import dataclass
from autofuse.lower.statements import Load, Store, Test
from autofuse.lower.tile import Phase, Stage
from autofuse.targets.cpu.codegen.accesses import Place, Places
from autofuse.targets.cpu.codegen.offsets import pointer
from autofuse.targets.cpu.codegen.values import Group, Index, Value
from autofuse.targets.cpu.llvmtext import FunctionText, Vec
from autofuse.targets.cpu.scalars import emit_load_conversion, emit_store_conversion

_MOST_STATEMENTS = 24
"""Of a body that is written once per row of a square."""


@dataclass(frozen=True, slots=True)
class Transpose:
    """A square: as many rows as lanes."""

    symbol: Symbol
    """The grid symbol along which memory is contiguous."""
    rows: int
    blocks: Symbol
    """Stands for the number of the square along `symbol`."""
    statements: frozenset[Load | Store]
    """What is loaded or stored whole squares at a time."""
    in_columns: bool
    """Whether squares follow each other along `symbol`, so that what is loaded transposed is read in streams."""


def find_transpose(phase: Phase, stages: Sequence[Stage], lanes: int) -> Transpose | None:
    """Whether a phase is better walked in squares, and which."""
    if phase.vectorised is None or lanes < 4 or len(stages) != 1 or stages[0].symbols:
        return None
    if len(stages[0].body) > _MOST_STATEMENTS:
        return None
    moves = [s for s in stages[0].body if isinstance(s, Load | Store) and s.mask is None]
    votes: Counter[Symbol] = Counter()
    for symbol in phase.grid[:-1]:
        if symbol.extent >= lanes:
            votes[symbol] = sum(_is_transposed(s.offset, phase.vectorised, symbol) for s in moves)
    if not votes or max(votes.values()) == 0 or phase.vectorised.extent < lanes:
        return None
    symbol = max(votes, key=lambda s: votes[s])
    transposed = frozenset(s for s in moves if _is_transposed(s.offset, phase.vectorised, symbol))
    in_columns = any(isinstance(s, Load) for s in transposed) and not any(isinstance(s, Test) for s in stages[0].body)
    return Transpose(symbol, lanes, Symbol(f"{symbol.name}.square", -(-symbol.extent // lanes)), transposed, in_columns)


def _is_transposed(offset: Affine, vectorised: Symbol, symbol: Symbol) -> bool:
    """Contiguous along `symbol`, far apart along the vectorised one, and otherwise plain."""
    simple = all(isinstance(variable, Symbol) for variable, _ in offset.terms)
    return simple and offset.coefficient(symbol) == 1 and abs(offset.coefficient(vectorised)) > 1


def load_square(fn: FunctionText, place: Place, statement: Load, group: Group, transpose: Transpose) -> list[Value]:
    """The values of a transposed load: for each row of the square, a vector over the lanes.

    `group` stands at the first row and at lane 0.
    """
    vec = Vec(place.dtype, transpose.rows)
    rows: list[str] = []
    for lane in range(transpose.rows):
        address = pointer(fn, place.base, place.element, statement.offset, _at_lane(group, lane))
        rows.append(fn.emit(f"load {vec.memory}, ptr {address}, align {place.dtype.itemsize}{place.tags}"))
    columns = transposed(fn, rows, place.element)
    loaded = [emit_load_conversion(fn, name, place.dtype, transpose.rows) for name in columns]
    return [Value(name, place.dtype, varying=True) for name in loaded]


def store_square(
    fn: FunctionText, place: Place, statement: Store, rows: Sequence[str], group: Group, transpose: Transpose
) -> None:
    """Write the values of a transposed store, a vector over the lanes for each row of the square."""
    vec = Vec(place.dtype, transpose.rows)
    stored = [emit_store_conversion(fn, name, place.dtype, transpose.rows) for name in rows]
    for lane, name in enumerate(transposed(fn, stored, place.element)):
        address = pointer(fn, place.base, place.element, statement.offset, _at_lane(group, lane))
        fn.line(f"store {vec.memory} {name}, ptr {address}, align {place.dtype.itemsize}{place.tags}")


def _at_lane(group: Group, lane: int) -> Group:
    symbol = group.lanes.symbol
    assert symbol is not None
    position = group.at[symbol]
    moved = group.nested({symbol: Index(position.base, position.addend + lane)})
    moved.scalars = group.scalars
    return moved


def transposed(fn: FunctionText, rows: list[str], element: str) -> list[str]:
    """A square of vectors, transposed: swap the off-diagonal blocks of half the size, then of a quarter, ..."""
    count = len(rows)
    type_ = f"<{count} x {element}>"
    block = count // 2
    while block:
        for first in range(count):
            if first & block:
                continue
            pair = rows[first], rows[first + block]
            for row, start in ((first, 0), (first + block, block)):
                order = [lane + start if not lane & block else lane - block + start + count for lane in range(count)]
                mask = ", ".join(f"i32 {lane}" for lane in order)
                rows[row] = fn.emit(f"shufflevector {type_} {pair[0]}, {type_} {pair[1]}, <{count} x i32> <{mask}>")
        block //= 2
    return rows


def write_square(fn: FunctionText, places: Places, stage: Stage, group: Group, transpose: Transpose) -> list[Group]:
    """Load the transposed loads of a square; returns a group per row, in which they are known."""
    squares = {
        s.result: load_square(fn, places[s.buffer], s, group, transpose)
        for s in stage.body
        if isinstance(s, Load) and s in transpose.statements
    }
    first = group.at[transpose.symbol]
    rows: list[Group] = []
    for number in range(transpose.rows):
        row = group.nested({transpose.symbol: Index(first.base, first.addend + number)})
        row.scalars = group.scalars
        row.values.update({scalar: values[number] for scalar, values in squares.items()})
        row.fetched = frozenset(squares)
        rows.append(row)
    return rows
