"""How reductions, scans and windows of one phase are lowered."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from autofuse.errors import LegalityError
from autofuse.fusion.nodeaxes import reduced_axes
from autofuse.ir import dtypes, index
from autofuse.ir.combiners import combiner_identity
from autofuse.ir.graph import Node
from autofuse.ir.index import Affine
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.ir.pieces import Condition, Piece
from autofuse.lower.phasedrafts import Demand, Instance, StageDraft, Wanted
from autofuse.lower.phaseframe import PhaseFrame
from autofuse.lower.statements import ArgReduce, Reduce, Scalar, Scan, Store

BOOL_COMBINERS = {"minimum": "and", "maximum": "or", "multiply": "and", "add": "or", "and": "and", "or": "or"}


class ReductionBuilder:
    """Lowers what combines elements along an axis. It asks for the elements by yielding requests.

    The phase that it does that for comes with each call: it holds this object, and two that hold each other are freed
    by the garbage collector only, which then takes a third of the time of a long search.
    """

    def __init__(self) -> None:
        self._done: dict[Instance, tuple[Scalar, StageDraft]] = {}
        """Reductions that have a stage, with the scalar that holds the result there."""
        self._carried: dict[Scalar, str] = {}
        """Scratch of results that a later row group reads."""

    def result(
        self, frame: PhaseFrame, stage: StageDraft, node: Node, at: tuple[Affine, ...], guard: Scalar | None
    ) -> Demand[Scalar]:
        """A reduction's result: the first request makes its stage. Raises LegalityError where it would be nested."""
        if not frame.is_grid_only(at):
            raise LegalityError(f"{node.op} %{node.name} is read inside another loop: it would be nested")
        if guard is not None and not _inside(at, node.output.type.shape):
            raise LegalityError(f"{node.op} %{node.name} is read where it does not exist, under a condition")
        if node.inputs[0].type.size == 0:
            return frame.constant(stage, node.output.type.dtype, _of_nothing(node))
        if (node.output, at) not in self._done:
            self._done[node.output, at] = yield from self._stage_of(frame, node, at)
        scalar, home = self._done[node.output, at]
        scalar = self._carry(frame, scalar, home, stage)
        dtype = node.output.type.dtype
        if frame.draft.dtypes[scalar] == dtype:
            return scalar
        return frame.map(stage, dtype, "convert", scalar)

    def _stage_of(self, frame: PhaseFrame, node: Node, at: tuple[Affine, ...]) -> Demand[tuple[Scalar, StageDraft]]:
        operand = node.inputs[0]
        axes = frame.dims.axes(frame.dims.use(node, 0))
        gone = reduced_axes(node)
        kept = iter(at)
        where = tuple(frame.axis_index(axis) if n in gone else next(kept) for n, axis in enumerate(axes))
        symbols = tuple(frame.symbol(factor) for n in sorted(gone) for factor in axes[n])
        stage = frame.draft.stage(frame.levels[operand], symbols)
        scalar = yield Wanted(stage, operand, where, None)
        stage.roots.append((operand, where))
        if role_of(node) is Role.REDUCE:
            return self._reduce(frame, stage, node, scalar), stage
        position = where[node.attrs["dimension"]]
        dtype = node.attrs["dtype"]
        result = frame.draft.scalar(dtype)
        stage.body.append(ArgReduce(result, dtype, node.op, scalar, position))
        return result, stage

    def _reduce(self, frame: PhaseFrame, stage: StageDraft, node: Node, scalar: Scalar) -> Scalar:
        dtype, combiner = node.output.type.dtype, node.attrs["combiner"]
        if dtype.is_float and dtype.bits == 16:
            dtype = dtypes.F32
            scalar = frame.map(stage, dtype, "convert", scalar)
        if dtype.kind == "bool":
            combiner = BOOL_COMBINERS[combiner]
        result = frame.draft.scalar(dtype)
        stage.body.append(Reduce(result, dtype, combiner, scalar))
        return result

    def _carry(self, frame: PhaseFrame, scalar: Scalar, home: StageDraft, stage: StageDraft) -> Scalar:
        """Bring a reduction's result into a later row group, through scratch."""
        if frame.row_group(home.level) == frame.row_group(stage.level):
            return scalar
        dtype = frame.draft.dtypes[scalar]
        if scalar not in self._carried:
            name = frame.scratch("carried", dtype, 1)
            late = frame.draft.stage(home.level, (), late=True)
            late.body.append(Store(name, frame.row_offset(1), scalar))
            self._carried[scalar] = name
        return frame.load_at(stage, self._carried[scalar], dtype, frame.row_offset(1), None)

    def scan(self, frame: PhaseFrame, node: Node) -> Demand[None]:
        """Walk the axis once, leave the running values in scratch."""
        operand, axis = node.inputs[0], node.attrs["dimension"]
        extent = operand.type.shape[axis]
        walk = frame.fresh_stream(extent)
        at = list(frame.index_of(node.output))
        at[axis] = index.of(walk)
        stage = frame.draft.stage(frame.levels[operand], (walk,))
        scalar = yield Wanted(stage, operand, tuple(at), None)
        dtype = node.output.type.dtype
        wide = dtypes.F32 if dtype.is_float and dtype.bits == 16 else dtype
        if wide != dtype:
            scalar = frame.map(stage, wide, "convert", scalar)
        result = frame.draft.scalar(wide)
        combiner = node.attrs["combiner"]
        stage.body.append(Scan(result, wide, combiner, scalar, node.attrs["reverse"]))
        kept = result if wide == dtype else frame.map(stage, dtype, "convert", result)
        name = frame.scratch(node.name, dtype, extent)
        stage.body.append(Store(name, frame.row_offset(extent) + index.of(walk), kept))
        exact = tuple(at)

        def read(frame: PhaseFrame, later: StageDraft, where: tuple[Affine, ...], guard: Scalar | None) -> Scalar:
            if any(a != b for n, (a, b) in enumerate(zip(where, exact, strict=True)) if n != axis):
                raise LegalityError(f"{node.op} %{node.name} is read at another row than it is computed for")
            return frame.load_at(later, name, dtype, frame.row_offset(extent) + where[axis], guard)

        frame.row_results[node.output] = read

    def window(
        self, frame: PhaseFrame, stage: StageDraft, node: Node, at: tuple[Affine, ...], guard: Scalar | None
    ) -> Demand[Scalar]:
        """Reduce a small window, unrolled."""
        attrs, operand = node.attrs, node.inputs[0]
        dtype = operand.type.dtype
        wide = dtypes.F32 if dtype.is_float and dtype.bits == 16 else dtype
        total: Scalar | None = None
        for offsets in itertools.product(*(range(extent) for extent in attrs["window_dimensions"])):
            piece = _window_piece(node, at, offsets)
            test = frame.test(stage, piece.conditions)
            scalar = yield Wanted(stage, operand, piece.index, frame.both(stage, guard, test))
            if wide != dtype:
                scalar = frame.map(stage, wide, "convert", scalar)
            if test is not None:
                identity = frame.constant(stage, wide, combiner_identity(attrs["combiner"], wide))
                scalar = frame.map(stage, wide, "select", test, scalar, identity)
            total = scalar if total is None else frame.map(stage, wide, attrs["combiner"], total, scalar)
        if total is None:
            return frame.constant(stage, dtype, combiner_identity(attrs["combiner"], dtype))
        return total if wide == dtype else frame.map(stage, dtype, "convert", total)


def _of_nothing(node: Node) -> bool | int | float:
    """What a reduction over no elements gives."""
    return combiner_identity(node.attrs.get("combiner", "add"), node.output.type.dtype)


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
