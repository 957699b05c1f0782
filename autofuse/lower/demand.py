"""Demand-driven lowering of one phase: every node is asked for its value at an index.

Data movement rewrites the index, arithmetic becomes a Map, a reduction at an index of grid symbols becomes a stage.
An instance (value, index) is computed once per stage.

What a node needs it asks for by yielding; `PhaseBuilder.value` keeps those that wait on a stack of its own. So a chain
of nodes may be of any length, whatever the interpreter's limit on recursion and however deep the caller is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autofuse.errors import LegalityError
from autofuse.fusion.candidate import KernelCandidate, is_inlined
from autofuse.fusion.dimensions import AxisFactor, Dimensions
from autofuse.fusion.loops import MAX_HELD
from autofuse.fusion.viewchains import MOST_DIVISIONS, index_divisions
from autofuse.ir import dtypes, index
from autofuse.ir.graph import Node, Value
from autofuse.ir.index import Affine, Element, Quotient, Remainder, Symbol
from autofuse.ir.oprecord import Role, is_fast
from autofuse.ir.optable import elementwise_op, role_of
from autofuse.ir.pieces import Condition, Piece
from autofuse.lazydataclass import replace
from autofuse.lower.looplowering import LoopBuilder, Rows
from autofuse.lower.overwriting import Overwriting
from autofuse.lower.phasedrafts import BufferTable, Demand, Instance, StageDraft, T, Wanted
from autofuse.lower.phaseframe import PhaseFrame
from autofuse.lower.places import pieces_of
from autofuse.lower.reducing import ReductionBuilder
from autofuse.lower.statements import Position, Scalar, Store
from autofuse.lower.tile import Phase

_MOST_DIVISIONS = 16 * MOST_DIVISIONS
"""Of an index. An atom has fewer, whatever loops walk it; indices through several atoms may grow without end."""


class PhaseBuilder(PhaseFrame):
    """Builds the draft of one phase. Dots are added by `contraction.ContractionBuilder`, which drives this class."""

    first_level = 0
    """Of what is computed from inputs alone."""
    reads_again = False
    """Whether a row block multiplies by the same right operands again and again."""

    def __init__(
        self,
        candidate: KernelCandidate,
        dims: Dimensions,
        grid: Sequence[AxisFactor],
        buffers: BufferTable,
        keep: Mapping[Instance, tuple[int, tuple[Symbol, ...]]],
        local: Symbol | None,
        blocks: Sequence[Overwriting] = (),
    ) -> None:
        """`keep`: instances put in scratch, and the level and symbols of the stage that computes them.

        `local`: the row block's inner row. `blocks`: values that are stored as blocks of outputs.
        """
        super().__init__(candidate, dims, grid, buffers, local)
        self.blocks = {block.update: block for block in blocks}
        self._keep = keep
        self._kept: dict[Instance, str] = {}
        self._reductions = ReductionBuilder()
        self._loops = LoopBuilder(candidate.nodes)

    # ---- roots ---------------------------------------------------------------------------------------------------

    def complete(self) -> None:
        """Add what a phase has beside its outputs."""

    def around(self, phase: Phase) -> Phase:
        """The phase with what it is beside its steps."""
        return phase

    def store_output(self, value: Value) -> None:
        """Store every element of `value` into its output buffer."""
        if self._loops and self._loops.is_in_memory(value):
            self._finished(self._loops.update(self, value))
            return
        rows = self._loops.rows(self, value) if self._loops else None
        symbols, places = self._walked(value) if rows is None else self._placed(value, rows)
        stage = self.draft.stage(self.levels[value], symbols)
        mask = None if rows is None else self.test(stage, rows.conditions)
        for at in places:
            scalar = self.value(stage, value, at, None)
            stage.roots.append((value, at))
            if value in self.blocks:
                self.store_block(stage, self.blocks[value], at, scalar, mask)
                continue
            offset = index.linearize(at, value.type.shape)
            stage.body.append(Store(self.buffers.of(value).name, offset, scalar, mask))

    def store_block(
        self, stage: StageDraft, block: Overwriting, at: Sequence[Affine], scalar: Scalar, mask: Scalar | None
    ) -> None:
        """Store an element of a block where it lies in the output."""
        shape = block.output.type.shape
        sizes = zip(block.starts, at, shape, block.update.type.shape, strict=True)
        places = [position + self._start(stage, start, extent - size) for start, position, extent, size in sizes]
        stage.body.append(Store(self.buffers.of(block.output).name, index.linearize(places, shape), scalar, mask))

    def _start(self, stage: StageDraft, start: Value, limit: int) -> Affine:
        """Where a block begins along one axis, clamped to `0..limit`."""
        known = self.producers.get(start)
        if known is not None and role_of(known) is Role.CONSTANT:
            return Affine(min(max(int(known.attrs["value"].reshape(-1)[0]), 0), limit))
        return index.of(Element(f"%{self.value(stage, start, (), None)}", (), 0, limit)) if limit > 0 else Affine()

    def _walked(self, value: Value) -> tuple[tuple[Symbol, ...], Sequence[tuple[Affine, ...]]]:
        """The loops that walk a value's elements inside a worker, and which of them each round stores.

        Where there are loops in the kernel, the few elements that a worker holds of it are stored one by one.
        """
        symbols, at = self.stream_symbols(value), self.index_of(value)
        times = self._loops.times(self) if self._loops else frozenset[Symbol]()
        few = [symbol for symbol in symbols if symbol not in times]
        if not times or not few or math.prod(symbol.extent for symbol in few) > MAX_HELD:
            return symbols, [at]
        return tuple(symbol for symbol in symbols if symbol in times), self.places_held(value, times)

    def _placed(self, value: Value, rows: Rows) -> tuple[tuple[Symbol, ...], Sequence[tuple[Affine, ...]]]:
        """The same, of rows that loops with loops in their bodies make."""
        held = math.prod(symbol.extent for symbol in self.stream_symbols(value) if symbol not in rows.numbers)
        if held > MAX_HELD:
            raise LegalityError(f"{held} elements of a row of %{value.name} are made at once: more than {MAX_HELD}")
        places = self.places_held(value, rows.numbers)
        return rows.symbols, [tuple(index.renamed(i, rows.numbers) for i in at) for at in places]

    # ---- values --------------------------------------------------------------------------------------------------

    def value(self, stage: StageDraft, value: Value, at: tuple[Affine, ...], guard: Scalar | None) -> Scalar:
        """The scalar that is `value` at `at`; under `guard`, memory is touched only where it is true."""
        wanted = Wanted(stage, value, at, guard)
        answer = _known(wanted)
        if answer is None:
            answer = self._finished(self._demand(wanted))
        return answer

    def _finished(self, demand: Demand[T]) -> T:
        """What a demand computes, once all that it asks for is there."""
        answer: Scalar | None = None
        waiting: list[Demand[Any]] = [demand]
        while True:
            try:
                wanted = next(waiting[-1]) if answer is None else waiting[-1].send(answer)
            except StopIteration as done:
                waiting.pop()
                if not waiting:
                    return done.value
                answer = done.value
                continue
            answer = _known(wanted)
            if answer is None:
                waiting.append(self._demand(wanted))

    def _demand(self, wanted: Wanted) -> Demand[Scalar]:
        stage, value, at, guard = wanted
        if guard is None and (value, at) in self._keep:
            scalar = yield from self._kept_value(stage, (value, at))
        else:
            scalar = yield from self._compute(stage, value, at, guard)
        stage.scalars_at(at, guard)[value] = scalar
        return scalar

    def _compute(self, stage: StageDraft, value: Value, at: tuple[Affine, ...], guard: Scalar | None) -> Demand[Scalar]:
        if self._loops:
            held = yield from self._loops.held(self, stage, value, at, guard)
            if held is not None:
                return held
        node = self.producers.get(value)
        if node is None:
            buffer, offset = self.place(value, at)
            return self.load_at(stage, buffer, value.type.dtype, offset, guard)
        return (yield from self._made(stage, node, value, at, guard))

    def source(self, value: Value, at: tuple[Affine, ...]) -> Instance:
        """What an element is by another name."""
        return value, at

    def place(self, value: Value, at: Sequence[Affine]) -> tuple[str, Affine]:
        """Where an element lies that no node makes: a buffer and an offset."""
        return self.buffers.of(value).name, index.linearize(at, value.type.shape)

    def direct_place(self, value: Value, at: Sequence[Affine]) -> tuple[str, Affine] | None:
        """Where a product may store an output that nothing else reads; None if it may not."""
        return self.place(value, at)

    def is_fixed(self, value: Value) -> bool:  # noqa: ARG002  # what loops ask
        """Whether a value is the same as long as the phase runs."""
        return True

    def _made(
        self, stage: StageDraft, node: Node, value: Value, at: tuple[Affine, ...], guard: Scalar | None
    ) -> Demand[Scalar]:
        role = role_of(node)
        if role.is_leaf:
            return self._leaf(stage, node, at)
        if value in self.row_results:
            return self.row_results[value](self, stage, at, guard)
        match role:
            case Role.ELEMENTWISE:
                return (yield from self._elementwise(stage, node, at, guard))
            case Role.REDUCE | Role.ARG_REDUCE:
                return (yield from self._reductions.result(self, stage, node, at, guard))
            case Role.SCAN:
                yield from self._reductions.scan(self, node)
                return self.row_results[value](self, stage, at, guard)
            case Role.WINDOW:
                return (yield from self._reductions.window(self, stage, node, at, guard))
            case _ if role.moves:
                return (yield from self._pieces(stage, node, at, guard))
            case _:
                raise LegalityError(f"{node.op} %{node.name} ({role.value}) is read before it is computed")

    def _leaf(self, stage: StageDraft, node: Node, at: tuple[Affine, ...]) -> Scalar:
        dtype = node.output.type.dtype
        if role_of(node) is Role.CONSTANT:
            return self.constant(stage, dtype, _element(node, at).item())
        where = at[node.attrs["iota_dimension"]]
        lo, hi = index.bounds(where)
        wide = dtypes.I32 if lo >= -(2**31) and hi < 2**31 else dtypes.I64
        result = self.draft.scalar(wide)
        stage.body.append(Position(result, wide, where))
        return result if dtype == wide else self.map(stage, dtype, "convert", result)

    def _elementwise(
        self, stage: StageDraft, node: Node, at: tuple[Affine, ...], guard: Scalar | None
    ) -> Demand[Scalar]:
        """A node, and those elementwise nodes below it that the stage does not have yet: all are read at one index."""
        known, guarded = stage.scalars_at(at, None), stage.scalars_at(at, guard)
        waiting: list[tuple[Node, list[Scalar]]] = [(node, [])]
        while True:
            node, operands = waiting[-1]
            if len(operands) < len(node.inputs):
                value = node.inputs[len(operands)]
                scalar = known.get(value, guarded.get(value))
                if scalar is not None:
                    operands.append(scalar)
                elif self._is_plain(value, at, guard):
                    waiting.append((self.producers[value], []))
                else:
                    operands.append((yield Wanted(stage, value, at, guard)))
                continue
            waiting.pop()
            stage.reads[node.output, at] = [(operand, at) for operand in node.inputs]
            opcode = elementwise_op(node).opcode(node.attrs)
            dtype, fast = node.output.type.dtype, is_fast(node.attrs)
            scalar = guarded[node.output] = self.map(stage, dtype, opcode, *operands, fast=fast)
            if not waiting:
                return scalar
            waiting[-1][1].append(scalar)

    def _is_plain(self, value: Value, at: tuple[Affine, ...], guard: Scalar | None) -> bool:
        """Whether an elementwise node makes a value, here and now."""
        node = self.producers.get(value)
        if node is None or role_of(node) is not Role.ELEMENTWISE or value in self.row_results:
            return False
        if self._loops and not self._loops.is_inside(value):
            return False
        return guard is not None or not self._keep or (value, at) not in self._keep

    # ---- data movement -------------------------------------------------------------------------------------------

    def pieces_of(self, node: Node, at: tuple[Affine, ...]) -> tuple[Piece, ...]:
        """Where an index op's element comes from. Raises LegalityError where that takes too long to say."""
        if index_divisions(at) > _MOST_DIVISIONS:
            raise LegalityError(f"more than {_MOST_DIVISIONS} divisions say which element of %{node.name} is read")
        return pieces_of(node, at, self.producers)

    def _pieces(self, stage: StageDraft, node: Node, at: tuple[Affine, ...], guard: Scalar | None) -> Demand[Scalar]:
        found: list[tuple[Scalar | None, Scalar]] = []
        for piece in self.pieces_of(node, at):
            conditions: list[Condition] = []
            for condition in piece.conditions:
                position = yield from self._resolved(stage, node, condition.value, guard)
                same = position is condition.value
                conditions.append(condition if same else replace(condition, value=position))
            test = self.test(stage, tuple(conditions))
            inner = self.both(stage, guard, test)
            where = yield from self._all_resolved(stage, node, piece.index, guard)
            operand = node.inputs[piece.operand]
            stage.reads.setdefault((node.output, at), []).append((operand, where))
            found.append((test, (yield Wanted(stage, operand, where, inner))))
        _, result = found.pop()
        for test, scalar in reversed(found):
            assert test is not None
            result = self.map(stage, node.output.type.dtype, "select", test, scalar, result)
        return result

    def _all_resolved(
        self, stage: StageDraft, node: Node, at: Sequence[Affine], guard: Scalar | None
    ) -> Demand[tuple[Affine, ...]]:
        if all(map(index.is_static, at)):
            return tuple(at)
        found: list[Affine] = []
        for position in at:
            found.append((yield from self._resolved(stage, node, position, guard)))
        return tuple(found)

    def _resolved(self, stage: StageDraft, node: Node, position: Affine, guard: Scalar | None) -> Demand[Affine]:
        """Replace reads of operands inside an index by the scalars that hold them."""
        held: dict[index.Variable, Affine] = {}
        for element, operand in _operand_reads(position, node):
            if element not in held:
                where = yield from self._all_resolved(stage, node, element.index, guard)
                scalar = yield Wanted(stage, operand, where, guard)
                held[element] = index.of(Element(f"%{scalar}", (), element.lo, element.hi))
        return index.substitute(position, held.get) if held else position

    # ---- what is kept on chip ------------------------------------------------------------------------------------

    def _kept_value(self, stage: StageDraft, instance: Instance) -> Demand[Scalar]:
        """A value that several stages need: computed and stored by the first, loaded by the others."""
        value, at = instance
        level, symbols = self._keep[instance]
        size = 1
        position = Affine()
        for symbol in symbols:
            position = position * symbol.extent + index.of(symbol)
            size *= symbol.extent
        offset = self.row_offset(size) + position
        dtype = value.type.dtype
        if not self._shares_kept(stage, level, symbols):
            return (yield from self._compute(stage, value, at, None))
        if stage.level == level:
            scalar = yield from self._compute(stage, value, at, None)
            self._kept[instance] = self.scratch(value.name, dtype, size)
            stage.body.append(Store(self._kept[instance], offset, scalar))
            return scalar
        if instance not in self._kept:
            yield Wanted(self.draft.stage(level, symbols), value, at, None)
        return self.load_at(stage, self._kept[instance], dtype, offset, None)

    @staticmethod
    def _shares_kept(stage: StageDraft, level: int, symbols: tuple[Symbol, ...]) -> bool:
        """Whether a stage is the one that keeps a value walked by `symbols`, or one that can load it."""
        if stage.level == level:
            return set(stage.symbols) == set(symbols)
        return set(stage.symbols) >= set(symbols)


def _element(node: Node, at: Sequence[Affine]) -> Any:
    """An element of a constant. Raises LegalityError for one that only memory can be asked for."""
    array = node.attrs["value"]
    if is_inlined(node):
        return array.reshape(-1)[0]
    if not all(position.is_constant for position in at):
        raise LegalityError(f"elements of the constant %{node.name} are asked for inside of a loop or branch")
    return array[tuple(position.constant for position in at)]


def _known(wanted: Wanted) -> Scalar | None:
    """A scalar that the stage has already, under the same guard or under none."""
    stage, value, at, guard = wanted
    known = stage.scalars_at(at, None).get(value)
    return stage.scalars_at(at, guard).get(value) if known is None and guard is not None else known


def _operand_reads(position: Affine, node: Node) -> Iterator[tuple[Element, Value]]:
    """The outermost reads of the node's operands inside an index, in order, with the operand that each reads."""
    for variable, _ in position.terms:
        match variable:
            case Element(int(source), inside) if 0 <= source < len(node.inputs):
                yield variable, node.inputs[source]
            case Element(_, inside):
                for inner in inside:
                    yield from _operand_reads(inner, node)
            case Quotient(inner, _) | Remainder(inner, _):
                yield from _operand_reads(inner, node)
            case Symbol():
                pass
