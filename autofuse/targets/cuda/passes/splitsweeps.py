"""Sweeps of few rows take the axis in parts: a block for each part, and a launch that combines them in a fixed order.

    launch 0  grid(.., part, rows by blocks)     sweep over the part's elements of the axis;
                                                 store of each row its maximum m[p], its sums l[p], its product o[p]
    launch 1  grid(.., rows)                     stage (p): M = max m[p]
                                                 stage (p): w[p] = exp(m[p] - M); L = sum l[p] w[p]
                                                 stage ():  what is made of M and L
                                                 stage (p): w[p] scaled by it
                                                 stage (j): out[j] = sum over p, in order, of o[p][j] w[p]

Attention of few queries over many keys is cut so (Dao and others 2023, "Flash-Decoding"). Where the parts are not
alike the last one is shorter, and a phase of its own. A part of which all is -inf has weights of zero, times which an
infinity among its values is NaN. If all parts are so the row is NaN, as it is in one sweep. A part of which nothing was
chosen has w[p] = 1: its product is of zeros.

A part with an infinite product may look at the whole axis, and have M for its m[p] and weights that are scaled already
(`SweptPart`): it says so, and w[p] is 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from autofuse.ir import index
from autofuse.ir.dtypes import BOOL, F32, DType
from autofuse.ir.index import Affine, Symbol
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import replace
from autofuse.lower.rewrite import reading, rewritten, statements
from autofuse.lower.statements import Constant, Effect, Load, Map, Reduce, Scalar, Statement, Store
from autofuse.lower.tile import Buffer, Dot, Matrix, Phase, RowGroup, Space, Stage, SweptPart
from autofuse.targets.cuda.codegen.hiddentiles import PART
from autofuse.targets.cuda.codegen.sweepresults import scaling_of
from autofuse.targets.cuda.codegen.sweepshapes import swept_steps


def split_sweep(
    phase: Phase, buffers: Mapping[str, Buffer], chunk: int
) -> tuple[tuple[tuple[Phase, ...], ...], dict[str, Buffer]]:
    """The launches that take the place of a phase which is one sweep, and all buffers.

    `chunk`: elements of the axis in a part: fewer than there are.
    """
    return _Splitter(phase, buffers, chunk).run()


class _Splitter:
    """Splits one phase."""

    def __init__(self, phase: Phase, buffers: Mapping[str, Buffer], chunk: int) -> None:
        assert phase.sweep is not None
        assert phase.row_block is not None
        self.phase, self.sweep, self.block, self.chunk = phase, phase.sweep, phase.row_block, chunk
        self.buffers = dict(buffers)
        self.scores, group, self.product, result = swept_steps(phase)
        self.stages, (self.result,) = group.stages, result.stages
        self.extent = self.scores.columns
        self.parts = -(-self.extent // chunk)
        self.points = math.prod(symbol.extent for symbol in phase.grid)
        made = (s.result for _, s in statements(phase.steps) if not isinstance(s, Effect))
        self.next = max(made, default=-1) + 1
        self.reduces = [s for stage in self.stages for s in stage.body if isinstance(s, Reduce)]
        self.held = {r.result: self._workspace("partial", (self.parts, self.points), r.dtype) for r in self.reduces}
        """Where what parts reduced lies, by the reduction's result."""
        self.sums = self.product.out.buffer
        kind = (self.parts, self.points, self.product.columns)
        self.made = self._workspace("product", kind, self.buffers[self.sums].type.dtype)
        self.scaled = self._workspace("scaled", (self.parts, self.points), BOOL)

    def run(self) -> tuple[tuple[tuple[Phase, ...], ...], dict[str, Buffer]]:
        """The launches."""
        whole, rest = divmod(self.extent, self.chunk)
        pieces = [self._piece(Symbol(PART, whole), 0, self.chunk)]
        if rest:
            pieces.append(self._piece(Symbol(PART, 1), whole, rest))
        combined = self._combined()
        phases = (*pieces, combined)
        touched = {name for phase in phases for name in _touched(phase)}
        walked = {s.buffer for stage in self.stages[:2] for s in stage.body if isinstance(s, Store)}
        for name in touched & {self.scores.out.buffer, *walked}:  # a part of it at a time
            kind = TensorType((self.block.size, self.chunk), self.buffers[name].type.dtype)
            self.buffers[name] = replace(self.buffers[name], type=kind)
        touched |= {s.buffer for stage in self.stages[2:] for s in stage.body if isinstance(s, Store)}
        kept = {n: b for n, b in self.buffers.items() if b.space is not Space.SCRATCH or n in touched}
        return (tuple(pieces), (combined,)), kept

    def _workspace(self, wish: str, shape: tuple[int, ...], dtype: DType) -> str:
        return self._add(wish, TensorType(shape, dtype), Space.WORKSPACE)

    def _add(self, wish: str, kind: TensorType, space: Space) -> str:
        name = next(n for number in range(len(self.buffers) + 1) if (n := f"{wish}{number}") not in self.buffers)
        self.buffers[name] = Buffer(name, kind, space)
        return name

    def _fresh(self) -> Scalar:
        self.next += 1
        return self.next - 1

    def _point(self) -> Affine:
        """The number of a row among all."""
        point = Affine()
        for symbol in self.phase.grid:
            point = point * symbol.extent + index.of(symbol)
        return point

    # ---- parts ---------------------------------------------------------------------------------------------------

    def _piece(self, part: Symbol, first: int, extent: int) -> Phase:
        """A sweep over the parts from `first` on, of `extent` elements each. What rows come to is stored."""
        place = index.of(part) + first
        start = place * self.chunk
        width, rows = Matrix("", Affine(), extent, 1), self.product
        scores = replace(
            self.scores,
            columns=extent,
            out=replace(width, buffer=self.scores.out.buffer),
            rhs=replace(self.scores.rhs, offset=self.scores.rhs.offset + start * self.scores.rhs.column_stride),
        )
        product = replace(
            rows,
            depth=extent,
            lhs=replace(width, buffer=rows.lhs.buffer),
            rhs=replace(rows.rhs, offset=rows.rhs.offset + start * rows.rhs.row_stride),
        )
        slot = place * self.points + self._point()
        scaled: list[Statement] = []
        is_scaled = self._constant(scaled, BOOL, False)
        kept = [Store(self.held[reduce.result], slot, reduce.result) for reduce in self.reduces]
        kept += [Store(self.scaled, slot, is_scaled)]
        maximum, weights = (self._walk(stage, start, extent) for stage in self.stages[:2])
        stages = (maximum, self._held(weights), Stage((), (*scaled, *kept), None))
        steps = (scores, RowGroup(stages), product, RowGroup((self._stored(slot),)))
        before = [symbol for symbol in self.phase.grid if symbol != self.block.symbol]
        whole = tuple(self.phase.steps[number] for number in self.sweep.steps)
        sweep = replace(self.sweep, part=SweptPart(start, whole, is_scaled))
        return replace(self.phase, grid=(*before, part, self.block.symbol), steps=steps, sweep=sweep)

    def _held(self, stage: Stage) -> Stage:
        """The weights of a part: 0 is subtracted where all is -inf."""
        maximum = self._maximum
        body: list[Statement] = []
        none = self._map(body, BOOL, "eq", maximum.result, self._constant(body, maximum.dtype, -math.inf))
        zero = self._constant(body, maximum.dtype, 0.0)
        held = self._map(body, maximum.dtype, "select", none, zero, maximum.result)
        known = {maximum.result: held}
        return replace(stage, body=(*body, *(reading(statement, known) for statement in stage.body)))

    @property
    def _maximum(self) -> Reduce:
        """What the sums are stabilised by."""
        return next(reduce for reduce in self.reduces if reduce.result == self.sweep.maximum)

    def _walk(self, stage: Stage, start: Affine, extent: int) -> Stage:
        """A stage over the elements of a part."""
        (walk,) = stage.symbols
        inner = Symbol(walk.name, extent)

        def moved(statement: Statement) -> Statement:
            if isinstance(statement, Load | Store) and self.buffers[statement.buffer].space is Space.SCRATCH:
                return replace(statement, offset=index.of(self.block.local) * extent + index.of(inner))
            return rewritten(statement, lambda value: index.renamed(value, {walk: start + index.of(inner)}))

        return Stage((inner,), tuple(moved(statement) for statement in stage.body), inner)

    def _stored(self, slot: Affine) -> Stage:
        """The product of a part, out of the registers."""
        columns, value = self.product.columns, self._fresh()
        walk = Symbol("j", columns)
        place = index.of(self.block.local) * columns + index.of(walk)
        load = Load(value, self.buffers[self.sums].type.dtype, self.sums, place)
        return Stage((walk,), (load, Store(self.made, slot * columns + index.of(walk), value)), walk)

    # ---- rows ----------------------------------------------------------------------------------------------------

    def _combined(self) -> Phase:
        """What rows are, of what their parts are."""
        walk = Symbol("piece", self.parts)
        maximum = self._maximum
        others = [reduce for reduce in self.reduces if reduce is not maximum]
        weighed = {s.result for s in self.stages[1].body if isinstance(s, Reduce)} - {self.sweep.chosen}
        scratch = TensorType((self.parts,), F32 if maximum.dtype.bits < F32.bits else maximum.dtype)
        weights = self._add("weight", scratch, Space.SCRATCH)
        first = self._part(maximum, walk)
        stages = [
            Stage((walk,), (first, replace(maximum, operand=first.result)), walk),
            self._weighed(walk, maximum, [r for r in others if r.result in weighed], weights),
            *self._plain(walk, [r for r in others if r.result not in weighed]),
        ]
        totals, rows = self._totals(maximum, [r for r in others if r.result in weighed])
        empty = self._add("empty", TensorType((1,), BOOL), Space.SCRATCH)
        body, alone = self._rows(totals)
        is_empty = self._is_lost(maximum, rows)
        stages.append(Stage((), (*rows, *body, Store(empty, Affine(), is_empty)), None))
        shares = self._add("share", TensorType((self.parts,), self.buffers[self.made].type.dtype), Space.SCRATCH)
        stages.append(self._shared(walk, alone, weights, shares))
        stages.append(self._outcome(shares, empty))
        return Phase(self.phase.grid, (RowGroup(tuple(stages)),))

    def _part(self, reduce: Reduce, walk: Symbol) -> Load:
        """What a part reduced."""
        slot = index.of(walk) * self.points + self._point()
        return Load(self._fresh(), reduce.dtype, self.held[reduce.result], slot)

    def _map(self, body: list[Statement], dtype: DType, opcode: str, *operands: Scalar) -> Scalar:
        body.append(Map(self._fresh(), dtype, opcode, operands))
        return self.next - 1

    def _constant(self, body: list[Statement], dtype: DType, value: bool | float) -> Scalar:
        body.append(Constant(self._fresh(), dtype, value))
        return self.next - 1

    def _as(self, body: list[Statement], value: Scalar, dtype: DType, wanted: DType) -> Scalar:
        return value if dtype == wanted else self._map(body, wanted, "convert", value)

    def _weighed(self, walk: Symbol, maximum: Reduce, sums: Sequence[Reduce], weights: str) -> Stage:
        """What a part weighs, and the sums that follow the maximum."""
        body: list[Statement] = []
        top = self._part(maximum, walk)
        body.append(top)
        kind = self.buffers[weights].type.dtype
        both = [self._as(body, one, maximum.dtype, kind) for one in (top.result, maximum.result)]
        weight = self._map(body, kind, "exp", self._map(body, kind, "subtract", *both))
        same = self._map(body, BOOL, "eq", top.result, maximum.result)  # infinite, too
        weight = self._map(body, kind, "select", same, self._constant(body, kind, 1.0), weight)
        for total in sums:
            part = self._part(total, walk)
            body.append(part)
            scaled = self._map(body, total.dtype, "multiply", part.result, self._as(body, weight, kind, total.dtype))
            body.append(replace(total, operand=scaled))
        if self.sweep.chosen is not None:  # a product of zeros alone stays what it is, if the weight is NaN
            chosen = self._part(next(r for r in self.reduces if r.result == self.sweep.chosen), walk)
            body.append(chosen)
            one = self._constant(body, kind, 1.0)
            weight = self._map(body, kind, "select", chosen.result, weight, one)
        return Stage((walk,), (*body, Store(weights, index.of(walk), weight)), walk)

    def _plain(self, walk: Symbol, reduces: Sequence[Reduce]) -> Iterator[Stage]:
        """What follows no maximum is combined as it was reduced."""
        body: list[Statement] = []
        for reduce in reduces:
            part = self._part(reduce, walk)
            body += [part, replace(reduce, operand=part.result)]
        if body:
            yield Stage((walk,), tuple(body), walk)

    def _totals(self, maximum: Reduce, sums: Sequence[Reduce]) -> tuple[dict[Scalar, Scalar], list[Statement]]:
        """Sums of whole rows, which are NaN where all is -inf: by what stood for them before."""
        body: list[Statement] = []
        empty = self._map(body, BOOL, "eq", maximum.result, self._constant(body, maximum.dtype, -math.inf))
        found: dict[Scalar, Scalar] = {}
        for total in sums:
            lost = self._constant(body, total.dtype, math.nan)
            found[total.result] = self._map(body, total.dtype, "select", empty, lost, total.result)
        return found, body

    def _is_lost(self, maximum: Reduce, body: list[Statement]) -> Scalar:
        """Whether the product is NaN though no part counts: a row is all -inf, and something of it was chosen."""
        empty = self._map(body, BOOL, "eq", maximum.result, self._constant(body, maximum.dtype, -math.inf))
        if self.sweep.chosen is None:
            return empty
        return self._map(body, BOOL, "and", empty, self.sweep.chosen)

    def _rows(self, totals: Mapping[Scalar, Scalar]) -> tuple[list[Statement], dict[str, str]]:
        """What was made of each row in the end, and the scratch for it, by the name of what was in the row block."""
        alone: dict[str, str] = {}
        body: list[Statement] = []
        for statement in (s for stage in self.stages[2:] for s in stage.body):
            made = reading(statement, totals)
            if isinstance(made, Store) and self.buffers[made.buffer].space is Space.SCRATCH:
                kind = self.buffers[made.buffer].type.dtype
                alone[made.buffer] = self._add("row", TensorType((1,), kind), Space.SCRATCH)
                made = replace(made, buffer=alone[made.buffer], offset=Affine())
            body.append(made)
        return body, alone

    def _shared(self, walk: Symbol, alone: Mapping[str, str], weights: str, shares: str) -> Stage:
        """What the product of a part is multiplied with: its weight, scaled by what the row has one of."""
        first, scaling, value = scaling_of(self.result)
        place, kind, dtype = index.of(walk), self.buffers[weights].type.dtype, self.buffers[shares].type.dtype
        weight, scaled = self._fresh(), self._fresh()
        slot = place * self.points + self._point()
        body: list[Statement] = [Load(weight, kind, weights, place), Load(scaled, BOOL, self.scaled, slot)]
        known = {first.result: self._as(body, weight, kind, dtype)}
        for statement in scaling:
            if isinstance(statement, Load):
                statement = replace(statement, buffer=alone[statement.buffer], offset=Affine())
            body.append(reading(statement, known))
        share = self._map(body, dtype, "select", scaled, self._constant(body, dtype, 1.0), known.get(value, value))
        return Stage((walk,), (*body, Store(shares, place, share)), walk)

    def _outcome(self, shares: str, empty: str) -> Stage:
        """The product of a row: the parts that count, in order."""
        (walk,) = self.result.symbols
        body: list[Statement] = []
        dtype = self.buffers[self.made].type.dtype
        total = self._constant(body, dtype, 0.0)
        for part in range(self.parts):
            share, value = self._fresh(), self._fresh()
            slot = (Affine(part * self.points) + self._point()) * self.product.columns + index.of(walk)
            body += [
                Load(share, dtype, shares, Affine(part)),
                Load(value, dtype, self.made, slot),
            ]
            scaled = self._map(body, dtype, "multiply", value, share)
            total = self._map(body, dtype, "add", total, scaled)
        lost = self._fresh()
        body.append(Load(lost, BOOL, empty, Affine()))
        total = self._map(body, dtype, "select", lost, self._constant(body, dtype, math.nan), total)
        (store,) = (s for s in self.result.body if isinstance(s, Store))
        total = self._as(body, total, dtype, self.buffers[store.buffer].type.dtype)
        stored = rewritten(replace(store, value=total), self._in_row)
        return Stage((walk,), (*body, stored), walk)

    def _in_row(self, value: Affine) -> Affine:
        """A place, where rows are not blocks: what was the row in its block is part of the row's number."""
        return index.renamed(value, {self.block.local: Affine()})


def _touched(phase: Phase) -> Iterator[str]:
    for step in phase.steps:
        if isinstance(step, Dot):
            yield from (step.out.buffer, step.lhs.buffer, step.rhs.buffer)
    yield from (s.buffer for _, s in statements(phase.steps) if isinstance(s, Load | Store))
