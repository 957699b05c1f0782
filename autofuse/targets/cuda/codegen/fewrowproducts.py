"""Products of a few rows, done again and again: threads have columns, and no tiles pass through shared memory.

    right operand in shared memory, once            if it is the same in all iterations, as far as there is space
    each iteration:
      left operand in shared memory                 if it lies in global memory
      each thread, for each k:  its columns of the right operand;  its rows of the left one;  multiply-adds

A tile of 16 rows would be empty for the most part, and each tile of the depth a wait for memory, and a meeting of all
threads. Weights stay on chip for all iterations as in persistent RNNs (Diamos and others 2016). Sums have the order of
`autofuse.lower.summing`, so their bits are those of tiles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autofuse.ir import index
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.summing import sum_block
from autofuse.lower.tile import Buffer, Dot, Matrix, Phase, Space
from autofuse.targets.cuda.codegen.producttiles import CHUNK_BYTES, DOT_THREADS

MOST_FEW_ROWS = 16
"""Rows of a block: each is as many multiply-adds of a thread for one element of the right operand."""
MOST_THREADS = 512
_WARP = 32
MOST_COLUMNS = 4
"""Neighbouring columns of a thread."""
MOST_SUMS = 32
"""Words of sums of a thread."""
MOST_READ = 32
"""Elements of the left operand that a thread has at once."""
UNROLLED = 16
"""Depths that are written out, and whose operands are read together, where the right one is in global memory; half of
that in shared memory."""


@dataclass(frozen=True, slots=True)
class FewRowsShape:
    """How a block does one such product."""

    columns: int
    """Neighbours of a thread."""
    across: int
    """Threads side by side, whole warps: each of them has columns of its own."""
    rows: int
    """Of a thread, at most."""
    groups: int
    """Of threads, each with other rows."""
    kept: int
    """Depths of the right operand that are in shared memory, the first ones; others are read where they lie."""
    copied_bytes: int
    """Of the left operand in shared memory, of all rows; 0: it is there already."""

    def turns(self, columns: int) -> int:
        """How often threads take columns."""
        return -(-columns // (self.across * self.columns))


def is_few_rows(phase: Phase, buffers: Mapping[str, Buffer]) -> bool:
    """Whether the products of a phase may be done so: of f32 or f64, again and again."""
    dots = [step for step in phase.steps if isinstance(step, Dot)]
    return phase.iterations is not None and all(_is_plain(dot, buffers) for dot in dots)


def _is_plain(dot: Dot, buffers: Mapping[str, Buffer]) -> bool:
    same = {buffers[matrix.buffer].type.dtype for matrix in (dot.lhs, dot.rhs, dot.out)} == {dot.dtype}
    apart = dot.rhs.column_stride == 1 and buffers[dot.rhs.buffer].space is not Space.SCRATCH
    lines = dot.lhs.column_stride == 1 or buffers[dot.lhs.buffer].space is not Space.SCRATCH
    return same and lines and apart and dot.dtype.is_float and dot.dtype.bits >= 32 and not dot.fast


def threads_of(dots: Sequence[Dot]) -> int:
    """Threads of a block: one for each column, if they are not many."""
    widest = max(dot.columns for dot in dots)
    return min(MOST_THREADS, max(DOT_THREADS, 1 << (widest - 1).bit_length()))


def shapes_of(
    dots: Sequence[Dot],
    phase: Phase,
    buffers: Mapping[str, Buffer],
    rows: int | None,
    threads: int,
    space: int,
) -> tuple[FewRowsShape, ...]:
    """The shapes of products in a block of so many rows, or of all of theirs. `space`: bytes for right operands."""
    shapes = [_shape(dot, buffers, dot.rows if rows is None else rows, threads) for dot in dots]
    for number, dot in enumerate(dots):
        if _is_fixed(dot.rhs, phase):
            shapes[number] = replace(shapes[number], kept=_depths_within(dot, space))
            space -= kept_bytes(dot, shapes[number])
    return tuple(shapes)


def kept_bytes(dot: Dot, shape: FewRowsShape) -> int:
    """Of a right operand in shared memory."""
    return shape.kept * kept_pitch(dot) * dot.dtype.itemsize


def _depths_within(dot: Dot, space: int) -> int:
    """Depths of a right operand that so many bytes hold: all of them, or whole blocks of a sum."""
    most = space // (kept_pitch(dot) * dot.dtype.itemsize)
    if most >= dot.depth:
        return dot.depth
    block = sum_block(dot.depth)
    step = UNROLLED if block == dot.depth else block
    return most // step * step


def copied_bytes(dots: Sequence[Dot], buffers: Mapping[str, Buffer], rows: int | None) -> int:
    """Of left operands, one after the other in the same memory. `rows`: of a block; None: those of the products."""
    return max(_copied_bytes(dot, buffers, dot.rows if rows is None else rows) for dot in dots)


def has_many_sums(dots: Sequence[Dot], rows: int, threads: int) -> bool:
    """Whether threads would have more sums than there are registers for."""
    layouts = ((_layout(dot, rows, threads), dot.dtype.bits // 32) for dot in dots)
    return any(columns * -(-rows // groups) * words > MOST_SUMS for (columns, _, groups), words in layouts)


def kept_pitch(dot: Dot) -> int:
    """Elements from row to row of a right operand in shared memory: whole chunks."""
    return -(-dot.columns // MOST_COLUMNS) * MOST_COLUMNS


def _shape(dot: Dot, buffers: Mapping[str, Buffer], rows: int, threads: int) -> FewRowsShape:
    columns, across, groups = _layout(dot, rows, threads)
    return FewRowsShape(columns, across, -(-rows // groups), groups, 0, _copied_bytes(dot, buffers, rows))


def _layout(dot: Dot, rows: int, threads: int) -> tuple[int, int, int]:
    """Columns of a thread, threads side by side, and groups of them."""
    columns = 1
    while columns < chunk_of(dot) and threads * columns < dot.columns:
        columns *= 2
    wanted = -(-dot.columns // columns)
    across = min(threads, -(-wanted // _WARP) * _WARP)
    return columns, across, min(threads // across, rows)


def _copied_bytes(dot: Dot, buffers: Mapping[str, Buffer], rows: int) -> int:
    on_chip = buffers[dot.lhs.buffer].space is Space.SCRATCH
    return 0 if on_chip else -(-rows * copied_pitch(dot) * dot.dtype.itemsize // CHUNK_BYTES) * CHUNK_BYTES


def copied_pitch(dot: Dot) -> int:
    """Elements from row to row of a left operand in shared memory."""
    return -(-dot.depth // chunk_of(dot)) * chunk_of(dot)


def chunk_of(dot: Dot) -> int:
    """Elements that are read at once, of a line that begins at a multiple of so many."""
    return CHUNK_BYTES // dot.dtype.itemsize


def _is_fixed(matrix: Matrix, phase: Phase) -> bool:
    """Whether it is the same in all iterations."""
    return phase.iterations is None or phase.iterations.symbol not in index.symbols_of(matrix.offset)
