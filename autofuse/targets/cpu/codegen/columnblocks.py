"""Long rows that a stage reads several of are walked block by block, so that rows are read from the first cache again.

A stencil reads each row as the one below, as its own and as the one above. If three rows do not fit the first cache,
each reading comes from the second. With blocks of columns, all rows of one before the next, one of them does (the layer
condition of stencil codes).
"""

from __future__ import annotations

from collections.abc import Iterator

from autofuse.ir.index import Affine, Symbol
from autofuse.lazydataclass import dataclass
from autofuse.lower.statements import ArgReduce, Carry, Load, Next, Reduce, Repeat, Scan, Store
from autofuse.lower.tile import Stage
from autofuse.targets.cpu.codegen.accesses import Places
from autofuse.targets.cpu.codegen.values import Index, counted_loop
from autofuse.targets.cpu.llvmtext import FunctionText

_KEPT_BYTES = 24 << 10
"""Of the first cache: for rows that are read again."""
_BLOCK_BYTES = 4096
"""Of a row, in a block."""
_ORDERED = Reduce | Scan | ArgReduce | Next | Carry | Repeat


@dataclass(frozen=True, slots=True)
class Columns:
    """Iterations of a vectorised loop: all from `lo` to `hi`, or a block among these."""

    lo: int
    hi: int
    start: Index | None = None
    """Of the block."""
    count: int = 0
    """Its iterations: whole steps of the loop."""


def column_blocks(fn: FunctionText, ends: tuple[int, int, int], columns: int) -> Iterator[Columns]:
    """The blocks of a loop, each to be written in its turn: a first one, whole ones in a loop around them, the rest.

    `ends`: where the loop begins, where its first whole vector does, and where it ends.
    """
    lo, aligned, hi = ends
    first = aligned + columns
    blocks = max((hi - first) // columns, 0)
    if not blocks:
        yield Columns(lo, hi)
        return
    yield Columns(lo, first)
    last = first + blocks * columns
    with counted_loop(fn, str(first), str(last), columns, nonempty=True, as_written=True) as position:
        yield Columns(first, last, Index(position), columns)
    if last < hi:
        yield Columns(last, hi)


def block_columns(stage: Stage, vectorised: Symbol, places: Places, step: int) -> int | None:
    """How many iterations of the vectorised loop a block has, a multiple of `step`; None if rows are not walked so."""
    if stage.is_ordered or stage.sections or stage.before or len(stage.symbols) < 2:
        return None
    if any(isinstance(s, _ORDERED) for s in stage.body):
        return None
    rows = [symbol for symbol in stage.symbols if symbol != vectorised][-1]
    read: dict[tuple[str, tuple[object, ...]], set[int]] = {}
    sizes: list[int] = []
    for s in stage.body:
        if isinstance(s, Load | Store):
            size = places[s.buffer].dtype.itemsize
            sizes.append(size)
            number = _row_of(s.offset, rows, vectorised)
            if isinstance(s, Load) and number is not None:
                read.setdefault((s.buffer, s.offset.terms), set()).add(number)
    lines = sum(len(numbers) * places[name].dtype.itemsize for (name, _), numbers in read.items() if len(numbers) > 1)
    if lines * vectorised.extent <= _KEPT_BYTES:
        return None
    columns = max(_BLOCK_BYTES // max(sizes) // step, 1) * step
    return columns if vectorised.extent >= 2 * columns else None


def _row_of(offset: Affine, rows: Symbol, vectorised: Symbol) -> int | None:
    """How many rows from that of an iteration an element lies, which moves along both loops; None for others."""
    length = offset.coefficient(rows)
    if length <= 0 or offset.coefficient(vectorised) != 1:
        return None
    return (offset.constant + length // 2) // length
