"""In which order blocks take the tiles of a product: in near squares of the result, which share operands.

    by rows                  in groups of two rows
    0  1  2  3  4  5         0  2  4  6  8 10
    6  7  8  9 10 11         1  3  5  7  9 11
   12 13 14 15 16 17        12 14 16 ...

Blocks that follow one another are at work at the same time, and what several of them read comes from memory once. By
rows these read all of the right operand, again for each row of tiles.
"""

from __future__ import annotations

import math

from autofuse.ir.index import Symbol
from autofuse.targets.cuda.codegen.gridpoints import define_symbols
from autofuse.targets.cuda.codegen.phasecode import PhaseCode
from autofuse.targets.cuda.codegen.producttiles import BUSY


def rows_together(row_tiles: int, column_tiles: int, high: int, wide: int) -> int:
    """Rows of tiles in a group: as many as make a near square of what a GPU works on at a time; 1 if that is all.

    `high`, `wide`: rows and columns of a tile. A power of two.
    """
    if row_tiles * column_tiles <= BUSY or column_tiles == 1:
        return 1
    side = 1 << round(math.log2(math.sqrt(BUSY * wide / high)))
    return min(side, row_tiles)


def define_tiles(
    code: PhaseCode, grid: tuple[Symbol, ...], rows: Symbol, columns: Symbol, together: int, block: str
) -> None:
    """Names for the grid symbols of a block; `rows` and `columns` number tiles in groups of `together` rows."""
    out, names, index = code.out, code.names, code.index.type
    plane, size = rows.extent * columns.extent, together * columns.extent
    others = tuple(symbol for symbol in grid if symbol not in (rows, columns))
    alone = all(symbol.extent == 1 for symbol in others)
    define_symbols(code, others, f"({block} / {plane})")
    number, top, count = (names.fresh(name) for name in ("in_group", "group_top", "group_rows"))
    within = block if alone else f"({block} % {plane})"
    out.line(f"const {index} {number} = {within} % {size}, {top} = {within} / {size} * {together};")
    many = f"{rows.extent} - {top}"
    least = str(together) if rows.extent % together == 0 else f"{many} < {together} ? {many} : {together}"
    out.line(f"const {index} {count} = {least};")
    out.line(f"const {index} {code.loop_name(rows)} = {top} + {number} % {count};")
    out.line(f"const {index} {code.loop_name(columns)} = {number} / {count};")
