"""What the stages of a phase read and write, and the vector width that allows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from autofuse.ir import index
from autofuse.ir.dtypes import DType
from autofuse.ir.index import Affine, Symbol
from autofuse.lazydataclass import dataclass
from autofuse.lower.tile import Buffer, Dot, Load, Phase, RowGroup, Scan, Space, Stage, Store

VECTOR_BYTES = 16
"""The widest load of one thread."""
WORD_BYTES = 4


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
    for statement in stage.body:
        if isinstance(statement, Load | Store):
            buffer, masked = buffers[statement.buffer], statement.mask is not None
            yield Access(stage, buffer, statement.offset, masked, isinstance(statement, Store))


def has_scan(stage: Stage) -> bool:
    """Whether the order of its iterations matters."""
    return any(isinstance(statement, Scan) for statement in stage.body)


def is_threaded(phase: Phase) -> bool:
    """Whether each grid point runs in one thread: no row blocks, no dots, and no stage asks for lanes of its own."""
    if phase.row_block is not None or any(isinstance(step, Dot) for step in phase.steps):
        return False
    return phase.vectorised is not None or all(stage.vectorised is None for stage in stages_of(phase))


def is_unit_stride(offset: Affine, lane: Symbol) -> bool:
    """Whether neighbouring lanes access neighbouring elements."""
    rest = Affine(0, tuple((variable, c) for variable, c in offset.terms if variable != lane))
    return offset.coefficient(lane) == 1 and lane not in index.symbols_of(rest)


def is_aligned(offset: Affine, lane: Symbol, width: int) -> bool:
    """Whether a unit-stride access starts at a multiple of `width` elements wherever `lane` does."""
    return offset.constant % width == 0 and all(c % width == 0 for variable, c in offset.terms if variable != lane)


def vector_width(accesses: Iterable[tuple[Access, Symbol]], extents: Iterable[int], items: int) -> int:
    """Elements per load: the widest that every unit-stride access to global memory allows, in at most `items` words.

    So 16-bit elements come eight at a time where 32-bit ones come four at a time: 16 bytes either way.
    """
    unit = [(a, lane) for a, lane in accesses if a.buffer.space is not Space.SCRATCH and is_unit_stride(a.offset, lane)]
    if not unit or any(a.masked for a, _ in unit):
        return 1
    itemsize = max(a.buffer.type.dtype.itemsize for a, _ in unit)
    width = VECTOR_BYTES // itemsize
    while width > 1 and not (
        width * itemsize <= WORD_BYTES * items
        and all(extent % width == 0 for extent in extents)
        and all(is_aligned(a.offset, lane, width) for a, lane in unit)
    ):
        width //= 2
    return width


def words(dtype: DType) -> int:
    """32-bit registers of one value."""
    return 2 if dtype.bits == 64 else 1
