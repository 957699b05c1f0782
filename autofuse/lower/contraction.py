"""Lowering of dots and convolutions: a matrix product per row block, operands read in place or packed.

The left operand is used where it lies if one of its strides is 1; otherwise, or if it is computed in the kernel or is
the patches of a convolution, a stage packs the block's rows into scratch. The right operand is shared by all blocks: it
is used where it lies, or packed once by an earlier launch. The product goes straight to an output, or into scratch for
the stages that follow.
"""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.errors import LegalityError
from autofuse.fusion.candidate import KernelCandidate, is_permuted
from autofuse.fusion.dimensions import AxisFactor
from autofuse.fusion.nodeaxes import dot_axes
from autofuse.ir import index
from autofuse.ir.dtypes import F32, DType
from autofuse.ir.graph import Node, Value
from autofuse.ir.index import Affine, Symbol
from autofuse.ir.oprecord import Role, is_fast
from autofuse.ir.optable import role_of
from autofuse.ir.pieces import Condition
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.demand import PhaseBuilder
from autofuse.lower.phasedrafts import StageDraft
from autofuse.lower.phaseframe import PhaseFrame
from autofuse.lower.statements import Scalar, Store
from autofuse.lower.tile import Dot, Matrix, Space

Index = tuple[Affine, ...]


@dataclass(frozen=True, slots=True)
class Pack:
    """A right operand that an earlier launch lays out densely: `[batch..., depth..., columns...]` into `buffer`."""

    operand: Value
    buffer: str
    symbols: tuple[Symbol, ...]
    at: Index
    """The operand's index, in terms of `symbols`."""


@dataclass(frozen=True, slots=True)
class _Form:
    """A contraction as a matrix product."""

    lhs: Value
    lhs_at: Index
    lhs_conditions: tuple[Condition, ...]
    """Where the left element exists; it is 0 elsewhere (a convolution's padding)."""
    rhs: Value
    rhs_at: Index
    batch: tuple[Symbol, ...]
    depth: tuple[Symbol, ...]
    columns: tuple[Symbol, ...]
    column_axes: tuple[int, ...]
    """Axes of the result that are columns, in order."""
    exact: Index
    """The result's index at the current grid row, columns included."""


class ContractionBuilder:
    """Adds the contractions of a kernel to a phase."""

    def __init__(
        self,
        phase: PhaseBuilder,
        candidate: KernelCandidate,
        rows: Sequence[AxisFactor],
        most: int,
        *,
        widens: bool = False,
    ) -> None:
        """`most`: rows of a row block. `widens`: whether products of f32 read 16-bit floats as they are."""
        self.phase = phase
        self.widens = widens
        self.rows = tuple(phase.grid_symbols[factor] for factor in rows)
        self.block_rows = most
        self.packs: list[Pack] = []
        self.direct: set[Value] = set()
        """Outputs that a product writes itself."""
        self._users: dict[Value, list[Node]] = {}
        for node in candidate.nodes:
            for value in node.inputs:
                self._users.setdefault(value, []).append(node)
        self._outputs = set(candidate.outputs)
        self._sums = self._find_sums(candidate)
        self._places: dict[Value, Matrix] = {}
        """Where the sums of several products gather, once the first of them is lowered."""

    def add(self, node: Node) -> None:
        """Lower one `dot_general` or `convolution`.

        They come in the order in which they run: the first of a sum overwrites what the others add to.
        """
        form = self._dot_form(node) if role_of(node) is Role.DOT else self._convolution_form(node)
        form = replace(form, lhs=self._unwidened(form.lhs), rhs=self._unwidened(form.rhs))
        level = self.phase.levels[node.output] - 1
        dtype = node.output.type.dtype
        depth, columns = _size(form.depth), _size(form.columns)
        lhs = self._left(form, level, form.lhs.type.dtype)
        rhs = self._right(node, form)
        total = self._sums.get(node, node.output)
        accumulate = total in self._places
        if not accumulate:
            self._places[total] = self._result(node, total, form, columns, dtype)
        rows = self.block_rows if self.rows else 1
        dot = Dot(self._places[total], lhs, rhs, rows, columns, depth, dtype, accumulate, is_fast(node.attrs))
        self.phase.draft.dots.append((level, dot))

    # ---- sums of products ----------------------------------------------------------------------------------------

    def _find_sums(self, candidate: KernelCandidate) -> dict[Node, Value]:
        """Products that are only added up, `(a @ b + c @ d) + e @ f`, with the value of the whole sum."""
        found: dict[Node, Value] = {}
        for node in candidate.nodes:
            terms = self._terms(node) if _is_sum(node) else []
            for term in terms:
                found[term] = node.output
        return found

    def _terms(self, node: Node) -> list[Node]:
        """The products that an addition adds up, in the order of its rounding; none if there is anything else."""
        others: list[Node] = []
        total: Node | None = node
        while total is not None and _is_sum(total):
            total, other = self._alone(total.inputs[0]), self._alone(total.inputs[1])
            if not _is_sum(total) and _is_sum(other):
                total, other = other, total
            if other is None or role_of(other) is not Role.DOT:
                return []
            others.append(other)
        terms = [] if total is None else [total]
        for other in reversed(others):
            if not terms or not _can_add(terms[-1], other):
                return []
            terms.append(other)
        levels = [self.phase.levels[term.output] for term in terms]
        return terms if levels == sorted(levels) else []

    def _alone(self, value: Value) -> Node | None:
        """The product or sum that makes `value`, if it is read once and is no output."""
        node = self.phase.producers.get(value)
        if node is None or not (_is_sum(node) or role_of(node) is Role.DOT) or value in self._outputs:
            return None
        users = self._users[value]
        return node if len(users) == 1 and users[0].inputs.count(value) == 1 else None

    # ---- forms ---------------------------------------------------------------------------------------------------

    def _dot_form(self, node: Node) -> _Form:
        phase, dims = self.phase, self.phase.dims
        parts = dot_axes(node)
        exact = phase.index_of(node.output)
        lhs_axes, rhs_axes = dims.axes(dims.use(node, 0)), dims.axes(dims.use(node, 1))
        nb, nl = len(parts.lhs_batch), len(parts.lhs_free)
        lhs_at: list[Affine] = [Affine()] * len(lhs_axes)
        rhs_at: list[Affine] = [Affine()] * len(rhs_axes)
        for number, (a, b) in enumerate(zip(parts.lhs_batch, parts.rhs_batch, strict=True)):
            lhs_at[a] = rhs_at[b] = exact[number]
        for number, a in enumerate(parts.lhs_free):
            lhs_at[a] = exact[nb + number]
        for number, b in enumerate(parts.rhs_free):
            rhs_at[b] = exact[nb + nl + number]
        column_axes = tuple(range(nb + nl, len(exact)))
        batch = _streams(exact[:nb])
        columns = _streams(exact[nb + nl :])
        depth: list[Symbol] = []
        for a, b in zip(parts.lhs_contracting, parts.rhs_contracting, strict=True):
            walks = [phase.symbol(factor) for factor in lhs_axes[a]]
            if set(walks).isdisjoint(columns):
                lhs_at[a] = phase.axis_index(lhs_axes[a])
            else:  # the left operand and the result share their columns
                walks = [phase.fresh_stream(node.inputs[0].type.shape[a])]
                lhs_at[a] = index.of(walks[0])
            rhs_at[b] = lhs_at[a]
            depth += walks
        return _Form(
            node.inputs[0],
            tuple(lhs_at),
            (),
            node.inputs[1],
            tuple(rhs_at),
            batch,
            tuple(depth),
            columns,
            column_axes,
            exact,
        )

    def _convolution_form(self, node: Node) -> _Form:
        attrs, phase = node.attrs, self.phase
        lhs, rhs = node.inputs
        exact = phase.index_of(node.output)
        feature = attrs["kernel_input_feature_dimension"]
        channel = phase.fresh_stream(rhs.type.shape[feature])
        steps = [phase.fresh_stream(rhs.type.shape[axis]) for axis in attrs["kernel_spatial_dimensions"]]
        lhs_at: list[Affine] = [Affine()] * lhs.type.rank
        rhs_at: list[Affine] = [Affine()] * rhs.type.rank
        lhs_at[attrs["input_batch_dimension"]] = exact[attrs["output_batch_dimension"]]
        lhs_at[attrs["input_feature_dimension"]] = rhs_at[feature] = index.of(channel)
        rhs_at[attrs["kernel_output_feature_dimension"]] = exact[attrs["output_feature_dimension"]]
        conditions: list[Condition] = []
        for number, step in enumerate(steps):
            rhs_at[attrs["kernel_spatial_dimensions"][number]] = index.of(step)
            axis = attrs["input_spatial_dimensions"][number]
            at = exact[attrs["output_spatial_dimensions"][number]] * attrs["window_strides"][number]
            at = at + index.of(step) * attrs["rhs_dilation"][number] - attrs["padding"][number][0]
            lhs_at[axis] = self._inside(at, lhs.type.shape[axis], attrs["lhs_dilation"][number], conditions)
        depth = [s for s in (*steps, channel) if s.extent != 1]
        if feature < min(attrs["kernel_spatial_dimensions"], default=feature + 1):
            depth = [s for s in (channel, *steps) if s.extent != 1]
        column = attrs["output_feature_dimension"]
        columns = _streams(exact[column : column + 1])
        return _Form(
            lhs, tuple(lhs_at), tuple(conditions), rhs, tuple(rhs_at), (), tuple(depth), columns, (column,), exact
        )

    def _inside(self, at: Affine, extent: int, dilation: int, conditions: list[Condition]) -> Affine:
        """The input position under a window element; what must hold for it to exist is added to `conditions`."""
        limit = (extent - 1) * dilation + 1
        lo, hi = index.bounds(at)
        if lo < 0 or hi >= limit or dilation > 1:
            conditions.append(Condition(at, 0, limit, dilation, 0))
        return at // dilation if dilation > 1 else at

    # ---- operands ------------------------------------------------------------------------------------------------

    def _left(self, form: _Form, level: int, dtype: DType) -> Matrix:
        place = None if form.lhs_conditions else self._place(form.lhs, form.lhs_at)
        if place is not None:
            buffer, offset = place
            column = _common_stride(offset, form.depth)
            row = self._row_stride(offset) if self.rows else _size(form.depth)
            if column is not None and _usable(row, column, self.block_rows, _size(form.depth)):
                return Matrix(buffer, _without(offset, form.depth), row, column)
        return self._pack_left(form, level, dtype)

    def _row_stride(self, offset: Affine) -> int:
        """From one row of a row block to the next, in global memory or on chip."""
        local = self.phase.local
        return offset.coefficient(self.rows[-1]) or (0 if local is None else offset.coefficient(local))

    def _pack_left(self, form: _Form, level: int, dtype: DType) -> Matrix:
        joined = self._pack_parts(form, level, dtype)
        if joined is not None:
            return joined
        phase, depth = self.phase, _size(form.depth)
        stage = phase.draft.stage(level, form.depth)
        guard = phase.test(stage, form.lhs_conditions)
        scalar = phase.value(stage, form.lhs, form.lhs_at, guard)
        if guard is not None:
            zero = phase.constant(stage, dtype, 0)
            scalar = phase.map(stage, dtype, "select", guard, scalar, zero)
        stage.roots.append((form.lhs, form.lhs_at))
        name = phase.scratch(f"{form.lhs.name}.packed", dtype, depth)
        stage.body.append(Store(name, phase.row_offset(depth) + _flat(form.depth), scalar))
        return Matrix(name, Affine(), depth, 1)

    def _pack_parts(self, form: _Form, level: int, dtype: DType) -> Matrix | None:
        """Pack an operand that is a concatenation along the depth, a loop for each part."""
        node = self.phase.producers.get(form.lhs)
        if node is None or role_of(node) is not Role.JOIN or form.lhs_conditions:
            return None
        phase, axis, depth = self.phase, node.attrs["dimension"], _size(form.depth)
        if form.lhs_at[axis] != _flat(form.depth):
            return None
        name = phase.scratch(f"{form.lhs.name}.packed", dtype, depth)
        begin = 0
        for part in node.inputs:
            walk = phase.fresh_stream(part.type.shape[axis])
            at = (*form.lhs_at[:axis], index.of(walk), *form.lhs_at[axis + 1 :])
            stage = phase.draft.stage(level, (walk,))
            scalar = phase.value(stage, part, at, None)
            stage.roots.append((part, at))
            stage.body.append(Store(name, phase.row_offset(depth) + index.of(walk) + begin, scalar))
            begin += walk.extent
        return Matrix(name, Affine(), depth, 1)

    def _right(self, node: Node, form: _Form) -> Matrix:
        place = self._place(form.rhs, form.rhs_at)
        if place is not None:
            buffer, offset = place
            if self.rows and (self._row_stride(offset) or any(offset.coefficient(row) for row in self.rows)):
                raise LegalityError(f"the right operand of {node.op} %{node.name} changes with its rows")
            row, column = _common_stride(offset, form.depth), _common_stride(offset, form.columns)
            depth, columns = _size(form.depth), _size(form.columns)
            turned = column != 1 and self.phase.reads_again and self.phase.is_fixed(form.rhs)
            if not turned and row is not None and column is not None and _usable(row, column, depth, columns):
                return Matrix(buffer, _without(offset, (*form.depth, *form.columns)), row, column)
        return self._pack_right(node, form)

    def _pack_right(self, node: Node, form: _Form) -> Matrix:
        if not self.phase.is_fixed(form.rhs):
            raise LegalityError(f"the right operand of {node.op} %{node.name} is made anew in each iteration")
        if self.phase.levels[form.rhs] > self.phase.first_level:
            raise LegalityError(
                f"the right operand of {node.op} %{node.name} is the result of another reduction or dot"
            )
        if any(index.symbols_of(i) & set(self.rows) for i in form.rhs_at):
            raise LegalityError(f"the right operand of {node.op} %{node.name} changes with its rows")
        symbols = (*form.batch, *form.depth, *form.columns)
        type_ = TensorType(tuple(s.extent for s in symbols), form.rhs.type.dtype)
        name = self.phase.buffers.add(f"{form.rhs.name}.packed", type_, Space.WORKSPACE).name
        self.packs.append(Pack(form.rhs, name, symbols, form.rhs_at))
        columns = _size(form.columns)
        return Matrix(name, _flat(form.batch) * (_size(form.depth) * columns), columns, 1)

    def _unwidened(self, value: Value) -> Value:
        """What a value is made of, if it is 16-bit floats made f32 and products read such themselves."""
        node = self.phase.producers.get(value)
        return node.inputs[0] if self.widens and node is not None and _is_widening(node) else value

    def _place(self, value: Value, at: Index) -> tuple[str, Affine] | None:
        """Where an element lies if it is only moved, never computed or masked: a buffer and an offset."""
        value, at = self.phase.source(value, at)
        node = self.phase.producers.get(value)
        while node is not None:
            if self.widens and _is_widening(node):
                value, at = self.phase.source(node.inputs[0], at)
                node = self.phase.producers.get(value)
                continue
            if not role_of(node).moves:
                return None
            pieces = self.phase.pieces_of(node, at)
            if len(pieces) != 1 or any(index.reads_memory(i) for i in pieces[0].index):
                return None
            value, at = self.phase.source(node.inputs[pieces[0].operand], pieces[0].index)
            node = self.phase.producers.get(value)
        return self.phase.place(value, at)

    # ---- results -------------------------------------------------------------------------------------------------

    def _result(self, node: Node, total: Value, form: _Form, columns: int, dtype: DType) -> Matrix:
        direct = self._direct_output(total, form)
        if direct is not None:
            return direct
        name = self.phase.scratch(node.name, dtype, columns)
        exact, column_axes = form.exact, form.column_axes

        def read(frame: PhaseFrame, stage: StageDraft, at: Index, guard: Scalar | None) -> Scalar:
            position = Affine()
            for axis, (wanted, computed) in enumerate(zip(at, exact, strict=True)):
                if axis in column_axes:
                    position = position * node.output.type.shape[axis] + wanted
                elif wanted != computed:
                    raise LegalityError(f"{node.op} %{node.name} is read at another row than it is computed for")
            return frame.load_at(stage, name, dtype, frame.row_offset(columns) + position, guard)

        self.phase.row_results[total] = read
        return Matrix(name, Affine(), columns, 1)

    def _direct_output(self, value: Value, form: _Form) -> Matrix | None:
        """Write to an output buffer, if the result goes there and nowhere else, moved at most by views."""
        while value not in self._outputs:
            users = self._users.get(value, [])
            if len(users) != 1 or not is_permuted(users[0]):
                return None
            value = users[0].output
        if self._users.get(value) or value in self.phase.blocks:
            return None
        place = self.phase.direct_place(value, self.phase.index_of(value))
        if place is None:
            return None
        buffer, offset = place
        column = _common_stride(offset, form.columns)
        row = offset.coefficient(self.rows[-1]) if self.rows else _size(form.columns)
        if column != 1 or row < _size(form.columns):
            return None
        self.direct.add(value)
        return Matrix(buffer, _without(offset, form.columns), row, 1)


def _is_widening(node: Node) -> bool:
    """Whether 16-bit floats become f32, which changes no value."""
    return node.op == "convert" and node.output.type.dtype == F32 and _is_half(node.inputs[0].type.dtype)


def _is_half(dtype: DType) -> bool:
    return dtype.is_float and dtype.bits == 16


def _is_sum(node: Node | None) -> bool:
    return node is not None and node.op == "add"


def _can_add(one: Node, other: Node) -> bool:
    """Whether two products of one type lay out their results alike; 16-bit floats are rounded before they are added."""
    if role_of(one) is not Role.DOT or one.output.type != other.output.type:
        return False
    dtype, a, b = one.output.type.dtype, dot_axes(one), dot_axes(other)
    alike = len(a.lhs_batch) == len(b.lhs_batch) and len(a.lhs_free) == len(b.lhs_free)
    return alike and dtype.kind != "bool" and not (dtype.is_float and dtype.bits == 16)


def _streams(at: Sequence[Affine]) -> tuple[Symbol, ...]:
    """The symbols of plain products of symbols, slowest first."""
    found: list[Symbol] = []
    for position in at:
        terms = sorted(position.terms, key=lambda term: -term[1])
        found += [variable for variable, _ in terms if isinstance(variable, Symbol)]
    return tuple(found)


def _size(symbols: Sequence[Symbol]) -> int:
    size = 1
    for symbol in symbols:
        size *= symbol.extent
    return size


def _flat(symbols: Sequence[Symbol]) -> Affine:
    position = Affine()
    for symbol in symbols:
        position = position * symbol.extent + index.of(symbol)
    return position


def _common_stride(offset: Affine, symbols: Sequence[Symbol]) -> int | None:
    """The one stride with which `symbols`, walked as one loop, step through memory; None if there is none."""
    if not symbols:
        return 1
    inside = {s for v, _ in offset.terms if not isinstance(v, Symbol) for s in index.symbols_of(index.of(v))}
    if inside & set(symbols):
        return None
    stride = offset.coefficient(symbols[-1])
    step = stride
    for faster, slower in zip(reversed(symbols), list(reversed(symbols))[1:], strict=False):
        step *= faster.extent
        if offset.coefficient(slower) != step:
            return None
    return stride


def _without(offset: Affine, symbols: Sequence[Symbol]) -> Affine:
    return index.renamed(offset, {symbol: Affine() for symbol in symbols})


def _usable(row: int, column: int, rows: int, columns: int) -> bool:
    """Whether a matrix with these strides is one BLAS reads: one stride 1, the other no shorter than a line."""
    if column == 1:
        return row >= max(columns, 1) or rows == 1
    return row == 1 and column >= max(rows, 1)
