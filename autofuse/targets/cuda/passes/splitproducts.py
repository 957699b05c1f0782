"""Products whose results are few tiles take their depth in parts: blocks for each part, and a launch that adds them up.

    launch 0  grid(.., part, rows by blocks)     stage (k) { what makes lhs[:, part] on chip, if anything does }
                                                 dot   made[part] = lhs[:, part] @ rhs[part, :]
    launch 1  grid(.., row, column)              stage () { total = made[0] + made[1] + ..; what follows; store }

Sums are added in one order. What makes the left operand is elementwise, and so is what follows. A product of rows that
are reduced before or afterwards stays whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from autofuse.ir import index
from autofuse.ir.index import Affine, Symbol
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.rewrite import reading, rewritten, statements
from autofuse.lower.schedule import SPLIT
from autofuse.lower.statements import Constant, Effect, Load, Map, Position, Scalar, Statement, Store, Test
from autofuse.lower.tile import Buffer, Dot, Matrix, Phase, RowGroup, Space, Stage, TileProgram
from autofuse.targets.cuda.codegen.blockproducts import product_clocks
from autofuse.targets.cuda.codegen.hiddentiles import PART
from autofuse.targets.cuda.codegen.producttiles import compute_dtype, parts_clocks
from autofuse.targets.cuda.decisions import LIBRARY

_LEAST_CHUNK = 64
"""Depth of a part, at least, unless a schedule asks for more parts."""
_STEP = 16
"""Depths of parts are a multiple of this: of whole tiles of all units."""
_TRIED = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
_GAIN = 0.9
"""Of the time as a whole that parts may take, to be worth a second launch."""
_PLAIN = Constant | Position | Test | Load | Map | Store


def split_products(program: TileProgram, arch: str) -> TileProgram:
    """The program with its product in parts, if it is one and the schedule or its shape asks for that; else itself."""
    asked = program.schedule[SPLIT]
    if asked == 1 or program.schedule[LIBRARY] or len(program.launches) != 1 or len(program.launches[0]) != 1:
        return program
    buffers = {buffer.name: buffer for buffer in program.buffers}
    splitter = _Splitter.of(program.launches[0][0], buffers)
    if splitter is None:
        return program
    chunk = splitter.chunk(asked) if asked else splitter.best_chunk(program, arch)
    if chunk >= splitter.dot.depth:
        return program
    launches, memory = splitter.run(chunk)
    return replace(program, buffers=memory, launches=launches, whole=program)


@dataclass(frozen=True, slots=True)
class _Splitter:
    """Splits one phase."""

    phase: Phase
    buffers: Mapping[str, Buffer]
    before: Stage | None
    """What makes the left operand on chip."""
    dot: Dot
    body: tuple[Statement, ...]
    """What follows for an element of the product, in which its scalar is loaded from where the product stores it."""
    column: Symbol
    """Of the body."""

    @staticmethod
    def of(phase: Phase, buffers: Mapping[str, Buffer]) -> _Splitter | None:
        """None for a phase that is no product with elementwise work around it."""
        first = int(isinstance(phase.steps[0], RowGroup))
        if phase.sweep is not None or phase.iterations is not None or not first < len(phase.steps) <= first + 2:
            return None
        dot, last = phase.steps[first], phase.steps[first + 1 :]
        if not isinstance(dot, Dot) or dot.accumulate or buffers[dot.rhs.buffer].space is not Space.INPUT:
            return None
        before = _only_stage(phase.steps[0]) if first else None
        made = before is not None and _makes_left(before, dot, phase, buffers)
        if not made and (first or buffers[dot.lhs.buffer].space is not Space.INPUT):
            return None
        if not last:
            column = Symbol("column", dot.columns)
            return _Splitter(phase, buffers, before, dot, (), column) if _has_rows(phase, dot) else None
        stage = _only_stage(last[0])
        if stage is None or phase.row_block is None or not _takes_product(stage, dot, buffers):
            return None
        return _Splitter(phase, buffers, before, dot, stage.body, stage.symbols[0])

    @property
    def row(self) -> Symbol:
        """Of the product."""
        block = self.phase.row_block
        return Symbol("row", self.dot.rows) if block is None else block.symbol

    @property
    def outer(self) -> list[Symbol]:
        """What counts products."""
        return [symbol for symbol in self.phase.grid if symbol != self.row]

    # ---- how many ------------------------------------------------------------------------------------------------

    def chunk(self, parts: int) -> int:
        """Depth of each of so many parts; the last one may have less."""
        step = _STEP if self.before is None else math.lcm(_STEP, _inner(self.before))
        return -(-self.dot.depth // (parts * step)) * step

    def best_chunk(self, program: TileProgram, arch: str) -> int:
        """The depth of the parts that take least time, by the clocks that tiles are chosen by."""
        dot, others = self.dot, math.prod(symbol.extent for symbol in self.outer)
        elements, itemsize = others * self.row.extent * dot.columns, compute_dtype(dot).itemsize
        found = dot.depth
        least = _GAIN * self._clocks(program, arch, others, dot.depth)
        for parts in _TRIED[1:]:
            chunk = self.chunk(parts)
            if chunk < _LEAST_CHUNK or -(-dot.depth // chunk) != parts:
                continue
            clocks = self._clocks(program, arch, others * parts, chunk) + parts_clocks(parts * elements * itemsize)
            if clocks < least:
                found, least = chunk, clocks
        return found

    def _clocks(self, program: TileProgram, arch: str, others: int, depth: int) -> float:
        return depth * product_clocks(self.dot, self.buffers, arch, program.schedule, self.row.extent, others)

    # ---- launches ------------------------------------------------------------------------------------------------

    def run(self, chunk: int) -> tuple[tuple[tuple[Phase, ...], ...], tuple[Buffer, ...]]:
        """The launches, and all buffers."""
        whole, rest = divmod(self.dot.depth, chunk)
        points = math.prod(symbol.extent for symbol in self.outer) * self.row.extent
        dtype, parts = compute_dtype(self.dot), whole + (rest > 0)
        name = next(n for number in range(len(self.buffers) + 1) if (n := f"product{number}") not in self.buffers)
        made = Buffer(name, TensorType((parts, points, self.dot.columns), dtype), Space.WORKSPACE)
        pieces = [self._piece(made, Symbol(PART, whole), 0, chunk, chunk)]
        if rest:
            pieces.append(self._piece(made, Symbol(PART, 1), whole, chunk, rest))
        kept = [self._cut(buffer, chunk) for buffer in self.buffers.values() if buffer.name != self._on_chip]
        return (tuple(pieces), (self._combined(made, parts),)), (*kept, made)

    @property
    def _on_chip(self) -> str | None:
        """Where the product is stored for what follows."""
        return self.dot.out.buffer if self.body else None

    def _cut(self, buffer: Buffer, chunk: int) -> Buffer:
        """A buffer as it is for parts of the depth."""
        if buffer.space is not Space.SCRATCH:
            return buffer
        rows = buffer.type.size // self.dot.depth
        return replace(buffer, type=TensorType((rows, chunk), buffer.type.dtype))

    def _point(self) -> Affine:
        """The number of a row among all."""
        return _walked((*self.outer, self.row))

    def _piece(self, made: Buffer, part: Symbol, first: int, chunk: int, depth: int) -> Phase:
        """The product over the parts from `first` on, of `depth` each."""
        dot, block = self.dot, self.phase.row_block
        place = index.of(part) + first
        _, points, columns = made.type.shape
        slot = (place * points + self._point()) * columns
        if block is None:
            slot = index.renamed(slot, {self.row: Affine()})
        lhs = replace(dot.lhs, offset=dot.lhs.offset + place * (chunk * dot.lhs.column_stride))
        steps: list[RowGroup] = []
        if self.before is not None:
            lhs = Matrix(dot.lhs.buffer, Affine(), depth, 1)
            steps.append(RowGroup((self._begun(self.before, place, chunk, depth),)))
        product = replace(
            dot,
            out=Matrix(made.name, slot, columns, 1),
            lhs=lhs,
            rhs=replace(dot.rhs, offset=dot.rhs.offset + place * (chunk * dot.rhs.row_stride)),
            depth=depth,
            dtype=made.type.dtype,
        )
        rows = () if block is None else (self.row,)
        return replace(self.phase, grid=(*self.outer, part, *rows), steps=(*steps, product))

    def _begun(self, stage: Stage, place: Affine, chunk: int, depth: int) -> Stage:
        """What makes a part of the left operand: `depth` of it, from `place` times `chunk` on."""
        (outer, *others), block, each = stage.symbols, self.phase.row_block, _inner(stage)
        assert block is not None
        inner = Symbol(outer.name, depth // each)
        start = {outer: place * (chunk // each) + index.of(inner)}
        symbols = (inner, *others)

        def moved(statement: Statement) -> Statement:
            if isinstance(statement, Store):
                return replace(statement, offset=index.of(block.local) * depth + _walked(symbols))
            return rewritten(statement, lambda value: index.renamed(value, start))

        return Stage(symbols, tuple(map(moved, stage.body)), symbols[-1])

    def _combined(self, made: Buffer, parts: int) -> Phase:
        """The sums of parts, and what follows."""
        _, points, columns = made.type.shape
        dtype, body = made.type.dtype, list[Statement]()
        known = [s.result for _, s in statements(self.phase.steps) if not isinstance(s, Effect)]
        first = max(known, default=-1) + 1
        slot = self._point() * columns + index.of(self.column)
        for part in range(parts):
            body.append(Load(first + part, dtype, made.name, slot + part * points * columns))
        total = first
        for part in range(1, parts):
            body.append(Map(first + parts + part, dtype, "add", (total, first + part)))
            total = first + parts + part
        if dtype != self.dot.dtype:
            body.append(Map(first + parts, self.dot.dtype, "convert", (total,)))
            total = first + parts
        body += self._followed(total)
        return Phase((*self.outer, self.row, self.column), (RowGroup((Stage((), tuple(body), None),)),), self.column)

    def _followed(self, total: Scalar) -> Iterator[Statement]:
        """What is done with an element of the product."""
        dot, block = self.dot, self.phase.row_block
        if not self.body:
            row = Affine() if block is not None else index.of(self.row) * dot.out.row_stride
            yield Store(dot.out.buffer, dot.out.offset + row + index.of(self.column), total)
            return
        assert block is not None
        place = {block.local: Affine()}
        known = {s.result: total for s in self.body if isinstance(s, Load) and s.buffer == dot.out.buffer}
        for statement in self.body:
            if not isinstance(statement, Load) or statement.buffer != dot.out.buffer:
                yield reading(rewritten(statement, lambda value: index.renamed(value, place)), known)


def _has_rows(phase: Phase, dot: Dot) -> bool:
    """Whether the rows of the result follow those of the row block."""
    block = phase.row_block
    return block is None or dot.out.offset.coefficient(block.symbol) == dot.out.row_stride


def _only_stage(step: RowGroup | Dot) -> Stage | None:
    """The stage of a step that walks elements of a row, each alone."""
    if not isinstance(step, RowGroup) or len(step.stages) != 1:
        return None
    (stage,) = step.stages
    alone = all(isinstance(s, _PLAIN) for s in stage.body) and not stage.before
    return stage if alone and stage.symbols and stage.vectorised == stage.symbols[-1] else None


def _inner(stage: Stage) -> int:
    """Iterations of the loops inside of the first one."""
    return math.prod(symbol.extent for symbol in stage.symbols[1:])


def _walked(symbols: Sequence[Symbol]) -> Affine:
    """The number of an iteration."""
    number = Affine()
    for symbol in symbols:
        number = number * symbol.extent + index.of(symbol)
    return number


def _makes_left(stage: Stage, dot: Dot, phase: Phase, buffers: Mapping[str, Buffer]) -> bool:
    """Whether all that a stage does is to make the left operand on chip."""
    block = phase.row_block
    if block is None or (dot.lhs.offset, dot.lhs.row_stride, dot.lhs.column_stride) != (Affine(), dot.depth, 1):
        return False
    place = index.of(block.local) * dot.depth + _walked(stage.symbols)
    stores = [s for s in stage.body if isinstance(s, Store)]
    loads = [s for s in stage.body if isinstance(s, Load)]
    own = [(s.buffer, s.offset, s.mask) for s in stores] == [(dot.lhs.buffer, place, None)]
    whole = stage.symbols[0].extent * _inner(stage) == dot.depth
    return own and whole and all(buffers[s.buffer].space is Space.INPUT for s in loads)


def _takes_product(stage: Stage, dot: Dot, buffers: Mapping[str, Buffer]) -> bool:
    """Whether a stage does something with each element of the product, which is on chip, and stores what it makes."""
    scratch = [s for s in stage.body if isinstance(s, Load | Store) and buffers[s.buffer].space is Space.SCRATCH]
    own = all(isinstance(s, Load) and s.buffer == dot.out.buffer and s.mask is None for s in scratch)
    return own and len({s.offset for s in scratch}) == 1 and [s.extent for s in stage.symbols] == [dot.columns]
