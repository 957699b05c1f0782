"""The shapes of a product's tiles: what a block computes at a time, and how its operands lie in shared memory.

A tile of an operand keeps the order that the operand has in memory, line by line, so that 16 bytes of a line are copied
at a time. Chunks of 16 bytes are swizzled: chunk c of line l stands where c xor f(l) would, with an f that puts the
same chunk of eight neighbouring lines into eight different groups of banks.
"""

from __future__ import annotations

import math
from typing import Literal

from autofuse.ir import dtypes
from autofuse.ir.dtypes import DType
from autofuse.lazydataclass import dataclass
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import Dot, Matrix
from autofuse.targets.cuda.decisions import STAGES, TILE

DOT_THREADS = 256
"""Threads that multiply; a block may have more."""
WARPS = DOT_THREADS // 32
SIDE = 16
"""Threads along each side of a tile whose sums are those of ordinary multiply-adds."""
CHUNK_BYTES = 16
ROWS = (128, 64, 32, 16)
"""Rows of a tile of the result."""
COLUMNS = (128, 64)
WIDEST = 256
"""Columns of the widest tile of matrix units, which has all rows: a thread has 128 sums."""
BUSY = 128
"""Blocks that a GPU with many multiprocessors works on at a time; code does not depend on how many there are."""
_MATRIX_RATE, _PLAIN_RATE = 1024.0, 64.0
"""Multiply-adds of a multiprocessor in a clock: of 16-bit floats by its matrix units, half as many of TF32; and of f32
by its ordinary ones, half of what they could do (33 TFLOP/s of an H200, measured)."""
_LOAD_RATE = 64.0
"""Bytes that a multiprocessor gets from the L2 in a clock."""
_ALONE = 1.2
"""How many times as long a block of ordinary units takes that has a multiprocessor for itself, and so too few warps: a
step of 16 x 64 took 55 clocks of an H200, and 46 beside others."""
_LAUNCH_CLOCKS = 4000.0
"""Of another launch of a kernel: 2 us."""
_HIDDEN = 0.75
"""Share of the shorter of loading and multiplying that the longer one hides."""
_LINE_BYTES, _DEEP_LINE_BYTES = 64, 128
"""Matrix units: of a row or column of a tile, along the depth; two or four of their instructions."""
_INSTRUCTION_BYTES = 32
"""Matrix units: of a row or column, that one instruction takes."""
_WAIT_CLOCKS = 1000.0
"""From asking for a tile until it has come: memory takes 700 to 800, and whoever waits meets the others."""
_MOST_AHEAD = 4
"""Tiles under way, where small ones are multiplied fast."""
_MOST_SUMS = 32
"""Words of sums of one thread, where blocks of the depth are summed on their own and so need as many again."""
_MANY_SUMS = 64
"""The same where a schedule asks for the largest tile of f32: a thread reads 16 words for 64 multiply-adds, and has 178
to 230 registers, so that a multiprocessor holds one block. Others read 12 for 32."""

Units = Literal["matrix", "plain"]
"""What multiplies: the matrix units, or fused multiply-adds."""


def compute_dtype(dot: Dot) -> DType:
    """What products and sums are held in."""
    return dtypes.F32 if dot.dtype.is_float and dot.dtype.bits == 16 else dot.dtype


def is_new(arch: str) -> bool:
    """Whether an architecture has asynchronous copies and matrix units for bfloat16: compute capability 8 and up."""
    return int(arch.removeprefix("sm_")) >= 80


def units_of(dot: Dot, left: DType, right: DType, arch: str) -> Units:
    """What multiplies operands that are kept as `left` and `right`.

    Products of two 16-bit floats of one type, summed in f32, are for the matrix units where there are any: they are
    exact in f32. Others of f32 are for them if they may be rounded to TF32.
    """
    summed = compute_dtype(dot) == dtypes.F32 and left.is_float and right.is_float
    fits = summed and (_is_exact(left, right) or (dot.fast and max(left.bits, right.bits) <= dtypes.F32.bits))
    return "matrix" if fits and is_new(arch) else "plain"


def _is_exact(left: DType, right: DType) -> bool:
    """Whether matrix units have products of such floats as they are."""
    return left == right and left.bits == 16


@dataclass(frozen=True, slots=True)
class TileShape:
    """How a block does its part of a product."""

    units: Units
    rows: int
    """Of the result, at a time: a power of two."""
    columns: int
    depth: int
    """Of the operands that are in shared memory together."""
    stages: int
    """Tiles of each operand in shared memory: all but one are under way while one is multiplied."""
    element: DType
    """What the operands' tiles hold."""
    is_split_by_rows: bool = False
    """Matrix units: whether a warp has all columns of its rows."""
    warp_rows: int = 16
    """Of such a warp."""

    @property
    def instruction_depth(self) -> int:
        """Matrix units: depth of one instruction, which takes 32 bytes of a row."""
        return _INSTRUCTION_BYTES // self.element.itemsize

    @property
    def warps(self) -> tuple[int, int]:
        """Matrix units: the warps along the rows and the columns, so that what each loads is least."""
        if self.is_split_by_rows:
            return self.rows // self.warp_rows, 1
        sizes = [(r, c) for r in (1, 2, 4, 8) for c in (1, 2, 4, 8) if r * c <= WARPS]
        fits = [(r, c) for r, c in sizes if self.rows % (16 * r) == 0 and self.columns % (16 * c) == 0]
        return max(fits, key=lambda size: (size[0] * size[1], -self.rows // size[0] - self.columns // size[1]))

    def reached(self, depth: int, step: int) -> int:
        """Depths of a tile that hold something of an operand, in whole steps."""
        return min(self.depth, -(-depth // step) * step)

    @property
    def stage_bytes(self) -> int:
        """Of one tile of each operand."""
        return (self.rows + self.columns) * self.depth * self.element.itemsize

    @property
    def staging_pitch(self) -> int:
        """Matrix units: elements between rows of the result on its way out; stores of fragments share no bank so."""
        return self.columns + 8

    def nbytes(self, result: DType | None) -> int:
        """Shared memory of all tiles. `result`: of what the result is, if it goes out through the same memory."""
        staged = 0 if result is None or self.units == "plain" else self.rows * self.staging_pitch * result.itemsize
        return max(self.stages * self.stage_bytes, staged)


@dataclass(frozen=True, slots=True)
class Layout:
    """How one operand's tile lies in shared memory."""

    along_depth: bool
    """Whether neighbours in memory are neighbours along the depth."""
    lines: int
    elements: int
    """Of a line."""
    itemsize: int

    @property
    def chunks(self) -> int:
        """Of 16 bytes, of a line: a power of two."""
        return self.elements * self.itemsize // CHUNK_BYTES

    @property
    def by_words(self) -> bool:
        """Matrix units: whether lanes read their words one by one; rows of 16-bit elements can be turned on the way."""
        return not self.along_depth and self.itemsize == dtypes.F32.itemsize


def layout_of(matrix: Matrix, extent: int, shape: TileShape, *, is_left: bool) -> Layout:
    """The layout of the tile of an operand, `extent` rows of the left one or columns of the right one."""
    along_depth = (matrix.column_stride == 1) if is_left else (matrix.row_stride == 1 and matrix.column_stride != 1)
    lines, elements = (extent, shape.depth) if along_depth else (shape.depth, extent)
    return Layout(along_depth, lines, elements, shape.element.itemsize)


def tile_element(dot: Dot, left: DType, right: DType, arch: str) -> DType:
    """What operands are kept as in shared memory: 16-bit floats for matrix units as they are, else as multiplied.

    TF32 is rounded on its way to the units. Integers of fewer than 32 bits take 32.
    """
    if units_of(dot, left, right, arch) == "matrix":
        return left if _is_exact(left, right) else dtypes.F32
    dtype = compute_dtype(dot)
    return dtype if dtype.itemsize >= dtypes.I32.itemsize else dtypes.I32


def shape_of(
    dot: Dot, left: DType, right: DType, arch: str, schedule: Schedule, most: tuple[int, int], *, deep: bool
) -> TileShape:
    """The shape for a dot of which a block has at most `most` rows and columns at a time.

    `deep`: whether ordinary units may have more tiles come in than the one after the next, and matrix units longer
    lines of wide ones.
    """
    units, element = units_of(dot, left, right, arch), tile_element(dot, left, right, arch)
    rows = max(SIDE, min(ROWS[0], 1 << max(0, most[0] - 1).bit_length()))
    columns = padded_columns(most[1], units)
    if units == "matrix":
        line = _DEEP_LINE_BYTES if deep and columns == WIDEST else _LINE_BYTES
        depth = line // element.itemsize
    else:
        depth = max(8, 64 // element.itemsize)
    if units == "plain":
        words = element.itemsize // 4
        most_sums = _MANY_SUMS if schedule[TILE] == f"{ROWS[0]}x{COLUMNS[0]}" and words == 1 else _MOST_SUMS
        while rows * columns * words // DOT_THREADS > most_sums:
            rows, columns = (rows, columns // 2) if columns > COLUMNS[1] else (rows // 2, columns)
    stages = schedule[STAGES] if units == "matrix" else _plain_stages(rows, columns, depth) if deep else 2
    return TileShape(units, rows, columns, depth, stages, element)


def padded_columns(wide: int, units: Units) -> int:
    """Columns of the tile for so many; if they are more than any tile has, of one of several tiles."""
    sizes = (*reversed(COLUMNS), WIDEST) if units == "matrix" else tuple(reversed(COLUMNS))
    return next((size for size in sizes if size >= wide), COLUMNS[0])


def _plain_stages(rows: int, columns: int, depth: int) -> int:
    """Tiles of each operand, so that as many are under way as are multiplied while one comes in."""
    ahead = math.ceil(_WAIT_CLOCKS / (step_clocks(rows, columns) * depth))
    return 1 + min(max(ahead, 1), _MOST_AHEAD)


def step_clocks(high: int, wide: int) -> float:
    """Clocks of a multiprocessor for one step of the depth of a tile of f32: it multiplies, and reads shared memory.

    Each thread of 16 x 16 reads its rows and columns; a word of all lanes takes a clock, whichever lanes share it
    (docs/decisions/0166-small-tiles-of-f32-are-asked-for-ahead.md).
    """
    rows = max(SIDE, min(ROWS[0], 1 << max(0, high - 1).bit_length()))
    columns = max(padded_columns(wide, "plain"), wide)
    tiles = -(-high // rows)
    return tiles * _both(rows * columns / _PLAIN_RATE, WARPS * (rows + columns) / SIDE)


def _both(a: float, b: float) -> float:
    """Clocks for two things that are done beside each other."""
    return max(a, b) + (1 - _HIDDEN) * min(a, b)


def best_tile(
    rows: int,
    columns: int,
    others: int,
    units: Units,
    itemsize: int,
    widths: tuple[int, ...],
    schedule: Schedule,
    most_rows: int = ROWS[0],
) -> tuple[int, int]:
    """Rows and columns of the tiles in which a product of `rows` x `columns` is shared out to blocks.

    `others`: products of the same kind beside it. `widths`: of tiles, those that may be. `itemsize`: of an operand.
    `most_rows`: those that shared memory has space for beside the tiles.
    """
    asked = schedule[TILE]
    if asked != "auto":
        high, wide = map(int, asked.split("x"))
        return min(high, most_rows), max((width for width in widths if width <= wide), default=min(widths))

    def fits(size: tuple[int, int]) -> bool:
        padded = padded_columns(size[1], units)
        if units == "matrix":
            return padded <= COLUMNS[0] or size[0] == ROWS[0]
        return size[0] * padded * itemsize // (4 * DOT_THREADS) <= _MOST_SUMS

    heights = list(dict.fromkeys(min(high, most_rows) for high in ROWS))
    sizes = filter(fits, ((high, wide) for high in heights for wide in widths))
    return min(sizes, key=lambda size: tiles_clocks(rows, columns, others, units, itemsize, size))


def tiles_clocks(rows: int, columns: int, others: int, units: Units, itemsize: int, size: tuple[int, int]) -> float:
    """Clocks of a step of the depth of products of `rows` x `columns` in tiles of a size, one wave after the other."""
    high, wide = size
    blocks = others * math.ceil(rows / high) * math.ceil(columns / wide)
    padded = padded_columns(wide, units)
    multiplied = high * padded / (2 * _MATRIX_RATE / itemsize) if units == "matrix" else step_clocks(high, wide)
    alone = _ALONE if units == "plain" and blocks <= BUSY else 1.0
    return alone * math.ceil(blocks / BUSY) * _both(multiplied, (high + padded) * itemsize / _LOAD_RATE)


def parts_clocks(nbytes: int) -> float:
    """Clocks for sums in parts of so many bytes: they go to the L2 and come back, and are added by another launch."""
    return _LAUNCH_CLOCKS + 2 * nbytes / (_LOAD_RATE * BUSY)
