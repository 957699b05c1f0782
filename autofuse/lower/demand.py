"""Demand-driven lowering of one phase: every node is asked for its value at an index.

Data movement rewrites the index, arithmetic becomes a Map, a reduction at an index of grid symbols becomes a stage.
An instance (value, index) is computed once per stage.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

from autofuse.errors import LegalityError
from autofuse.fusion.candidate import KernelCandidate
from autofuse.fusion.dimensions import Atom, Dimensions
from autofuse.fusion.domain import is_contraction
from autofuse.ir import dtypes, index
from autofuse.ir.combiners import combiner_identity
from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Node, Value
from autofuse.ir.index import Affine, Element, Quotient, Remainder, Symbol
from autofuse.ir.optable import Condition, Family, Piece, lookup
from autofuse.ir.types import TensorType
from autofuse.lower.drafts import BufferTable, Instance, PhaseDraft, StageDraft
from autofuse.lower.tile import (
    ArgReduce,
    Constant,
    Load,
    Map,
    Position,
    Reduce,
    Scalar,
    Scan,
    Space,
    Store,
    Test,
)

_COMBINE = {"add": "add", "multiply": "multiply", "minimum": "minimum", "maximum": "maximum", "and": "and", "or": "or"}


_BOOL_COMBINERS = {"minimum": "and", "maximum": "or", "multiply": "and", "add": "or", "and": "and", "or": "or"}


class PhaseBuilder:
    """Builds the draft of one phase. Dots are added by `contraction.ContractionBuilder`, which drives this class."""

    def __init__(
        self,
        candidate: KernelCandidate,
        dims: Dimensions,
        grid: Sequence[Atom],
        buffers: BufferTable,
        keep: Mapping[Instance, tuple[int, tuple[Symbol, ...]]],
        local: Symbol | None,
    ) -> None:
        """`keep`: instances put in scratch, and the level and symbols of the stage that computes them.

        `local`: the panel's inner row.
        """
        self.producers = {value: node for node in candidate.nodes for value in node.outputs}
        self.dims = dims
        self.buffers = buffers
        self.draft = PhaseDraft()
        self.local = local
        self.levels = _levels(candidate)
        self.row_results: dict[Value, Callable[[StageDraft, tuple[Affine, ...], Scalar | None], Scalar]] = {}
        """How to read the results of dots and scans, which lie in scratch; filled as they are lowered."""
        self.grid_symbols: dict[Atom, Symbol] = {
            atom: Symbol(f"i{number}", dims.extent(atom)) for number, atom in enumerate(grid)
        }
        self._streams: dict[Atom, Symbol] = {}
        self._grid_set = frozenset(self.grid_symbols.values())
        self._reductions: dict[Instance, tuple[Scalar, StageDraft]] = {}
        self._carried: dict[Scalar, str] = {}
        self._keep = keep
        self._kept: dict[Instance, str] = {}
        self.row_boundaries = sorted({self.levels[v] - 1 for v, n in self.producers.items() if is_contraction(n)})
        """Levels at whose end dots run: a row group ends there."""

    # ---- symbols -------------------------------------------------------------------------------------------------

    def symbol(self, atom: Atom) -> Symbol:
        """The loop that walks an atom: a grid symbol, or a stream symbol."""
        if atom in self.grid_symbols:
            return self.grid_symbols[atom]
        if atom not in self._streams:
            self._streams[atom] = Symbol(f"k{len(self._streams)}", self.dims.extent(atom))
        return self._streams[atom]

    def axis_index(self, axis: Sequence[Atom]) -> Affine:
        """The position on an axis that is the product of `axis`."""
        position = Affine()
        for atom in axis:
            position = position * self.dims.extent(atom) + index.of(self.symbol(atom))
        return position

    def index_of(self, value: Value) -> tuple[Affine, ...]:
        """The index of a value when each of its atoms is walked by its own symbol."""
        return tuple(self.axis_index(axis) for axis in self.dims.axes(value))

    def stream_symbols(self, value: Value) -> tuple[Symbol, ...]:
        """Symbols of a value that are no grid symbols, slowest first."""
        flat = [atom for axis in self.dims.axes(value) for atom in axis]
        return tuple(self.symbol(atom) for atom in flat if atom not in self.grid_symbols)

    def fresh_stream(self, extent: int) -> Symbol:
        """A stream symbol that belongs to no atom."""
        key = -1 - len(self._streams)
        self._streams[key] = Symbol(f"k{len(self._streams)}", extent)
        return self._streams[key]

    def row_group(self, level: int) -> int:
        """The number of the row group that stages of `level` belong to."""
        return sum(1 for boundary in self.row_boundaries if boundary < level)

    # ---- roots ---------------------------------------------------------------------------------------------------

    def store_output(self, value: Value) -> None:
        """Store every element of `value` into its output buffer."""
        stage = self.draft.stage(self.levels[value], self.stream_symbols(value))
        at = self.index_of(value)
        scalar = self.value(stage, value, at, None)
        stage.roots.append((value, at))
        offset = index.linearize(at, value.type.shape)
        stage.body.append(Store(self.buffers.of(value).name, offset, scalar))

    def is_grid_only(self, at: Sequence[Affine]) -> bool:
        """Whether an index depends on grid symbols alone."""
        return all(index.symbols_of(i) <= self._grid_set and not _has_element(i) for i in at)

    # ---- values --------------------------------------------------------------------------------------------------

    def value(self, stage: StageDraft, value: Value, at: tuple[Affine, ...], guard: Scalar | None) -> Scalar:
        """The scalar that is `value` at `at`; under `guard`, memory is touched only where it is true."""
        instance: Instance = (value, at)
        for known in (None, guard):
            if (instance, known) in stage.memo:
                return stage.memo[instance, known]
        if guard is None and instance in self._keep:
            scalar = self._kept_value(stage, instance)
        else:
            scalar = self._compute(stage, value, at, guard)
        stage.memo[instance, guard] = scalar
        return scalar

    def _compute(self, stage: StageDraft, value: Value, at: tuple[Affine, ...], guard: Scalar | None) -> Scalar:
        node = self.producers.get(value)
        if node is None:
            return self.load(stage, self.buffers.of(value).name, value.type, at, guard)
        if node.op == "constant" or node.op == "iota":
            return self._leaf(stage, node, at)
        if value in self.row_results:
            return self.row_results[value](stage, at, guard)
        match lookup(node.op).family:
            case Family.ELEMENTWISE:
                return self._elementwise(stage, node, at, guard)
            case Family.INDEX:
                return self._pieces(stage, node, at, guard)
            case Family.REDUCE:
                return self._reduction(stage, node, at, guard)
            case Family.WINDOW if node.op == "cumulative":
                self._scan(node)
                return self.row_results[value](stage, at, guard)
            case Family.WINDOW:
                return self._window(stage, node, at, guard)
            case family:
                raise LegalityError(f"{node.op} %{node.name} ({family.value}) is read before it is computed")

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

    def map(self, stage: StageDraft, dtype: DType, opcode: str, *operands: Scalar) -> Scalar:
        """Apply a scalar opcode."""
        result = self.draft.scalar(dtype)
        stage.body.append(Map(result, dtype, opcode, operands))
        return result

    def _leaf(self, stage: StageDraft, node: Node, at: tuple[Affine, ...]) -> Scalar:
        dtype = node.output.type.dtype
        if node.op == "constant":
            return self.constant(stage, dtype, node.attrs["value"].reshape(-1)[0].item())
        where = at[node.attrs["iota_dimension"]]
        lo, hi = index.bounds(where)
        wide = dtypes.I32 if lo >= -(2**31) and hi < 2**31 else dtypes.I64
        result = self.draft.scalar(wide)
        stage.body.append(Position(result, wide, where))
        return result if dtype == wide else self.map(stage, dtype, "convert", result)

    def _elementwise(self, stage: StageDraft, node: Node, at: tuple[Affine, ...], guard: Scalar | None) -> Scalar:
        stage.reads[node.output, at] = [(operand, at) for operand in node.inputs]
        operands = [self.value(stage, operand, at, guard) for operand in node.inputs]
        scalar = lookup(node.op).scalar
        assert scalar is not None
        return self.map(stage, node.output.type.dtype, scalar(node.attrs), *operands)

    # ---- data movement -------------------------------------------------------------------------------------------

    def pieces_of(self, node: Node, at: tuple[Affine, ...]) -> tuple[Piece, ...]:
        """Where an index op's element comes from."""
        rule = lookup(node.op).access
        assert rule is not None
        return rule([value.type for value in node.inputs], node.output.type, node.attrs, at)

    def _pieces(self, stage: StageDraft, node: Node, at: tuple[Affine, ...], guard: Scalar | None) -> Scalar:
        found: list[tuple[Scalar | None, Scalar]] = []
        for piece in self.pieces_of(node, at):
            conditions = tuple(self._resolve_condition(stage, node, c, guard) for c in piece.conditions)
            test = self.test(stage, conditions)
            inner = self.both(stage, guard, test)
            where = tuple(self._resolve(stage, node, i, guard) for i in piece.index)
            operand = node.inputs[piece.operand]
            stage.reads.setdefault((node.output, at), []).append((operand, where))
            found.append((test, self.value(stage, operand, where, inner)))
        _, result = found.pop()
        for test, scalar in reversed(found):
            assert test is not None
            result = self.map(stage, node.output.type.dtype, "select", test, scalar, result)
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

    def _resolve(self, stage: StageDraft, node: Node, position: Affine, guard: Scalar | None) -> Affine:
        """Replace reads of operands inside an index by the scalars that hold them."""
        if not _has_element(position):
            return position

        def replace(atom: index.Atom) -> Affine | None:
            if not isinstance(atom, Element) or isinstance(atom.source, str) or not _is_operand_read(atom, node):
                return None
            where = tuple(self._resolve(stage, node, i, guard) for i in atom.index)
            scalar = self.value(stage, node.inputs[atom.source], where, guard)
            return index.of(Element(f"%{scalar}", (), atom.lo, atom.hi))

        return index.substitute(position, replace)

    def _resolve_condition(
        self, stage: StageDraft, node: Node, condition: Condition, guard: Scalar | None
    ) -> Condition:
        value = self._resolve(stage, node, condition.value, guard)
        return Condition(value, condition.lo, condition.hi, condition.multiple, condition.remainder)

    # ---- folds ---------------------------------------------------------------------------------------------------

    def _reduction(self, stage: StageDraft, node: Node, at: tuple[Affine, ...], guard: Scalar | None) -> Scalar:
        if not self.is_grid_only(at):
            raise LegalityError(f"{node.op} %{node.name} is read inside another loop: it would be nested")
        if guard is not None and not _inside(at, node.output.type.shape):
            raise LegalityError(f"{node.op} %{node.name} is read where it does not exist, under a condition")
        if node.inputs[0].type.size == 0:
            return self.constant(stage, node.output.type.dtype, _of_nothing(node))
        if (node.output, at) not in self._reductions:
            self._reductions[node.output, at] = self._fold(node, at)
        scalar, home = self._reductions[node.output, at]
        scalar = self._carry(scalar, home, stage)
        dtype = node.output.type.dtype
        if self.draft.dtypes[scalar] == dtype:
            return scalar
        return self.map(stage, dtype, "convert", scalar)

    def _fold(self, node: Node, at: tuple[Affine, ...]) -> tuple[Scalar, StageDraft]:
        operand = node.inputs[0]
        axes = self.dims.axes(self.dims.use(node, 0))
        gone = node.attrs["dimensions"] if node.op == "reduce" else (node.attrs["dimension"],)
        kept = iter(at)
        where = tuple(self.axis_index(axis) if n in gone else next(kept) for n, axis in enumerate(axes))
        symbols = tuple(self.symbol(atom) for n in sorted(gone) for atom in axes[n])
        stage = self.draft.stage(self.levels[operand], symbols)
        scalar = self.value(stage, operand, where, None)
        stage.roots.append((operand, where))
        if node.op == "reduce":
            return self._reduce(stage, node, scalar), stage
        position = where[node.attrs["dimension"]]
        dtype = node.attrs["dtype"]
        result = self.draft.scalar(dtype)
        stage.body.append(ArgReduce(result, dtype, node.op, scalar, position))
        return result, stage

    def _reduce(self, stage: StageDraft, node: Node, scalar: Scalar) -> Scalar:
        dtype, combiner = node.output.type.dtype, node.attrs["combiner"]
        if dtype.is_float and dtype.bits == 16:
            dtype = dtypes.F32
            scalar = self.map(stage, dtype, "convert", scalar)
        if dtype.kind == "bool":
            combiner = _BOOL_COMBINERS[combiner]
        result = self.draft.scalar(dtype)
        stage.body.append(Reduce(result, dtype, combiner, scalar))
        return result

    def _carry(self, scalar: Scalar, home: StageDraft, stage: StageDraft) -> Scalar:
        """Bring a reduction's result into a later row group, through scratch."""
        if self.row_group(home.level) == self.row_group(stage.level):
            return scalar
        dtype = self.draft.dtypes[scalar]
        if scalar not in self._carried:
            name = self.scratch("carried", dtype, 1)
            late = self.draft.stage(home.level, (), late=True)
            late.body.append(Store(name, self.row_offset(1), scalar))
            self._carried[scalar] = name
        return self.load_at(stage, self._carried[scalar], dtype, self.row_offset(1), None)

    def _scan(self, node: Node) -> None:
        """Walk the axis once, leave the running values in scratch."""
        operand, axis = node.inputs[0], node.attrs["dimension"]
        extent = operand.type.shape[axis]
        walk = self.fresh_stream(extent)
        at = list(self.index_of(node.output))
        at[axis] = index.of(walk)
        stage = self.draft.stage(self.levels[operand], (walk,))
        scalar = self.value(stage, operand, tuple(at), None)
        dtype = node.output.type.dtype
        wide = dtypes.F32 if dtype.is_float and dtype.bits == 16 else dtype
        if wide != dtype:
            scalar = self.map(stage, wide, "convert", scalar)
        result = self.draft.scalar(wide)
        combiner = node.attrs["combiner"]
        stage.body.append(Scan(result, wide, combiner, scalar, node.attrs["reverse"]))
        kept = result if wide == dtype else self.map(stage, dtype, "convert", result)
        name = self.scratch(node.name, dtype, extent)
        stage.body.append(Store(name, self.row_offset(extent) + index.of(walk), kept))
        exact = tuple(at)

        def read(later: StageDraft, where: tuple[Affine, ...], guard: Scalar | None) -> Scalar:
            if any(a != b for n, (a, b) in enumerate(zip(where, exact, strict=True)) if n != axis):
                raise LegalityError(f"{node.op} %{node.name} is read at another row than it is computed for")
            return self.load_at(later, name, dtype, self.row_offset(extent) + where[axis], guard)

        self.row_results[node.output] = read

    def _window(self, stage: StageDraft, node: Node, at: tuple[Affine, ...], guard: Scalar | None) -> Scalar:
        """Fold a small window, unrolled."""
        attrs, operand = node.attrs, node.inputs[0]
        dtype = operand.type.dtype
        wide = dtypes.F32 if dtype.is_float and dtype.bits == 16 else dtype
        total: Scalar | None = None
        for offsets in itertools.product(*(range(extent) for extent in attrs["window_dimensions"])):
            piece = _window_piece(node, at, offsets)
            test = self.test(stage, piece.conditions)
            scalar = self.value(stage, operand, piece.index, self.both(stage, guard, test))
            if wide != dtype:
                scalar = self.map(stage, wide, "convert", scalar)
            if test is not None:
                identity = self.constant(stage, wide, combiner_identity(attrs["combiner"], wide))
                scalar = self.map(stage, wide, "select", test, scalar, identity)
            total = scalar if total is None else self.map(stage, wide, _COMBINE[attrs["combiner"]], total, scalar)
        if total is None:
            return self.constant(stage, dtype, combiner_identity(attrs["combiner"], dtype))
        return total if wide == dtype else self.map(stage, dtype, "convert", total)

    # ---- scratch -------------------------------------------------------------------------------------------------

    def scratch(self, name: str, dtype: DType, row: int) -> str:
        """A scratch buffer with `row` elements per row of the panel (or per grid point)."""
        shape = (row,) if self.local is None else (self.local.extent, row)
        return self.buffers.add(f"{name}.scratch", TensorType(shape, dtype), Space.SCRATCH).name

    def row_offset(self, row: int) -> Affine:
        """Where the current row begins in a scratch buffer of `row` elements per row."""
        return Affine() if self.local is None else index.of(self.local) * row

    def _kept_value(self, stage: StageDraft, instance: Instance) -> Scalar:
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
            return self._compute(stage, value, at, None)
        if stage.level == level:
            scalar = self._compute(stage, value, at, None)
            self._kept[instance] = self.scratch(value.name, dtype, size)
            stage.body.append(Store(self._kept[instance], offset, scalar))
            return scalar
        if instance not in self._kept:
            self.value(self.draft.stage(level, symbols), value, at, None)
        return self.load_at(stage, self._kept[instance], dtype, offset, None)

    @staticmethod
    def _shares_kept(stage: StageDraft, level: int, symbols: tuple[Symbol, ...]) -> bool:
        """Whether a stage is the one that keeps a value walked by `symbols`, or one that can load it."""
        if stage.level == level:
            return set(stage.symbols) == set(symbols)
        return set(stage.symbols) >= set(symbols)


def _of_nothing(node: Node) -> bool | int | float:
    """What a fold over no elements gives."""
    return combiner_identity(node.attrs.get("combiner", "add"), node.output.type.dtype)


def _levels(candidate: KernelCandidate) -> dict[Value, int]:
    levels: dict[Value, int] = {}
    for node in candidate.nodes:
        level = max((levels.get(value, 0) for value in node.inputs), default=0)
        family = lookup(node.op).family
        if family in (Family.REDUCE, Family.CONTRACTION) or node.op == "cumulative":
            level += 1
        for value in node.outputs:
            levels[value] = level
    for node in candidate.nodes:
        for value in node.inputs:
            levels.setdefault(value, 0)
    return levels


def _window_piece(node: Node, at: tuple[Affine, ...], offsets: tuple[int, ...]) -> Piece:
    """The operand element under one position of the window, and the conditions under which it exists."""
    attrs, shape = node.attrs, node.inputs[0].type.shape
    where: list[Affine] = []
    conditions: list[Condition] = []
    for axis, offset in enumerate(offsets):
        low = attrs["padding"][axis][0]
        base = attrs["base_dilations"][axis]
        raw = at[axis] * attrs["window_strides"][axis] + (offset * attrs["window_dilations"][axis] - low)
        limit = (shape[axis] - 1) * base + 1
        lo, hi = index.bounds(raw)
        if lo < 0 or hi >= limit or base > 1:
            conditions.append(Condition(raw, 0, limit, base, 0))
        where.append(raw // base if base > 1 else raw)
    return Piece(0, tuple(where), tuple(conditions))


def _inside(at: Sequence[Affine], shape: Sequence[int]) -> bool:
    for position, extent in zip(at, shape, strict=True):
        lo, hi = index.bounds(position)
        if lo < 0 or hi >= extent:
            return False
    return True


def _has_element(position: Affine) -> bool:
    for atom, _ in position.terms:
        match atom:
            case Element():
                return True
            case Quotient(inner, _) | Remainder(inner, _):
                if _has_element(inner):
                    return True
            case Symbol():
                pass
    return False


def _is_operand_read(atom: Element, node: Node) -> bool:
    return isinstance(atom.source, int) and 0 <= atom.source < len(node.inputs)
