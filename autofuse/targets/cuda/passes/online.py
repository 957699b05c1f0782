"""Products over a softmax become one walk along its axis, with sums that are rescaled as the maximum grows.

Before (attention, of a row):                     After:

    dot    s = q k^T                                  sweep along the keys, tile by tile:
    stage (k): m = max x(s[k])                            dot    s = q k^T
    stage (k): l = sum exp(x(s[k]) - m)                   stage (k): m = max x(s[k]); store x
    stage (k): p[k] = exp(x(s[k]) - m) / l                stage (k): e = exp(x[k] - m); l = sum e; p[k] = e
    dot    out = p v                                      stage (): store l
                                                          dot    a = p v
                                                      stage (j): out[j] = a[j] / l

What is looked for is not these stages but what `lower/stabilised.py` finds: maxima, sums and stored values that are
proportional to exp(-m). What a row has one of (here 1 / l) is applied to the product in the end, and not to a row of
which nothing was chosen (dropped weights). FlashAttention rescales so (Dao and others 2022).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from autofuse.ir import index
from autofuse.ir.dtypes import BOOL, DType
from autofuse.ir.index import Affine, Element, Symbol
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.rewrite import rewritten, statements
from autofuse.lower.schedule import Schedule
from autofuse.lower.stabilised import Factor, Number, RowValues, UnknownFormError, Weight, Weights, dtype_of
from autofuse.lower.statements import Effect, Load, Map, Reduce, Scalar, Statement, Store
from autofuse.lower.tile import Buffer, Dot, Matrix, Phase, RowBlock, RowGroup, Space, Stage, Step, Sweep, TileProgram
from autofuse.targets.cuda.codegen.producttiles import compute_dtype
from autofuse.targets.cuda.codegen.sweepshapes import SweepSize, choose_sweep
from autofuse.targets.cuda.codegen.tiles import with_rows
from autofuse.targets.cuda.passes.splitsweeps import split_sweep

_PRODUCTS = 2
_LEAST_STEPS = 3
"""Two products and the stages between them."""


def sweep_products(program: TileProgram, arch: str) -> TileProgram:
    """The program with products over a softmax swept, where its schedule and the device let it; else itself."""
    *before, last = program.launches
    if len(last) != 1 or last[0].iterations is not None:
        return program
    buffers = {buffer.name: buffer for buffer in program.buffers}
    phase = _in_rows(last[0], buffers)
    for first in range(len(phase.steps) - _LEAST_STEPS + 1):
        chain = _chain(phase, first, buffers)
        size = None if chain is None else chain.size(program.schedule, arch)
        if chain is not None and size is not None:
            swept, memory = with_rows(*_Writer(chain, size.tile).phase(), size.rows)
            launches: tuple[tuple[Phase, ...], ...] = ((swept,),)
            if size.chunk:
                launches, memory = split_sweep(swept, memory, size.chunk)
            return replace(program, buffers=tuple(memory.values()), launches=(*before, *launches))
    return program


def _in_rows(phase: Phase, buffers: Mapping[str, Buffer]) -> Phase:
    """A phase of products of one row each as one with a block of one row; itself if it is none."""
    dots = [step for step in phase.steps if isinstance(step, Dot)]
    if phase.row_block is not None or len(dots) < _PRODUCTS or any(dot.rows != 1 for dot in dots):
        return phase
    taken = {symbol.name for symbol in phase.grid}
    row, local = (
        Symbol(next(n for n in (f"{wish}{'_' * m}" for m in range(len(taken) + 1)) if n not in taken), 1)
        for wish in ("query", "row")
    )

    def placed(statement: Statement) -> Statement:
        if isinstance(statement, Load | Store) and buffers[statement.buffer].space is Space.SCRATCH:
            size = buffers[statement.buffer].type.size
            return replace(statement, offset=statement.offset + index.of(local) * size)
        return statement

    steps = tuple(
        RowGroup(tuple(replace(stage, body=tuple(map(placed, stage.body))) for stage in step.stages))
        if isinstance(step, RowGroup)
        else step
        for step in phase.steps
    )
    return replace(phase, grid=(*phase.grid, row), steps=steps, row_block=RowBlock(row, local, 1))


@dataclass(frozen=True, slots=True)
class _Chain:
    """Two products and the stages between them, which can be swept."""

    phase: Phase
    buffers: Mapping[str, Buffer]
    first: int
    scores: Dot
    product: Dot
    row: RowValues
    stored: Weight
    """What the second product multiplies."""
    kept: tuple[Store, ...]
    """What is stored of each row, by the numbers of values."""

    @property
    def block(self) -> RowBlock:
        """The rows that are worked on together."""
        assert self.phase.row_block is not None
        return self.phase.row_block

    @property
    def place(self) -> Affine:
        """Of an element of the axis, in scratch of a row block."""
        return index.of(self.block.local) * self.scores.columns + index.of(self.row.walk)

    def size(self, schedule: Schedule, arch: str) -> SweepSize | None:
        """Rows of a block and elements of a tile; None where the schedule or the device has none."""
        extent = self.block.symbol.extent
        others = math.prod(symbol.extent for symbol in self.phase.grid) // max(extent, 1)
        alone = len(self.phase.steps) == _LEAST_STEPS
        return choose_sweep(self.scores, self.product, self.buffers, extent, others, schedule, arch, splits=alone)


def _chain(phase: Phase, first: int, buffers: Mapping[str, Buffer]) -> _Chain | None:
    """What can be swept from a step on."""
    scores, group, product = phase.steps[first : first + _LEAST_STEPS]
    if phase.row_block is None or not (isinstance(scores, Dot) and isinstance(product, Dot)):
        return None
    if not isinstance(group, RowGroup) or not _are_chained(scores, product, buffers):
        return None
    others = (*phase.steps[:first], *phase.steps[first + _LEAST_STEPS :])
    touched = {s.buffer for _, s in statements((group,)) if isinstance(s, Load | Store)}
    inside = {name for name in touched if buffers[name].space is Space.SCRATCH} | {scores.out.buffer}
    stored = {s.buffer for _, s in statements((group,)) if isinstance(s, Store)} | {scores.out.buffer}
    if not stored.isdisjoint(_touched(others)):
        return None
    row = RowValues(scores.columns)
    try:
        row.read(group.stages, frozenset(inside))
    except UnknownFormError:
        return None
    return _weighed(phase, first, buffers, scores, product, row)


def _are_chained(scores: Dot, product: Dot, buffers: Mapping[str, Buffer]) -> bool:
    """Whether one product's columns are the depth of another, on chip, and nothing else is added to either."""
    alike = scores.columns == product.depth > 0 and not (scores.accumulate or product.accumulate)
    matrices = (scores.out, product.lhs)
    plain = all(m.offset == Affine() and (m.row_stride, m.column_stride) == (scores.columns, 1) for m in matrices)
    on_chip = [buffers[m.buffer].space is Space.SCRATCH for m in (*matrices, scores.rhs, product.rhs)]
    return alike and plain and on_chip == [True, True, False, False] and scores.out.buffer != product.lhs.buffer


def _touched(steps: Iterable[Step]) -> frozenset[str]:
    dots = [step for step in steps if isinstance(step, Dot)]
    found = [m.buffer for dot in dots for m in (dot.out, dot.lhs, dot.rhs)]
    return frozenset((*found, *(s.buffer for _, s in statements(steps) if isinstance(s, Load | Store))))


def _weighed(
    phase: Phase, first: int, buffers: Mapping[str, Buffer], scores: Dot, product: Dot, row: RowValues
) -> _Chain | None:
    """The chain, if all that it carries along the axis is plain or stabilised by one maximum."""
    weights = Weights(row)
    walked = [(store, number) for store, number, along in row.stores if along]
    if any(buffers[store.buffer].space is not Space.SCRATCH for store, _ in walked):
        return None
    stored = [(store, weights.of(number)) for store, number in walked if store.buffer == product.lhs.buffer]
    if len(stored) != 1 or (weight := stored[0][1]) is None:
        return None
    kept = tuple(store for store, _, along in row.stores if not along)
    chain = _Chain(phase, buffers, first, scores, product, row, weight, kept)
    own = [store for store, _ in stored]
    own += [
        v.statement for v in row.values if isinstance(v.statement, Load) and v.statement.buffer == scores.out.buffer
    ]
    if any(access.offset != chain.place for access in own):
        return None
    return chain if all(weights.carries(number, weight.maximum) for number in row.reductions) else None


class _Writer:
    """Writes the phase that sweeps."""

    def __init__(self, chain: _Chain, tile: int) -> None:
        self.chain = chain
        self.tile = tile
        self.buffers = dict(chain.buffers)
        made = (s.result for _, s in statements(chain.phase.steps) if not isinstance(s, Effect))
        self._next = max(made, default=-1) + 1
        self._totals: dict[Number, Scalar] = {}
        """Results of reductions."""
        self._chosen: Scalar | None = None
        """Whether anything of a row was chosen, where there is a choice."""

    def phase(self) -> tuple[Phase, Mapping[str, Buffer]]:
        """The phase in its new form, and its buffers."""
        chain, phase = self.chain, self.chain.phase
        first, last = chain.first, chain.first + _LEAST_STEPS
        argument = self._argument()
        stages = [self._maximum(argument), self._weights(argument)]
        kept, factors, chosen = self._rows()
        if kept.body:
            stages.append(kept)
        sums = self._scratch("sums", compute_dtype(chain.product), chain.product.columns)
        out = Matrix(sums, Affine(), chain.product.columns, 1)
        product = replace(chain.product, out=out, dtype=compute_dtype(chain.product))
        steps = (
            *phase.steps[:first],
            chain.scores,
            RowGroup(tuple(stages)),
            product,
            RowGroup((self._result(sums, factors, chosen),)),
            *phase.steps[last:],
        )
        sweep = Sweep(first, self.tile, self._totals[chain.stored.maximum], self._chosen)
        touched = _touched(steps)
        memory = {n: b for n, b in self.buffers.items() if b.space is not Space.SCRATCH or n in touched}
        return replace(phase, steps=steps, sweep=sweep), memory

    def _scratch(self, wish: str, dtype: DType, size: int) -> str:
        """A new buffer with `size` elements for each row of a block."""
        name = next(n for number in range(len(self.buffers) + 1) if (n := f"{wish}{number}") not in self.buffers)
        kind = TensorType((self.chain.block.size, size), dtype)
        self.buffers[name] = Buffer(name, kind, Space.SCRATCH)
        return name

    def _fresh(self) -> Scalar:
        self._next += 1
        return self._next - 1

    # ---- stages --------------------------------------------------------------------------------------------------

    def _argument(self) -> str:
        """Where what the maximum is of is kept for the second stage: where it is anyway, if nothing was computed."""
        statement = self.chain.row.values[self.chain.stored.argument].statement
        if isinstance(statement, Load) and statement.buffer == self.chain.scores.out.buffer:
            return statement.buffer
        return self._scratch("argument", dtype_of(statement), self.chain.scores.columns)

    def _maximum(self, argument: str) -> Stage:
        chain, row = self.chain, self.chain.row
        plain = [n for n in row.reductions if not row.values[self._operand(n)].reduced]
        body, known = self._body((chain.stored.argument, *map(self._operand, plain)), {})
        if argument != chain.scores.out.buffer:
            body.append(Store(argument, self._placed(chain.place), known[chain.stored.argument]))
        body += self._reductions(plain, known)
        return self._walking(body)

    def _weights(self, argument: str) -> Stage:
        chain, row = self.chain, self.chain.row
        sums = [number for number in row.reductions if number not in self._totals]
        dtype = self.buffers[argument].type.dtype
        held = {chain.stored.argument: Load(0, dtype, argument, self._placed(chain.place))}
        chosen = () if chain.stored.chosen is None else (chain.stored.chosen,)
        body, known = self._body((chain.stored.base, *map(self._operand, sums), *chosen), held)
        body.append(Store(chain.product.lhs.buffer, self._placed(chain.place), known[chain.stored.base]))
        body += self._reductions(sums, known)
        for condition in chosen:
            self._chosen = self._fresh()
            body.append(Reduce(self._chosen, BOOL, "or", known[condition]))
        return self._walking(body)

    def _rows(self) -> tuple[Stage, list[tuple[Factor, str]], str | None]:
        """What is stored of each row once the axis is done; where factors are then, and whether anything was chosen."""
        chain, factors = self.chain, self.chain.stored.factors
        body, known = self._body((*(s.value for s in chain.kept), *(factor.value for factor in factors)), {})
        body += [replace(store, value=known[store.value]) for store in chain.kept]
        found: list[tuple[Factor, str]] = []
        for factor in factors:
            name = self._scratch("factor", dtype_of(chain.row.values[factor.value].statement), 1)
            body.append(Store(name, index.of(chain.block.local), known[factor.value]))
            found.append((factor, name))
        chosen = None
        if self._chosen is not None and any(factor.inside for factor in factors):
            chosen = self._scratch("chosen", BOOL, 1)
            body.append(Store(chosen, index.of(chain.block.local), self._chosen))
        return Stage((), tuple(body), None), found, chosen

    def _result(self, sums: str, factors: Sequence[tuple[Factor, str]], chosen: str | None) -> Stage:
        """The product, with the factors of its row, where it belongs."""
        chain, block = self.chain, self.chain.block
        dtype, wanted, out = compute_dtype(chain.product), chain.product.dtype, chain.product.out
        walk, local = Symbol("j", chain.product.columns), index.of(block.local)
        value = self._fresh()
        body: list[Statement] = [Load(value, dtype, sums, local * chain.product.columns + index.of(walk))]

        def mapped(opcode: str, kind: DType, *numbers: Scalar) -> Scalar:
            body.append(Map(self._fresh(), kind, opcode, numbers))
            return self._next - 1

        def loaded(name: str) -> tuple[Scalar, DType]:
            scalar, kind = self._fresh(), self.buffers[name].type.dtype
            body.append(Load(scalar, kind, name, local))
            return scalar, kind

        def scaled(value: Scalar, inside: bool) -> Scalar:
            for factor, name in factors:
                if factor.inside == inside:
                    scalar, kind = loaded(name)
                    scalar = scalar if kind == dtype else mapped("convert", dtype, scalar)
                    value = mapped(factor.opcode, dtype, value, scalar)
            return value

        if chosen is not None:
            value = mapped("select", dtype, loaded(chosen)[0], scaled(value, inside=True), value)
        value = scaled(value, inside=False)
        if wanted != dtype:
            value = mapped("convert", wanted, value)
        start = index.renamed(out.offset, {block.symbol: index.of(block.symbol) - local, block.local: Affine()})
        body.append(Store(out.buffer, start + local * out.row_stride + index.of(walk) * out.column_stride, value))
        return Stage((walk,), tuple(body), walk)

    # ---- statements ----------------------------------------------------------------------------------------------

    @property
    def _walk(self) -> Symbol:
        return Symbol("k", self.chain.scores.columns)

    def _walking(self, body: Sequence[Statement]) -> Stage:
        return Stage((self._walk,), tuple(body), self._walk)

    def _placed(self, value: Affine) -> Affine:
        return index.renamed(value, {self.chain.row.walk: index.of(self._walk)})

    def _operand(self, number: Number) -> Number:
        reduce = self.chain.row.values[number].statement
        assert isinstance(reduce, Reduce)
        return reduce.operand

    def _reductions(self, numbers: Iterable[Number], known: Mapping[Number, Scalar]) -> Iterator[Statement]:
        for number in numbers:
            reduce = self.chain.row.values[number].statement
            assert isinstance(reduce, Reduce)
            self._totals[number] = self._fresh()
            yield replace(reduce, result=self._totals[number], operand=known[reduce.operand])

    def _body(
        self, roots: Sequence[Number], held: Mapping[Number, Load]
    ) -> tuple[list[Statement], dict[Number, Scalar]]:
        """What computes values, and their scalars. `held`: those that are loaded."""
        known, body = dict(self._totals), list[Statement]()
        for number, load in held.items():
            known[number] = self._fresh()
            body.append(replace(load, result=known[number]))
        for number in self.chain.row.needed(roots, known):
            known[number] = self._fresh()
            body.append(self._made(self.chain.row.values[number].statement, known[number], known))
        return body, known

    def _made(self, statement: Statement, result: Scalar, known: Mapping[Number, Scalar]) -> Statement:
        """A statement of numbers as one of scalars."""

        def element(variable: index.Variable) -> Affine | None:
            if isinstance(variable, Element):
                return index.of(Element(known[int(variable.source)], (), variable.lo, variable.hi))
            return None

        moved = rewritten(statement, lambda value: self._placed(index.substitute(value, element)))
        match moved:
            case Map(operands=numbers):
                return replace(moved, result=result, operands=tuple(known[number] for number in numbers))
            case Load(mask=mask, fill=fill):
                of = {None: None, **known}
                return replace(moved, result=result, mask=of[mask], fill=of[fill])
            case Store():
                raise TypeError("a store has no result")
            case _:
                return replace(moved, result=result)
