"""How a phase with row blocks or dots is cut into blocks: rows, tiles, and what lies in shared memory.

A row block may be cut smaller than the program says, so that its scratch fits shared memory: they are independent, and
scratch is row-major with the row block's row outermost, so fewer rows only means less of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from autofuse.errors import LegalityError
from autofuse.ir.index import Symbol
from autofuse.lazydataclass import dataclass
from autofuse.lower.columntiles import COLUMN_TILE
from autofuse.lower.schedule import PANEL_ROWS, Schedule
from autofuse.lower.statements import Load, Store
from autofuse.lower.tile import Buffer, Dot, Phase, RowGroup, Space, Stage
from autofuse.targets.cuda.codegen.access import accesses_of
from autofuse.targets.cuda.codegen.blockorder import rows_together
from autofuse.targets.cuda.codegen.blockproducts import dot_bytes, dot_shape, tile_of, wide_columns
from autofuse.targets.cuda.codegen.fewrowproducts import (
    MOST_FEW_ROWS,
    FewRowsShape,
    copied_bytes,
    has_many_sums,
    is_few_rows,
    shapes_of,
    threads_of,
)
from autofuse.targets.cuda.codegen.hiddentiles import visible_share
from autofuse.targets.cuda.codegen.places import SharedArena
from autofuse.targets.cuda.codegen.producttiles import (
    BUSY,
    CHUNK_BYTES,
    COLUMNS,
    DOT_THREADS,
    ROWS,
    SIDE,
    WIDEST,
    TileShape,
)
from autofuse.targets.cuda.codegen.rowgroups import Group, block_group
from autofuse.targets.cuda.codegen.sweepshapes import SweepShape, swept_bytes, swept_scratch, swept_shape, swept_steps
from autofuse.targets.cuda.decisions import THREADS

_DEEP_BYTES = 48 << 10
"""Of a block that has more tiles come in: several of them stay on a multiprocessor."""
MOST_ROWS = ROWS[0]
"""Rows of a row block at most: more rows per block leave multiprocessors without work."""


@dataclass(frozen=True, slots=True)
class RowBlockPlan:
    """How a phase with row blocks or dots is cut into blocks."""

    threads: int
    rows: int
    """Rows of a full row block as cut here; without a row block those of the dots."""
    grid: tuple[Symbol, ...]
    """What the block's number counts through: the grid with that of row blocks replaced, then tiles of a lone dot."""
    row_block: Symbol | None
    """The symbol in `grid` that counts row blocks (or row tiles of a lone dot)."""
    columns: Symbol | None
    """The symbol in `grid` that counts column tiles of a lone dot."""
    dots: tuple[tuple[Dot, TileShape], ...]
    """The dots, in order, and how each is done."""
    aliased: str | None
    """A scratch buffer that lies where the operands' tiles do: the result of the only dot, made when they are read."""
    sweep: SweepShape | None = None
    """How steps that are taken tile by tile are done: two of the dots are theirs."""
    visible: float = 1.0
    """Of these tiles, those that some row of a block sees."""
    few_rows: tuple[tuple[Dot, FewRowsShape], ...] = ()
    """The dots, in order, where they have few rows and are done again and again; there are no others then."""

    @property
    def multiplies(self) -> bool:
        """Whether it has products."""
        return bool(self.dots or self.few_rows)

    @property
    def blocks(self) -> int:
        return max(1, math.prod(symbol.extent for symbol in self.grid))

    def group(self, stages: Sequence[Stage], phase: Phase, buffers: Mapping[str, Buffer], schedule: Schedule) -> Group:
        """The threads for a row, in some stages of the phase that are done row by row."""
        alone = phase.row_block is None or (self.rows == 1 and bool(self.few_rows))
        rows = None if alone else self.rows
        return block_group(stages, rows, self.threads, buffers, schedule)

    @property
    def column_tiles(self) -> Symbol | None:
        """The symbol in `grid` that counts tiles of columns; None where a block has all columns."""
        return next((symbol for symbol in self.grid if symbol.name == COLUMN_TILE), None)

    @property
    def together(self) -> int:
        """Rows of tiles that follow one another in one column of tiles, before those of the next one."""
        columns = self.column_tiles
        if columns is None or self.row_block is None:
            return 1
        wide = min(max(dot.columns for dot, _ in self.dots), max(shape.columns for _, shape in self.dots))
        return rows_together(self.row_block.extent, columns.extent, min(self.rows, self.dots[0][1].rows), wide)


def plan_row_blocks(
    phase: Phase, buffers: Mapping[str, Buffer], schedule: Schedule, threads: int | None, arena: SharedArena
) -> RowBlockPlan:
    """Choose the rows of a row block by shared memory. Raises LegalityError when not even one row fits."""
    dots = [step for step in phase.steps if isinstance(step, Dot)]
    width = threads or (DOT_THREADS if dots else max(32, schedule[THREADS] // 32 * 32))
    if len(phase.steps) == 1 and dots:
        return _plan_lone(phase, dots[0], buffers, schedule, width, arena)
    if phase.sweep is not None:
        return _plan_sweep(phase, dots, buffers, schedule, threads, arena)
    if is_few_rows(phase, buffers):
        found = _plan_few_rows(phase, dots, buffers, schedule, threads, arena)
        if found is not None:
            return found
    rows, shapes = _rows(phase, buffers, dots, schedule, arena)
    grid, row_block = phase.grid, None
    if phase.row_block is not None:
        row_block = Symbol("panel", -(-phase.row_block.symbol.extent // rows))
        grid = tuple(row_block if symbol == phase.row_block.symbol else symbol for symbol in grid)
    aliased = _aliased(phase, dots, shapes, buffers)
    return RowBlockPlan(width, rows, grid, row_block, None, tuple(zip(dots, shapes, strict=True)), aliased)


def _plan_lone(
    phase: Phase, dot: Dot, buffers: Mapping[str, Buffer], schedule: Schedule, threads: int, arena: SharedArena
) -> RowBlockPlan:
    """A dot that is all there is: its result is cut into tiles, both ways."""
    extent = dot.rows if phase.row_block is None else phase.row_block.symbol.extent
    others = math.prod(symbol.extent for symbol in phase.grid) // max(1, 1 if phase.row_block is None else extent)
    widths = (*wide_columns(dot, buffers, arena.arch), *COLUMNS)
    high, wide = tile_of(dot, buffers, arena.arch, schedule, extent, others, widths)
    shape = dot_shape(dot, buffers, arena.arch, schedule, min(high, extent), wide, deep=True)
    if dot_bytes(dot, buffers, shape) > arena.capacity:
        shape = dot_shape(dot, buffers, arena.arch, schedule, min(high, extent), wide)
    row_tiles, columns = -(-extent // shape.rows), Symbol(COLUMN_TILE, -(-dot.columns // shape.columns))
    row_block = Symbol("panel" if phase.row_block is not None else "row_tile", row_tiles)
    grid = tuple(symbol for symbol in phase.grid if phase.row_block is None or symbol != phase.row_block.symbol)
    rows = extent if phase.row_block is None else shape.rows
    return RowBlockPlan(threads, rows, (*grid, row_block, columns), row_block, columns, ((dot, shape),), None)


def _plan_sweep(
    phase: Phase,
    dots: Sequence[Dot],
    buffers: Mapping[str, Buffer],
    schedule: Schedule,
    threads: int | None,
    arena: SharedArena,
) -> RowBlockPlan:
    """Rows that are swept together, as many as the row block says; what is done before and after has as many."""
    block = phase.row_block
    assert block is not None
    rows, shape = block.size, swept_shape(phase, buffers, arena.arch)
    scores, group, product, _ = swept_steps(phase)
    own = {id(scores): shape.scores, id(product): shape.product}
    shapes = [own.get(id(dot)) or dot_shape(dot, buffers, arena.arch, schedule, rows) for dot in dots]
    width = threads or (shape.workers if len(dots) == len(own) else DOT_THREADS)
    tiles = [dot_bytes(d, buffers, s) for d, s in zip(dots, shapes, strict=True) if id(d) not in own]
    kept = sum(buffer.type.nbytes + CHUNK_BYTES for buffer in scratch_of(phase, buffers))
    needed = max(*tiles, swept_bytes(phase, shape, buffers), 0) + kept
    if needed > arena.capacity:
        raise LegalityError(
            f"a sweep of {rows} rows needs {needed} bytes of shared memory; a block on {arena.arch} has "
            f"{arena.capacity}: use fewer rows, or split the kernel"
        )
    row_block = Symbol("panel", -(-block.symbol.extent // rows))
    grid = tuple(row_block if symbol == block.symbol else symbol for symbol in phase.grid)
    seen = visible_share(phase, group)
    return RowBlockPlan(width, rows, grid, row_block, None, tuple(zip(dots, shapes, strict=True)), None, shape, seen)


def _plan_few_rows(
    phase: Phase,
    dots: Sequence[Dot],
    buffers: Mapping[str, Buffer],
    schedule: Schedule,
    threads: int | None,
    arena: SharedArena,
) -> RowBlockPlan | None:
    """Iterations of few rows: few enough that all multiprocessors have some. None where one row does not fit."""
    block, width = phase.row_block, threads or threads_of(dots)
    if block is None and max(dot.rows for dot in dots) > MOST_FEW_ROWS:
        return None
    size, extent = (1, 1) if block is None else (block.size, block.symbol.extent)
    others = math.prod(symbol.extent for symbol in phase.grid) // max(extent, 1)
    rows = max(1, min(size, extent, MOST_FEW_ROWS))
    if not schedule[PANEL_ROWS]:
        rows = min(rows, max(1, -(-extent * others // BUSY)))
    scratch = scratch_of(phase, buffers)

    def kept(rows: int) -> int:
        own = [-(-buffer.type.nbytes // size * rows // CHUNK_BYTES) * CHUNK_BYTES for buffer in scratch]
        return sum(own) + copied_bytes(dots, buffers, None if block is None else rows)

    while rows > 1 and (kept(rows) > arena.capacity or has_many_sums(dots, rows, width)):
        rows = (rows + 1) // 2
    if kept(rows) > arena.capacity:
        return None
    space = arena.capacity - kept(rows)
    shapes = shapes_of(dots, phase, buffers, None if block is None else rows, width, space)
    grid, row_block = phase.grid, None
    if block is not None:
        row_block = Symbol("panel", -(-extent // rows))
        grid = tuple(row_block if symbol == block.symbol else symbol for symbol in grid)
    each = max(dot.rows for dot in dots) if block is None else rows
    few = tuple(zip(dots, shapes, strict=True))
    return RowBlockPlan(width, each, grid, row_block, None, (), None, few_rows=few)


def _aliased(
    phase: Phase, dots: Sequence[Dot], shapes: Sequence[TileShape], buffers: Mapping[str, Buffer]
) -> str | None:
    """The scratch that may lie over the operands' tiles, since nothing but the only tile of the only dot makes it."""
    if len(dots) != 1 or phase.row_block is None or dots[0].columns > shapes[0].columns:
        return None
    dot = dots[0]
    before = [step for step in phase.steps[: phase.steps.index(dot)] if isinstance(step, RowGroup)]
    touched = {s.buffer for step in before for stage in step.stages for s in stage.body if isinstance(s, Load | Store)}
    name = dot.out.buffer
    if buffers[name].space is not Space.SCRATCH or dot.accumulate or name in {dot.lhs.buffer, *touched}:
        return None
    return name


def _rows(
    phase: Phase, buffers: Mapping[str, Buffer], dots: Sequence[Dot], schedule: Schedule, arena: SharedArena
) -> tuple[int, list[TileShape]]:
    """Rows of a block, as many as fit, and the shapes of its dots."""
    cut = any(symbol.name == COLUMN_TILE for symbol in phase.grid)

    def shapes_of(rows: int, *, deep: bool = False) -> list[TileShape]:
        return [
            dot_shape(dot, buffers, arena.arch, schedule, rows, dot.columns if cut else None, deep=deep) for dot in dots
        ]

    if phase.row_block is None:
        return max(dot.rows for dot in dots), [dot_shape(dot, buffers, arena.arch, schedule, dot.rows) for dot in dots]
    rows = max(1, min(phase.row_block.size, phase.row_block.symbol.extent, MOST_ROWS))
    if dots and rows > SIDE:
        rows = 1 << rows.bit_length() - 1  # tiles have so many, and are done whole
    sizes = {b.name: b.type.nbytes // phase.row_block.size for b in scratch_of(phase, buffers)}

    def needed(rows: int, shapes: Sequence[TileShape] | None = None) -> int:
        shapes = shapes_of(rows) if shapes is None else shapes
        aliased = _aliased(phase, dots, shapes, buffers)
        tiles = max((dot_bytes(d, buffers, s) for d, s in zip(dots, shapes, strict=True)), default=0)
        if aliased is not None:
            tiles = max(tiles, sizes[aliased] * rows + 16)
        return tiles + sum(size * rows + 16 for name, size in sizes.items() if name != aliased)

    while rows > 1 and needed(rows) > arena.capacity:
        rows = (rows + 1) // 2
    if needed(rows) > arena.capacity:
        worst = max(sizes, key=lambda name: sizes[name])
        raise LegalityError(
            f"one row of a row block needs {needed(rows)} bytes of shared memory (most of it {worst}, {sizes[worst]} "
            f"bytes); a block on {arena.arch} has {arena.capacity} bytes: split the kernel at {worst}"
        )
    deep = shapes_of(rows, deep=True)
    wide = any(shape.columns == WIDEST for shape in deep)  # one such block has all registers
    most = arena.capacity if wide else max(_DEEP_BYTES, needed(rows))
    return rows, deep if needed(rows, deep) <= most else shapes_of(rows)


def scratch_of(phase: Phase, buffers: Mapping[str, Buffer]) -> list[Buffer]:
    """The scratch buffers that a phase has in shared memory, each once."""
    names: list[str] = []
    for step in phase.steps:
        if isinstance(step, Dot):
            names += [step.lhs.buffer, step.rhs.buffer, step.out.buffer]
        else:
            names += [a.buffer.name for stage in step.stages for a in accesses_of(stage, buffers)]
    swept = swept_scratch(phase)
    return [b for name in dict.fromkeys(names) if (b := buffers[name]).space is Space.SCRATCH and name not in swept]
