"""Rows that several stages read are read once: the first stage keeps them on chip for the others.

Before, for a softmax:                    After:

    stage (k): %1 = load x[n*i + k]           stage (k): %1 = load x[n*i + k]
               %2 = reduce maximum %1                    store x.row[k] %1
    stage (k): %3 = load x[n*i + k]                      %2 = reduce maximum %1
               ...                            stage (k): %3 = load x.row[k]
                                                         ...

A later stage may read a part of the row, at other places. Code generation has a row in registers if they are enough,
else in shared memory, of several blocks if that of one is not enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from autofuse.ir import index
from autofuse.ir.index import Affine, Symbol
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.schedule import PLACEMENT
from autofuse.lower.statements import Load, Statement, Store
from autofuse.lower.tile import Buffer, Phase, RowGroup, Space, Stage, TileProgram
from autofuse.targets.cuda.codegen.access import is_threaded, is_unit_stride


@dataclass(frozen=True, slots=True)
class _Line:
    """Neighbouring elements of a buffer, from a place that only the grid decides; the constant is left out of it."""

    buffer: str
    start: Affine


@dataclass(frozen=True, slots=True)
class _Row:
    """What a loop walks of a line."""

    line: _Line
    first: int
    extent: int

    def holds(self, other: _Row) -> bool:
        """Whether all that another one walks is in it."""
        end, other_end = self.first + self.extent, other.first + other.extent
        return self.line == other.line and self.first <= other.first and other_end <= end


def keep_rows(program: TileProgram, most_bytes: int) -> TileProgram:
    """The program with rows read once, where the schedule has values kept on chip at all.

    `most_bytes`: of all scratch of a grid point.
    """
    if program.schedule[PLACEMENT] != "scratch":
        return program
    buffers = {buffer.name: buffer for buffer in program.buffers}
    kept: list[Buffer] = []
    launches = tuple(
        tuple(_kept_in(phase, buffers, kept, most_bytes) for phase in launch) for launch in program.launches
    )
    return replace(program, buffers=(*program.buffers, *kept), launches=launches) if kept else program


def _kept_in(phase: Phase, buffers: dict[str, Buffer], kept: list[Buffer], most_bytes: int) -> Phase:
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
        if taken + place.type.nbytes <= most_bytes:
            taken += place.type.nbytes
            chosen[row] = place
    if not chosen:
        return phase
    kept += chosen.values()
    buffers |= {buffer.name: buffer for buffer in chosen.values()}
    read: set[_Row] = set()
    return replace(phase, steps=(RowGroup(tuple(_rewritten(stage, chosen, read) for stage in stages)),))


def _again(stages: Sequence[Stage], grid: Sequence[Symbol], buffers: Mapping[str, Buffer]) -> list[_Row]:
    """Rows of which later stages read something again, in the order in which they are read first."""
    readers: dict[_Row, int] = {}
    for number, stage in enumerate(stages):
        for _, row in _rows(stage):
            if buffers[row.line.buffer].space is Space.INPUT and not any(known.holds(row) for known in readers):
                readers[row] = number
    later = [(number, row) for number, stage in enumerate(stages) for _, row in _rows(stage)]
    return [
        row
        for row, first in readers.items()
        if any(number > first and row.holds(other) for number, other in later)
        and not index.symbols_of(row.line.start).isdisjoint(grid)
    ]


def _rows(stage: Stage) -> Iterator[tuple[Load, _Row]]:
    """Loads that walk a row, and which."""
    walk = stage.vectorised
    if walk is None or stage.symbols != (walk,):
        return
    for statement in stage.body:
        if isinstance(statement, Load) and statement.mask is None and is_unit_stride(statement.offset, walk):
            start = statement.offset - index.of(walk)
            if all(isinstance(atom, Symbol) for atom, _ in start.terms):
                line = _Line(statement.buffer, start - start.constant)
                yield statement, _Row(line, start.constant, walk.extent)


def _scratch(row: _Row, buffers: Mapping[str, Buffer], number: int) -> Buffer:
    kind = TensorType((row.extent,), buffers[row.line.buffer].type.dtype)
    return Buffer(f"{row.line.buffer}.row{number}", kind, Space.SCRATCH)


def _rewritten(stage: Stage, chosen: Mapping[_Row, Buffer], read: set[_Row]) -> Stage:
    """A stage that keeps the rows that it is the first to read, and finds the others. `read`: those read before."""
    walked = {id(load): row for load, row in _rows(stage)}
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
        home = next((known for known in read if known.holds(row)), None)
        if home is not None:
            moved = place + (row.first - home.first)
            body.append(replace(statement, buffer=chosen[home].name, offset=moved))
            continue
        body.append(statement)
        if row in chosen and row not in here:
            body.append(Store(chosen[row].name, place, statement.result))
            here.add(row)
    read |= here
    return replace(stage, body=tuple(body))
