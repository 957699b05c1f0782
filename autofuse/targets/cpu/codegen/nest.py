"""A stage as a loop nest: scalar loops outside, the stage's vectorised loop inside, accumulators around."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager

from autofuse.ir.index import Symbol
from autofuse.lazydataclass import dataclass, field, replace
from autofuse.lower.sections import body_within, cone, parts_of, repeated
from autofuse.lower.sidesegments import packed_sides
from autofuse.lower.statements import ArgReduce, Leave, Next, Reduce, Repeat, Scan, Store
from autofuse.lower.tile import Stage
from autofuse.targets.cpu.codegen.accumulators import Accumulator, make_accumulator
from autofuse.targets.cpu.codegen.alignedstores import first_aligned
from autofuse.targets.cpu.codegen.argreduce import Best, make_best
from autofuse.targets.cpu.codegen.blockline import Block, BlockLine, Room, vectors_in_block
from autofuse.targets.cpu.codegen.body import Body
from autofuse.targets.cpu.codegen.carried import Carried, make_carried
from autofuse.targets.cpu.codegen.columnblocks import Columns, block_columns, column_blocks
from autofuse.targets.cpu.codegen.conditions import emit_all, used_scalars
from autofuse.targets.cpu.codegen.indexsplitting import Segments, plan_segments, whole
from autofuse.targets.cpu.codegen.runtimebounds import (
    Assumed,
    Part,
    RuntimeBounds,
    changes_anything,
    does_nothing,
)
from autofuse.targets.cpu.codegen.streaming import head_length, streamed_store, write_streamed
from autofuse.targets.cpu.codegen.values import Group, Index, Lanes, Ranges, Value, counted_loop
from autofuse.targets.cpu.codegen.widths import Widths, scalar_dtypes
from autofuse.targets.cpu.llvmtext import FunctionText
from autofuse.targets.cpu.scalars import emit_tail_mask

_ROUNDS_UNASKED = 1024
"""Iterations of a loop that data end between two questions whether to go on: a power of two."""
Flight = dict[int, Accumulator | Best | Carried]
"""The accumulators of one vector in flight, by the number of the result."""


def make_accumulators(fn: FunctionText, stage: Stage, group: Group, count: int = 1) -> Flight:
    """Stack space for what the stage reduces, for `count` vectors like `group`."""
    dtypes = scalar_dtypes((stage,), group.values)
    along = group.lanes.symbol in stage.symbols
    flight: Flight = {}
    for s in stage.body:
        match s:
            case Reduce() | Scan():
                flight[s.result] = make_accumulator(fn, s, group.lanes.count, count, along=along)
            case ArgReduce():
                flight[s.result] = make_best(fn, s, dtypes[s.operand], stage, group, count)
            case _:
                pass
    flight.update(make_carried(fn, stage, group, count))
    return flight


@dataclass(frozen=True, slots=True)
class Nest:
    """Writes stages of one phase."""

    body: Body
    widths: Widths
    room: Room
    """For what blocks keep."""
    bounds: RuntimeBounds = field(default_factory=RuntimeBounds)
    """Where loops end that the run decides."""

    def write(self, stage: Stage, groups: Sequence[Group]) -> None:
        """Append the stage for all of `groups`; what it reduced lands in their values."""
        vectorised = stage.vectorised if stage.vectorised is not None and groups[0].lanes.count == 1 else None
        count, unroll = self.widths.of_stage(stage) if vectorised is not None else (1, 1)
        if count == 1:
            vectorised = None
        loop = _StageLoop(
            body=self.body,
            widths=self.widths,
            stage=stage,
            vectorised=vectorised,
            count=count,
            unroll=unroll,
            segments={} if groups[0].masked else self._split(stage, vectorised, count),
            left=self.body.fn.label("left") if _ends_by_data(stage) else "",
            nest=self,
        )
        flights = loop.start(groups)
        if all(symbol.extent for symbol in stage.symbols) and changes_anything(stage, groups[0]):
            loop.write_all(groups, flights)
        if loop.left:
            self.body.fn.enter(loop.left)
        loop.finish(groups, flights)

    def parts_of(self, stage: Stage, symbol: Symbol, within: tuple[int, int], group: Group) -> Iterator[Part]:
        """The parts of a stage's loop, of which this is all or a segment, where iterations change anything."""
        ends, ranges = (str(within[0]), str(within[1])), {**group.ranges, symbol: (within[0], within[1] - 1)}
        if stage.is_ordered:
            return iter((Part(*ends, group.assumed),))
        return self.bounds.parts(
            self.body.fn, symbol, ends, group, lambda assumed: not does_nothing(stage, ranges, assumed)
        )

    @staticmethod
    def _split(stage: Stage, vectorised: Symbol | None, count: int) -> Mapping[Symbol, Segments]:
        # a vectorised loop of a vector or two is cheaper masked than cut
        candidates = [s for s in stage.symbols if s != vectorised or s.extent > 2 * count]
        return plan_segments((stage,), candidates)


@dataclass(frozen=True, slots=True)
class _StageLoop:
    body: Body
    widths: Widths
    stage: Stage
    vectorised: Symbol | None
    """The symbol that the stage vectorises itself; None when iterations are scalar or groups are vectors of points."""
    count: int
    unroll: int
    segments: Mapping[Symbol, Segments]
    left: str
    """The block behind the stage, where a worker goes that leaves it early; empty if none does."""
    nest: Nest
    columns: Columns | None = None
    """Where the vectorised loop runs, if it is walked in blocks outside of the others."""

    @property
    def fn(self) -> FunctionText:
        return self.body.fn

    @property
    def order(self) -> tuple[Symbol, ...]:
        """The scalar loops, outermost first."""
        return tuple(symbol for symbol in self.stage.symbols if symbol != self.vectorised)

    def start(self, groups: Sequence[Group]) -> list[Flight]:
        """Accumulators: one set per vector in flight when the vectors are the stage's, else one per group."""
        owners = list(groups) if self.vectorised is None else [groups[0]] * self.unroll
        if self.stage.before:
            self.body.write(self.stage.before, owners, [{} for _ in owners], used_scalars(self.stage.body))
        flights = [self._flight(group) for group in owners]
        if self.vectorised is not None:
            running = {
                n: a for n, a in flights[0].items() if isinstance(a, Accumulator) and isinstance(a.statement, Scan)
            }
            for flight in flights[1:]:
                flight.update(running)
        shared = {n: a for n, a in flights[0].items() if isinstance(a, Carried) and not a.varying}
        for flight in flights[1:]:
            flight.update(shared)
        return flights

    def _flight(self, group: Group) -> Flight:
        spread = group if self.vectorised is None else group.nested({}, lanes=Lanes(self.count, self.vectorised))
        flight = make_accumulators(self.fn, self.stage, spread)
        for accumulator in flight.values():
            accumulator.start(self.fn, group)
        return flight

    def finish(self, groups: Sequence[Group], flights: Sequence[Flight]) -> None:
        """Give the reduced values to the groups."""
        for number, first in flights[0].items():
            if isinstance(first, Accumulator) and isinstance(first.statement, Scan):
                continue
            if self.vectorised is not None:
                assert not isinstance(first, Carried)
                total: Value = first.total(self.fn, [flight[number] for flight in flights])  # type: ignore[arg-type] # one kind per number
                groups[0].values[number] = total
                continue
            for group, flight in zip(groups, flights, strict=True):
                group.values[number] = flight[number].lane_values(self.fn)

    def write_all(self, groups: Sequence[Group], flights: Sequence[Flight]) -> None:
        """Append all loops: the blocks of long rows outside, if rows are walked so."""
        columns = None
        if self.vectorised is not None and not self.nest.bounds.bounds and self.body.sides != "packed":
            columns = block_columns(self.stage, self.vectorised, self.body.places, self.unroll * self.count)
        if columns is None or self.widths.stream_stores:
            self.write(self.order, groups, flights)
            return
        assert self.vectorised is not None
        for lo, hi in self.segments.get(self.vectorised, whole(self.vectorised)):
            first = first_aligned(self.stage, self.vectorised, self.count, lo, hi)
            for block in column_blocks(self.fn, (lo, first, hi), columns):
                replace(self, columns=block).write(self.order, groups, flights)

    def write(self, order: Sequence[Symbol], groups: Sequence[Group], flights: Sequence[Flight]) -> None:
        """Append the loops over `order`, then what is inside."""
        if not order:
            self._innermost(groups, flights)
            return
        symbol, inner = order[0], order[1:]
        leave = self.stage.leave
        if leave is not None and leave.required and symbol == self.order[0]:
            self._until_left(symbol, inner, groups, flights)
            return
        segments = self.segments.get(symbol, whole(symbol))
        if self.stage.sections and symbol != self.order[0]:
            self._sections(symbol, inner, groups, flights)
            return
        for lo, hi in reversed(segments) if self.stage.is_reversed else segments:
            for part in self.nest.parts_of(self.stage, symbol, (lo, hi), groups[0]):
                with self._counted_part(part, lo, hi) as position:
                    index = self._backward(position, lo + hi - 1) if self.stage.is_reversed else position
                    inside = _inside(groups, {symbol: index}, {symbol: (lo, hi - 1)}, part.assumed)
                    self.write(inner, inside, flights)

    @contextmanager
    def _counted_part(self, part: Part, lo: int, hi: int) -> Generator[Index]:
        """A loop over a part of what lies between two numbers."""
        if part.is_all(lo, hi):
            with self._counted(lo, hi, 1) as position:
                yield position
        else:
            with counted_loop(self.fn, part.start, part.stop, 1, nonempty=False) as name:
                yield Index(name)

    def _sections(
        self, symbol: Symbol, inner: Sequence[Symbol], groups: Sequence[Group], flights: Sequence[Flight]
    ) -> None:
        """Loops that follow one another: of each, what is done there; what is repeated, until it is settled."""
        for lo, hi in parts_of(self.stage, symbol):
            ranges = {**groups[0].ranges, symbol: (lo, hi - 1)}
            if not body_within(self.stage, ranges):
                continue
            again = repeated(self.stage, symbol, ranges)
            with self._counted(lo, hi, 1) as position:
                inside = _inside(groups, {symbol: position}, {symbol: (lo, hi - 1)})
                if again is None:
                    self.write(inner, inside, flights)
                    continue
                settled = self.fn.label("settled")
                self._rounds(again.settled, settled, inner, inside, flights)
                self.fn.block(settled)

    def _until_left(
        self, symbol: Symbol, inner: Sequence[Symbol], groups: Sequence[Group], flights: Sequence[Flight]
    ) -> None:
        """Iterations without a number. Nothing is read at the position of one."""
        inside = _inside(groups, {symbol: Index("", 0)}, {})
        leave = self.stage.leave
        assert leave is not None
        self._rounds(leave.settled if inner else None, self.left, inner, inside, flights)

    def _rounds(
        self,
        settled: int | None,
        done: str,
        inner: Sequence[Symbol],
        groups: Sequence[Group],
        flights: Sequence[Flight],
    ) -> None:
        """The loops over `inner` again and again, until `settled` holds, or until what is inside leaves."""
        again, latch, ask = self.fn.label("again"), self.fn.label("latch"), self.fn.label("ask")
        number, following, before = self.fn.fresh("round"), self.fn.fresh("next"), self.fn.current
        self.fn.enter(again)
        self.fn.phi("i64", [("0", before), (following, latch), (following, ask)], name=number)
        if settled is not None:
            asked, go = [group.nested({}) for group in groups], self.fn.label("go")
            self.body.write(cone(self.stage.body, settled), asked, flights, frozenset((settled,)))
            self.fn.branch_if(emit_all(self.fn, settled, asked), done, go)
            self.fn.block(go)
        self.write(inner, [group.nested({}) for group in groups], flights)
        self.fn.enter(latch)
        self.fn.emit(f"add nuw nsw i64 {number}, 1", name=following)
        since = self.fn.emit(f"and i64 {following}, {_ROUNDS_UNASKED - 1}")
        self.fn.branch_if(self.fn.emit(f"icmp eq i64 {since}, 0"), ask, again, unlikely=True)
        self.fn.block(ask)
        self.fn.branch_if(self._has_stopped(), self.left, again, unlikely=True)

    def _has_stopped(self) -> str:
        """Whether the run is to end at once, as the driver says (driver.ll): an i1. Its results are dropped then."""
        fn = self.fn
        word = fn.emit(f"load ptr, ptr {fn.emit('getelementptr inbounds ptr, ptr %buffers, i64 -1')}, align 8")
        asked = fn.emit(f"load ptr, ptr {fn.emit(f'getelementptr inbounds ptr, ptr {word}, i64 2')}, align 8")
        return fn.emit(f"icmp ne i64 {fn.emit(f'call i64 {asked}(ptr {word})')}, 0")

    def _backward(self, position: Index, total: int) -> Index:
        if not position.base:
            return Index("", total - position.addend)
        return Index(self.fn.emit(f"sub nuw nsw i64 {total}, {position.base}"))

    @contextmanager
    def _counted(self, lo: int, hi: int, step: int) -> Generator[Index]:
        """A loop over a range known to be nonempty; none at all when there is but one iteration."""
        if hi - lo <= step:
            yield Index("", lo)
            return
        with counted_loop(self.fn, str(lo), str(hi), step, nonempty=True, as_written=step > 1) as position:
            yield Index(position)

    def _innermost(self, groups: Sequence[Group], flights: Sequence[Flight]) -> None:
        if self.vectorised is None:
            self._iteration(groups, flights)
            return
        if self.columns is not None:
            self._column_block(groups[0], self.columns, flights)
            return
        segments = self.segments.get(self.vectorised, whole(self.vectorised))
        vectors = self._packed_vectors(self.vectorised)
        for lo, hi in reversed(segments) if self.stage.is_reversed else segments:
            if self.stage.is_reversed:
                self._backward_vectors(groups[0], lo, hi, flights)
            else:
                for part in self.nest.parts_of(self.stage, self.vectorised, (lo, hi), groups[0]):
                    inner = groups[0].nested({}, assumed=part.assumed)
                    if vectors:
                        self._blocks(inner, part, (lo, hi), vectors, flights)
                    elif part.is_all(lo, hi):
                        self._vectors(inner, lo, hi, flights)
                    else:
                        self._part_of_vectors(inner, part, (lo, hi), flights)

    def _column_block(self, group: Group, columns: Columns, flights: Sequence[Flight]) -> None:
        if columns.start is None:
            self._vectors(group, columns.lo, columns.hi, flights)
            return
        start, step = columns.start.base, self.unroll * self.count
        stop = self.fn.emit(f"add nuw nsw i64 {start}, {columns.count}")
        with counted_loop(self.fn, start, stop, step, nonempty=True, as_written=True) as position:
            self._full(group, Index(position), self.unroll, (columns.lo, columns.hi - 1), flights)

    def _iteration(self, groups: Sequence[Group], flights: Sequence[Flight]) -> None:
        """The body, which is left before anything is handed on."""
        if self.stage.sections:
            self.body.write(body_within(self.stage, groups[0].ranges), groups, flights)
            return
        leave = self.stage.leave
        if leave is None:
            self.body.write(self.stage.body, groups, flights)
            return
        following = [s for s in self.stage.body if isinstance(s, Next)]
        computed = [s for s in self.stage.body if not isinstance(s, Leave | Next)]
        self.body.write(computed, groups, flights, used_scalars(following) | {leave.settled})
        stay = self.fn.label("stay")
        self.fn.branch_if(emit_all(self.fn, leave.settled, groups), self.left, stay)
        self.fn.block(stay)
        self.body.write(following, groups, flights)

    def _vectors(self, group: Group, lo: int, hi: int, flights: Sequence[Flight]) -> None:
        """The vectorised loop over one segment: full vectors `unroll` at a time, then single ones, the last masked."""
        unroll = max(1, min(self.unroll, (hi - lo) // self.count))
        step = unroll * self.count
        within = lo, hi - 1
        if self.widths.stream_stores and hi - lo > 4 * step and self._streamed(group, within, unroll, flights):
            return
        assert self.vectorised is not None
        first = first_aligned(self.stage, self.vectorised, self.count, lo, hi)
        if first != lo:
            head = self._active(Index("", lo), str(first))
            self.body.write(self.stage.body, [self._spread(group, Index("", lo), within, head)], flights[:1])
            lo = first
        middle = lo + (hi - lo) // step * step
        if middle > lo:
            with self._counted(lo, middle, step) as position:
                self._full(group, position, unroll, within, flights)
        if middle < hi:
            with self._counted(middle, hi, self.count) as position:
                active: str | None = None
                if (hi - lo) % self.count:
                    active = self._active(position, str(hi))
                self.body.write(self.stage.body, [self._spread(group, position, within, active)], flights[:1])

    def _part_of_vectors(self, group: Group, part: Part, within: tuple[int, int], flights: Sequence[Flight]) -> None:
        """The same over a part whose ends are operands."""
        fn, (lo, hi) = self.fn, within
        unroll = max(1, min(self.unroll, (hi - lo) // self.count))
        step, last = unroll * self.count, (lo, hi - 1)
        length = fn.emit(f"sub nsw i64 {part.stop}, {part.start}")
        rest = fn.emit(f"urem i64 {length}, {step}")
        middle = fn.emit(f"sub nsw i64 {part.stop}, {rest}")
        with counted_loop(fn, part.start, middle, step, nonempty=False, as_written=True) as position:
            self._full(group, Index(position), unroll, last, flights)
        with counted_loop(fn, middle, part.stop, self.count, nonempty=False, as_written=True) as position:
            active = self._active(Index(position), part.stop)
            self.body.write(self.stage.body, [self._spread(group, Index(position), last, active)], flights[:1])

    def _packed_vectors(self, lane: Symbol) -> int:
        """The vectors of a block, if costly sides are packed over the lanes of the stage; else 0."""
        if self.body.sides != "packed" or self.stage.is_ordered:
            return 0
        sides = packed_sides(self.stage, lane, in_grid=False)
        return vectors_in_block(sides, 0, self.unroll, -(-lane.extent // self.count), self.widths.vector_bits)

    def _blocks(
        self, group: Group, part: Part, within: tuple[int, int], vectors: int, flights: Sequence[Flight]
    ) -> None:
        """The vectorised loop over a part, block by block; vectors add to the same flights as without blocks."""
        fn, (lo, hi) = self.fn, within
        assert self.vectorised is not None
        points, is_whole = vectors * self.count, part.is_all(lo, hi) and (hi - lo) % self.count == 0
        with counted_loop(fn, part.start, part.stop, points, nonempty=False, as_written=True) as first:
            last = fn.emit(f"add nuw nsw i64 {first}, {points}")
            last = fn.intrinsic("llvm.smin.i64", "i64", [("i64", last), ("i64", part.stop)])
            BlockLine(
                self.body,
                Block(first, last, self.vectorised, self.count, vectors, self.unroll, is_whole, packs=True),
                group,
                lambda around, vector: self._spread(around, vector.position, (lo, hi - 1), vector.active, vector.order),
                lambda _, place: flights[place.addend // self.count],
                self.nest.room,
            ).write(self.stage.body)

    def _backward_vectors(self, group: Group, lo: int, hi: int, flights: Sequence[Flight]) -> None:
        """The same from the last iteration to the first, for scans that run backward."""
        count = self.count
        step, within = max(1, min(self.unroll, (hi - lo) // count)) * count, (lo, hi - 1)
        covered = (hi - lo) // step * step
        if covered:
            with self._counted(0, covered, step) as position:
                last = self._backward(position, hi - count)
                places = [Index(last.base, last.addend - number) for number in range(0, step, count)]
                self._at(group, places, within, flights)
        for first in range(hi - covered - count, lo - count, -count):
            active = None if first >= lo else emit_tail_mask(self.fn, str(first + count - lo), count)
            self._at(group, [Index("", max(first, lo))], within, flights, active)

    def _at(
        self,
        group: Group,
        places: Sequence[Index],
        within: tuple[int, int],
        flights: Sequence[Flight],
        active: str | None = None,
    ) -> None:
        """The body for one vector at each of `places`."""
        groups = [self._spread(group, place, within, active) for place in places]
        for inner in groups:
            inner.scalars = groups[0].scalars
        self.body.write(self.stage.body, groups, flights[: len(groups)])

    def _streamed(self, group: Group, within: tuple[int, int], unroll: int, flights: Sequence[Flight]) -> bool:
        """The same with stores that bypass the caches, where the stage has one that can."""
        lo, hi = within[0], within[1] + 1
        first = self._spread(group, Index("", lo), within, None)
        store = streamed_store(self.stage, self.body.places, first)
        if store is None:
            return False
        head = head_length(self.fn, self.body.places[store.buffer], store, first)

        def part(position: str, limit: str) -> None:
            active = self._active(Index(position), limit)
            self.body.write(self.stage.body, [self._spread(group, Index(position), within, active)], flights[:1])

        write_streamed(
            self.fn,
            (str(lo), str(hi)),
            (self.count, self.count * unroll),
            head,
            lambda position: self._full(group, Index(position), unroll, within, flights, store),
            part,
        )
        return True

    def _active(self, position: Index, limit: str) -> str:
        if position.base or limit.startswith("%"):
            left = self.fn.emit(f"sub nsw i64 {limit}, {position.base or position.addend}")
        else:
            left = str(int(limit) - position.addend)
        return emit_tail_mask(self.fn, left, self.count)

    def _full(
        self,
        group: Group,
        position: Index,
        unroll: int,
        within: tuple[int, int],
        flights: Sequence[Flight],
        streamed: Store | None = None,
    ) -> None:
        groups = [
            self._spread(group, Index(position.base, position.addend + number * self.count), within, None)
            for number in range(unroll)
        ]
        for inner in groups:
            inner.scalars, inner.streamed = groups[0].scalars, streamed
        self.body.write(self.stage.body, groups, flights[:unroll])

    def _spread(
        self, group: Group, position: Index, within: tuple[int, int], active: str | None, order: str = ""
    ) -> Group:
        """The group with the vectorised symbol spread out from `position`."""
        assert self.vectorised is not None
        lanes = Lanes(self.count, self.vectorised, order=order)
        return group.nested({self.vectorised: position}, lanes=lanes, ranges={self.vectorised: within}, active=active)


def _inside(
    groups: Sequence[Group], at: Mapping[Symbol, Index], ranges: Ranges, assumed: Assumed | None = None
) -> list[Group]:
    """The groups inside one more loop; they share the index expressions they compute."""
    shared: dict[object, str] = {}
    inner = [group.nested(at, ranges=ranges, assumed=assumed) for group in groups]
    for group in inner:
        group.scalars = shared
    return inner


def _ends_by_data(stage: Stage) -> bool:
    return stage.leave is not None or any(isinstance(s, Repeat) for s in stage.body)
