"""How a phase is cut into blocks, lanes, strips and transposed squares: decided before any code is written."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autofuse.ir.index import Symbol
from autofuse.lazydataclass import dataclass
from autofuse.lower.raresides import RareSide
from autofuse.lower.sidesegments import packed_sides_of, walks_in_blocks
from autofuse.lower.statements import Carry, Load, Store
from autofuse.lower.tile import Dot, Phase, RowGroup, Space, Stage, TileProgram
from autofuse.targets.cpu.codegen.blockline import vectors_in_block
from autofuse.targets.cpu.codegen.pointwork import point_ns
from autofuse.targets.cpu.codegen.registertranspose import Transpose, find_transpose
from autofuse.targets.cpu.codegen.strips import STRIP_BYTES, Strip
from autofuse.targets.cpu.codegen.widths import Widths
from autofuse.targets.cpu.decisions import VECTOR_BITS

_SHARES = 64
"""Blocks wanted at least, where the work allows: enough to keep many workers evenly busy."""

_STRIP_SCRATCH_BYTES = 128 << 10
"""Scratch that a strip may fill: more would leave the caches that strips are for."""

_WORTH_PACKING = 160.0
"""Instructions of sides of loops from which on they are packed unasked. Collecting elements takes about 40 for each
vector: of 16 lanes, so many are spared as soon as one element of 60 takes a side of 160."""
_FEW_VECTORS = 4
"""Fewer have too few elements that take a side to fill a vector."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The shape of one phase's code."""

    lanes: int
    """Grid points side by side; 1 unless the phase vectorises a grid symbol."""
    unroll: int
    """Vectors of grid points in flight."""
    strip: Strip | None
    """How to walk the vectorised symbol where stages loop inside long strips of it."""
    transpose: Transpose | None
    """Squares in which to walk the vectorised and another grid symbol where memory is contiguous along the other."""
    tile: int
    """Grid points of the vectorised symbol in one block; of the other symbol, where squares go in columns."""
    blocks: int
    task_blocks: int
    """Blocks worth handing to another worker."""
    tasks: float
    """All blocks, in work worth handing to another worker."""
    tiles: Symbol | None = None
    """The grid symbol that counts tiles of rows, if one does."""

    @property
    def copies(self) -> int:
        """Copies of each scratch element, side by side."""
        return self.lanes * self.unroll if self.strip is None else self.strip.points


def stages_of(phase: Phase) -> list[Stage]:
    """All stages of a phase, in order."""
    return [stage for step in phase.steps if isinstance(step, RowGroup) for stage in step.stages]


def plan_layout(program: TileProgram, phase: Phase, widths: Widths) -> Layout:
    """Decide, for a program's schedule."""
    stages = stages_of(phase)
    lanes, unroll = widths.of(stages, phase.vectorised.extent) if phase.vectorised is not None else (1, 1)
    strip = _block(program, phase, stages, (lanes, unroll), widths)
    strip = strip or _strip(program, phase, stages, lanes, unroll)
    transpose = find_transpose(phase, stages, lanes) if strip is None else None
    task_ns = widths.task_us * 1000
    tile, blocks, block_ns = _blocks(phase, (lanes, unroll), transpose, task_ns, widths)
    task_blocks = max(1, round(task_ns / max(block_ns, 1.0)))
    tasks = max(blocks / task_blocks, blocks * block_ns / max(task_ns, 1.0))
    return Layout(lanes, unroll, strip, transpose, tile, blocks, task_blocks, tasks, phase.tile)


def used_buffers(phase: Phase) -> frozenset[str]:
    """Names of the buffers that the phase touches."""
    found: set[str] = set()
    for step in phase.steps:
        match step:
            case Dot():
                found.update((step.out.buffer, step.lhs.buffer, step.rhs.buffer))
            case RowGroup(stages):
                found.update(
                    s.buffer for stage in stages for s in (*stage.before, *stage.body) if isinstance(s, Load | Store)
                )
    return frozenset(found)


def _strip(program: TileProgram, phase: Phase, stages: Sequence[Stage], lanes: int, unroll: int) -> Strip | None:
    """Strips where a stage loops and they would be longer than the vectors in flight."""
    if phase.vectorised is None or lanes == 1 or not any(s.extent > 1 for stage in stages for s in stage.symbols):
        return None
    if any(stage.in_order or any(isinstance(s, Carry) for s in stage.body) for stage in stages):
        return None  # the state of a loop is kept in registers, and what all lanes share is computed once for all
    vectors = min(
        STRIP_BYTES * 8 // program.schedule[VECTOR_BITS], _most_vectors(program, phase, phase.vectorised, lanes)
    )
    return Strip(phase.vectorised, lanes, vectors) if vectors > unroll else None


def _block(
    program: TileProgram, phase: Phase, stages: Sequence[Stage], vectors: tuple[int, int], widths: Widths
) -> Strip | None:
    """Strips that are blocks, for costly sides that are packed, or for the state of loops over time."""
    (lanes, unroll), lane = vectors, phase.vectorised
    if lane is None or lanes == 1 or not all(map(walks_in_blocks, stages)):
        return None
    sides = _packed_sides(phase, stages, widths)
    carries = sum(isinstance(s, Carry) for stage in stages for s in stage.body)
    keeps = widths.state == "cache" and carries
    if not sides and not keeps:
        return None
    most = _most_vectors(program, phase, lane, lanes)
    count = vectors_in_block(sides, carries, unroll, most, widths.vector_bits)
    packed = {"packed": "all", "auto": "loops"}.get(widths.sides, "none") if sides else "none"
    if packed == "loops" and count < _FEW_VECTORS:
        packed = "none"
    return Strip(lane, lanes, count, min(unroll, count), packed) if count and (keeps or packed != "none") else None


def _packed_sides(phase: Phase, stages: Sequence[Stage], widths: Widths) -> list[RareSide]:
    """The costly sides that the schedule wants packed; where it leaves it open those of loops, if they are worth it."""
    if widths.sides == "packed":
        return [side for stage in stages for side in packed_sides_of(phase, stage)]
    if widths.sides != "auto":
        return []
    if any(stage.leave is not None for stage in stages):
        return []  # few vectors rest sooner than a block
    sides = [side for stage in stages if stage.carries for side in packed_sides_of(phase, stage)]
    return sides if sum(side.work for side in sides) >= _WORTH_PACKING else []


def _most_vectors(program: TileProgram, phase: Phase, lane: Symbol, lanes: int) -> int:
    """The vectors that a strip has at most, by its scratch and by the extent of its symbol."""
    used = used_buffers(phase)
    scratch = sum(b.type.nbytes for b in program.buffers if b.space is Space.SCRATCH and b.name in used)
    return min(_STRIP_SCRATCH_BYTES // (lanes * scratch) if scratch else 1 << 20, -(-lane.extent // lanes))


def _blocks(
    phase: Phase, vectors: tuple[int, int], transpose: Transpose | None, task_ns: float, widths: Widths
) -> tuple[int, int, float]:
    """(grid points of the vectorised symbol per block, blocks, nanoseconds of a block)."""
    lanes, unroll = vectors
    points = math.prod(symbol.extent for symbol in phase.grid)
    if points == 0:
        return 1, 0, 0.0
    ns = point_ns(phase, lanes if phase.vectorised is not None else widths.vector_bits // 32)
    if phase.row_block is not None:
        row_block = phase.row_block
        blocks = points // row_block.symbol.extent * _parts(row_block.symbol, row_block.size)
        return 1, blocks, ns * min(row_block.size, row_block.symbol.extent)
    if phase.vectorised is None:
        return 1, points, ns
    extent, step = phase.vectorised.extent, lanes * unroll
    wanted_ns = max(task_ns / 8, min(task_ns / 2, points * ns / _SHARES))
    rows = points // extent
    if transpose is not None and transpose.in_columns:
        # blocks of lanes, the first one up to an aligned address, by tiles of the other symbol
        tile = min(transpose.rows * max(1, round(wanted_ns / (ns * lanes * transpose.rows))), transpose.symbol.extent)
        rows = rows // transpose.symbol.extent * (1 + -(-extent // lanes))
        return tile, rows * -(-transpose.symbol.extent // tile), ns * lanes * tile
    if transpose is not None:
        rows = rows // transpose.symbol.extent * transpose.blocks.extent
        ns *= transpose.rows
    tile = min(step * max(1, round(wanted_ns / (ns * step))), extent)
    return tile, rows * -(-extent // tile), ns * tile


def _parts(symbol: Symbol, size: int) -> int:
    return -(-symbol.extent // size)
