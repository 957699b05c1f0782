"""Overlapped tiles: values that are read at several positions are kept on chip, for some rows and those around them.

A kernel of elementwise work that reads a value at several positions (a stencil of a stencil) computes it anew at each,
or keeps it. Rows of a tile are independent of other tiles: what its outputs need beyond its edges is computed in both.
So a tile is a grid point, each kept value a stage that walks its rows, and scratch holds them:

    phase grid(b<64)
      stage (r0<18, k0<1024) { row = 16*b + r0 - 1; ...; store u.scratch[r0, k0] }       one row more on both sides
      stage (r1<16, k1<1024) { ...load u.scratch[r1 + 0..2, k1 - 1..1]...; store out[16*b + r1, k1] }
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from autofuse.errors import LegalityError
from autofuse.fusion.candidate import KernelCandidate
from autofuse.fusion.dimensions import Dimensions
from autofuse.ir import index
from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Node, Value
from autofuse.ir.index import Affine, Symbol
from autofuse.ir.oprecord import ElementwiseOp, Role
from autofuse.ir.optable import lookup, role_of
from autofuse.ir.pieces import Condition, within
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.demand import PhaseBuilder
from autofuse.lower.finish import finish_phase
from autofuse.lower.phasedrafts import BufferTable, StageDraft
from autofuse.lower.phaseframe import PhaseFrame, RowReader
from autofuse.lower.schedule import VECTORISED, Schedule
from autofuse.lower.statements import Scalar, Store
from autofuse.lower.tile import Phase, Space

_LEAST_WORK = 2.0
"""Vector instructions from which on a value is kept rather than computed where it is read."""
_LEAST_SHARE = 16
"""Rows that a tile has for each row that it computes beyond its own, on average, where they fit: more rows would spare
little, and fill caches."""
_TILES_A_WORKER = 4
"""Tiles that each worker has at least, where the rows allow."""
_LINE_BYTES = 64
"""What lines of scratch are a multiple of, so that vectors of all rows begin at like places of cache lines."""
_LEAST_LINES = 4
"""Shorter rows of scratch stay as they are: what is added would be much of them."""


def kept_values(candidate: KernelCandidate) -> tuple[Value, ...]:
    """The values of a kernel of elementwise work that are read at several positions, in order; () if there are none."""
    if any(role_of(node) is not Role.ELEMENTWISE and not _moves(node) for node in candidate.nodes):
        return ()
    if any(not value.type.rank for value in candidate.outputs):
        return ()
    work: dict[Value, float] = {}
    kept: list[Value] = []
    for node in candidate.nodes:
        value, op = node.output, lookup(node.op)
        own = op.work.vectors if isinstance(op, ElementwiseOp) else 0.0
        work[value] = own + max((work.get(operand, 0.0) for operand in node.inputs), default=0.0)
        if work[value] >= _LEAST_WORK and not role_of(node).is_view and _is_read_around(value, candidate):
            kept.append(value)
            work[value] = 0.0
    return tuple(kept)


def _moves(node: Node) -> bool:
    role = role_of(node)
    return role.moves or role.is_leaf


def _is_read_around(value: Value, candidate: KernelCandidate) -> bool:
    """Whether readers move an array in several ways."""
    if not value.type.rank:
        return False
    inside = set(candidate.nodes)
    readers = [node for node in candidate.graph.users[value] if node in inside]
    return len(readers) > 1 and any(role_of(node).moves for node in readers)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a value that a tile computes: `low` to `high` beyond its first and its last one."""

    low: int
    high: int

    def around(self, other: _Rows) -> _Rows:
        return _Rows(min(self.low, other.low), max(self.high, other.high))

    @property
    def extra(self) -> int:
        return self.high - self.low


@dataclass(frozen=True, slots=True)
class Tiles:
    """How a kernel is cut."""

    kept: tuple[Value, ...]
    rows: int
    """Of outputs, in a tile."""
    beyond: Mapping[Value, _Rows]
    """Of the kept values."""

    def height(self, value: Value) -> int:
        """Rows of a value that a tile computes."""
        return self.rows + self.beyond[value].extra


def tiled_phase(
    candidate: KernelCandidate, kept: Sequence[Value], buffers: BufferTable, schedule: Schedule, shape: TileShape
) -> Phase:
    """The kernel as one phase of tiles. Raises LegalityError where a value is read at rows too far apart."""
    beyond = _find_rows(candidate, kept, shape.scalars)
    tiles = Tiles(tuple(kept), 1, beyond)
    extent = max(value.type.shape[0] for value in candidate.outputs)
    tiles = replace(tiles, rows=_tile_rows(tiles, candidate, extent, shape))
    builder = _Builder(candidate, tiles, buffers, shape.scalars)
    builder.build()
    phase = finish_phase(builder.phase.draft, [builder.block], (), None, schedule.deciding({VECTORISED: "stream"}), ())
    return replace(phase, tile=builder.block)


@dataclass(frozen=True, slots=True)
class TileShape:
    """What tiles must keep to."""

    nbytes: int
    """Most bytes of all that a tile keeps."""
    workers: int
    scalars: int
    """Most scalars of the phase."""


def _tile_rows(tiles: Tiles, candidate: KernelCandidate, extent: int, shape: TileShape) -> int:
    """Rows that pay and fit, in as many tiles for each worker, and enough of them.

    A tile computes at most as many rows beyond its own.
    """
    beyond = [rows.extra for rows in tiles.beyond.values()]
    least = min(max(1, *beyond), extent)
    paying = _LEAST_SHARE * sum(beyond) // (len(beyond) + len(candidate.outputs))
    shared = -(-extent // (_TILES_A_WORKER * shape.workers))
    rows = max(min(_fitting_rows(tiles, candidate, shape.nbytes), shared, paying), least)
    if _kept_bytes(tiles, candidate, rows) > shape.nbytes:
        raise LegalityError(f"tiles of {rows} rows keep more than {shape.nbytes} bytes")
    count = -(-extent // rows)
    even = -(-count // shape.workers) * shape.workers
    return max(-(-extent // even), least)


def _fitting_rows(tiles: Tiles, candidate: KernelCandidate, nbytes: int) -> int:
    """The most rows of a tile that keeps at most so many bytes."""
    one, two = (_kept_bytes(tiles, candidate, rows) for rows in (1, 2))
    return max(1 + (nbytes - one) // max(two - one, 1), 1)


def _kept_bytes(tiles: Tiles, candidate: KernelCandidate, rows: int) -> int:
    return sum(_slot_bytes(candidate, replace(tiles, rows=rows)))


# ---- which rows of a kept value a tile needs -------------------------------------------------------------------------


def _find_rows(candidate: KernelCandidate, kept: Sequence[Value], scalars: int) -> Mapping[Value, _Rows]:
    """For each kept value the rows that tiles of one row need of it."""
    one = Tiles(tuple(kept), 1, dict.fromkeys(kept, _Rows(0, 0)))
    readers = _Builder(candidate, one, BufferTable(), scalars, dry=True)
    readers.build()
    found: dict[Value, _Rows] = {}
    for value in reversed(kept):
        for reader, low, high in readers.read[value]:
            base = _Rows(0, 0) if reader is None else found[reader]
            rows = _Rows(base.low + low, base.high + high)
            found[value] = rows if value not in found else found[value].around(rows)
    return found


class _Builder:
    """Writes the stages: kept values in order, then what is stored."""

    def __init__(
        self, candidate: KernelCandidate, tiles: Tiles, buffers: BufferTable, scalars: int, *, dry: bool = False
    ) -> None:
        """`dry`: only to see which rows are read."""
        self.candidate, self.tiles, self.buffers, self.dry = candidate, tiles, buffers, dry
        if dry:
            for value in (*candidate.inputs, *candidate.outputs):
                buffers.add_value(value, Space.INPUT)
        self.phase = PhaseBuilder(candidate, Dimensions((), ()), (), buffers, {}, None)
        self.phase.draft.limit = scalars
        extent = max(value.type.shape[0] for value in candidate.outputs)
        self.block = Symbol("b", -(-extent // tiles.rows))
        self.read: dict[Value, list[tuple[Value | None, int, int]]] = {value: [] for value in tiles.kept}
        """By kept value: who reads it (None: an output), and from which row to which, seen from the reader's own."""
        self._reader: Value | None = None
        self._slots: dict[Value, str] = {}
        if not dry:
            self._slots = _slots(candidate, tiles, buffers)

    def build(self) -> None:
        for level, value in enumerate(self.tiles.kept):
            self._reader = value
            self._write(level, value, self.tiles.beyond[value], output=False)
            self.phase.row_results[value] = self._reading(value)
        self._reader = None
        for number, value in enumerate(self.candidate.outputs):
            self._write(len(self.tiles.kept) + number, value, _Rows(0, 0), output=True)

    def _write(self, level: int, value: Value, rows: _Rows, *, output: bool) -> None:
        """The stage that computes a value's rows of a tile."""
        shape = value.type.shape
        row = Symbol(f"r{level}", self.tiles.rows + rows.extra)
        others = [Symbol(f"k{level}_{axis}", extent) for axis, extent in enumerate(shape[1:], 1)]
        stage = self.phase.draft.stage(level, (row, *(symbol for symbol in others if symbol.extent != 1)))
        position = index.of(self.block) * self.tiles.rows + index.of(row) + rows.low
        columns = [index.of(symbol) if symbol.extent != 1 else Affine() for symbol in others]
        guard = self._inside(stage, position, shape[0])
        scalar = self.phase.value(stage, value, (position, *columns), guard)
        if self.dry:
            return
        if output:
            offset = index.linearize((position, *columns), shape)
            stage.body.append(Store(self.buffers.of(value).name, offset, scalar, guard))
        else:
            offset = index.linearize((index.of(row), *columns), _scratch_shape(value, row.extent))
            stage.body.append(Store(self._slots[value], offset, scalar))

    def _inside(self, stage: StageDraft, position: Affine, extent: int) -> Scalar | None:
        """Whether a row of the value exists; None if all rows of all tiles do."""
        test = within(position, 0, extent)
        return self.phase.test(stage, (test,)) if isinstance(test, Condition) else None

    def _reading(self, value: Value) -> RowReader:
        """How others read a value that is kept."""
        slot, kept = self._slots.get(value, ""), _scratch_shape(value, self.tiles.height(value))
        beyond, rows, block, seen = self.tiles.beyond[value], self.tiles.rows, index.of(self.block), self.read[value]

        def read(frame: PhaseFrame, stage: StageDraft, at: tuple[Affine, ...], guard: Scalar | None) -> Scalar:
            own = index.of(stage.symbols[0])
            reader = self._reader
            base = Affine() if reader is None else Affine(self.tiles.beyond[reader].low)
            apart = at[0] - block * rows - own - base
            if not apart.is_constant:
                raise LegalityError(f"%{value.name} is read at rows that are no fixed number of rows apart")
            seen.append((reader, apart.constant, apart.constant))
            if self.dry:
                return frame.constant(stage, value.type.dtype, False if value.type.dtype.kind == "bool" else 0)
            row = at[0] - block * rows - beyond.low
            offset = index.linearize((row, *at[1:]), kept)
            return frame.load_at(stage, slot, value.type.dtype, offset, guard)

        return read


# ---- where kept values lie -------------------------------------------------------------------------------------------


def _scratch_shape(value: Value, height: int) -> tuple[int, ...]:
    """So many rows of a value in scratch, whose innermost lines are whole cache lines."""
    shape, size = (height, *value.type.shape[1:]), value.type.dtype.itemsize
    if len(shape) == 1 or shape[-1] * size < _LEAST_LINES * _LINE_BYTES:
        return shape
    whole = max(_LINE_BYTES // size, 1)
    return (*shape[:-1], -(-shape[-1] // whole) * whole)


def _lifetimes(candidate: KernelCandidate, kept: Sequence[Value]) -> Mapping[Value, int]:
    """For each kept value the last stage that reads it: the number of a kept value, or as many as there are."""
    producers = {value: node for node in candidate.nodes for value in node.outputs}
    last: dict[Value, int] = {}
    places = {value: number for number, value in enumerate(kept)}
    for root, number in [*places.items(), *((value, len(kept)) for value in candidate.outputs)]:
        todo = [root] if root not in places or number == len(kept) else list(producers[root].inputs)
        seen: set[Value] = set()
        while todo:
            value = todo.pop()
            if value in seen:
                continue
            seen.add(value)
            if value in places:
                last[value] = max(last.get(value, 0), number)
            elif value in producers:
                todo += producers[value].inputs
    return last


def _assigned(candidate: KernelCandidate, tiles: Tiles) -> list[tuple[DType, int, list[Value]]]:
    """Buffers of a dtype and so many elements, and the kept values that lie in each, one after another."""
    last = _lifetimes(candidate, tiles.kept)
    found: list[tuple[DType, int, list[Value]]] = []
    for number, value in enumerate(tiles.kept):
        size = math.prod(_scratch_shape(value, tiles.height(value)))
        free = (n for n, (dtype, _, held) in enumerate(found) if dtype == value.type.dtype and last[held[-1]] < number)
        place = next(free, None)
        if place is None:
            found.append((value.type.dtype, size, [value]))
        else:
            dtype, before, held = found[place]
            found[place] = dtype, max(before, size), [*held, value]
    return found


def _slot_bytes(candidate: KernelCandidate, tiles: Tiles) -> list[int]:
    return [dtype.itemsize * size for dtype, size, _ in _assigned(candidate, tiles)]


def _slots(candidate: KernelCandidate, tiles: Tiles, buffers: BufferTable) -> dict[Value, str]:
    """The scratch of each kept value."""
    slots: dict[Value, str] = {}
    for dtype, size, held in _assigned(candidate, tiles):
        buffer = buffers.add(f"{held[0].name}.scratch", TensorType((size,), dtype), Space.SCRATCH)
        slots.update(dict.fromkeys(held, buffer.name))
    return slots
