"""How much memory moves between caches, from the accesses of loop nests, for caches of any size.

With a cache that holds what one round of a loop touches, the loop itself brings in each line it touches once: data
that several rounds share are met again before they are pushed out. So the capacity needed is that of the loop's inside,
and the traffic is the footprint of the whole loop times the rounds of the loops around it (the layer condition of
stencil models, applied to every loop).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from autofuse.cost_models.features import Reuse
from autofuse.cost_models.loopnest import LoopNest
from autofuse.cost_models.regions import LINE_BYTES, Extent, Steps, steps_of, union_of
from autofuse.ir.index import Affine, Element, Quotient, Remainder, Symbol, Variable, bounds
from autofuse.lazydataclass import dataclass
from autofuse.lower.tile import Buffer, Dot, Matrix, Phase, RowBlock, Space

_SPARSE = 4
"""Run-time positions into a range this many times larger than their number are taken to hit lines of their own."""


@dataclass(frozen=True, slots=True)
class Access:
    """A load or a store with its walk through memory."""

    buffer: Buffer
    constant: int
    """Offset of the first element."""
    terms: tuple[tuple[int, tuple[int, ...]], ...]
    """(step, for each depth the number of positions while the loops from there on run)."""
    steps: tuple[Steps, ...]
    """For each depth, the region that it walks through while the loops from there on run."""
    depth: int
    """Loops that move it; it runs once per round of the innermost of these."""
    write: bool
    exact: bool
    """It certainly happens at every position: no mask, no run-time position, no quotient."""
    most: tuple[int, ...] | None = None
    """For run-time positions: for each depth, how often it happens while the loops from there on run."""
    copies: int = 1
    """Copies of the buffer side by side: one per lane for the scratch of grid points that share a vector."""
    share: float = 1.0
    """Of the positions, where loops are cut so that the others are left out."""


def access_of(
    buffer: Buffer,
    offset: Affine,
    nest: LoopNest,
    depths: Mapping[int, int],
    write: bool,
    masked: bool,
    share: float = 1.0,
) -> Access:
    """The walk of an offset; `depths` are those of the scalars it reads as positions."""
    terms: list[tuple[int, tuple[int, ...]]] = []
    depth, exact, most = 0, not masked and nest.elements_to[-1] > 0, None
    for variable, step in offset.terms:
        counts, moved = _walk(variable, nest, depths)
        depth = max(depth, moved)
        if not isinstance(variable, Symbol):
            exact = False
        if isinstance(variable, Element):
            reach = variable.hi - variable.lo + 1
            sparse = max(abs(step), LINE_BYTES // buffer.type.dtype.itemsize)
            if reach > _SPARSE * counts[0]:
                step = sparse
            most = ()
        terms.append((step, counts))
    if most is not None:
        times = nest.elements_to[depth]
        most = tuple(int(max(times // max(entered, 1), 1)) for entered in nest.rounds_to)
    copies = nest.copies if buffer.space is Space.SCRATCH else 1
    steps = _steps(terms, nest)
    return Access(buffer, offset.constant, tuple(terms), steps, depth, write, exact, most, copies, share)


def _steps(terms: Sequence[tuple[int, tuple[int, ...]]], nest: LoopNest) -> tuple[Steps, ...]:
    """For each depth the region that terms walk through."""
    found: list[Steps] = []
    before: list[int] | None = None
    for depth in range(nest.depth + 1):
        counts = [counts[depth] for _, counts in terms]
        found.append(found[-1] if counts == before else steps_of(zip([step for step, _ in terms], counts, strict=True)))
        before = counts
    return tuple(found)


def _walk(variable: Variable, nest: LoopNest, depths: Mapping[int, int]) -> tuple[tuple[int, ...], int]:
    """For each depth the values an variable takes, and the number of loops up to the one that moves it."""
    match variable:
        case Symbol():
            spans = nest.spans.get(variable)
            if spans is None:
                return (variable.extent,) * (nest.depth + 1), 0
            return spans, nest.positions[variable] + 1
        case Quotient(inner, divisor):
            spans, depth = _spread(inner, nest, depths)
            return tuple(-(-(span - 1) // divisor) + 1 for span in spans), depth
        case Remainder(inner, divisor):
            spans, depth = _spread(inner, nest, depths)
            return tuple(min(span, divisor) for span in spans), depth
        case Element(source, _, lo, hi):
            depth = depths.get(int(source), nest.depth)
            reach = hi - lo + 1
            runs = nest.elements_to[depth]
            return tuple(int(min(reach, max(runs // max(n, 1), 1))) for n in nest.rounds_to), depth


def _spread(value: Affine, nest: LoopNest, depths: Mapping[int, int]) -> tuple[tuple[int, ...], int]:
    """For each depth the length of the interval that an expression covers."""
    spread = [1] * (nest.depth + 1)
    depth = 0
    for variable, step in value.terms:
        counts, moved = _walk(variable, nest, depths)
        depth = max(depth, moved)
        for d, count in enumerate(counts):
            spread[d] += abs(step) * (count - 1)
    lo, hi = bounds(value)
    return tuple(min(length, hi - lo + 1) for length in spread), depth


def dot_accesses(dot: Dot, phase: Phase, nest: LoopNest, buffers: Mapping[str, Buffer]) -> list[Access]:
    """The three matrices of a product that runs once per grid point or row block."""
    row_block = phase.row_block
    return [
        _matrix_access(buffers[dot.lhs.buffer], dot.lhs, (dot.rows, dot.depth), row_block, nest, write=False),
        _matrix_access(buffers[dot.rhs.buffer], dot.rhs, (dot.depth, dot.columns), None, nest, write=False),
        _matrix_access(buffers[dot.out.buffer], dot.out, (dot.rows, dot.columns), row_block, nest, write=True),
    ]


def _matrix_access(
    buffer: Buffer, matrix: Matrix, shape: tuple[int, int], row_block: RowBlock | None, nest: LoopNest, *, write: bool
) -> Access:
    rows: tuple[int, ...] = (shape[0],) * (nest.depth + 1)
    terms: list[tuple[int, tuple[int, ...]]] = []
    exact = True
    for variable, step in matrix.offset.terms:
        counts, _ = _walk(variable, nest, {})
        exact = exact and isinstance(variable, Symbol)
        if row_block is not None and variable == row_block.symbol:
            rows = nest.spans[row_block.symbol]
        elif row_block is None or variable != row_block.local:
            terms.append((step, counts))
    terms.append((matrix.row_stride, rows))
    terms.append((matrix.column_stride, (shape[1],) * (nest.depth + 1)))
    return Access(buffer, matrix.offset.constant, tuple(terms), _steps(terms, nest), nest.depth, write, exact)


# ---- footprints --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Group:
    """Accesses that walk alike."""

    buffer: Buffer
    steps: Steps
    offsets: list[int]
    reads: int = 0
    """How often the region is read from its start."""
    writes: int = 0
    copies: int = 1
    exact: bool = False
    most: int | None = None
    """Accesses per entry, where positions are known at run time only."""
    share: float = 0.0
    """Of the region that is touched at all."""

    def extent(self) -> Extent:
        extent = union_of(self.steps, self.offsets, self.buffer.type.dtype.itemsize)
        if self.most is None or self.most * LINE_BYTES >= extent.line_bytes:
            return extent
        return Extent(min(extent.elements, self.most), 1, self.most * LINE_BYTES)


def _grouped(accesses: Sequence[Access], nest: LoopNest, depth: int) -> list[_Group]:
    found: dict[tuple[str, Steps], _Group] = {}
    rounds = nest.rounds_to
    for access in accesses:
        steps = access.steps[depth]
        key = (access.buffer.name, steps)
        group = found.get(key)
        if group is None:
            group = found[key] = _Group(access.buffer, steps, [], copies=access.copies)
        if access.constant not in group.offsets:
            group.offsets.append(access.constant)
        times = rounds[min(depth, access.depth)]
        if access.write:
            group.writes = max(group.writes, times)
        else:
            group.reads = max(group.reads, times)
        group.exact = group.exact or access.exact
        group.share = max(group.share, access.share)
        if access.most is not None:
            group.most = (group.most or 0) + access.most[depth]
    return list(found.values())


@dataclass(frozen=True, slots=True)
class Moved:
    """What one loop level moves: bytes of cache lines."""

    footprint: int
    """Cache that holds what is touched per entry of the loops, scratch included."""
    read: int
    """Over all entries."""
    written: int


def moved_at(accesses: Sequence[Access], nest: LoopNest, depth: int, scratch_stays: bool) -> Moved:
    """The footprint of loops `depth`, `depth` + 1, ... and what they move in all their entries.

    `scratch_stays`: in the worker's cache from one grid point to the next, so that it moves nothing.
    """
    per_buffer: dict[str, list[float]] = {}
    for group in _grouped(accesses, nest, depth):
        extent = group.extent()
        size = extent.line_bytes * group.copies * group.share
        total = per_buffer.setdefault(group.buffer.name, [0.0, 0.0, 0.0, 0.0, 1.0])
        total[0] += size
        total[4] = max(total[4], extent.crowding)
        if not scratch_stays or group.buffer.space is not Space.SCRATCH:
            total[1] += size * group.reads
            total[2] += size * group.writes
        total[3] = (group.buffer.type.nbytes + LINE_BYTES) * group.copies
    footprint = read = written = 0.0
    for touched, reads, writes, most, crowding in per_buffer.values():
        scale = min(1.0, most / touched) if touched else 0.0
        footprint += touched * scale * crowding
        read, written = read + reads * scale, written + writes * scale
    return Moved(int(footprint), int(read), int(written))


def levels_between(
    accesses: Sequence[Access], nest: LoopNest, outer: int, inner: int, *, scratch_stays: bool, innermost: bool = False
) -> Reuse:
    """The reuse of loops `outer` to `inner` - 1; without loops, of one pass. `innermost`: no loop is inside these."""
    if outer >= inner:
        moved = moved_at(accesses, nest, outer, scratch_stays)
        return Reuse(((moved.footprint, moved.read, moved.written),))
    at = [moved_at(accesses, nest, depth, scratch_stays) for depth in range(outer, inner + 1)]
    levels = [(inside.footprint, whole.read, whole.written) for whole, inside in pairwise(at)]
    if innermost:  # a cache that holds not even one round meets nothing again
        levels.append((0, at[-1].read, at[-1].written))
    return Reuse(tuple(levels))


@dataclass(frozen=True, slots=True)
class Touched:
    """What a kernel does with one buffer, at least and at most once per element. Bytes."""

    read_lines: int
    written_lines: int
    least_read: int
    least_written: int


def touched_by(accesses: Sequence[Access], nest: LoopNest) -> dict[str, Touched]:
    """Per global buffer, the lines and the elements that accesses certainly touch."""
    found: dict[str, Touched] = {}
    for write in (False, True):
        for group in _grouped([a for a in accesses if a.write is write], nest, 0):
            buffer = group.buffer
            if buffer.space is Space.SCRATCH:
                continue
            extent = group.extent()
            least = _least_elements(group) * buffer.type.dtype.itemsize
            touched = max(int(extent.line_bytes * group.share), least)
            before = found.get(buffer.name, Touched(0, 0, 0, 0))
            most = -(-buffer.type.nbytes // LINE_BYTES) * LINE_BYTES
            if write:
                lines = min(before.written_lines + touched, most)
                after = Touched(before.read_lines, lines, before.least_read, max(before.least_written, least))
            else:
                lines = min(before.read_lines + touched, most)
                after = Touched(lines, before.written_lines, max(before.least_read, least), before.least_written)
            found[buffer.name] = after
    return found


def _least_elements(group: _Group) -> int:
    """Elements that one access of the group touches for certain."""
    size = group.buffer.type.size
    if not group.exact:
        return min(1, size)
    distinct = union_of(group.steps, group.offsets[:1], group.buffer.type.dtype.itemsize).elements
    return min(distinct, size)
