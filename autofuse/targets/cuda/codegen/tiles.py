"""Products with an elementwise epilogue, cut into tiles of rows and columns: see `autofuse.lower.columntiles`.

Without tiles a block would keep whole rows of a product on chip, and have few of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from autofuse.ir import index
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import replace
from autofuse.lower.columntiles import Columns, cut_columns, find_columns
from autofuse.lower.rewrite import rewritten, rewritten_dot
from autofuse.lower.schedule import Schedule
from autofuse.lower.statements import Store
from autofuse.lower.tile import Buffer, Dot, Phase, RowBlock, RowGroup, Space
from autofuse.targets.cuda.codegen.blockproducts import tile_of, wide_columns
from autofuse.targets.cuda.codegen.producttiles import BUSY, COLUMNS, ROWS, SIDE, step_clocks
from autofuse.targets.cuda.gpus import shared_bytes_per_block

_LEAST_WIDTH = 32
"""Narrower tiles would leave most of the dot's threads idle."""
_PADDING = 8
"""Elements between the rows of a result on chip, beyond its columns: so that stores of fragments share no bank."""
_WIDTH_STEP = 8
_STATEMENT_CLOCKS = 4.0 / 128.0
"""Of a multiprocessor, for a statement of a prologue and one element: a few instructions, 128 of which end at once."""
_PROLOGUE_SHARE = 2
"""A prologue leaves half of a block's shared memory to the tiles of the product, at least."""


def with_product_tiles(
    phase: Phase, buffers: Mapping[str, Buffer], schedule: Schedule, arch: str
) -> tuple[Phase, Mapping[str, Buffer]]:
    """The phase and its buffers cut into tiles, or both as they are where that is not possible."""
    columns = None if phase.sweep is not None else find_columns(phase, buffers)
    if columns is None or phase.row_block is None or len(phase.steps) < 2:
        return phase, buffers
    dot = next(step for step in phase.steps if isinstance(step, Dot))
    alone = not columns.prologue and columns.dots == len(columns.narrowed) == 1
    widths = _widths(columns, (*(wide_columns(dot, buffers, arch) if alone else ()), *COLUMNS))
    kept = any(buffers[name].space is Space.SCRATCH for name in columns.narrowed)
    if not widths or not (kept or columns.prologue):
        return phase, buffers
    extent = phase.row_block.symbol.extent
    others = math.prod(symbol.extent for symbol in phase.grid) // max(extent, 1)
    most = max(SIDE, _most_rows(phase, buffers, columns, arch)) if columns.prologue else ROWS[0]
    high, wide = tile_of(dot, buffers, arch, schedule, extent, others * columns.dots, widths, most)
    if columns.prologue and not _is_repeated(phase, columns, extent * others, high, wide):
        return phase, buffers
    phase, buffers = with_rows(phase, buffers, min(high, extent))
    columns = find_columns(phase, buffers)
    assert columns is not None  # other rows change no column
    return cut_columns(phase, buffers, columns, wide, wide + _PADDING)


def _is_repeated(phase: Phase, columns: Columns, rows: int, high: int, wide: int) -> bool:
    """Whether it pays to do a prologue anew for every tile of columns.

    `high`, `wide`: of tiles. Else blocks have the rows that they have, and all columns one tile after the other.
    """
    assert phase.row_block is not None
    statements = sum(len(stage.body) for group in columns.prologue for stage in group.stages)
    before = statements * _STATEMENT_CLOCKS
    across = -(-columns.extent // COLUMNS[0])
    parts = -(-rows // phase.row_block.size), -(-rows // high) * (columns.extent // wide)
    in_rows, in_tiles = (-(-blocks // BUSY) for blocks in parts)
    row_clocks = columns.dots * across * step_clocks(phase.row_block.size, COLUMNS[0]) + before * phase.row_block.size
    return in_tiles * (columns.dots * step_clocks(high, wide) + before * high) < in_rows * row_clocks


def _most_rows(phase: Phase, buffers: Mapping[str, Buffer], columns: Columns, arch: str) -> int:
    """Rows of which the prologue leaves as much on chip as a block should keep: a power of two."""
    assert phase.row_block is not None
    names = {
        s.buffer for group in columns.prologue for stage in group.stages for s in stage.body if isinstance(s, Store)
    }
    each = sum(buffers[name].type.nbytes for name in names) // phase.row_block.size
    rows = shared_bytes_per_block(arch) // _PROLOGUE_SHARE // max(each, 1)
    return 1 << max(rows.bit_length() - 1, 0)


def _widths(columns: Columns, tiles: Sequence[int]) -> tuple[int, ...]:
    """Of tiles that divide the columns and suit vectors, the widest that each of these tiles of a dot covers."""
    if not columns.extent:
        return ()
    found: list[int] = []
    for most in tiles:
        widths = range(most, _LEAST_WIDTH - 1, -_WIDTH_STEP)
        width = next((width for width in widths if columns.extent % width == 0), None)
        if width is not None and width not in found:
            found.append(width)
    return tuple(found)


def with_rows(phase: Phase, buffers: Mapping[str, Buffer], rows: int) -> tuple[Phase, Mapping[str, Buffer]]:
    """The phase with row blocks of `rows` rows, and its scratch for so many: row blocks are independent."""
    before = phase.row_block
    assert before is not None
    if rows == before.size:
        return phase, buffers
    block = RowBlock(before.symbol, replace(before.local, extent=rows), rows)
    place = {before.local: index.of(block.local)}

    def moved(value: index.Affine) -> index.Affine:
        return index.renamed(value, place)

    steps = tuple(
        replace(rewritten_dot(step, moved), rows=rows)
        if isinstance(step, Dot)
        else RowGroup(
            tuple(replace(stage, body=tuple(rewritten(s, moved) for s in stage.body)) for stage in step.stages)
        )
        for step in phase.steps
    )
    scratch = {
        name: replace(buffer, type=TensorType((rows, buffer.type.size // before.size), buffer.type.dtype))
        for name, buffer in buffers.items()
        if buffer.space is Space.SCRATCH
    }
    return replace(phase, steps=steps, row_block=block), {**buffers, **scratch}
