"""How much memory moves between caches, from the accesses of loop nests, for caches of any size.

With a cache that holds what one round of a loop touches, the loop itself brings in each line it touches once: data
that several rounds share are met again before they are pushed out. So the capacity needed is that of the loop's inside,
and the traffic is the footprint of the whole loop times the rounds of the loops around it (the layer condition of
stencil models, applied to every loop).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from autofuse.cost_models.features import Reuse
from autofuse.cost_models.loopnest import LoopNest
from autofuse.cost_models.regions import LINE_BYTES, Extent, Steps, extent_of, steps_of, union_of
from autofuse.ir.index import Affine, Element, Quotient, Remainder, Symbol, Variable, bounds, is_static
from autofuse.lower.tile import Buffer, Dot, Matrix, Phase, RowBlock, Space

_SPARSE = 4
"""Run-time positions into a range this many times larger than their number are taken to hit lines of their own."""


class Walk(NamedTuple):
    """How a position moves with the loops around it."""

    steps: tuple[Steps, ...]
    """For each depth, the region that it walks through while the loops from there on run."""
    depth: int
    """Loops that move it; an access runs once per round of the innermost of these."""
    innermost: int | None
    """The innermost loop that moves it, of those that go round; None for none."""
    longest: int
    """Elements that its longest step in a round of this loop skips."""
    moved: int
    """Of a sum of loops: loops up to the one in whose rounds it takes new values."""
    stride: int
    """Of a sum of loops: elements between neighbouring lanes."""


class Access(NamedTuple):
    """A load or a store with its walk through memory."""

    buffer: Buffer
    constant: int
    """Offset of the first element."""
    walk: Walk
    write: bool
    exact: bool
    """It certainly happens at every position: no mask, no run-time position, no quotient."""
    most: tuple[int, ...] | None = None
    """For run-time positions: for each depth, the lines that it meets at most while the loops from there on run."""
    copies: int = 1
    """Copies of the buffer side by side: one per lane for the scratch of grid points that share a vector."""
    share: float = 1.0
    """Of the positions, where loops are cut so that the others are left out."""


def exact_walk(offset: Affine, nest: LoopNest) -> Walk | None:
    """The walk of an offset that is a sum of loops alone; None for others. Equal ones are looked at once in a nest."""
    known = nest.walks.get(offset.terms)
    if known is None:
        if not is_static(offset):
            return None
        terms: list[tuple[int, tuple[int, ...]]] = []
        depth, moved, stride = 0, 0, 0
        for symbol, step in offset.terms:
            assert isinstance(symbol, Symbol)
            counts, inner = _walk(symbol, nest, {})
            terms.append((step, counts))
            depth, moved = max(depth, inner), max(moved, nest.moved_from(symbol))
            if symbol == nest.vectorised:
                stride = step
        known = nest.walks[offset.terms] = _walk_of(terms, nest, depth, moved, stride)
    return known


def _walk_of(terms: Sequence[tuple[int, tuple[int, ...]]], nest: LoopNest, depth: int, moved: int, stride: int) -> Walk:
    innermost, longest = None, 0
    for at in range(depth - 1, -1, -1):
        if nest.rounds[at] > 1:
            innermost = at
            break
    if innermost is not None:
        for step, counts in terms:
            if counts[innermost] > counts[innermost + 1] and abs(step) > longest:
                longest = abs(step)
        if nest.vectorised is not None and innermost == nest.positions[nest.vectorised]:
            longest *= nest.lanes * nest.unroll
    return Walk(_steps(terms, nest), depth, innermost, longest, moved, stride)


def exact_access(
    buffer: Buffer, offset: Affine, nest: LoopNest, walk: Walk, write: bool, masked: bool, share: float
) -> Access:
    """An access at an offset that is a sum of loops alone, with its walk."""
    copies = nest.copies if buffer.space is Space.SCRATCH else 1
    happens = not masked and nest.elements_to[-1] > 0
    return Access(buffer, offset.constant, walk, write, happens, None, copies, share)


def access_of(
    buffer: Buffer,
    offset: Affine,
    nest: LoopNest,
    depths: Mapping[int, int],
    write: bool,
    share: float,
) -> Access:
    """An access at an offset that is no sum of loops; `depths` are those of the scalars it reads as positions."""
    terms: list[tuple[int, tuple[int, ...]]] = []
    depth, most = 0, None
    known: list[tuple[int, tuple[int, ...]]] = []
    for variable, step in offset.terms:
        counts, moved = _walk(variable, nest, depths)
        depth = max(depth, moved)
        if isinstance(variable, Element):
            reach = variable.hi - variable.lo + 1
            sparse = max(abs(step), LINE_BYTES // buffer.type.dtype.itemsize)
            if reach > _SPARSE * counts[0]:
                step = sparse
            most = ()
        elif isinstance(variable, Symbol):
            known.append((step, counts))
        terms.append((step, counts))
    if most is not None:
        times = nest.elements_to[depth]
        runs = [extent_of(steps, buffer.type.dtype.itemsize) for steps in _steps(known, nest)]
        most = tuple(
            int(max(times // max(entered * run.run_elements, 1), 1)) * _run_lines(run, buffer.type.dtype.itemsize)
            for entered, run in zip(nest.rounds_to, runs, strict=True)
        )
    copies = nest.copies if buffer.space is Space.SCRATCH else 1
    walk = _walk_of(terms, nest, depth, 0, 0)
    return Access(buffer, offset.constant, walk, write, False, most, copies, share)


def _run_lines(extent: Extent, itemsize: int) -> int:
    """Lines of one run of neighbouring elements that begins anywhere on a line, at least."""
    return -(-extent.run_elements * itemsize // LINE_BYTES)


def _steps(terms: Sequence[tuple[int, tuple[int, ...]]], nest: LoopNest) -> tuple[Steps, ...]:
    """For each depth the region that terms walk through."""
    depths = nest.depth + 1
    if not terms:
        return ((),) * depths
    if len(terms) == 1:
        ((step, counts),) = terms
        size = abs(step)
        return tuple([((size, count),) if count > 1 and step else () for count in counts])
    ordered = sorted([(abs(step), counts) for step, counts in terms if step])
    sizes = {size for size, _ in ordered}
    if len(sizes) == len(ordered):
        return tuple([tuple([(size, counts[d]) for size, counts in ordered if counts[d] > 1]) for d in range(depths)])
    return tuple([steps_of([(size, counts[d]) for size, counts in ordered]) for d in range(depths)])


def _walk(variable: Variable, nest: LoopNest, depths: Mapping[int, int]) -> tuple[tuple[int, ...], int]:
    """For each depth the values an variable takes, and the number of loops up to the one that moves it."""
    match variable:
        case Symbol():
            spans = nest.spans.get(variable)
            return (
                ((variable.extent,) * (nest.depth + 1), 0) if spans is None else (spans, nest.positions[variable] + 1)
            )
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
    walk = _walk_of(terms, nest, nest.depth, 0, 0)
    return Access(buffer, matrix.offset.constant, walk, write, exact)


# ---- footprints --------------------------------------------------------------------------------------------------


class _Group:
    """Accesses that walk alike."""

    __slots__ = ("buffer", "copies", "most", "offsets", "reads", "share", "steps", "writes")

    def __init__(self, access: Access, steps: Steps) -> None:
        self.buffer, self.steps, self.copies = access.buffer, steps, access.copies
        self.offsets = [access.constant]
        self.reads = self.writes = 0
        """How often the region is read from its start, and written."""
        self.most: int | None = None
        """Lines per entry, where positions are known at run time only."""
        self.share = access.share
        """Of the region that is touched at all."""

    def add(self, access: Access, depth: int) -> None:
        """Count another access."""
        if access.constant not in self.offsets:
            self.offsets.append(access.constant)
        if access.share > self.share:
            self.share = access.share
        if access.most is not None:
            self.most = (self.most or 0) + access.most[depth]

    def extent(self) -> Extent:
        extent = union_of(self.steps, self.offsets, self.buffer.type.dtype.itemsize)
        if self.most is None or self.most * LINE_BYTES >= extent.line_bytes:
            return extent
        return Extent(min(extent.elements, self.most), 1, self.most * LINE_BYTES, self.most)


def _grouped(accesses: Iterable[Access], nest: LoopNest, depth: int) -> Iterable[_Group]:
    found: dict[tuple[str, Steps], _Group] = {}
    rounds = nest.rounds_to
    for access in accesses:
        walk = access.walk
        steps = walk.steps[depth]
        key = (access.buffer.name, steps)
        group = found.get(key)
        if group is None:
            group = found[key] = _Group(access, steps)
            group.most = None if access.most is None else access.most[depth]
        else:
            group.add(access, depth)
        times = rounds[depth if depth < walk.depth else walk.depth]
        if access.write:
            if times > group.writes:
                group.writes = times
        elif times > group.reads:
            group.reads = times
    return found.values()


class Moved(NamedTuple):
    """What one loop level moves: bytes of cache lines."""

    footprint: int
    """Cache that holds what is touched per entry of the loops, scratch included."""
    read: int
    """Over all entries."""
    written: int


_Sum = tuple[float, float, float, int, float]
"""Of one buffer: bytes touched, read and written, most that it has, and how its lines crowd."""


def moved_at(accesses: Sequence[Access], nest: LoopNest, depth: int, scratch_stays: bool) -> Moved:
    """The footprint of loops `depth`, `depth` + 1, ... and what they move in all their entries.

    `scratch_stays`: in the worker's cache from one grid point to the next, so that it moves nothing.
    """
    per_buffer: dict[str, _Sum] = {}
    for group in _grouped(accesses, nest, depth):
        buffer = group.buffer
        if group.most is None and len(group.offsets) == 1:
            extent = extent_of(group.steps, buffer.type.dtype.itemsize)
        else:
            extent = group.extent()
        size = extent.line_bytes * group.copies * group.share
        stays = scratch_stays and buffer.space is Space.SCRATCH
        read, written = (0.0, 0.0) if stays else (size * group.reads, size * group.writes)
        before = per_buffer.get(buffer.name)
        crowding = extent.crowding
        if before is not None:
            size, read, written = before[0] + size, before[1] + read, before[2] + written
            crowding = max(before[4], crowding)
        per_buffer[buffer.name] = size, read, written, (buffer.type.nbytes + LINE_BYTES) * group.copies, crowding
    footprint = all_read = all_written = 0.0
    for touched, read, written, most, crowding in per_buffer.values():
        if most >= touched > 0.0:
            footprint += touched * crowding
            all_read, all_written = all_read + read, all_written + written
        elif touched:
            scale = most / touched
            footprint += touched * scale * crowding
            all_read, all_written = all_read + read * scale, all_written + written * scale
    return Moved(int(footprint), int(all_read), int(all_written))


def _walks_alike(access: Access, depth: int) -> bool:
    """Whether a loop that goes round once adds nothing to what is walked through inside of it."""
    steps, most = access.walk.steps, access.most
    return steps[depth] == steps[depth + 1] and (most is None or most[depth] == most[depth + 1])


def levels_between(
    accesses: Sequence[Access],
    nest: LoopNest,
    outer: int,
    inner: int,
    *,
    scratch_stays: bool,
    innermost: bool = False,
    last: Moved | None = None,
) -> Reuse:
    """The reuse of loops `outer` to `inner` - 1; without loops, of one pass.

    `innermost`: no loop is inside these. `last`: what is moved inside all of them, if that is known.
    """
    if outer >= inner:
        moved = moved_at(accesses, nest, outer, scratch_stays) if last is None else last
        return Reuse(((moved.footprint, moved.read, moved.written),))
    at = [moved_at(accesses, nest, inner, scratch_stays) if last is None else last]
    for depth in range(inner - 1, outer - 1, -1):
        alike = nest.rounds[depth] == 1 and all(_walks_alike(access, depth) for access in accesses)
        at.insert(0, at[0] if alike else moved_at(accesses, nest, depth, scratch_stays))
    levels = [(inside.footprint, whole.read, whole.written) for whole, inside in pairwise(at)]
    if innermost:  # a cache that holds not even one round meets nothing again
        levels.append((0, at[-1].read, at[-1].written))
    return Reuse(tuple(levels))


class Touched(NamedTuple):
    """What a kernel does with one buffer, at least and at most once per element. Bytes."""

    read_lines: int
    written_lines: int
    least_read: int
    least_written: int


def touched_by(accesses: Iterable[Access]) -> dict[str, Touched]:
    """Per global buffer, the lines and the elements that accesses certainly touch."""
    alike: dict[tuple[bool, str, Steps], list[Access]] = {}
    for access in accesses:
        if access.buffer.space is not Space.SCRATCH:
            alike.setdefault((access.write, access.buffer.name, access.walk.steps[0]), []).append(access)
    found: dict[str, list[int]] = {}
    for (write, name, _), group in alike.items():
        buffer = group[0].buffer
        lines, elements = _touched(group)
        least = elements * buffer.type.dtype.itemsize
        most = -(-buffer.type.nbytes // LINE_BYTES) * LINE_BYTES
        told = found.get(name)
        if told is None:
            told = found[name] = [0, 0, 0, 0]
        told[write] = min(told[write] + max(lines, least), most)
        if least > told[2 + write]:
            told[2 + write] = least
    return {name: Touched(*told) for name, told in found.items()}


def _touched(group: Sequence[Access]) -> tuple[int, int]:
    """Bytes of lines that accesses which walk alike touch, and elements that one of them touches for certain."""
    first = group[0]
    kind, steps = first.buffer.type, first.walk.steps[0]
    one = extent_of(steps, kind.dtype.itemsize)
    together, exact = _Group(first, steps), first.exact
    together.most = None if first.most is None else first.most[0]
    for access in group[1:]:
        together.add(access, 0)
        exact = exact or access.exact
    extent = one if together.most is None and len(together.offsets) == 1 else together.extent()
    return int(extent.line_bytes * together.share), min(one.elements if exact else 1, kind.size)
