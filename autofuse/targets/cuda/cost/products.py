"""What matrix products cost beside their multiplications: padded tiles, loads of tiles, waits, uneven work.

A block works on one tile of the result after the other; for each it goes through the depth in rounds. In a round, tiles
of both operands come to shared memory, and threads (or matrix units) read them there:

    for each tile of the result that the block makes
        for each round, `shape.depth` deep        a tile of each operand from the L2, unless it is on chip already
            multiply                              fragments of both from shared memory, by every warp
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from autofuse.ir.dtypes import DType
from autofuse.lazydataclass import dataclass
from autofuse.lower.tile import Buffer, Dot, Matrix, Phase, Space
from autofuse.targets.cuda.codegen.blockplans import RowBlockPlan
from autofuse.targets.cuda.codegen.fewrowproducts import UNROLLED, FewRowsShape
from autofuse.targets.cuda.codegen.producttiles import (
    CHUNK_BYTES,
    DOT_THREADS,
    SIDE,
    TileShape,
    Units,
    compute_dtype,
    layout_of,
)

WARP, WAVEFRONT_BYTES = 32, 128
_FRAGMENT_BYTES = 512
"""`ldmatrix` brings 16 lines of 32 bytes: 16 x 16 elements of 16 bits, or 16 x 8 of 32."""
ROUNDED_SLOTS = 16.0
"""Instructions that round the four words of a lane to TF32, counted in machine code."""
FRAGMENT_SLOTS, LOAD_SLOTS = 1.2, 2.0
"""Instructions for a fragment of matrix units, and for another load from shared memory, and their addresses."""
_DEPENDENT_CLOCKS = 5.0
"""Of a multiply-add that waits for the one before, and its share of reading both operands."""
_WORD = 4
ROUND_CLOCKS = 400.0
"""Of a round of a product whose tiles come from the L2: 261 for a load (Luo et al. 2024), the rest is an estimate for
its instructions and the barrier."""
_COPY_SLOTS, _ELEMENT_SLOTS = 3.0, 8.0
"""Instructions of a thread for an asynchronous copy of 16 bytes, and for an element that is brought in by itself."""


@dataclass(frozen=True, slots=True)
class ProductCounts:
    """One product, over all blocks of its phase."""

    units: Units
    dtype: DType
    """What is summed."""
    element: DType
    """What operands are kept as."""
    flops: float
    """Of whole tiles: a multiplication with its addition counts as two."""
    slots: float
    """Instructions of warps beside the multiplications."""
    wavefronts: float
    """Of shared memory, 128 bytes each."""
    requested_bytes: float
    """From the L2."""
    left_bytes: int
    """Of one left operand in memory; 0 if it is on chip."""
    right_bytes: int
    """Of one right operand in memory; 0 if it is on chip."""
    others: int
    """Products of the same kind, each with a right operand of its own."""
    row_tiles: int
    """Blocks of a product one below the other, each of which reads the right operand."""
    column_tiles: int
    """Blocks of a product side by side."""
    together: int
    """Rows of blocks that follow one another in a column of them, before those of the next one."""
    times: int
    """How often a block does it."""
    rounds: int
    """Of one block, one after the other."""
    stages: int
    """Tiles of each operand that there is shared memory for."""

    @property
    def is_tf32(self) -> bool:
        """Whether matrix units round its operands."""
        return self.units == "matrix" and self.element.bits == 32


def products_of(phase: Phase, plan: RowBlockPlan, buffers: Mapping[str, Buffer]) -> tuple[ProductCounts, ...]:
    """The products of a phase, in order, without those of a sweep."""
    swept = () if plan.sweep is None else (plan.sweep.scores, plan.sweep.product)
    times = [phase.times(number) for number, step in enumerate(phase.steps) if isinstance(step, Dot)]
    return tuple(
        _product(plan, dot, shape, buffers, often)
        for (dot, shape), often in zip(plan.dots, times, strict=True)
        if not any(shape is own for own in swept)
    )


def _product(
    plan: RowBlockPlan, dot: Dot, shape: TileShape, buffers: Mapping[str, Buffer], times: int
) -> ProductCounts:
    """`times`: how often a block does it."""
    alone = plan.columns is not None
    rows = min(plan.rows, shape.rows) if alone else plan.rows
    down = 1 if alone else -(-rows // shape.rows)
    across = 1 if alone else -(-dot.columns // shape.columns)
    rounds = -(-dot.depth // shape.depth)
    tiles = plan.blocks * down * across * times
    left, right = itemsize_of(dot.lhs, buffers), itemsize_of(dot.rhs, buffers)
    left_lines, right_lines = min(rows, shape.rows), min(dot.columns, shape.columns)
    from_left, from_right = tiles * left_lines * dot.depth, tiles * right_lines * dot.depth
    row_tiles = 1 if plan.row_block is None else plan.row_block.extent
    column_tiles = 1 if plan.column_tiles is None else plan.column_tiles.extent
    columns = dot.columns if alone else dot.columns * column_tiles
    fragments = fragments_of(dot, shape)
    moved = sum(brought(one, shape, count) for one, count in ((left, from_left), (right, from_right)))
    stored = tiles * rounds * shape.stage_bytes / WAVEFRONT_BYTES
    depth = rounds * shape.depth
    return ProductCounts(
        units=shape.units,
        dtype=compute_dtype(dot),
        element=shape.element,
        flops=2.0 * tiles * shape.rows * shape.columns * depth,
        slots=tiles * depth * fragments.slots + moved,
        wavefronts=tiles * depth * fragments.wavefronts + stored,
        requested_bytes=float(from_left * left + from_right * right),
        left_bytes=dot.depth * rows * row_tiles * left,
        right_bytes=dot.depth * columns * right,
        others=max(1, plan.blocks // max(row_tiles * column_tiles, 1)),
        row_tiles=row_tiles,
        column_tiles=column_tiles,
        together=plan.together,
        times=times,
        rounds=down * across * rounds * times,
        stages=shape.stages,
    )


def few_rows_products(phase: Phase, plan: RowBlockPlan, buffers: Mapping[str, Buffer]) -> tuple[ProductCounts, ...]:
    """The products of few rows of a phase, in order."""
    times = [phase.times(number) for number, step in enumerate(phase.steps) if isinstance(step, Dot)]
    return tuple(
        _few_rows(plan, dot, shape, buffers, often) for (dot, shape), often in zip(plan.few_rows, times, strict=True)
    )


def _few_rows(
    plan: RowBlockPlan, dot: Dot, shape: FewRowsShape, buffers: Mapping[str, Buffer], times: int
) -> ProductCounts:
    """A thread reads its columns of the right operand at each depth, and chunks of its rows of the left one.

    A row of few threads waits for its own sums: a multiply-add for each depth, and what comes from the L2.
    """
    size, turns, itemsize = dot.dtype.itemsize, shape.turns(dot.columns), itemsize_of(dot.lhs, buffers)
    calls, warps = plan.blocks * times, shape.across * shape.groups / WARP * turns
    read = CHUNK_BYTES / size / shape.rows  # depths for a load of the left operand
    loads = calls * warps * dot.depth * (1.0 + 1.0 / read)
    right = calls * warps * dot.depth * shape.columns * size * WARP / WAVEFRONT_BYTES
    left_bytes, kept = plan.rows * dot.depth * itemsize, shape.kept / max(dot.depth, 1)
    far = (dot.depth - shape.kept) * dot.columns * size
    fetched = shape.kept * dot.columns * size * plan.blocks + far * calls * shape.groups
    clocks = turns * dot.depth * max(_DEPENDENT_CLOCKS, shape.rows * shape.columns * size / _WORD)
    waits = bool(shape.copied_bytes) + turns * -(-(dot.depth - shape.kept) // UNROLLED)
    row_tiles = 1 if plan.row_block is None else plan.row_block.extent
    return ProductCounts(
        units="plain",
        dtype=dot.dtype,
        element=dot.dtype,
        flops=2.0 * calls * warps * WARP * shape.rows * shape.columns * dot.depth,
        slots=loads * LOAD_SLOTS,
        wavefronts=right * kept + loads / (1.0 + read),
        requested_bytes=float(fetched + calls * left_bytes),
        left_bytes=left_bytes * row_tiles,
        right_bytes=far,
        others=max(1, plan.blocks // max(row_tiles, 1)),
        row_tiles=row_tiles,
        column_tiles=1,
        together=1,
        times=times,
        rounds=math.ceil(times * (waits + clocks / ROUND_CLOCKS)),
        stages=2,
    )


@dataclass(frozen=True, slots=True)
class Fragments:
    """Of one step of the depth, over all warps of a block."""

    slots: float
    wavefronts: float


def fragments_of(dot: Dot, shape: TileShape, *, left_in_registers: bool = False) -> Fragments:
    """What a step of the depth of a product needs. `left_in_registers`: fragments that matrix units have there."""
    return _matrix(dot, shape, left_in_registers) if shape.units == "matrix" else _plain(dot, shape)


def _matrix(dot: Dot, shape: TileShape, left_in_registers: bool) -> Fragments:
    """A warp brings the fragments of its rows and columns by `ldmatrix`, and multiplies 16 x 16 x 8 at a time.

    Of f32 the depth of both is half, words are rounded, and read one by one where lines run along the result.
    """
    down, across = shape.warps
    rows, columns = -(-shape.rows // down // 16), -(-shape.columns // across // 16)
    depth = shape.instruction_depth
    multiplied = down * across * rows * columns * 2 / depth
    slots = wavefronts = 0.0
    both = ((dot.lhs, shape.rows, rows, True), (dot.rhs, shape.columns, columns, False))
    for matrix, extent, count, is_left in both[left_in_registers:]:
        layout, loads = layout_of(matrix, extent, shape, is_left=is_left), down * across * count / depth
        slots += loads * (4 * LOAD_SLOTS if layout.by_words else FRAGMENT_SLOTS)
        slots += loads * (ROUNDED_SLOTS if shape.element.bits == 32 else 0.0)
        wavefronts += loads * _FRAGMENT_BYTES / WAVEFRONT_BYTES
    return Fragments(slots + multiplied, wavefronts)


def _plain(dot: Dot, shape: TileShape) -> Fragments:
    """16 x 16 threads. A load of 16 bytes takes four wavefronts, one for each quarter of a warp, whatever lanes share.

    Measured on an H200: times of small tiles are what this says, and twice what different bytes alone would take.
    """
    warps = DOT_THREADS // WARP
    loads, wavefronts = 0.0, 0.0
    for matrix, extent, is_left in ((dot.lhs, shape.rows, True), (dot.rhs, shape.columns, False)):
        count, itemsize = extent // SIDE, shape.element.itemsize
        run = CHUNK_BYTES // itemsize
        if not layout_of(matrix, extent, shape, is_left=is_left).along_depth:
            run = math.gcd(run, count)
        loads += warps * count / run
        wavefronts += warps * count / run * max(1.0, WARP * run * itemsize / WAVEFRONT_BYTES)
    return Fragments(loads * LOAD_SLOTS, wavefronts)


def itemsize_of(matrix: Matrix, buffers: Mapping[str, Buffer]) -> int:
    """Bytes of an element in memory; 0 for an operand that is on chip."""
    buffer = buffers[matrix.buffer]
    return 0 if buffer.space is Space.SCRATCH else buffer.type.dtype.itemsize


def brought(itemsize: int, shape: TileShape, elements: float) -> float:
    """Instructions of warps that bring an operand's tiles in: copied if they are kept as they are in memory."""
    if itemsize == shape.element.itemsize:
        return elements * itemsize / CHUNK_BYTES * _COPY_SLOTS / WARP
    return elements * _ELEMENT_SLOTS / WARP


def read_again_bytes(products: Sequence[ProductCounts], l2_bytes: int, resident: int) -> float:
    """What comes from memory more than once: an operand that the L2 does not hold, once for each part of the other one.

    `resident`: blocks that the device holds at a time, which follow one another down some rows of tiles first.
    """
    total = 0.0
    for product in products:
        down = min(max(product.together, resident // max(product.column_tiles, 1), 1), max(product.row_tiles, 1))
        across = max(1, resident // down)
        if product.right_bytes > l2_bytes / 2:
            total += product.others * (-(-product.row_tiles // down) * product.times - 1) * product.right_bytes
        if product.left_bytes * down / max(product.row_tiles, 1) > l2_bytes / 2:
            total += product.others * (-(-product.column_tiles // across) - 1) * product.left_bytes
    return total
