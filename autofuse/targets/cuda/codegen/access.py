"""What the stages of a phase read and write, and how wide: which elements neighbours in a loop or grid access."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from autofuse.ir import index
from autofuse.ir.dtypes import DType
from autofuse.ir.index import Affine, Symbol
from autofuse.lazydataclass import dataclass
from autofuse.lower.statements import Load, Store
from autofuse.lower.tile import Buffer, Dot, Phase, RowGroup, Space, Stage

VECTOR_BYTES = 16
"""The widest access of one thread."""
BEGUN_BYTES = 96
"""Of a thread, at most: loads of the iterations that it begins together. 1,024 threads then have 48 to 96 KiB on the
way, of which a multiprocessor of sm_90 wants 32 to 48 (bandwidth times latency)."""
_MOST_BEGUN = 8
_MOST_VALUES = 32
"""Elements of an array that a thread works on together: of narrow types, more would take all of its registers."""


@dataclass(frozen=True, slots=True)
class Access:
    """One load or store."""

    stage: Stage
    buffer: Buffer
    offset: Affine
    masked: bool
    is_store: bool


def stages_of(phase: Phase) -> Iterator[Stage]:
    """The stages of every row group, in order."""
    for step in phase.steps:
        if isinstance(step, RowGroup):
            yield from step.stages


def accesses_of(stage: Stage, buffers: Mapping[str, Buffer]) -> Iterator[Access]:
    """Loads and stores of a stage, in order."""
    for statement in (*stage.before, *stage.body):
        if isinstance(statement, Load | Store):
            buffer, masked = buffers[statement.buffer], statement.mask is not None
            yield Access(stage, buffer, statement.offset, masked, isinstance(statement, Store))


def is_threaded(phase: Phase) -> bool:
    """Whether each grid point runs in one thread: no row blocks, no dots, and no stage asks for lanes of its own."""
    if phase.row_block is not None or any(isinstance(step, Dot) for step in phase.steps):
        return False
    return phase.vectorised is not None or all(stage.vectorised is None for stage in stages_of(phase))


def is_unit_stride(offset: Affine, lane: Symbol) -> bool:
    """Whether neighbouring lanes access neighbouring elements."""
    rest = Affine(0, tuple((variable, c) for variable, c in offset.terms if variable != lane))
    return offset.coefficient(lane) == 1 and lane not in index.symbols_of(rest)


def is_flat(offset: Affine, grid: Sequence[Symbol]) -> bool:
    """Whether grid points that follow one another access elements that do, from row to row too."""
    rest = offset - flat_point(grid)
    return index.symbols_of(rest).isdisjoint(grid)


def flat_point(grid: Sequence[Symbol]) -> Affine:
    """The number of a grid point, the last symbol fastest."""
    return index.linearize([index.of(symbol) for symbol in grid], [symbol.extent for symbol in grid])


def alignment(offset: Affine, start: Affine, width: int) -> int:
    """What an access is a multiple of, up to `width` elements, wherever `start` is a multiple of `width`."""
    apart = offset - start
    return math.gcd(width, apart.constant, *(c for _, c in apart.terms))


def is_aligned(offset: Affine, lane: Symbol, width: int) -> bool:
    """Whether a unit-stride access starts at a multiple of `width` elements wherever `lane` does."""
    return alignment(offset, index.of(lane), width) == width


def vector_width(accesses: Iterable[tuple[Access, Symbol]], extents: Iterable[int], most_bytes: int) -> int:
    """Elements that a thread takes side by side: as many as fill `most_bytes` of the widest type that it walks.

    So 16-bit elements come eight at a time where 32-bit ones come four at a time: 16 bytes either way. Each access
    decides for itself how it reads so many: whole, shifted, or item by item. All loops must be multiples of them.
    """
    unit = [a for a, lane in accesses if a.buffer.space is not Space.SCRATCH and is_unit_stride(a.offset, lane)]
    if not unit:
        return 1
    width = max(1, most_bytes // max(a.buffer.type.dtype.itemsize for a in unit))
    return math.gcd(width, *extents)


def begun_together(stage: Stage, vector: int) -> int:
    """Iterations of a long loop whose loads a thread makes before it uses the first: a power of two.

    `vector`: neighbours that it takes in each.
    """
    walked = frozenset(stage.symbols)
    loads = {(s.buffer, s.offset): s.dtype.itemsize for s in stage.body if isinstance(s, Load)}
    read = sum(size for (_, offset), size in loads.items() if not walked.isdisjoint(index.symbols_of(offset)))
    most = min(_MOST_BEGUN, BEGUN_BYTES // max(read * vector, 1), _MOST_VALUES // vector)
    return 1 << max(1, most).bit_length() - 1


def words(dtype: DType) -> int:
    """32-bit registers of one value."""
    return 2 if dtype.bits == 64 else 1
