"""Rows that several stages read are read once: the first stage keeps them on chip for the others.

Before, for a softmax:                    After:

    stage (k): %1 = load x[n*i + k]           stage (k): %1 = load x[n*i + k]
               %2 = reduce maximum %1                    store x.row[k] %1
    stage (k): %3 = load x[n*i + k]                      %2 = reduce maximum %1
               ...                            stage (k): %3 = load x.row[k]
                                                         ...

Code generation has such a row in registers if they are enough, else in shared memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from autofuse.ir import index
from autofuse.ir.index import Affine, Symbol
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.schedule import PLACEMENT
from autofuse.lower.tile import Buffer, Load, Phase, RowGroup, Space, Stage, Statement, Store, TileProgram
from autofuse.targets.cuda.codegen.access import is_threaded, is_unit_stride

MOST_BYTES = 48 << 10
"""Of all that is kept for a grid point: so that a multiprocessor still has several rows at work."""


@dataclass(frozen=True, slots=True)
class _Row:
    """What a load walks: neighbouring elements from a place that only the grid decides."""

    buffer: str
    start: Affine
    extent: int


def keep_rows(program: TileProgram) -> TileProgram:
    """The program with rows read once, where the schedule has values kept on chip at all."""
    if program.schedule[PLACEMENT] != "scratch":
        return program
    buffers = {buffer.name: buffer for buffer in program.buffers}
    kept: list[Buffer] = []
    launches = tuple(tuple(_kept_in(phase, buffers, kept) for phase in launch) for launch in program.launches)
    return replace(program, buffers=(*program.buffers, *kept), launches=launches) if kept else program


def _kept_in(phase: Phase, buffers: dict[str, Buffer], kept: list[Buffer]) -> Phase:
    """A phase that reads each row once; the buffers that it needs for that are added to both."""
    if phase.row_block is not None or len(phase.steps) != 1 or not isinstance(phase.steps[0], RowGroup):
        return phase
    if is_threaded(phase):
        return phase
    stages = phase.steps[0].stages
    own = {buffers[s.buffer] for stage in stages for s in stage.body if isinstance(s, Load | Store)}
    taken = sum(buffer.type.nbytes for buffer in own if buffer.space is Space.SCRATCH)
    chosen: dict[_Row, Buffer] = {}
    for row in _again(stages, phase.grid, buffers):
        place = _scratch(row, buffers, len(kept) + len(chosen))
        if taken + place.type.nbytes <= MOST_BYTES:
            taken += place.type.nbytes
            chosen[row] = place
    if not chosen:
        return phase
    kept += chosen.values()
    buffers |= {buffer.name: buffer for buffer in chosen.values()}
    read: set[_Row] = set()
    return replace(phase, steps=(RowGroup(tuple(_rewritten(stage, chosen, read) for stage in stages)),))


def _again(stages: Sequence[Stage], grid: Sequence[Symbol], buffers: dict[str, Buffer]) -> list[_Row]:
    """Rows that more than one stage reads, in the order in which they are read first."""
    readers: Counter[_Row] = Counter()
    for stage in stages:
        readers.update({row: 1 for _, row in _rows(stage) if buffers[row.buffer].space is Space.INPUT})
    return [row for row, count in readers.items() if count > 1 and not index.symbols_of(row.start).isdisjoint(grid)]


def _rows(stage: Stage) -> Iterator[tuple[Load, _Row]]:
    """Loads that walk a row, and which."""
    if stage.vectorised is None or stage.symbols != (stage.vectorised,):
        return
    for statement in stage.body:
        if (
            isinstance(statement, Load)
            and statement.mask is None
            and is_unit_stride(statement.offset, stage.vectorised)
        ):
            start = statement.offset - index.of(stage.vectorised)
            if all(isinstance(atom, Symbol) for atom, _ in start.terms):
                yield statement, _Row(statement.buffer, start, stage.vectorised.extent)


def _scratch(row: _Row, buffers: dict[str, Buffer], number: int) -> Buffer:
    kind = TensorType((row.extent,), buffers[row.buffer].type.dtype)
    return Buffer(f"{row.buffer}.row{number}", kind, Space.SCRATCH)


def _rewritten(stage: Stage, chosen: dict[_Row, Buffer], read: set[_Row]) -> Stage:
    """A stage that keeps the rows that it is the first to read, and finds the others. `read`: those read before."""
    walked = {id(load): row for load, row in _rows(stage) if row in chosen}
    if not walked or stage.vectorised is None:
        return stage
    body: list[Statement] = []
    here: set[_Row] = set()
    for statement in stage.body:
        row = walked.get(id(statement))
        if row is None or not isinstance(statement, Load):
            body.append(statement)
            continue
        place = index.of(stage.vectorised)
        if row in read:
            body.append(replace(statement, buffer=chosen[row].name, offset=place))
        else:
            body.append(statement)
            if row not in here:
                body.append(Store(chosen[row].name, place, statement.result))
            here.add(row)
    read |= here
    return replace(stage, body=tuple(body))
