"""A straight line for a block of vectors: what all share once, and costly sides for packed elements that take them.

Between two sides the line is done for one vector after the other, a few side by side. What is read later is kept on the
stack, which the caches hold; so a block is as large as the first cache allows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

from autofuse.ir.dtypes import BOOL, DType
from autofuse.ir.index import Symbol, of, symbols_of
from autofuse.lazydataclass import dataclass, field
from autofuse.lower.raresides import Item, RareSide, with_rare_sides
from autofuse.lower.rewrite import sources
from autofuse.lower.sidesegments import Line, PackedSide, Segment, cut_at_sides
from autofuse.lower.statements import Load, Statement
from autofuse.targets.cpu.codegen.body import Accumulators, Body, varying_in
from autofuse.targets.cpu.codegen.conditions import emit_all
from autofuse.targets.cpu.codegen.packedlanes import Chosen, Kept
from autofuse.targets.cpu.codegen.values import Group, Index, Value, counted_loop
from autofuse.targets.cpu.llvmtext import FunctionText
from autofuse.targets.cpu.scalars import emit_tail_mask

BLOCK_BYTES = 24 << 10
"""Of all that a block keeps: a part of the first cache, which also holds what the block reads and writes."""


_MOST, _OF = 9, 16
"""A side is computed for all of a block where more of it take the side: to pick elements, to gather and to scatter
costs more than that spares (measured with five functions: as long at 0.57 of the elements)."""
_ALSO_KEPT = 4
"""Of a line, beside what it hands on and what sides make: places of elements, and values that later segments read."""


def vectors_in_block(sides: Collection[RareSide], carries: int, together: int, most: int, vector_bits: int) -> int:
    """How many vectors a block has, at most `most`; 0 where there are too few, or nothing that blocks are for."""
    if not sides and not carries:
        return 0
    kept = carries + sum(len(side.selects) for side in sides) + _ALSO_KEPT
    vectors = min(max(BLOCK_BYTES * 8 // (kept * vector_bits), 2), most)
    return 0 if vectors < 2 else max(vectors - vectors % together, vectors % together)


@dataclass(frozen=True, slots=True)
class Block:
    """The vectors that are walked together: those of a loop from `first` to `last`, i64 operands."""

    first: str
    last: str
    lane: Symbol
    """What lanes are positions of."""
    lanes: int
    vectors: int
    """Most vectors."""
    together: int
    """Vectors done side by side."""
    is_whole: bool
    """Whether there are no lanes beyond `last`."""
    packs: bool
    """Whether costly sides are packed; else they are as the schedule says without blocks."""


@dataclass(frozen=True, slots=True)
class Vector:
    """Where a vector is, or a packed one: lane 0, or what the lanes' order counts from."""

    position: Index
    place: Index
    """The same, counted from the block's first element."""
    active: str | None = None
    order: str = ""
    """See `Lanes.order`."""


@dataclass(slots=True)
class Room:
    """Stack space of a function for what blocks keep; blocks that follow one another share it."""

    fn: FunctionText
    _kept: dict[tuple[object, ...], Kept] = field(default_factory=dict[tuple[object, ...], Kept])
    _chosen: dict[tuple[object, ...], Chosen] = field(default_factory=dict[tuple[object, ...], Chosen])
    _flags: dict[object, str] = field(default_factory=dict[object, str])

    def kept(self, key: object, dtype: DType, lanes: int, vectors: int) -> Kept:
        """Room for a value of all elements."""
        name = key, dtype, lanes, vectors
        if name not in self._kept:
            self._kept[name] = Kept.made(self.fn, dtype, lanes, lanes * vectors)
        return self._kept[name]

    def flag(self, key: object) -> str:
        """The address of a truth of all elements."""
        if key not in self._flags:
            self._flags[key] = self.fn.alloca("i1")
        return self._flags[key]

    def chosen(self, key: object, lanes: int, vectors: int) -> Chosen:
        """Room for the elements that take a side."""
        name = key, lanes, vectors
        if name not in self._chosen:
            self._chosen[name] = Chosen.made(self.fn, lanes, vectors)
        return self._chosen[name]


@dataclass(frozen=True, slots=True)
class BlockLine:
    """Writes a straight line for one block."""

    body: Body
    block: Block
    around: Group
    """What is known around the vectors: its values are theirs, too."""
    spread: Callable[[Group, Vector], Group]
    """The group of a vector inside another group."""
    flight: Callable[[Group, Index], Accumulators]
    """What the vector at a place of the block hands on; may add values to its group."""
    room: Room

    def write(self, statements: Sequence[Statement], settled: int | None = None) -> str:
        """Append the code of one iteration of the block.

        `settled`: a scalar of it. Returns an i1 operand: whether that holds for all elements of the block.
        """
        around, wanted = self.around.nested({}), frozenset(() if settled is None else (settled,))
        sample = self.spread(around, Vector(_index(self.block.first), Index("", 0)))
        flight = self.flight(sample, Index("", 0))
        needed = self.body.needed(statements, [sample], wanted)
        varies = varying_in(needed, sample, flight)
        items = with_rare_sides(needed, varies, wanted) if self.block.packs else needed
        line = cut_at_sides(items, varies, partial(is_contiguous, lane=self.block.lane, varies=varies), wanted)
        for statement in line.shared:
            self.body.statement(statement, sample, flight)
        around.values.update({number: value for number, value in sample.values.items() if not varies(number)})
        walk = _Walk(self, line, around, wanted)
        walk.write()
        return "true" if settled is None else walk.all_hold(settled)


@dataclass(slots=True)
class _Walk:
    """Walks the segments of a line, and its sides."""

    owner: BlockLine
    line: Line
    around: Group
    wanted: frozenset[int]
    kept: dict[int, Kept] = field(default_factory=dict[int, Kept])
    chosen: list[Chosen] = field(default_factory=list[Chosen])

    @property
    def _fn(self) -> FunctionText:
        return self.owner.body.fn

    def write(self) -> None:
        """Append all of it."""
        block = self.owner.block
        for number in self._asked():
            self._fn.line(f"store i1 true, ptr {self.owner.room.flag(number)}")
        for segment in self.line.segments:
            if segment.packed is not None:
                side = segment.packed.side
                self.chosen.append(self.owner.room.chosen((side.condition, side.where), block.lanes, block.vectors))
                self.chosen[-1].clear(self._fn)
            self._vectors(partial(self._segment, segment))
            if segment.packed is not None:
                self._packed(segment.packed)

    def all_hold(self, number: int) -> str:
        """Whether a wanted scalar holds for all elements: an i1 operand."""
        if number in self.around.values:
            return self.around.values[number].name
        return self._fn.emit(f"load i1, ptr {self.owner.room.flag(number)}")

    def _asked(self) -> list[int]:
        """The wanted scalars in which elements differ."""
        return [number for number in self.wanted if number not in self.around.values]

    def _vectors(self, inside: Callable[[Sequence[Vector]], None]) -> None:
        """Run `inside` for all vectors of the block: some side by side, then one by one, the last one masked."""
        fn, block = self._fn, self.owner.block
        step = block.lanes * block.together
        length = fn.emit(f"sub nuw nsw i64 {block.last}, {block.first}")
        rest = fn.emit(f"urem i64 {length}, {step}")
        middle = fn.emit(f"sub nuw nsw i64 {length}, {rest}")
        with counted_loop(fn, "0", middle, step, nonempty=False, as_written=True) as place:
            inside([self._at(place, number * block.lanes, None) for number in range(block.together)])
        with counted_loop(fn, middle, length, block.lanes, nonempty=False, as_written=True) as place:
            active = None
            if not block.is_whole:
                active = emit_tail_mask(fn, fn.emit(f"sub nsw i64 {length}, {place}"), block.lanes)
            inside([self._at(place, 0, active)])

    def _at(self, place: str, addend: int, active: str | None) -> Vector:
        first = self.owner.block.first
        position = self._fn.emit(f"add nuw nsw i64 {first}, {place}") if first != "0" else place
        return Vector(Index(position, addend), Index(place, addend), active)

    def _segment(self, segment: Segment, vectors: Sequence[Vector]) -> None:
        body, groups = self.owner.body, [self.owner.spread(self.around, vector) for vector in vectors]
        for group, vector in zip(groups, vectors, strict=True):
            group.scalars = groups[0].scalars
            self._read(segment, group, vector)
        flights = [self.owner.flight(group, vector.place) for group, vector in zip(groups, vectors, strict=True)]
        items: Sequence[Item] = segment.statements
        if not self.owner.block.packs:
            items = body.items(segment.statements, groups[0], flights[0], self.wanted)
        body.interleave(segment.statements, items, groups, flights)
        for group, vector in zip(groups, vectors, strict=True):
            self._keep(segment, group, vector)
        for number in self._asked() if segment.packed is None else ():
            flag, every = self.owner.room.flag(number), emit_all(self._fn, number, groups)
            seen = self._fn.emit(f"load i1, ptr {flag}")
            self._fn.line(f"store i1 {self._fn.emit(f'and i1 {seen}, {every}')}, ptr {flag}")

    def _read(self, segment: Segment, group: Group, vector: Vector) -> None:
        place = vector.place
        for number in segment.reads:
            group.values[number] = self.kept[number].load(self._fn, place.base, place.addend)
        for number, at in segment.conditions:
            flags = self.chosen[at].flags(self._fn, place.base, place.addend)
            side = self.line.segments[at].packed
            if side is not None and not side.side.where:
                flags = self._not(flags)
            group.values[number] = Value(flags, BOOL, varying=True)

    def _keep(self, segment: Segment, group: Group, vector: Vector) -> None:
        fn, place = self._fn, vector.place
        for number in segment.keeps:
            self._room(number, group.values[number].dtype).store(fn, place.base, place.addend, group.vector(fn, number))
        if segment.packed is None:
            return
        side, lanes = segment.packed.side, self.owner.block.lanes
        flags = group.vector(fn, side.condition)
        flags = flags if side.where else self._not(flags)
        if group.active is not None:
            flags = fn.emit(f"and <{lanes} x i1> {flags}, {group.active}")
        self.chosen[-1].add(fn, flags, place.base, place.addend)

    def _packed(self, packed: PackedSide) -> None:
        """A side, for a vector of the elements that take it at a time; for all of the block if most of it does."""
        fn, chosen = self._fn, self.chosen[-1]
        dense, sparse, behind = fn.label("dense"), fn.label("sparse"), fn.label("behind")
        fn.branch_if(self._mostly(chosen), dense, sparse)
        fn.block(dense)
        self._vectors(partial(self._dense_side, packed))
        fn.branch(behind)
        fn.block(sparse)
        chosen.each(fn, lambda places: self._side(packed, places))
        fn.branch(behind)
        fn.block(behind)

    def _mostly(self, chosen: Chosen) -> str:
        """Whether so many elements are chosen that to pick them costs more than to compute the side for all: an i1."""
        fn, block = self._fn, self.owner.block
        length = fn.emit(f"sub nuw nsw i64 {block.last}, {block.first}")
        some, most = (fn.emit(f"mul i64 {n}, {by}") for n, by in ((chosen.found(fn), _OF), (length, _MOST)))
        return fn.emit(f"icmp ugt i64 {some}, {most}")

    def _side(self, packed: PackedSide, places: str) -> None:
        fn = self._fn
        group = self.owner.spread(self.around, Vector(_index(self.owner.block.first), Index("", 0), None, places))
        for number in packed.gathered:
            group.values[number] = self.kept[number].gather(fn, places)
        self._inside(packed, [group])
        for number in packed.results:
            self._room(number, group.values[number].dtype).scatter(fn, places, group.vector(fn, number))

    def _dense_side(self, packed: PackedSide, vectors: Sequence[Vector]) -> None:
        fn, groups = self._fn, [self.owner.spread(self.around, vector) for vector in vectors]
        for group, vector in zip(groups, vectors, strict=True):
            group.scalars = groups[0].scalars
            for number in packed.gathered:
                group.values[number] = self.kept[number].load(fn, vector.place.base, vector.place.addend)
        self._inside(packed, groups)
        for group, vector in zip(groups, vectors, strict=True):
            for number in packed.results:
                room, value = self._room(number, group.values[number].dtype), group.vector(fn, number)
                room.store(fn, vector.place.base, vector.place.addend, value)

    def _inside(self, packed: PackedSide, groups: Sequence[Group]) -> None:
        side, statements = packed.side, (*packed.again, *packed.side.inside)
        for group in groups:
            group.values[side.condition] = Value("true" if side.where else "false", BOOL, varying=False)
        self.owner.body.interleave(statements, statements, groups, [{} for _ in groups])

    def _room(self, number: int, dtype: DType) -> Kept:
        block = self.owner.block
        self.kept[number] = self.owner.room.kept(number, dtype, block.lanes, block.vectors)
        return self.kept[number]

    def _not(self, flags: str) -> str:
        return self._fn.emit(f"xor <{self.owner.block.lanes} x i1> {flags}, splat (i1 true)")


def _index(operand: str) -> Index:
    return Index(operand) if operand.startswith("%") else Index("", int(operand))


def is_contiguous(load: Load, lane: Symbol, varies: Callable[[int], bool]) -> bool:
    """Whether a load takes neighbouring elements, which the caches still have."""
    step = load.offset.coefficient(lane)
    rest = load.offset - of(lane) * step
    return abs(step) <= 1 and lane not in symbols_of(rest) and not any(map(varies, sources(load.offset)))
