"""Elementwise kernels that read in one order and write in another: how they are cut into tiles in shared memory.

Neighbouring threads walk along `columns`, as what is read or written directly asks for. Some accesses have their
neighbours along `rows` instead. These go through a tile: threads that walk the other way copy it in before, or out
after. Both ways then ask memory for whole sectors:

    before                                  after, for a tile of 64 x 64
    y[n*i + j] = x[m*j + i] + 1             tile[j][i] = x[m*j + i]        neighbours along i
                                            __syncthreads()
                                            y[n*i + j] = tile[j][i] + 1    neighbours along j

Rows of a tile are padded, and lanes are laid out, so that few words of one bank are asked for at once: what is tried is
counted (`wavefronts`), not reasoned about.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from autofuse.ir import index
from autofuse.ir.index import Affine, Symbol
from autofuse.lazydataclass import dataclass
from autofuse.lower.rewrite import operands
from autofuse.lower.schedule import Schedule
from autofuse.lower.statements import ArgReduce, Effect, Load, Reduce, Scalar, Scan, Statement, Store
from autofuse.lower.tile import Buffer, Phase, Space, Stage
from autofuse.targets.cuda.codegen.access import VECTOR_BYTES, is_aligned, is_unit_stride, stages_of
from autofuse.targets.cuda.decisions import THREADS

SECTOR_BYTES = 32
LEAST_POINTS = 1 << 12
"""Smaller kernels are over before their barriers pay."""
_MOST_BYTES = 48 << 10
"""Of all tiles of a block: a multiprocessor of sm_80 and later then holds three blocks at least."""
_ENOUGH_BLOCKS = 132
"""One for each multiprocessor of a large GPU; smaller tiles make more blocks."""
_WARP, _BANKS, _WORD_BYTES = 32, 32, 4
_SIDES = {1: 128, 2: 64, 4: 64, 8: 32}
"""Elements along a tile, by their bytes: at least a line of the cache."""
_LEAST_SIDE = 32


@dataclass(frozen=True, slots=True)
class Walk:
    """How the threads of a block go over a tile: warps take pieces, in which lanes lie beside and below each other."""

    length: int
    """Elements of the tile along the walk."""
    lines: int
    """And across it."""
    vector: int
    """Neighbours of one thread."""
    beside: int
    """Lanes side by side along the walk; 0: lanes follow one another from line to line."""
    shift: int = 1
    """Lines start at multiples of so many elements in memory, wherever the tile starts; then the walk starts before."""

    @property
    def steps(self) -> int:
        """Vectors of a line that are walked."""
        if self.shift > 1:
            return -(-(self.length + self.shift - 1) // _WARP) * _WARP
        return self.length // self.vector

    @property
    def lanes_below(self) -> int:
        """Lines that a warp is on at once."""
        return _WARP // self.beside if self.beside else 1

    @property
    def units(self) -> int:
        """Vectors that all threads of a block have to take."""
        return self.steps * -(-self.lines // self.lanes_below) * self.lanes_below


@dataclass(frozen=True, slots=True)
class Slot:
    """What goes through a tile of its own."""

    stage: int
    """Number of the stage that it is in."""
    access: Load | Store
    needs: tuple[Statement, ...]
    """What its mask, and the value in place of what is masked, are computed by."""
    buffer: Buffer
    pitch: int
    """Elements of the tile from one column to the next."""
    walk: Walk

    @property
    def nbytes(self) -> int:
        """Of the tile."""
        return self.pitch * self.walk.lines * self.buffer.type.dtype.itemsize


@dataclass(frozen=True, slots=True)
class TransposePlan:
    """How a phase is cut into tiles, one for each block."""

    threads: int
    rows: Symbol
    columns: Symbol
    height: int
    """Rows of a tile."""
    width: int
    """Its columns."""
    walk: Walk
    """Of what is read and written directly, along columns."""
    slots: tuple[Slot, ...]
    grid: tuple[Symbol, ...]
    """The phase's, with rows and columns replaced by tiles of them."""

    @property
    def tiles(self) -> tuple[Symbol, Symbol]:
        """The symbols that number tiles along rows and along columns."""
        return _tile("tile_row", self.rows, self.height), _tile("tile_column", self.columns, self.width)

    @property
    def inner(self) -> tuple[Symbol, Symbol]:
        """The symbols that number rows and columns inside a tile."""
        return Symbol("down", self.height), Symbol("along", self.width)

    @property
    def blocks(self) -> int:
        """One for each tile."""
        return max(1, math.prod(symbol.extent for symbol in self.grid))

    @property
    def places(self) -> dict[Symbol, Affine]:
        """Rows and columns by the tile and the place in it."""
        down, along = self.inner
        row, column = self.tiles
        return {
            self.rows: index.of(row) * self.height + index.of(down),
            self.columns: index.of(column) * self.width + index.of(along),
        }


def _tile(name: str, symbol: Symbol, size: int) -> Symbol:
    return Symbol(name, -(-symbol.extent // size))


@dataclass(frozen=True, slots=True)
class _Found:
    """An access that has its neighbours along rows."""

    stage: int
    access: Load | Store
    needs: tuple[Statement, ...]
    buffer: Buffer


def plan_transposes(
    phase: Phase, buffers: Mapping[str, Buffer], schedule: Schedule, threads: int | None
) -> TransposePlan | None:
    """The plan; None where every access has its neighbours along the last symbol, or none along another."""
    stages = list(stages_of(phase))
    grid = [symbol for symbol in phase.grid if symbol.extent > 1]
    if len(grid) < 2 or math.prod(symbol.extent for symbol in grid) < LEAST_POINTS or not all(map(_is_plain, stages)):
        return None
    if any(buffers[access.buffer].space is Space.SCRATCH for _, access in _accesses(stages)):
        return None
    columns = grid[-1]
    found = {rows: _across(stages, buffers, rows, columns) for rows in grid[:-1]}
    rows = max(found, key=lambda symbol: sum(one.buffer.type.dtype.itemsize for one in found[symbol]))
    if not found[rows]:
        return None
    side = max(_SIDES[one.buffer.type.dtype.itemsize] for one in found[rows])
    direct = [access for _, access in _accesses(stages) if all(access is not one.access for one in found[rows])]
    while True:
        plan = _plan(phase, (rows, columns), side, found[rows], direct, buffers, threads or _threads(schedule))
        if side <= _LEAST_SIDE or (plan.blocks >= _ENOUGH_BLOCKS and _nbytes(plan) <= _MOST_BYTES):
            return plan if _nbytes(plan) <= _MOST_BYTES else None
        side //= 2


def _threads(schedule: Schedule) -> int:
    return max(32, min(256, schedule[THREADS] // 32 * 32))


def _nbytes(plan: TransposePlan) -> int:
    return sum(-(-slot.nbytes // 16) * 16 for slot in plan.slots)


def _is_plain(stage: Stage) -> bool:
    """Whether it has no loops, and nothing that outlives it."""
    return not stage.symbols and not any(isinstance(s, Reduce | ArgReduce | Scan) for s in stage.body)


def _accesses(stages: Sequence[Stage]) -> Iterator[tuple[int, Load | Store]]:
    for number, stage in enumerate(stages):
        yield from ((number, s) for s in stage.body if isinstance(s, Load | Store))


def _across(stages: Sequence[Stage], buffers: Mapping[str, Buffer], rows: Symbol, columns: Symbol) -> list[_Found]:
    """Accesses whose neighbours lie along `rows`, and far along `columns`."""
    found: list[_Found] = []
    for number, access in _accesses(stages):
        offset = access.offset
        if is_unit_stride(offset, columns) or not is_unit_stride(offset, rows) or index.reads_memory(offset):
            continue
        if columns not in index.symbols_of(offset):
            continue
        needs = _needs(stages[number], access)
        if needs is not None:
            found.append(_Found(number, access, needs, buffers[access.buffer]))
    return found


def _needs(stage: Stage, access: Load | Store) -> tuple[Statement, ...] | None:
    """What computes its mask and fill without reading memory; None if that cannot be."""
    given = (access.mask, access.fill) if isinstance(access, Load) else (access.mask,)
    wanted: set[Scalar] = {number for number in given if number is not None}
    needed: list[Statement] = []
    for statement in reversed(stage.body):
        if isinstance(statement, Effect) or statement.result not in wanted:
            continue
        if isinstance(statement, Load):
            return None
        wanted.remove(statement.result)
        wanted.update(operands(statement))
        needed.append(statement)
    return None if wanted else tuple(reversed(needed))


def _plan(
    phase: Phase,
    symbols: tuple[Symbol, Symbol],
    side: int,
    found: Sequence[_Found],
    direct: Sequence[Load | Store],
    buffers: Mapping[str, Buffer],
    threads: int,
) -> TransposePlan:
    rows, columns = symbols
    height, width = _sides(rows.extent, columns.extent, side)
    plain = [access for access in direct if is_unit_stride(access.offset, columns)]
    sizes = [buffers[access.buffer].type.dtype.itemsize for access in plain]
    vector = min((_vector(a, s, columns, width) for a, s in zip(plain, sizes, strict=True)), default=1)
    stores = [pair for pair in zip(plain, sizes, strict=True) if isinstance(pair[0], Store)]
    lead = (stores or list(zip(plain, sizes, strict=True)) or [None])[0]
    itemsize = max(one.buffer.type.dtype.itemsize for one in found)
    shift = 1 if lead is None else _shift(lead[0], lead[1], columns, width, vector)
    own = max(sizes, default=itemsize)
    options = _beside(width, vector, own, shift)
    first = _slots(found, rows, height, width)
    walk = min(
        (Walk(width, height, vector, beside, shift) for beside in options),
        key=lambda walk: sum(_layout(size, way, walk)[2] for _, size, way in first),
    )
    slots: list[Slot] = []
    for one, size, way in first:
        pitch, beside, _ = _layout(size, way, walk)
        own_walk = Walk(way.length, way.lines, way.vector, beside, way.shift)
        slots.append(Slot(one.stage, one.access, one.needs, one.buffer, pitch, own_walk))
    tiles = {rows: _tile("tile_row", rows, height), columns: _tile("tile_column", columns, width)}
    grid = tuple(tiles.get(symbol, symbol) for symbol in phase.grid)
    return TransposePlan(threads, rows, columns, height, width, walk, tuple(slots), grid)


def _slots(found: Sequence[_Found], rows: Symbol, height: int, width: int) -> list[tuple[_Found, int, Walk]]:
    """Each with its element's bytes, and its walk along rows, of lanes that are not laid out yet."""
    slots: list[tuple[_Found, int, Walk]] = []
    for one in found:
        size = one.buffer.type.dtype.itemsize
        vector = _vector(one.access, size, rows, height)
        shift = _shift(one.access, size, rows, height, vector)
        slots.append((one, size, Walk(height, width, vector, 0, shift)))
    return slots


def _sides(rows: int, columns: int, side: int) -> tuple[int, int]:
    """Rows and columns of a tile: about square, longer one way where the other is short."""
    height, width = min(rows, side), min(columns, side)
    if height < side:
        width = min(columns, max(side * side // height // _WARP, 1) * _WARP)
    elif width < side:
        height = min(rows, max(side * side // width // _WARP, 1) * _WARP)
    return height, width


def _vector(access: Load | Store, itemsize: int, along: Symbol, length: int) -> int:
    """Elements that one thread reads or writes at once."""
    vector = 1 if access.mask is not None else VECTOR_BYTES // itemsize
    while vector > 1 and not (
        length % vector == 0 and along.extent % vector == 0 and is_aligned(access.offset, along, vector)
    ):
        vector //= 2
    return vector


def _shift(access: Load | Store, itemsize: int, along: Symbol, length: int, vector: int) -> int:
    """Elements of a sector, where lines of the tile start anywhere in one."""
    sector = SECTOR_BYTES // itemsize
    if vector > 1 or length % _WARP or index.reads_memory(access.offset) or is_aligned(access.offset, along, sector):
        return 1
    return sector


def _beside(length: int, vector: int, itemsize: int, shift: int) -> list[int]:
    """Layouts of lanes whose lines ask for whole sectors; 0 where none divides the line."""
    if shift > 1:
        return [_WARP]
    counts = [count for count in (32, 16, 8, 4, 2, 1) if (length // vector) % count == 0]
    return [count for count in counts if count * vector * itemsize >= SECTOR_BYTES] or [0]


def _layout(itemsize: int, way: Walk, walk: Walk) -> tuple[int, int, int]:
    """(pitch, lanes beside each other along rows, wavefronts of both ways) of the tile with fewest of these."""
    options = _beside(way.length, way.vector, itemsize, way.shift)
    return _best(itemsize, way.length, way.lines, way.vector, tuple(options), walk)


@lru_cache(maxsize=256)
def _best(
    itemsize: int, height: int, width: int, vector: int, options: tuple[int, ...], walk: Walk
) -> tuple[int, int, int]:
    def cost(pitch: int, beside: int) -> int:
        copying = _lanes(height, vector, beside)
        there = sum(wavefronts([(c * pitch + r + n) * itemsize for r, c in copying], itemsize) for n in range(vector))
        walking = _lanes(width, walk.vector, walk.beside)
        each = range(walk.vector)
        back = sum(wavefronts([((c + n) * pitch + r) * itemsize for c, r in walking], itemsize) for n in each)
        return there * walk.vector + back * vector

    ordered = walk.beside and 0 not in options
    pitches = range(height, height + 1 + (max(8, 8 // itemsize * 2) if ordered else _BANKS))
    found = min(((cost(p, b), -b, p) for p in pitches for b in options), default=(0, 0, height))
    return found[2], -found[1], found[0]


def _lanes(length: int, vector: int, beside: int) -> list[tuple[int, int]]:
    """(place along the walk, line) of each lane of a warp."""
    steps = beside or max(length // vector, 1)
    return [(lane % steps * vector, lane // steps) for lane in range(_WARP)]


def wavefronts(addresses: Sequence[int], itemsize: int) -> int:
    """How often shared memory is asked until lanes have their elements: a bank gives one word of 4 bytes each time.

    Accesses of 8 bytes go by half warps (as `autofuse.testing.simt.counters` counts).
    """
    together = _WARP if itemsize <= _WORD_BYTES else 128 // itemsize
    total = 0
    for first in range(0, len(addresses), together):
        words = {
            (address + byte) // _WORD_BYTES
            for address in addresses[first : first + together]
            for byte in range(0, itemsize, _WORD_BYTES)
        }
        banks = [word % _BANKS for word in words]
        total += max(map(banks.count, set(banks)), default=0)
    return total
