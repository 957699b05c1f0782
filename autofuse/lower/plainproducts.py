"""Kernels that are one product of matrices, with at most a row of sums, a clip at zero and a conversion behind it.

    out[b, i, j] = convert(maximum(sum over k of left[b, i, k] * right[b, k, j] + bias[j], 0))

That is what libraries of products do in one call, over a number of equal products: lines of matrices do not overlap,
operands are floats of one type, sums come out in it or in f32. They add a bias before they round to 16 bits, where the
graph may round twice, so there is none then; and what they do with NaN when they clip is their own matter, so that is
for fast numerics alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import cast

from autofuse.ir.dtypes import F32, DType
from autofuse.ir.index import Affine, Symbol, of
from autofuse.lazydataclass import dataclass
from autofuse.lower.statements import Constant, Effect, Load, Map, Scalar, Statement, Store
from autofuse.lower.tile import Buffer, Dot, Matrix, Phase, RowGroup, Space, TileProgram


@dataclass(frozen=True, slots=True)
class Side:
    """One matrix of each product: element (i, j) of product b at `offset + b*step + i*row_stride + j*column_stride`."""

    buffer: str
    dtype: DType
    offset: int
    row_stride: int
    column_stride: int
    step: int
    """From product to product."""


@dataclass(frozen=True, slots=True)
class PlainProduct:
    """See above."""

    left: Side
    right: Side
    out: Side
    """Its column stride is 1."""
    rows: int
    columns: int
    depth: int
    count: int
    """Products; each side has a step from one to the next."""
    fast: bool
    """Whether f32 may be rounded to TF32 on the way, and NaN be lost in a clip."""
    bias: tuple[str, int] | None
    """Buffer and offset of what is added to every row."""
    clips: bool

    @property
    def flops(self) -> float:
        """A multiplication with its addition counts as two."""
        return 2.0 * self.count * self.rows * self.columns * self.depth


def plain_product(program: TileProgram) -> PlainProduct | None:
    """What a kernel is, if it is one of these and none of its extents is 0."""
    if len(program.launches) != 1 or len(program.launches[0]) != 1:
        return None
    (phase,), buffers = program.launches[0], {buffer.name: buffer for buffer in program.buffers}
    if not phase.steps or not isinstance(phase.steps[0], Dot) or phase.sweep is not None:
        return None
    reader = _Reader(phase, phase.steps[0], buffers)
    if len(phase.steps) == 1:
        return reader.product(phase.steps[0].out, _Epilogue())
    ended = reader.epilogue(phase.steps[1]) if len(phase.steps) == 2 else None
    return None if ended is None else reader.product(*ended)


@dataclass(frozen=True, slots=True)
class _Epilogue:
    bias: tuple[str, int] | None = None
    clips: bool = False


@dataclass(frozen=True, slots=True)
class _Reader:
    """Of a phase that begins with a product."""

    phase: Phase
    dot: Dot
    buffers: Mapping[str, Buffer]

    @property
    def _row(self) -> Symbol | None:
        return None if self.phase.row_block is None else self.phase.row_block.symbol

    @property
    def _outer(self) -> list[Symbol]:
        """What counts products."""
        return [symbol for symbol in self.phase.grid if symbol != self._row]

    def product(self, out: Matrix, epilogue: _Epilogue) -> PlainProduct | None:
        dot = self.dot
        rows = dot.rows if self._row is None else self._row.extent
        count = math.prod(symbol.extent for symbol in self._outer)
        sides = [self._side(dot.lhs, moves=True), self._side(dot.rhs, moves=False), self._side(out, moves=True)]
        if dot.accumulate or not all((rows, dot.columns, dot.depth, count)) or None in sides:
            return None
        if self.buffers[out.buffer].space is not Space.OUTPUT or not dot.dtype.is_float:
            return None
        left, right, target = cast("list[Side]", sides)
        sizes = rows, dot.columns, dot.depth, count
        found = PlainProduct(left, right, target, *sizes, dot.fast, epilogue.bias, epilogue.clips)
        return found if _has_types(found, self.buffers) and _has_lines(found) else None

    def _side(self, matrix: Matrix, *, moves: bool) -> Side | None:
        """A matrix in global memory, equal products being equally far apart. `moves`: from row to row."""
        buffer = self.buffers[matrix.buffer]
        offset = matrix.offset
        strides = [offset.coefficient(symbol) for symbol in self._outer]
        along = self._row is None or offset.coefficient(self._row) == (matrix.row_stride if moves else 0)
        known = {*self._outer} | ({self._row} if self._row is not None else set())
        if buffer.space is Space.SCRATCH or not along or any(atom not in known for atom, _ in offset.terms):
            return None
        step = _joined(strides, [symbol.extent for symbol in self._outer])
        if step is None:
            return None
        strides_ = matrix.row_stride, matrix.column_stride
        return Side(buffer.name, buffer.type.dtype, offset.constant, *strides_, step)

    def epilogue(self, step: RowGroup | Dot) -> tuple[Matrix, _Epilogue] | None:
        """Where a stage writes, and what it does on the way."""
        if not isinstance(step, RowGroup) or len(step.stages) != 1 or len(step.stages[0].symbols) != 1:
            return None
        stage, (column,) = step.stages[0], step.stages[0].symbols
        if column.extent != self.dot.columns or self._row is None or self.dot.out.offset != Affine():
            return None
        taken = _Taken.of(stage.body)
        if taken is None:
            return None
        others = [load for load in taken.loads if not self._is_sum(load, column)]
        if len(others) == len(taken.loads):
            return None
        bias: tuple[str, int] | None = None
        for load in others:
            if load.offset != of(column) + load.offset.constant or self.buffers[load.buffer].space is not Space.INPUT:
                return None
            bias = load.buffer, load.offset.constant
        store = taken.store
        if store.offset.coefficient(column) != 1:
            return None
        out = Matrix(store.buffer, store.offset - of(column), store.offset.coefficient(self._row), 1)
        return out, _Epilogue(bias, taken.clips)

    def _is_sum(self, load: Load, column: Symbol) -> bool:
        """Whether it reads the element of the product that stands there."""
        assert self.phase.row_block is not None
        wanted = of(self.phase.row_block.local) * self.dot.out.row_stride + of(column)
        return load.buffer == self.dot.out.buffer and load.offset == wanted


def _has_types(product: PlainProduct, buffers: Mapping[str, Buffer]) -> bool:
    read, made = product.left.dtype, product.out.dtype
    if read != product.right.dtype or not read.is_float or made not in (read, F32) or (made == F32 and read.bits > 32):
        return False
    several = product.rows * product.count > 1  # of one row, the result may lie where the bias does
    biased = product.bias is None or (several and made == F32 and buffers[product.bias[0]].type.dtype == F32)
    return biased and (product.fast or not product.clips)


def _has_lines(product: PlainProduct) -> bool:
    """Whether each matrix has neighbours in memory along one side, and lines that do not overlap along the other."""
    sides = (
        (product.left, product.rows, product.depth),
        (product.right, product.depth, product.columns),
        (product.out, product.rows, product.columns),
    )
    return all(line_of(side, down, across) is not None for side, down, across in sides)


def line_of(side: Side, rows: int, columns: int) -> tuple[bool, int] | None:
    """Whether a matrix lies row by row, and the elements from line to line; None where it lies otherwise."""
    for by_rows, near, far, length, lines in (
        (True, side.column_stride, side.row_stride, columns, rows),
        (False, side.row_stride, side.column_stride, rows, columns),
    ):
        if near == 1 or length == 1:
            pitch = max(far, length) if lines == 1 else far
            if pitch >= length:
                return by_rows, pitch
    return None


def _joined(strides: Sequence[int], extents: Sequence[int]) -> int | None:
    """The step of one loop in place of several; None where there is none."""
    pairs = [(stride, extent) for stride, extent in zip(strides, extents, strict=True) if extent != 1]
    for (outer, _), (inner, extent) in pairwise(pairs):
        if outer != inner * extent:
            return None
    return pairs[-1][0] if pairs else 0


@dataclass(frozen=True, slots=True)
class _Taken:
    """A straight line: a sum is loaded, then a bias, it is added, clipped, converted, stored; some of that."""

    loads: tuple[Load, ...]
    clips: bool
    store: Store

    @staticmethod
    def of(body: Sequence[Statement]) -> _Taken | None:
        """None for anything else."""
        made: dict[Scalar, Statement] = {s.result: s for s in body if not isinstance(s, Effect)}
        stores = [s for s in body if isinstance(s, Store)]
        if len(stores) != 1 or stores[0].mask is not None:
            return None
        used, at = 1, made.get(stores[0].value)
        if isinstance(at, Map) and at.opcode == "convert":
            used, at = used + 1, made.get(at.operands[0])
        clipped = _clipped(at, made)
        if clipped is not None:
            used, at = used + 2, clipped
        loads: list[Statement | None] = [at]
        if isinstance(at, Map) and at.opcode == "add" and at.dtype == F32:
            used, loads = used + 1, [made.get(number) for number in at.operands]
        found = [load for load in loads if isinstance(load, Load) and load.mask is None]
        if len(found) != len(loads) or used + len(loads) != len(body):
            return None
        return _Taken(tuple(found), clipped is not None, stores[0])


def _clipped(at: Statement | None, made: Mapping[Scalar, Statement]) -> Statement | None:
    """What is not to be below zero."""
    if not isinstance(at, Map) or at.opcode != "maximum" or at.dtype != F32:
        return None
    sides = [made.get(number) for number in at.operands]
    for value, other in (sides, sides[::-1]):
        if isinstance(other, Constant) and other.value == 0:
            return value
    return None
