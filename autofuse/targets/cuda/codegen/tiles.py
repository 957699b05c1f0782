"""The width of column tiles on a GPU: see `autofuse.lower.columntiles`.

Without tiles a block would keep whole rows of a product on chip, and have few of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from autofuse.lower.columntiles import cut_columns, find_columns
from autofuse.lower.tile import Buffer, Phase, Space
from autofuse.targets.cuda.codegen.blockproducts import TILE

LEAST_WIDTH = TILE // 2
"""Narrower tiles would leave most of the dot's threads idle."""


def with_column_tiles(phase: Phase, buffers: Mapping[str, Buffer]) -> tuple[Phase, Mapping[str, Buffer]]:
    """The phase and its buffers cut into columns, or both as they are where that is not possible."""
    columns = find_columns(phase, buffers)
    if columns is None or columns.prologue or columns.dots != 1 or len(phase.steps) < 2:
        return phase, buffers
    width = _width(columns.extent)
    if width is None or not any(buffers[name].space is Space.SCRATCH for name in columns.narrowed):
        return phase, buffers
    return cut_columns(phase, buffers, columns, width)


def _width(columns: int) -> int | None:
    """The widest tile that divides the columns and suits vectors; None if that is too narrow, or all of them."""
    widths = (width for width in range(TILE, LEAST_WIDTH - 1, -4) if columns % width == 0)
    return next(widths, None) if columns > TILE else None
