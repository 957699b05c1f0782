"""The shapes of a sweep: how many rows a block has, how long a tile of the axis is, and what lies in shared memory.

    left operand of the first product    whole, for all rows of the block
    a tile of its right operand          comes in while the second product is made
    a tile of that one's right operand   comes in while the first product is made
    weights                              ordinary multiply-adds read them from here; matrix units have them in registers

Scores, sums and the second product are in registers. With matrix units a warp has 16 rows and all that is in them. It
has 32 where there are registers for them and many blocks: right operands are read from shared memory half as often.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from autofuse.ir import dtypes
from autofuse.ir.dtypes import DType
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.rewrite import statements
from autofuse.lower.schedule import SPLIT, Schedule
from autofuse.lower.statements import Store
from autofuse.lower.tile import Buffer, Dot, Phase, RowGroup
from autofuse.targets.cuda.codegen.access import words
from autofuse.targets.cuda.codegen.hiddentiles import PART
from autofuse.targets.cuda.codegen.producttiles import (
    BUSY,
    CHUNK_BYTES,
    COLUMNS,
    DOT_THREADS,
    ROWS,
    SIDE,
    WARPS,
    TileShape,
    Units,
    compute_dtype,
    tile_element,
    units_of,
)
from autofuse.targets.cuda.decisions import ONLINE
from autofuse.targets.cuda.gpus import shared_bytes_per_block

TILES = (64, 32)
"""Elements of the axis in a tile."""
HEIGHTS = tuple(range(ROWS[0], 0, -SIDE))
"""Rows of a block, where its rows are lines of the left operand."""
_MOST_WORDS = 160
"""Registers of a thread for scores, sums and what is read beside them; with more, ptxas spills."""
_MOST_HALF_WORDS = 160
"""The same of matrix units for 16 bits, without what is read: at most 255 registers in all."""
_WARP_ROWS = (16, 32)
"""Rows of a warp of matrix units."""
_MOST_TALL_WORDS = 160
"""Registers of a thread for scores and sums of 32 rows; with 192, ptxas spills."""
_MANY_BLOCKS = 2 * BUSY
"""Blocks of four such warps, of which a multiprocessor holds two."""
_SWIZZLED = 8
"""Chunks of a line that are swizzled together."""
_PLAIN_RATE, _HALF_RATE, _TF32_RATE = 64.0, 640.0, 240.0
"""Multiply-adds of a multiprocessor in a clock: half of what its units could do, and a little more of matrix units for
16 bits. Those for TF32 wait for roundings."""
_WEIGHT_CLOCKS = 24.0 / 128.0
"""For an element of the scores: instructions of a mask, an exponential and a sum, 128 of which end at once."""
_TILE_CLOCKS = 200.0
"""For two barriers, and what a row keeps."""
_WAIT_CLOCKS = 1400.0
"""Until both tiles of a step have come from memory: no block goes on before."""
_SCHEDULERS = 4.0
"""Of a multiprocessor: fewer warps do not keep its units busy."""
_COMBINE_CLOCKS = 5000.0
"""Of a launch that combines parts: to start one, and to wait for memory twice."""
_PART_CLOCKS = 8.0 / 32.0
"""Of a multiprocessor, for an element of a part's result, which is written and read: 8 bytes."""
_DOUBT = 1.1
"""Two launches must be so much better than one by these clocks."""
_PIECE_CLOCKS = 100.0
"""For a part, whatever it has: what a row has of it is read one after another."""
_PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Of the axis, each of which a block may take."""
_MOST_PARTS = 64
"""That a row is combined from: each is a few instructions."""


@dataclass(frozen=True, slots=True)
class SweepSize:
    """How a sweep is cut."""

    rows: int
    """Of a block."""
    tile: int
    """Elements of the axis."""
    chunk: int = 0
    """Elements of the axis in a part, each of which is a block's; 0: it is not cut into parts."""


@dataclass(frozen=True, slots=True)
class SweepShape:
    """How a block does its part of a sweep."""

    scores: TileShape
    """Of the first product, for one tile of the axis."""
    product: TileShape
    """Of the second one: its depth is a tile."""

    @property
    def units(self) -> Units:
        """What multiplies."""
        return self.scores.units

    @property
    def interleaved(self) -> bool:
        """Whether columns of scores are interleaved, as weights of TF32 are taken in that order."""
        return self.units == "matrix" and self.product.element.bits == dtypes.F32.bits

    @property
    def workers(self) -> int:
        """Threads that multiply."""
        return 32 * self.scores.warps[0] if self.units == "matrix" else DOT_THREADS

    @property
    def row_fragments(self) -> int:
        """Matrix units: of a warp, one below the other."""
        return self.scores.warp_rows // _WARP_ROWS[0]

    @property
    def left_bytes(self) -> int:
        """Of the first left operand."""
        return self.scores.rows * self.scores.depth * self.scores.element.itemsize

    @property
    def right_bytes(self) -> int:
        """Of a tile of the first right operand."""
        return self.scores.columns * self.scores.depth * self.scores.element.itemsize

    @property
    def values_bytes(self) -> int:
        """Of a tile of the second right operand."""
        return self.product.columns * self.product.depth * self.product.element.itemsize

    @property
    def weights_bytes(self) -> int:
        """Of a tile of the second left operand; 0 if it is in registers."""
        if self.units == "matrix":
            return 0
        return self.product.rows * self.product.depth * self.product.element.itemsize

    def nbytes(self, itemsize: int) -> int:
        """Shared memory. `itemsize`: of the result, which goes out through the same memory from matrix units."""
        staged = self.product.rows * self.product.staging_pitch * itemsize if self.units == "matrix" else 0
        return max(self.left_bytes + self.right_bytes + self.values_bytes + self.weights_bytes, staged)


def sweep_shape(
    scores: Dot, product: Dot, buffers: Mapping[str, Buffer], arch: str, rows: int, tile: int, blocks: int
) -> SweepShape:
    """The shape for a sweep by blocks of `rows` rows, with tiles of `tile` elements of the axis.

    Matrix units do both products, or neither. `blocks`: if each takes the whole axis.
    """
    dots = scores, product
    pairs = [(buffers[dot.lhs.buffer].type.dtype, buffers[dot.rhs.buffer].type.dtype) for dot in dots]
    elements = [tile_element(dot, *pair, arch) for dot, pair in zip(dots, pairs, strict=True)]
    units: Units = "plain"
    if all(units_of(dot, *pair, arch) == "matrix" for dot, pair in zip(dots, pairs, strict=True)):
        units = "matrix" if _can_interleave(scores, *elements) else "plain"
    if units == "plain":
        elements = [compute_dtype(dot) for dot in dots]
    high = -(-max(rows, 1) // SIDE) * SIDE
    if scores.lhs.column_stride != 1:  # rows are along lines, whose chunks are swizzled
        high = 1 << (high - 1).bit_length()
    depth, columns = (
        _padded(width, element.itemsize)
        for width, element in zip((scores.depth, product.columns), elements, strict=True)
    )
    tall = units == "matrix" and high == ROWS[0] and blocks >= _MANY_BLOCKS and tile + columns <= _MOST_TALL_WORDS
    tall = tall and all(element.bits < dtypes.F32.bits for element in elements)
    shapes = [
        TileShape(units, high, tile, 0, 1, element, is_split_by_rows=True, warp_rows=_WARP_ROWS[tall])
        for element in elements
    ]
    return SweepShape(
        replace(shapes[0], depth=depth),
        replace(shapes[1], columns=max(columns, COLUMNS[1]) if units == "plain" else columns, depth=tile),
    )


def _can_interleave(scores: Dot, of_scores: DType, of_weights: DType) -> bool:
    """Whether the columns of scores can come as weights need them, given what operands are kept as.

    Keys of 16 bits that are turned on their way to the units come in order; weights of TF32 cannot.
    """
    is_turned = scores.rhs.row_stride != 1 or scores.rhs.column_stride == 1
    return not (is_turned and of_scores.bits < of_weights.bits)


def _padded(width: int, itemsize: int) -> int:
    """Elements of a line of a tile: as many chunks as can be swizzled."""
    chunks = max(-(-width * itemsize // CHUNK_BYTES), 16 * itemsize // CHUNK_BYTES)
    whole = 1 << (chunks - 1).bit_length() if chunks < _SWIZZLED else -(-chunks // _SWIZZLED) * _SWIZZLED
    return whole * CHUNK_BYTES // itemsize


def swept_steps(phase: Phase) -> tuple[Dot, RowGroup, Dot, RowGroup]:
    """The steps of a phase that sweeps which make up its sweep."""
    assert phase.sweep is not None
    scores, group, product, result = (phase.steps[number] for number in phase.sweep.steps)
    assert isinstance(scores, Dot)
    assert isinstance(group, RowGroup)
    assert isinstance(product, Dot)
    assert isinstance(result, RowGroup)
    return scores, group, product, result


def swept_shape(phase: Phase, buffers: Mapping[str, Buffer], arch: str) -> SweepShape:
    """The shape for a phase that sweeps."""
    assert phase.sweep is not None
    assert phase.row_block is not None
    scores, _, product, _ = swept_steps(phase)
    own, rows = phase.row_block.symbol, phase.row_block.size
    others = math.prod(symbol.extent for symbol in phase.grid if symbol != own and symbol.name != PART)
    return sweep_shape(scores, product, buffers, arch, rows, phase.sweep.tile, others * -(-own.extent // rows))


def swept_bytes(phase: Phase, shape: SweepShape, buffers: Mapping[str, Buffer]) -> int:
    """Shared memory of a sweep's tiles."""
    *_, result = swept_steps(phase)
    stores = [s for _, s in statements((result,)) if isinstance(s, Store)]
    return -(-shape.nbytes(max((buffers[s.buffer].type.dtype.itemsize for s in stores), default=0)) // 16) * 16


def swept_scratch(phase: Phase) -> frozenset[str]:
    """The buffers that only a sweep touches: what they hold is in registers."""
    if phase.sweep is None:
        return frozenset()
    scores, group, product, _ = swept_steps(phase)
    stored = (s.buffer for _, s in statements((group,)) if isinstance(s, Store))
    return frozenset((scores.out.buffer, product.out.buffer, *stored))


def choose_sweep(
    scores: Dot,
    product: Dot,
    buffers: Mapping[str, Buffer],
    extent: int,
    others: int,
    schedule: Schedule,
    arch: str,
    *,
    splits: bool,
) -> SweepSize | None:
    """How a sweep is cut; None where it should not be one, or where a block has no space for it.

    `extent`: of all rows. `others`: sweeps of the same kind beside it. `splits`: whether the axis may be cut.
    """
    asked = schedule[ONLINE]
    if asked == "off" or not compute_dtype(scores).is_float:
        return None
    heights = HEIGHTS if scores.lhs.column_stride == 1 else ROWS
    sizes = [SweepSize(rows, tile) for rows in heights for tile in TILES]
    if asked != "auto":
        rows, tile = map(int, asked.split("x"))
        sizes = [SweepSize(rows, tile)]
    shapes: dict[SweepSize, SweepShape] = {}
    for size in sizes:
        rows = min(size.rows, extent)
        blocks = others * -(-extent // rows)
        shapes[size] = sweep_shape(scores, product, buffers, arch, rows, size.tile, blocks)
    fitting = [
        (replace(size, chunk=chunk), shape)
        for size, shape in shapes.items()
        if _fits(shape, scores, product, buffers, arch)
        for chunk in _chunks(scores.columns, size.tile, schedule[SPLIT] if splits else 1)
        if not chunk or schedule[SPLIT] or _are_held(size, chunk, shape, scores, extent, others, arch)
    ]
    if not fitting:
        return None
    size, _ = min(fitting, key=lambda one: _clocks(*one, scores, extent, others))
    return replace(size, rows=min(size.rows, extent))


def _chunks(columns: int, tile: int, asked: int) -> list[int]:
    """Elements of a part, in whole tiles; 0 for all. `asked`: so many parts; 0: as many as may pay."""
    tiles = -(-columns // tile)
    wanted = (min(asked, _MOST_PARTS),) if asked else _PARTS
    chunks = dict.fromkeys(-(-tiles // parts) * tile for parts in wanted)
    return [chunk if chunk < columns else 0 for chunk in chunks]


def _are_held(size: SweepSize, chunk: int, shape: SweepShape, scores: Dot, extent: int, others: int, arch: str) -> bool:
    """Whether all parts run at the same time: more of them only wait for one another."""
    blocks = others * -(-extent // min(size.rows, extent)) * -(-scores.columns // chunk)
    return blocks <= BUSY * (shared_bytes_per_block(arch) // shape.nbytes(0))


def _fits(shape: SweepShape, scores: Dot, product: Dot, buffers: Mapping[str, Buffer], arch: str) -> bool:
    """Whether a block has shared memory and registers enough."""
    each = _words(shape.scores, scores) / shape.workers, _words(shape.product, product) / shape.workers
    result = buffers[product.out.buffer].type.dtype.itemsize
    if shape.nbytes(result) > shared_bytes_per_block(arch):
        return False
    if shape.units == "matrix" and shape.product.element.bits < dtypes.F32.bits:
        return sum(each) <= _MOST_HALF_WORDS
    more = shape.product.columns / 4 if shape.units == "matrix" else each[1]  # fragments of values; sums of a tile
    return sum(each) + more <= _MOST_WORDS


def _words(shape: TileShape, dot: Dot) -> int:
    """Registers of all threads for a tile of sums."""
    return shape.rows * shape.columns * words(compute_dtype(dot))


def _rate(shape: TileShape) -> float:
    if shape.units == "plain":
        return _PLAIN_RATE
    return _HALF_RATE if shape.element.bits < dtypes.F32.bits else _TF32_RATE


def _clocks(size: SweepSize, shape: SweepShape, scores: Dot, extent: int, others: int) -> float:
    """Of a multiprocessor, for all blocks that it gets: products of whole tiles, and a round's start for each tile."""
    chunk = size.chunk or scores.columns
    tiles, parts = -(-chunk // size.tile), -(-scores.columns // chunk)
    high, widths = shape.scores.rows, (shape.scores.depth, shape.product.columns)
    both = zip(widths, (shape.scores, shape.product), strict=True)
    multiplied = high * size.tile * sum(width / _rate(kind) for width, kind in both)
    if shape.units == "plain":
        read = WARPS * ((high + size.tile) * shape.scores.depth + (high + widths[1]) * size.tile) / SIDE
        multiplied = max(multiplied, read)
    held = shape.row_fragments if shape.units == "matrix" else 1  # others multiply while one weighs
    weighed, started = high * size.tile * _WEIGHT_CLOCKS / held, _TILE_CLOCKS / held
    blocks = others * -(-extent // min(size.rows, extent)) * parts
    combined = (
        0.0
        if parts == 1
        else _COMBINE_CLOCKS + parts * (_PIECE_CLOCKS + others * extent * widths[1] / BUSY * _PART_CLOCKS)
    )
    together, alone = multiplied + weighed, (multiplied + weighed) * max(1.0, _SCHEDULERS / (shape.workers / 32))
    # one product is made while the other's tile comes in, by one block or by several beside each other
    each = max(-(-blocks // BUSY) * (together + started), alone + _TILE_CLOCKS, _WAIT_CLOCKS)
    return (tiles * each + combined) * (1.0 if parts == 1 else _DOUBT)
