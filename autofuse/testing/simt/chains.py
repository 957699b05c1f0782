"""How often chained products read their right operands: those of which one multiplies what another made, on chip.

A block makes whole rows of such products, so it reads every right operand, and a launch reads it once for each block of
rows. Products beside one another are no chain: what they read again, the bytes asked over needed say.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from autofuse.ir import index
from autofuse.ir.index import Symbol
from autofuse.lazydataclass import dataclass
from autofuse.lower.statements import Load, Store
from autofuse.lower.tile import Buffer, Dot, Matrix, Phase, RowGroup
from autofuse.targets.cuda.codegen.hiddentiles import PART


@dataclass(frozen=True, slots=True)
class ChainedReads:
    """What a launch of chained products reads again."""

    reads: float
    """Of a right operand, the most of all: how often it is asked for."""
    rows: int
    """Of one product."""
    products: int
    """Of the same kind side by side, each with rows of its own."""


def chained_reads(
    phases: Sequence[Phase], buffers: Mapping[str, Buffer], fetched: Mapping[str, float]
) -> ChainedReads | None:
    """Of a launch; None if none of its products multiplies what another made, or if nothing is read.

    `fetched`: bytes that all blocks ask for, by buffer, each block counted once.
    """
    chains = [phase for phase in phases if is_chain(phase)]
    names = dict.fromkeys(dot.rhs.buffer for phase in chains for dot in _dots(phase))
    found: list[ChainedReads] = []
    for name in names:
        sizes = [_operands(phase, name, buffers) for phase in chains]
        right, left = (sum(each) for each in zip(*sizes, strict=True))
        if name in fetched and right:
            rows, products = _rows_of(chains[0])
            found.append(ChainedReads((fetched[name] - left) / right, rows, products))
    return max(found, key=lambda one: one.reads, default=None)


def is_chain(phase: Phase) -> bool:
    """Whether a product's left operand was made from another product's result."""
    made: set[str] = set()
    for step in phase.steps:
        if isinstance(step, Dot):
            if step.lhs.buffer in made:
                return True
            made.add(step.out.buffer)
        elif not made.isdisjoint(_of(step, Load)):
            made.update(_of(step, Store))
    return False


def _of(group: RowGroup, kind: type[Load] | type[Store]) -> set[str]:
    return {s.buffer for stage in group.stages for s in stage.body if isinstance(s, kind)}


def _dots(phase: Phase) -> list[Dot]:
    return [step for step in phase.steps if isinstance(step, Dot)]


def _rows_of(phase: Phase) -> tuple[int, int]:
    """Rows of one product of a phase, and products side by side."""
    own = None if phase.row_block is None else phase.row_block.symbol
    rows = _dots(phase)[0].rows if own is None else own.extent
    return rows, math.prod(symbol.extent for symbol in phase.grid if symbol not in (own, _part(phase)))


def _part(phase: Phase) -> Symbol | None:
    """What numbers the parts of an axis: they read parts of an operand, and are no products of their own."""
    return next((symbol for symbol in phase.grid if symbol.name == PART), None)


def _operands(phase: Phase, name: str, buffers: Mapping[str, Buffer]) -> tuple[int, int]:
    """Bytes of a buffer as right and as left operand, each read once by all products side by side."""
    own, part = None if phase.row_block is None else phase.row_block.symbol, _part(phase)
    rows, _ = _rows_of(phase)
    again = 1 if part is None else part.extent
    dots, itemsize = _dots(phase), buffers[name].type.dtype.itemsize
    right = sum(_elements(dot.rhs, dot.depth * dot.columns) for dot in dots if dot.rhs.buffer == name)
    left = sum(_elements(dot.lhs, again * rows * dot.depth, own) for dot in dots if dot.lhs.buffer == name)
    return itemsize * right, itemsize * left


def _elements(matrix: Matrix, each: int, own: Symbol | None = None) -> int:
    """Of an operand in memory, for all products side by side. `own`: the symbol that its rows are along."""
    beside = [symbol for symbol in index.symbols_of(matrix.offset) if symbol != own]
    return each * math.prod(symbol.extent for symbol in beside)
