"""The frame of a phase being lowered: its loops, its buffers, and the plain statements of its stages."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence

from autofuse.fusion.candidate import KernelCandidate
from autofuse.fusion.dimensions import AxisFactor, Dimensions
from autofuse.fusion.domain import is_contraction
from autofuse.fusion.nodeaxes import given_to, is_loop, loop_nodes, nested_loops, parts_of_state, with_bodies
from autofuse.ir import dtypes, index
from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Node, Value
from autofuse.ir.index import Affine, Symbol
from autofuse.ir.optable import role_of
from autofuse.ir.pieces import Condition
from autofuse.ir.types import TensorType
from autofuse.lower.phasedrafts import BufferTable, PhaseDraft, StageDraft
from autofuse.lower.statements import Constant, Load, Map, Scalar, Test
from autofuse.lower.tile import Space

RowReader = Callable[["PhaseFrame", StageDraft, tuple[Affine, ...], Scalar | None], Scalar]
"""(frame, stage, index, guard) -> the element of a result in scratch. The frame keeps it, so it keeps no frame."""


class PhaseFrame:
    """Symbols, buffers and statements of one phase. What is computed at which index is decided above."""

    def __init__(
        self,
        candidate: KernelCandidate,
        dims: Dimensions,
        grid: Sequence[AxisFactor],
        buffers: BufferTable,
        local: Symbol | None,
    ) -> None:
        """`local`: the row block's inner row."""
        self.producers = {value: node for node in with_bodies(candidate.nodes) for value in node.outputs}
        self.dims = dims
        self.buffers = buffers
        self.draft = PhaseDraft()
        self.local = local
        self.levels = _levels(candidate)
        self.row_results: dict[Value, RowReader] = {}
        """How to read the results of dots and scans, which lie in scratch; filled as they are lowered."""
        self.grid_symbols = grid_symbols(grid, dims)
        self._streams: dict[AxisFactor, Symbol] = {}
        self.grid_set = frozenset(self.grid_symbols.values())
        self.row_boundaries = sorted({self.levels[n.output] - 1 for n in candidate.nodes if is_contraction(n)})
        """Levels at whose end dots run: a row group ends there. Products in bodies of loops are unrolled instead."""

    # ---- symbols -------------------------------------------------------------------------------------------------

    def symbol(self, factor: AxisFactor) -> Symbol:
        """The loop that walks a factor: a grid symbol, or a stream symbol."""
        if factor in self.grid_symbols:
            return self.grid_symbols[factor]
        if factor not in self._streams:
            self._streams[factor] = Symbol(f"k{len(self._streams)}", self.dims.extent(factor))
        return self._streams[factor]

    def axis_index(self, axis: Sequence[AxisFactor]) -> Affine:
        """The position on an axis that is the product of `axis`."""
        position = Affine()
        for factor in axis:
            position = position * self.dims.extent(factor) + index.of(self.symbol(factor))
        return position

    def index_of(self, value: Value) -> tuple[Affine, ...]:
        """The index of a value when each of its factors is walked by its own symbol."""
        return tuple(self.axis_index(axis) for axis in self.dims.axes(value))

    def places_held(self, value: Value, walked: Collection[Symbol] = ()) -> Sequence[tuple[Affine, ...]]:
        """The index of each element of a value that a grid point holds; symbols that are `walked` stay as they are."""
        at = self.index_of(value)
        few = [symbol for symbol in self.stream_symbols(value) if symbol not in walked]
        places: list[tuple[Affine, ...]] = []
        for numbers in itertools.product(*(range(symbol.extent) for symbol in few)):
            known = {symbol: Affine(number) for symbol, number in zip(few, numbers, strict=True)}
            places.append(tuple(index.renamed(position, known) for position in at))
        return places

    def stream_symbols(self, value: Value) -> tuple[Symbol, ...]:
        """Symbols of a value that are no grid symbols, slowest first."""
        flat = [factor for axis in self.dims.axes(value) for factor in axis]
        return tuple(self.symbol(factor) for factor in flat if factor not in self.grid_symbols)

    def fresh_stream(self, extent: int) -> Symbol:
        """A stream symbol that belongs to no factor."""
        key = -1 - len(self._streams)
        self._streams[key] = Symbol(f"k{len(self._streams)}", extent)
        return self._streams[key]

    def row_group(self, level: int) -> int:
        """The number of the row group that stages of `level` belong to."""
        return sum(1 for boundary in self.row_boundaries if boundary < level)

    def is_grid_only(self, at: Sequence[Affine]) -> bool:
        """Whether an index depends on grid symbols alone."""
        return all(index.symbols_of(i) <= self.grid_set and not index.reads_memory(i) for i in at)

    # ---- statements ----------------------------------------------------------------------------------------------

    def load(
        self, stage: StageDraft, buffer: str, type_: TensorType, at: Sequence[Affine], guard: Scalar | None
    ) -> Scalar:
        """Load one element of a buffer of type `type_`."""
        return self.load_at(stage, buffer, type_.dtype, index.linearize(at, type_.shape), guard)

    def load_at(self, stage: StageDraft, buffer: str, dtype: DType, offset: Affine, guard: Scalar | None) -> Scalar:
        """Load the element at `offset`."""
        fill = None if guard is None else self.constant(stage, dtype, False if dtype.kind == "bool" else 0)
        result = self.draft.scalar(dtype)
        stage.body.append(Load(result, dtype, buffer, offset, guard, fill))
        return result

    def constant(self, stage: StageDraft, dtype: DType, value: bool | int | float) -> Scalar:
        """A constant, made once per stage."""
        key = ("constant", dtype.name, repr(value))
        if key not in stage.conditions:
            result = self.draft.scalar(dtype)
            stage.body.append(Constant(result, dtype, value))
            stage.conditions[key] = result
        return stage.conditions[key]

    def map(self, stage: StageDraft, dtype: DType, opcode: str, *operands: Scalar, fast: bool = False) -> Scalar:
        """Apply a scalar opcode."""
        result = self.draft.scalar(dtype)
        stage.body.append(Map(result, dtype, opcode, operands, fast))
        return result

    def test(self, stage: StageDraft, conditions: tuple[Condition, ...]) -> Scalar | None:
        """A bool scalar that says whether all conditions hold; None if there is none to check."""
        if not conditions:
            return None
        if conditions not in stage.conditions:
            result = self.draft.scalar(dtypes.BOOL)
            stage.body.append(Test(result, conditions))
            stage.conditions[conditions] = result
        return stage.conditions[conditions]

    def both(self, stage: StageDraft, a: Scalar | None, b: Scalar | None) -> Scalar | None:
        """The conjunction of two guards."""
        if a is None or b is None or a == b:
            return b if a is None else a
        key = ("and", a, b)
        if key not in stage.conditions:
            stage.conditions[key] = self.map(stage, dtypes.BOOL, "and", a, b)
        return stage.conditions[key]

    # ---- scratch -------------------------------------------------------------------------------------------------

    def scratch(self, name: str, dtype: DType, row: int) -> str:
        """A scratch buffer with `row` elements per row of the row block (or per grid point)."""
        shape = (row,) if self.local is None else (self.local.extent, row)
        return self.buffers.add(f"{name}.scratch", TensorType(shape, dtype), Space.SCRATCH).name

    def row_offset(self, row: int) -> Affine:
        """Where the current row begins in a scratch buffer of `row` elements per row."""
        return Affine() if self.local is None else index.of(self.local) * row


def grid_symbols(grid: Sequence[AxisFactor], dims: Dimensions) -> dict[AxisFactor, Symbol]:
    """The loops of a grid."""
    return {factor: Symbol(f"i{number}", dims.extent(factor)) for number, factor in enumerate(grid)}


def _levels(candidate: KernelCandidate) -> dict[Value, int]:
    levels: dict[Value, int] = {}
    for node in candidate.nodes:
        level = max((levels.get(value, 0) for value in candidate.graph.reads(node)), default=0)
        if is_loop(node):
            _set_loop_levels(node, level + 1, levels)
            continue
        level += role_of(node).is_reduction_like
        for value in node.outputs:
            levels[value] = level
    for node in candidate.nodes:
        for value in candidate.graph.reads(node):
            levels.setdefault(value, 0)
    return levels


def _set_loop_levels(node: Node, level: int, levels: dict[Value, int]) -> None:
    """A loop is a level of its own: its state is complete on the next one."""
    count = parts_of_state(node)
    made = [value for inner in loop_nodes(node) for value in inner.outputs]
    given = [value for loop in (node, *nested_loops(node)) for value in given_to(loop)]
    inside = [*given, *made, *node.outputs[count:]]
    levels.update(dict.fromkeys(inside, level))
    levels.update(dict.fromkeys(node.outputs[:count], level + 1))
