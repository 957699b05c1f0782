"""One block per row block (or per grid point with dots): rows are walked by warps, dots by all threads together.

A row block may be cut smaller than the program says, so that its scratch fits shared memory: they are independent, and
scratch is row-major with the row block's row outermost, so fewer rows only means less of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from autofuse.errors import LegalityError
from autofuse.ir.index import Symbol
from autofuse.lazydataclass import dataclass
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import Buffer, Dot, Load, Phase, RowGroup, Space, Store
from autofuse.targets.cuda.codegen.access import accesses_of
from autofuse.targets.cuda.codegen.blockproducts import DotWriter, dot_bytes, dot_shape, tile_of
from autofuse.targets.cuda.codegen.gridpoints import define_symbols
from autofuse.targets.cuda.codegen.phasecode import PhaseCode
from autofuse.targets.cuda.codegen.places import Place, SharedArena
from autofuse.targets.cuda.codegen.producttiles import CHUNK_BYTES, COLUMNS, DOT_THREADS, ROWS, SIDE, TileShape
from autofuse.targets.cuda.codegen.rowgroups import Group, row_vector
from autofuse.targets.cuda.codegen.rows import RowWriter, write_group_head
from autofuse.targets.cuda.codegen.sweeps import SweepWriter
from autofuse.targets.cuda.codegen.sweepshapes import SWEPT_STEPS, SweepShape, swept_bytes, swept_scratch, swept_shape
from autofuse.targets.cuda.ctypes_text import memory_type
from autofuse.targets.cuda.decisions import THREADS

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

    @property
    def blocks(self) -> int:
        return max(1, math.prod(symbol.extent for symbol in self.grid))


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
    high, wide = tile_of(dot, buffers, arena.arch, schedule, extent, others, COLUMNS)
    shape = dot_shape(dot, buffers, arena.arch, schedule, min(high, extent), wide)
    row_tiles, columns = -(-extent // shape.rows), Symbol("column_tile", -(-dot.columns // shape.columns))
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
    sweep, block = phase.sweep, phase.row_block
    assert sweep is not None
    assert block is not None
    rows, shape = block.size, swept_shape(phase, buffers, arena.arch)
    own = {id(phase.steps[sweep.first]): shape.scores, id(phase.steps[sweep.first + 2]): shape.product}
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
    return RowBlockPlan(width, rows, grid, row_block, None, tuple(zip(dots, shapes, strict=True)), None, shape)


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

    def shapes_of(rows: int) -> list[TileShape]:
        return [dot_shape(dot, buffers, arena.arch, schedule, rows) for dot in dots]

    if phase.row_block is None:
        return max(dot.rows for dot in dots), [dot_shape(dot, buffers, arena.arch, schedule, dot.rows) for dot in dots]
    rows = max(1, min(phase.row_block.size, phase.row_block.symbol.extent, MOST_ROWS))
    if dots and rows > SIDE:
        rows = 1 << rows.bit_length() - 1  # tiles have so many, and are done whole
    sizes = {b.name: b.type.nbytes // phase.row_block.size for b in scratch_of(phase, buffers)}

    def needed(rows: int) -> int:
        shapes = shapes_of(rows)
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
    return rows, shapes_of(rows)


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


def write_row_blocks(
    code: PhaseCode,
    phase: Phase,
    plan: RowBlockPlan,
    buffers: Mapping[str, Buffer],
    schedule: Schedule,
    block: str,
    arena: SharedArena,
) -> None:
    """The code of one phase."""
    define_symbols(code, plan.grid, block)
    rows = _write_rows_head(code, phase, plan)
    writer = DotWriter(
        code, arena, plan.threads, buffers, plan.dots, _steps(phase, plan), _least_bytes(phase, plan, buffers)
    )
    code.places.update(_declare_scratch(code, phase, plan, buffers, arena, writer.offset))
    shapes = iter(plan.dots)
    for number, step in enumerate(phase.steps):
        place = 0 if phase.sweep is None else number - phase.sweep.first
        if phase.sweep is not None and 0 < place < SWEPT_STEPS:
            continue  # written with the first of them
        if number:
            code.out.line("__syncthreads();")
        if phase.sweep is not None and place == 0:
            _write_sweep(code, phase, plan, buffers, arena, rows, writer.offset)
            shapes = iter(plan.dots[sum(isinstance(s, Dot) for s in phase.steps[: number + SWEPT_STEPS]) :])
            continue
        if isinstance(step, Dot):
            if phase.row_block is not None:
                code.symbols[phase.row_block.symbol], code.symbols[phase.row_block.local] = "first", "0"
            tiles = {"row_tile": _row_tile(code, phase, plan), "column_tile": _name(code, plan.columns)}
            with code.out.braces(""):
                _, shape = next(shapes)
                writer.write(step, shape, str(step.rows) if phase.row_block is None else rows, **tiles)
            continue
        group = _group(phase, step, buffers, schedule, plan)
        with code.out.braces(""):
            _write_row_group(code, phase, step, group, arena, rows)


def _write_sweep(
    code: PhaseCode,
    phase: Phase,
    plan: RowBlockPlan,
    buffers: Mapping[str, Buffer],
    arena: SharedArena,
    rows: str,
    tiles: int,
) -> None:
    """The steps that are taken tile by tile. `tiles`: where tiles lie in shared memory."""
    assert phase.row_block is not None
    assert plan.sweep is not None
    code.symbols[phase.row_block.symbol], code.symbols[phase.row_block.local] = "first", "0"
    with code.out.braces(""):
        steps = _steps(phase, plan)
        SweepWriter(code, phase, plan.sweep, buffers, arena, plan.threads, rows, steps).write(tiles)


def _steps(phase: Phase, plan: RowBlockPlan) -> dict[Symbol, int]:
    """What the symbols in a dot's offsets are multiples of."""
    if phase.row_block is None:
        return {}
    return {phase.row_block.symbol: plan.rows, phase.row_block.local: 0}


def _least_bytes(phase: Phase, plan: RowBlockPlan, buffers: Mapping[str, Buffer]) -> int:
    """Of what shares memory with the operands' tiles of products: scratch, or the tiles of a sweep."""
    if plan.sweep is not None:
        return swept_bytes(phase, plan.sweep, buffers)
    if plan.aliased is None or phase.row_block is None:
        return 0
    return buffers[plan.aliased].type.nbytes // phase.row_block.size * plan.rows


def _name(code: PhaseCode, symbol: Symbol | None) -> str | None:
    return None if symbol is None else code.symbols[symbol]


def _row_tile(code: PhaseCode, phase: Phase, plan: RowBlockPlan) -> str | None:
    """A lone dot without a row block takes one row tile per block; in a row block the tile is the block."""
    if plan.columns is None:
        return None
    return "0" if phase.row_block is not None else _name(code, plan.row_block)


def _write_rows_head(code: PhaseCode, phase: Phase, plan: RowBlockPlan) -> str:
    """Define `first` and `rows`; returns the C expression for the number of rows."""
    if phase.row_block is None:
        return str(plan.rows)
    extent, number = phase.row_block.symbol.extent, code.symbols[plan.row_block] if plan.row_block else "0"
    code.out.line(f"const {code.index.type} first = {number} * {plan.rows};")
    if extent % plan.rows == 0:
        return str(plan.rows)
    code.out.line(f"const int rows = first + {plan.rows} <= {extent} ? {plan.rows} : (int)({extent} - first);")
    return "rows"


def _declare_scratch(
    code: PhaseCode,
    phase: Phase,
    plan: RowBlockPlan,
    buffers: Mapping[str, Buffer],
    arena: SharedArena,
    tiles: int,
) -> dict[str, Place]:
    """`tiles`: where the operands' tiles lie, and so what may share their memory."""
    places: dict[str, Place] = {}
    for buffer in scratch_of(phase, buffers):
        dtype, size = buffer.type.dtype, buffer.type.size
        if phase.row_block is not None:
            size = size // phase.row_block.size * plan.rows
        name = code.names.fresh(buffer.name)
        shared = buffer.name == plan.aliased
        offset = tiles if shared else arena.take(size * dtype.itemsize, f"scratch {buffer.name}")
        code.out.line(f"{memory_type(dtype)}* const {name} = {arena.pointer(memory_type(dtype), offset)};")
        places[buffer.name] = Place(name, dtype, "memory", shared=True)
    return places


def _group(
    phase: Phase, step: RowGroup, buffers: Mapping[str, Buffer], schedule: Schedule, plan: RowBlockPlan
) -> Group:
    """Warps for the rows of a row block; without a row block there is one row, for all threads."""
    vector = row_vector(step.stages, buffers, schedule)
    return Group(plan.threads, plan.threads if phase.row_block is None else 32, vector)


def _write_row_group(
    code: PhaseCode, phase: Phase, step: RowGroup, group: Group, arena: SharedArena, rows: str
) -> None:
    write_group_head(code, group)
    if phase.row_block is None:
        RowWriter(code, group, arena).write(step.stages)
        return
    local = code.loop_name(phase.row_block.local)
    with code.out.braces(f"for (int {local} = slot; {local} < {rows}; {local} += {group.per_block})"):
        name = code.loop_name(phase.row_block.symbol)
        code.out.line(f"const {code.index.type} {name} = first + {local};")
        RowWriter(code, group, arena).write(step.stages)
