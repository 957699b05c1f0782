"""Tiles of a sweep's axis that are hidden from all rows of a block, as those above the diagonal of a causal mask are.

What the maximum is of is one number there for certain: a choice between the scores and -inf, or some finite number,
by comparisons of positions. If that is -inf, or far below the maximum, the maximum and the sums stay as they are, and
all weights are zero. Keys are not needed, and neither are scores. Values are: zero times infinity or NaN is NaN. So
they come in, and are multiplied only if there is such a one among them.

    visible where i >= k;   rows first .. first + 63, tile start .. start + 31;   hidden if first + 63 - start < 0

A finite number counts where a row sees nothing that is far above it. Only its maximum tells, at the end: then a block
begins again, and takes all tiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from autofuse.ir import index
from autofuse.ir.dtypes import BOOL, F32, DType
from autofuse.ir.index import Affine, Symbol
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.statements import Constant, Effect, Map, Position, Reduce, Scalar, Statement, Test
from autofuse.lower.tile import Phase, RowBlock, RowGroup, Stage, Sweep

PART = "part"
"""The grid symbol that numbers parts of the axis, as in `autofuse.lower.split`."""
_SAMPLES = 32
"""Of blocks and of tiles that are looked at, to tell how many are hidden."""
_PLAIN = frozenset({"convert", "subtract", "exp"})
"""What weights may be made by, of what is -inf: zero, for certain."""
FAR = 1000.0
"""exp(-FAR) is zero in all types."""
_MOST = -2.0 * FAR
"""That stands for a hidden score: beside larger numbers, most rows may have a maximum that is not far above."""
_COMPARED = {"ge": (1, 0), "gt": (1, 1), "le": (-1, 0), "lt": (-1, 1)}
"""a op b holds where sign * (a - b) - strict >= 0."""


@dataclass(frozen=True, slots=True)
class _Below:
    """Holds where a value is below zero everywhere."""

    value: Affine


@dataclass(frozen=True, slots=True)
class _Both:
    """Holds where both do, or one of them."""

    is_and: bool
    left: Hidden
    right: Hidden


Hidden = _Below | _Both
"""When a tile is hidden. The axis stands for the tile's first element, the rows' symbol for the block's first row."""


@dataclass(frozen=True, slots=True)
class HiddenTiles:
    """Tiles in which the maximum is of one number, whatever the scores are."""

    where: Hidden
    fill: float
    """The number: -inf or less than any weight is worth beside a maximum of `FAR` more."""

    @property
    def counts(self) -> bool:
        """Whether the number may be a row's maximum, or near it: then its tiles are not hidden from that row."""
        return self.fill != -math.inf


def hidden_tiles(phase: Phase, steps: RowGroup) -> HiddenTiles | None:
    """When tiles are hidden, given the stages between the products of a sweep; None where it cannot be told."""
    sweep, block = phase.sweep, phase.row_block
    assert sweep is not None
    assert block is not None
    first, second = steps.stages[:2]
    if sweep.chosen is not None or not _keeps_nothing_else(first, second, sweep):
        return None
    (walk,) = first.symbols
    made: dict[Scalar, Statement] = {s.result: s for s in first.body if not isinstance(s, Effect)}
    maximum = next(s for s in first.body if isinstance(s, Reduce) and s.result == sweep.maximum)
    found = _Reader(made, walk, block, sweep.tile).of(maximum.operand)
    return None if found is None or (found.counts and _narrows(first, second, sweep)) else found


def _keeps_nothing_else(first: Stage, second: Stage, sweep: Sweep) -> bool:
    """Whether the maximum, sums of weights and weights are all that a tile leaves behind."""
    reduced = [s.result for s in first.body if isinstance(s, Reduce)]
    return reduced == [sweep.maximum] and {s.opcode for s in _of_elements(second, sweep)} <= _PLAIN


def _of_elements(second: Stage, sweep: Sweep) -> list[Map]:
    """What weights are made by, without what is made of the maximum alone."""
    alike = {sweep.maximum, *(s.result for s in second.body if isinstance(s, Constant))}
    found: list[Map] = []
    for statement in second.body:
        if isinstance(statement, Map) and alike.issuperset(statement.operands):
            alike.add(statement.result)
        elif isinstance(statement, Map):
            found.append(statement)
    return found


def _narrows(first: Stage, second: Stage, sweep: Sweep) -> bool:
    """Whether an exponent is made of fewer bits than what the maximum is of: then a finite number may be -inf there."""
    types: dict[Scalar, DType] = {
        s.result: s.dtype for stage in (first, second) for s in stage.body if not isinstance(s, Effect | Test)
    }
    powers: set[Scalar] = set()
    for statement in _of_elements(second, sweep):
        if statement.opcode == "exp" or not powers.isdisjoint(statement.operands):
            powers.add(statement.result)
        elif any(types.get(of, BOOL).bits > statement.dtype.bits for of in statement.operands):
            return True
    return False


def _rounded(value: float, dtype: DType) -> float:
    with np.errstate(over="ignore"):
        return float(dtype.numpy.type(value))


class _Reader:
    """Reads a choice by positions."""

    def __init__(self, made: Mapping[Scalar, Statement], walk: Symbol, block: RowBlock, tile: int) -> None:
        self._made = made
        self._most = {walk: tile - 1, block.symbol: block.size - 1}

    def of(self, scalar: Scalar) -> HiddenTiles | None:
        """When a value is one number everywhere in a tile."""
        match self._made.get(scalar):
            case Map(opcode="convert", dtype=dtype, operands=(inside,)) if dtype.is_float:
                found = self.of(inside)
                return None if found is None else replace(found, fill=_rounded(found.fill, dtype))
            case Map(opcode="select", operands=(condition, one, other)):
                for number, holds in ((other, True), (one, False)):
                    fill = self._number(number)
                    where = None if fill is None else self._never(condition, holds=holds)
                    if fill is not None and fill <= _MOST and where is not None:
                        return HiddenTiles(where, fill)
                return None
            case _:
                return None

    def _number(self, scalar: Scalar) -> float | None:
        """What a scalar always is, if it is no NaN."""
        match self._made.get(scalar):
            case Constant(value=value, dtype=dtype) if dtype.is_float and value < math.inf:
                return float(value)
            case Map(opcode="convert", dtype=dtype, operands=(inside,)) if dtype.is_float:
                found = self._number(inside)
                return None if found is None else _rounded(found, dtype)
            case _:
                return None

    def _never(self, scalar: Scalar, *, holds: bool) -> Hidden | None:
        """When a condition never holds in a tile, or never fails."""
        match self._made.get(scalar):
            case Map(opcode="not", operands=(inside,)):
                return self._never(inside, holds=not holds)
            case Map(opcode="and" | "or" as opcode, operands=(a, b)):
                sides = self._never(a, holds=holds), self._never(b, holds=holds)
                return _joined(*sides, is_and=(opcode == "or") == holds)
            case Map(opcode=opcode, operands=(a, b)) if opcode in _COMPARED:
                left, right = self._position(a), self._position(b)
                if left is None or right is None:
                    return None
                sign, strict = _COMPARED[opcode]
                value = (left - right) * sign - strict  # holds where this is not negative
                return self._below(value if holds else value * -1 - 1)
            case _:
                return None

    def _position(self, scalar: Scalar) -> Affine | None:
        match self._made.get(scalar):
            case Position(value=value):
                return value
            case Constant(value=value, dtype=dtype) if dtype.is_integer:
                return Affine(int(value))
            case Map(opcode="convert", dtype=dtype, operands=(inside,)) if dtype.is_integer and dtype.bits >= F32.bits:
                return self._position(inside)
            case Map(opcode="add" | "subtract" as opcode, dtype=dtype, operands=(a, b)) if dtype.is_integer:
                left, right = self._position(a), self._position(b)
                if left is None or right is None:
                    return None
                found = left + right if opcode == "add" else left - right
                low, high = index.bounds(found)
                return found if low >= -(1 << 31) and high < 1 << 31 else None
            case _:
                return None

    def _below(self, value: Affine) -> Hidden | None:
        """When a value is negative for all rows and elements of a tile."""
        if not index.is_static(value) or any(not isinstance(variable, Symbol) for variable, _ in value.terms):
            return None
        more = sum(max(value.coefficient(symbol), 0) * most for symbol, most in self._most.items())
        return _Below(value + more)


def _joined(left: Hidden | None, right: Hidden | None, *, is_and: bool) -> Hidden | None:
    if left is None or right is None:
        return None if is_and else left or right
    return _Both(is_and, left, right)


def text_of(hidden: Hidden, write: Callable[[Affine], str]) -> str:
    """C: whether a tile is hidden. `write`: an index expression."""
    match hidden:
        case _Below(value):
            return f"{write(value)} < 0"
        case _Both(is_and, left, right):
            return f"({text_of(left, write)}) {'&&' if is_and else '||'} ({text_of(right, write)})"


def is_hidden(hidden: Hidden, at: Mapping[Symbol, int]) -> bool:
    """Whether a tile is hidden, at these symbols; those that are not given are 0."""
    match hidden:
        case _Below(value):
            return value.constant + sum(c * at.get(s, 0) for s, c in value.terms if isinstance(s, Symbol)) < 0
        case _Both(is_and, left, right):
            sides = is_hidden(left, at), is_hidden(right, at)
            return all(sides) if is_and else any(sides)


_EXPONENTS = {16: {"f16": 0x7C00, "bf16": 0x7F80}, 32: {"f32": 0x7F800000}, 64: {"f64": 0x7FF00000}}
"""Bits that infinities and NaN have, all of them, by width and type; of 64 bits in the second word."""


def special_words(word: str, dtype: DType) -> list[str]:
    """C: whether four words hold an infinity or a NaN of a type, a test for each. `word`: of a number's."""
    bits = _EXPONENTS[dtype.bits][dtype.name]
    masks = [bits, bits << 16] if dtype.bits < F32.bits else [bits]
    numbers = (1, 3) if dtype.bits > F32.bits else range(4)
    return [f"({word.format(n)} & {mask:#x}u) == {mask:#x}u" for n in numbers for mask in masks]


def visible_share(phase: Phase, steps: RowGroup) -> float:
    """Of all tiles of all blocks, those that are not hidden, by some of them."""
    found, sweep, block = hidden_tiles(phase, steps), phase.sweep, phase.row_block
    if found is None or sweep is None or block is None:
        return 1.0
    hidden = found.where
    (walk,) = steps.stages[0].symbols
    rows = _some(block.symbol.extent, block.size)
    starts = _some(walk.extent, sweep.tile)
    parts = next((symbol for symbol in phase.grid if symbol.name == PART), Symbol(PART, 1))
    seen = [
        not is_hidden(hidden, {block.symbol: row, walk: start, parts: part})
        for row in rows
        for start in starts
        for part in range(parts.extent)
    ]
    return sum(seen) / max(len(seen), 1)


def _some(extent: int, step: int) -> list[int]:
    """Multiples of a step, at most so many, evenly spread."""
    count = -(-extent // step)
    return [number * step for number in range(0, count, -(-count // _SAMPLES))]
