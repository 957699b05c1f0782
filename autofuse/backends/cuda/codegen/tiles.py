"""A dot with an elementwise epilogue, cut into columns so that its result needs only a tile of scratch.

    panel { t = a @ b;  y[i, k] = f(t[i, k], ...) for k < N }
    panel x column_tile<N/W> { t = a @ b[:, W c : W c + W];  y[i, W c + k] = f(t[i, k], ...) for k < W }

Without this a block would keep whole rows of the result on chip, and have few of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeGuard

from autofuse.backends.cuda.codegen.access import accesses_of
from autofuse.backends.cuda.codegen.dots import TILE
from autofuse.ir import index
from autofuse.ir.index import Affine, Symbol
from autofuse.ir.types import TensorType
from autofuse.lower.rewrite import rewritten
from autofuse.lower.tile import (
    ArgReduce,
    Buffer,
    Dot,
    Load,
    Matrix,
    Phase,
    Reduce,
    RowGroup,
    Scan,
    Space,
    Stage,
    Statement,
    Store,
)

LEAST_WIDTH = TILE // 2
"""Narrower tiles would leave most of the dot's threads idle."""


def with_column_tiles(phase: Phase, buffers: Mapping[str, Buffer]) -> tuple[Phase, Mapping[str, Buffer]]:
    """The phase and its buffers cut into columns, or both as they are where that is not possible."""
    if phase.panel is None or len(phase.steps) < 2:
        return phase, buffers
    dot, *rest = phase.steps
    if not isinstance(dot, Dot) or buffers[dot.out.buffer].space is not Space.SCRATCH or not _is_row_major(dot):
        return phase, buffers
    width = _width(dot.columns)
    groups = [step for step in rest if isinstance(step, RowGroup)]
    local = index.of(phase.panel.local) * dot.columns
    if width is None or len(groups) != len(rest):
        return phase, buffers
    if not all(_is_columnwise(stage, dot.columns, local, buffers) for group in groups for stage in group.stages):
        return phase, buffers
    tile = Symbol("column_tile", dot.columns // width)
    cut = _Cut(buffers, tile, width, index.of(phase.panel.local) * width)
    steps = (cut.dot(dot), *(RowGroup(tuple(cut.stage(stage) for stage in group.stages)) for group in groups))
    scratch = {b.name: _narrowed(b, dot.columns, width) for b in buffers.values() if b.space is Space.SCRATCH}
    return replace(phase, grid=(*phase.grid, tile), steps=steps), {**buffers, **scratch}


def _is_row_major(dot: Dot) -> bool:
    return dot.out.offset == Affine() and dot.out.row_stride == dot.columns and dot.out.column_stride == 1


def _width(columns: int) -> int | None:
    """The widest tile that divides the columns and suits vectors; None if that is too narrow, or all of them."""
    widths = (width for width in range(TILE, LEAST_WIDTH - 1, -4) if columns % width == 0)
    return next(widths, None) if columns > TILE else None


def _is_columnwise(stage: Stage, columns: int, local: Affine, buffers: Mapping[str, Buffer]) -> bool:
    """Whether each column of the panel is computed from that column of the scratch alone."""
    if len(stage.symbols) != 1 or stage.symbols[0].extent != columns:
        return False
    if any(isinstance(statement, Reduce | ArgReduce | Scan) for statement in stage.body):
        return False
    here = local + index.of(stage.symbols[0])
    scratch = (a for a in accesses_of(stage, buffers) if a.buffer.space is Space.SCRATCH)
    return all(access.offset == here for access in scratch)


def _narrowed(buffer: Buffer, columns: int, width: int) -> Buffer:
    """A scratch buffer with rows of `width`; one that this phase does not touch may come out odd, and is not used."""
    rows = max(1, buffer.type.size // columns)
    return replace(buffer, type=TensorType((rows, width), buffer.type.dtype))


class _Cut:
    """Rewrites steps to work on one tile."""

    def __init__(self, buffers: Mapping[str, Buffer], tile: Symbol, width: int, local: Affine) -> None:
        self.buffers = buffers
        self.first = index.of(tile) * width
        self.width = width
        self.local = local

    def dot(self, dot: Dot) -> Dot:
        rhs: Matrix = replace(dot.rhs, offset=dot.rhs.offset + self.first * dot.rhs.column_stride)
        return replace(dot, out=replace(dot.out, row_stride=self.width), rhs=rhs, columns=self.width)

    def stage(self, stage: Stage) -> Stage:
        (whole,) = stage.symbols
        part = Symbol(whole.name, self.width)
        place = {whole: self.first + index.of(part)}
        body = [rewritten(statement, lambda value: index.renamed(value, place)) for statement in stage.body]
        here = self.local + index.of(part)
        body = [replace(s, offset=here) if self._is_scratch(s) else s for s in body]
        return replace(stage, symbols=(part,), body=tuple(body), lane=None if stage.lane is None else part)

    def _is_scratch(self, statement: Statement) -> TypeGuard[Load | Store]:
        if not isinstance(statement, Load | Store):
            return False
        return self.buffers[statement.buffer].space is Space.SCRATCH
