"""What a phase reads and writes, and what follows from it: mergeable grid symbols, vector width, owned scratch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from autofuse.ir import index
from autofuse.ir.dtypes import DType
from autofuse.ir.index import Affine, Symbol
from autofuse.lower.tile import (
    ArgReduce,
    Buffer,
    Dot,
    Load,
    Phase,
    Position,
    RowGroup,
    Scan,
    Space,
    Stage,
    Statement,
    Store,
    Test,
)

VECTOR_BYTES = 16
"""The widest load of one thread."""


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


def affines_of(statement: Statement) -> tuple[Affine, ...]:
    """Every index expression of a statement."""
    match statement:
        case Load() | Store():
            return (statement.offset,)
        case Position():
            return (statement.value,)
        case ArgReduce():
            return (statement.position,)
        case Test():
            return tuple(condition.value for condition in statement.conditions)
        case _:
            return ()


def has_scan(stage: Stage) -> bool:
    """Whether the order of its iterations matters."""
    return any(isinstance(statement, Scan) for statement in stage.body)


def is_threaded(phase: Phase) -> bool:
    """Whether each grid point runs in one thread: no panels, no dots, and no stage asks for lanes of its own."""
    if phase.panel is not None or any(isinstance(step, Dot) for step in phase.steps):
        return False
    return phase.lane is not None or all(stage.lane is None for stage in stages_of(phase))


def merged_grid(phase: Phase) -> Phase:
    """The same phase with neighbouring grid symbols joined where every expression steps through them as one.

    `i0 < 8, i1 < 16` with only `16*i0 + i1` in use becomes `i0 < 128`: no division to find them, longer vectors.
    """
    if phase.panel is not None or any(isinstance(step, Dot) for step in phase.steps):
        return phase
    for outer, inner in zip(phase.grid, phase.grid[1:], strict=False):
        if all(
            _joint(value, outer, inner) for stage in stages_of(phase) for s in stage.body for value in affines_of(s)
        ):
            return merged_grid(_join(phase, outer, inner))
    return phase


def _joint(value: Affine, outer: Symbol, inner: Symbol) -> bool:
    plain = [(atom, c) for atom, c in value.terms if atom not in (outer, inner)]
    nested = index.symbols_of(Affine(0, tuple(plain)))
    if outer in nested or inner in nested:
        return False
    return value.coefficient(outer) == value.coefficient(inner) * inner.extent


def _join(phase: Phase, outer: Symbol, inner: Symbol) -> Phase:
    whole = Symbol(outer.name, outer.extent * inner.extent)

    def rewrite(value: Affine) -> Affine:
        kept = [(atom, c) for atom, c in value.terms if atom not in (outer, inner)]
        return index.combine(value.constant, [*kept, (whole, value.coefficient(inner))])

    grid = tuple(whole if symbol == outer else symbol for symbol in phase.grid if symbol != inner)
    steps = tuple(
        RowGroup(tuple(_rewrite_stage(stage, rewrite) for stage in step.stages)) if isinstance(step, RowGroup) else step
        for step in phase.steps
    )
    lane = whole if phase.lane in (outer, inner) else phase.lane
    return replace(phase, grid=grid, steps=steps, lane=lane)


def _rewrite_stage(stage: Stage, rewrite: Callable[[Affine], Affine]) -> Stage:
    return replace(stage, body=tuple(_rewrite(statement, rewrite) for statement in stage.body))


def _rewrite(statement: Statement, rewrite: Callable[[Affine], Affine]) -> Statement:
    match statement:
        case Load() | Store():
            return replace(statement, offset=rewrite(statement.offset))
        case Position():
            return replace(statement, value=rewrite(statement.value))
        case ArgReduce():
            return replace(statement, position=rewrite(statement.position))
        case Test():
            return replace(
                statement, conditions=tuple(replace(c, value=rewrite(c.value)) for c in statement.conditions)
            )
        case _:
            return statement


def is_unit_stride(offset: Affine, lane: Symbol) -> bool:
    """Whether neighbouring lanes access neighbouring elements."""
    rest = Affine(0, tuple((atom, c) for atom, c in offset.terms if atom != lane))
    return offset.coefficient(lane) == 1 and lane not in index.symbols_of(rest)


def is_aligned(offset: Affine, lane: Symbol, width: int) -> bool:
    """Whether a unit-stride access starts at a multiple of `width` elements wherever `lane` does."""
    return offset.constant % width == 0 and all(c % width == 0 for atom, c in offset.terms if atom != lane)


def vector_width(accesses: Iterable[tuple[Access, Symbol]], extents: Iterable[int], items: int) -> int:
    """Elements per load: the widest that every unit-stride access to global memory allows, at most `items`."""
    unit = [(a, lane) for a, lane in accesses if a.buffer.space is not Space.SCRATCH and is_unit_stride(a.offset, lane)]
    if not unit or any(a.masked for a, _ in unit):
        return 1
    width = VECTOR_BYTES // max(a.buffer.type.dtype.itemsize for a, _ in unit)
    while width > 1 and not (
        width <= items
        and all(extent % width == 0 for extent in extents)
        and all(is_aligned(a.offset, lane, width) for a, lane in unit)
    ):
        width //= 2
    return width


def words(dtype: DType) -> int:
    """32-bit registers of one value."""
    return 2 if dtype.bits == 64 else 1
