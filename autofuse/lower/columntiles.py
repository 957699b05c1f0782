"""Products with an elementwise epilogue, cut into tiles of columns: independent work that needs little scratch.

    row block { t = a @ b;  y[i, k] = f(t[i, k], ...) for k < N }
    row block x column_tile<N/W> { t = a @ b[:, W c : W c + W];  y[i, W c + k] = f(t[i, k], ...) for k < W }

What comes before the product (its prologue) is done anew for every tile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autofuse.ir import index
from autofuse.ir.index import Affine, Symbol
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.rewrite import rewritten
from autofuse.lower.statements import ArgReduce, Load, Reduce, Scan, Statement, Store
from autofuse.lower.tile import Buffer, Dot, Phase, RowGroup, Space, Stage, Step

COLUMN_TILE = "column_tile"
"""The grid symbol that numbers tiles of columns."""
_WIDTH_STEP = 16
"""Widths are multiples of this."""
_COPY = 16.0
"""Columns of a product that take as long as copying its left operand, or reading it again, roughly."""
_PROLOGUE = 64.0
"""Columns of a product that take as long as computing its left operand, roughly."""
_SPILLED = 0.1
"""Slowdown where the tile is twice as large as what should stay on chip."""
_ELEMENT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Columns:
    """A phase that can be cut."""

    extent: int
    """Columns of every product."""
    prologue: tuple[RowGroup, ...]
    dots: int
    kept: int
    """Products whose results stay on chip until later stages have read them."""
    narrowed: frozenset[str]
    """Scratch buffers that need only a tile of columns."""


def find_columns(phase: Phase, buffers: Mapping[str, Buffer]) -> Columns | None:
    """What would be cut, if the products have equal columns and the stages after them go column by column."""
    first = next((n for n, step in enumerate(phase.steps) if isinstance(step, Dot)), None)
    if phase.row_block is None or first is None:
        return None
    prologue = tuple(step for step in phase.steps[:first] if isinstance(step, RowGroup))
    rest = phase.steps[first:]
    dots = [step for step in rest if isinstance(step, Dot)]
    extent = dots[0].columns
    stages = [stage for step in rest if isinstance(step, RowGroup) for stage in step.stages]
    touched = {dot.out.buffer for dot in dots} | {s.buffer for stage in stages for s in _memory(stage)}
    narrowed = frozenset(name for name in touched if buffers[name].space is Space.SCRATCH)
    local = index.of(phase.row_block.local) * extent
    good = all(_is_cut(dot, extent, buffers, narrowed) for dot in dots)
    good = good and all(_is_columnwise(stage, extent, local, narrowed) for stage in stages)
    repeated = [s for group in prologue for stage in group.stages for s in _memory(stage)]
    good = good and narrowed.isdisjoint(s.buffer for s in repeated)
    # what the prologue stores for others would be stored once per tile
    good = good and all(buffers[s.buffer].space is Space.SCRATCH for s in repeated if isinstance(s, Store))
    kept = sum(dot.out.buffer in narrowed for dot in dots)
    return Columns(extent, prologue, len(dots), kept, narrowed) if good else None


def cut_columns(
    phase: Phase, buffers: Mapping[str, Buffer], columns: Columns, width: int, pitch: int | None = None
) -> tuple[Phase, Mapping[str, Buffer]]:
    """The phase with tiles of `width` columns, which divides their extent, as its last grid symbol; its buffers.

    `pitch`: elements between the rows of a tile on chip, by default its width.
    """
    assert phase.row_block is not None
    pitch = pitch or width
    tile = Symbol(COLUMN_TILE, columns.extent // width)
    cut = _Cut(columns.narrowed, index.of(tile) * width, width, pitch, index.of(phase.row_block.local) * pitch)
    first = len(columns.prologue)
    steps = (*columns.prologue, *(cut.step(step) for step in phase.steps[first:]))
    scratch = {name: _narrowed(buffers[name], columns.extent, pitch) for name in columns.narrowed}
    return replace(phase, grid=(*phase.grid, tile), steps=steps), {**buffers, **scratch}


def tile_width(columns: Columns, row_blocks: int, rows: int, workers: int, scratch_bytes: int) -> int:
    """The width that keeps all workers busy and repeats little: copies of the left operand, the prologue.

    `row_blocks` are the independent row blocks of `rows` rows; `scratch_bytes` what a worker may keep on chip.
    """

    def cost(width: int) -> float:
        blocks = row_blocks * (columns.extent // width)
        idle = -(-blocks // workers) * workers / blocks
        repeated = 1.0 + (_PROLOGUE if columns.prologue else _COPY) / width
        kept = columns.kept * rows * width * _ELEMENT_BYTES / (scratch_bytes / 2)
        return idle * repeated * max(1.0, 1.0 + _SPILLED * (kept - 1.0))

    if columns.extent * row_blocks == 0:
        return columns.extent
    widths = [w for w in range(_WIDTH_STEP, columns.extent, _WIDTH_STEP) if columns.extent % w == 0]
    return min([columns.extent, *reversed(widths)], key=cost)


def _memory(stage: Stage) -> list[Load | Store]:
    return [statement for statement in stage.body if isinstance(statement, Load | Store)]


def _is_cut(dot: Dot, extent: int, buffers: Mapping[str, Buffer], narrowed: frozenset[str]) -> bool:
    """Whether a product's columns can be done by tiles."""
    if dot.columns != extent or not narrowed.isdisjoint((dot.lhs.buffer, dot.rhs.buffer)):
        return False
    if buffers[dot.out.buffer].space is not Space.SCRATCH:
        return True
    return dot.out.offset == Affine() and dot.out.row_stride == extent and dot.out.column_stride == 1


def _is_columnwise(stage: Stage, extent: int, local: Affine, narrowed: frozenset[str]) -> bool:
    """Whether each column of the row block is computed from that column of the scratch alone."""
    if len(stage.symbols) != 1 or stage.symbols[0].extent != extent:
        return False
    if any(isinstance(statement, Reduce | ArgReduce | Scan) for statement in stage.body):
        return False
    here = local + index.of(stage.symbols[0])
    return all(statement.offset == here for statement in _memory(stage) if statement.buffer in narrowed)


def _narrowed(buffer: Buffer, extent: int, width: int) -> Buffer:
    return replace(buffer, type=TensorType((buffer.type.size // extent, width), buffer.type.dtype))


@dataclass(frozen=True, slots=True)
class _Cut:
    """Rewrites steps to work on one tile."""

    narrowed: frozenset[str]
    first: Affine
    """The tile's first column."""
    width: int
    pitch: int
    """Elements between rows of narrowed scratch."""
    local: Affine
    """Where the row block's row begins in narrowed scratch."""

    def step(self, step: Step) -> Step:
        if isinstance(step, RowGroup):
            return RowGroup(tuple(self._stage(stage) for stage in step.stages))
        rhs = replace(step.rhs, offset=step.rhs.offset + self.first * step.rhs.column_stride)
        if step.out.buffer in self.narrowed:
            out = replace(step.out, row_stride=self.pitch)
        else:
            out = replace(step.out, offset=step.out.offset + self.first)
        return replace(step, out=out, rhs=rhs, columns=self.width)

    def _stage(self, stage: Stage) -> Stage:
        (whole,) = stage.symbols
        part = Symbol(whole.name, self.width)
        place = {whole: self.first + index.of(part)}
        body = [rewritten(statement, lambda value: index.renamed(value, place)) for statement in stage.body]
        return replace(
            stage,
            symbols=(part,),
            body=self._placed(body, self.local + index.of(part)),
            vectorised=None if stage.vectorised is None else part,
        )

    def _placed(self, body: Sequence[Statement], here: Affine) -> tuple[Statement, ...]:
        """The statements, at `here` where they touch narrowed scratch."""
        return tuple(
            replace(s, offset=here) if isinstance(s, Load | Store) and s.buffer in self.narrowed else s for s in body
        )
