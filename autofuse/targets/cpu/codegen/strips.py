"""Grid lanes walked in strips: the loops of a stage outside, the vectors of a long strip of grid points inside.

With a few vectors of grid points at a time, a sum of columns would visit every row for a few cache lines, one page
after another. A strip visits a row for some kilobytes instead. What a stage reduces does not fit registers then: it
lives on the stack, and a few iterations of the loop outside are done together so that it is fetched less often. Each
grid point still sees its iterations in order: the bits are those of any other way to walk the grid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autofuse.ir.index import Symbol, of
from autofuse.lazydataclass import dataclass, field
from autofuse.lower.statements import ArgReduce, Reduce, Scan, Statement
from autofuse.lower.tile import Stage
from autofuse.targets.cpu.codegen.accumulators import Accumulator
from autofuse.targets.cpu.codegen.argreduce import Best
from autofuse.targets.cpu.codegen.blockline import Block, BlockLine, Vector
from autofuse.targets.cpu.codegen.body import Body
from autofuse.targets.cpu.codegen.carried import Carried
from autofuse.targets.cpu.codegen.conditions import used_scalars
from autofuse.targets.cpu.codegen.indexsplitting import Segments, plan_segments, whole
from autofuse.targets.cpu.codegen.nest import Flight, Nest, make_accumulators
from autofuse.targets.cpu.codegen.runtimebounds import Part, changes_anything
from autofuse.targets.cpu.codegen.values import Group, Index, Lanes, Value, counted_loop
from autofuse.targets.cpu.llvmtext import FunctionText
from autofuse.targets.cpu.scalars import emit_tail_mask

STRIP_BYTES = 4096
"""Of the widest type, per strip."""
_FEW_STATEMENTS = 24
"""Statements of several iterations done together."""


@dataclass(frozen=True, slots=True)
class Strip:
    """The grid points that are walked together."""

    vectorised: Symbol
    lanes: int
    vectors: int
    """Most vectors in a strip."""
    together: int = 0
    """Vectors side by side where a strip is a block (`blockline`), whose iterations all see what all lanes share; else
    0: one vector at a time, some iterations of it."""

    packed: str = "none"
    """Of which stages costly sides are packed: `all`, `loops` (those that carry something) or `none`."""

    def packs(self, stage: Stage) -> bool:
        """Whether costly sides of a stage are packed."""
        return self.packed == "all" or (self.packed == "loops" and stage.carries)

    @property
    def points(self) -> int:
        """Most grid points in a strip; also the copies of each scratch element."""
        return self.lanes * self.vectors


def iterations_together(stage: Stage, strip: Strip) -> int:
    """Iterations of the innermost loop that are done for one vector of a strip before the next one.

    Several where accumulators are to be fetched less often.
    """
    reduces = any(isinstance(s, Reduce | Scan | ArgReduce) for s in stage.body)
    if strip.together or stage.is_reversed or not reduces:
        return 1
    return max(1, min(8, _FEW_STATEMENTS // len(stage.body)))


@dataclass(slots=True)
class StripWriter:
    """Writes the stages of a RowGroup for a range of grid points."""

    nest: Nest
    strip: Strip
    within: tuple[int, int]
    """Half-open range of the vectorised symbol in which this code runs."""
    _number: Symbol = field(default=Symbol("strip", 1 << 30))
    """Stands for the place of lane 0 in the strip."""

    @property
    def body(self) -> Body:
        return self.nest.body

    @property
    def _fn(self) -> FunctionText:
        return self.body.fn

    def write(self, stages: Sequence[Stage], point: Group, start: str, stop: str) -> None:
        """Append the code for the grid points `start` to `stop` of the vectorised symbol."""
        fn = self._fn
        with counted_loop(fn, start, stop, self.strip.points, nonempty=False) as first:
            last = fn.emit(f"add nuw nsw i64 {first}, {self.strip.points}")
            last = fn.intrinsic("llvm.smin.i64", "i64", [("i64", last), ("i64", stop)])
            kept: Flight = {}
            for stage in stages:
                _StripStage(self, stage, first, last, kept).write(point)

    def vectors(self, first: str, last: str, group: Group, inside: Callable[[Group, str], None]) -> None:
        """Run `inside(group, number of the vector)` over the strip, the last vector masked."""
        fn, lanes = self._fn, self.strip.lanes
        length = fn.emit(f"sub nuw nsw i64 {last}, {first}")
        rest = fn.emit(f"and i64 {length}, {lanes - 1}")
        middle = fn.emit(f"sub nuw nsw i64 {last}, {rest}")
        with counted_loop(fn, first, middle, lanes, nonempty=False, as_written=True) as position:
            self._vector(first, position, group, None, inside)
        is_whole = self.within == (0, self.strip.vectorised.extent) and not group.assumed
        if not is_whole or self.strip.vectorised.extent % lanes:
            with counted_loop(fn, middle, last, lanes, nonempty=False, as_written=True) as position:
                active = emit_tail_mask(fn, fn.emit(f"sub nsw i64 {last}, {position}"), lanes)
                self._vector(first, position, group, active, inside)

    def _vector(
        self, first: str, position: str, group: Group, active: str | None, inside: Callable[[Group, str], None]
    ) -> None:
        slot = self._fn.emit(f"sub nuw nsw i64 {position}, {first}")
        number = self.number(slot)
        inside(self.spread(group, Vector(Index(position), Index(slot), active)), number)

    def number(self, place: str) -> str:
        """The number of the vector at a place of the strip."""
        return self._fn.emit(f"lshr exact i64 {place}, {self.strip.lanes.bit_length() - 1}")

    def spread(self, group: Group, vector: Vector) -> Group:
        """The group of a vector of the strip."""
        at = {self.strip.vectorised: vector.position, self._number: vector.place}
        lanes = Lanes(self.strip.lanes, self.strip.vectorised, self.strip.points, vector.order)
        ranges = {self.strip.vectorised: (self.within[0], self.within[1] - 1)}
        inner = group.nested(at, lanes=lanes, ranges=ranges, active=vector.active)
        inner.slot = of(self._number)
        return inner

    def block(self, group: Group, first: str, last: str, *, packs: bool) -> Block:
        """The strip between two positions, as a block."""
        strip, is_whole = self.strip, self.within == (0, self.strip.vectorised.extent) and not group.assumed
        is_whole = is_whole and strip.vectorised.extent % strip.lanes == 0
        return Block(first, last, strip.vectorised, strip.lanes, strip.vectors, strip.together, is_whole, packs)


def _differs(accumulator: Accumulator | Best | Carried) -> bool:
    return not isinstance(accumulator, Carried) or accumulator.varying


@dataclass(frozen=True, slots=True)
class _StripStage:
    writer: StripWriter
    stage: Stage
    first: str
    last: str
    kept: Flight
    """What earlier stages reduced, one element per vector of the strip."""

    @property
    def _fn(self) -> FunctionText:
        return self.writer.body.fn

    def write(self, point: Group) -> None:
        """Append the stage for one strip."""
        strip = self.writer.strip
        like = point.nested({}, lanes=Lanes(strip.lanes, strip.vectorised, strip.points))
        like.values.update({n: Value("", a.statement.dtype, _differs(a)) for n, a in self.kept.items()})
        own = make_accumulators(self._fn, self.stage, like, strip.vectors)
        if own:
            self.writer.vectors(self.first, self.last, point, lambda group, number: self._start(group, number, own))
        if all(symbol.extent for symbol in self.stage.symbols) and changes_anything(self.stage, point):
            segments = {} if point.masked else plan_segments((self.stage,), self.stage.symbols)
            left = self._fn.label("left") if self.stage.leave is not None else ""
            self._loops(self.stage.symbols, segments, point, own, left)
            if left:
                self._fn.enter(left)
        self.kept.update(own)

    def _start(self, group: Group, number: str, own: Flight) -> None:
        if self.stage.before:
            self._read_kept(group, number, self.stage.before)
            self.writer.body.write(self.stage.before, [group], [{}], used_scalars(self.stage.body))
        for accumulator in own.values():
            accumulator.element(self._fn, number).start(self._fn, group)

    def _loops(
        self, order: Sequence[Symbol], segments: Mapping[Symbol, Segments], point: Group, own: Flight, left: str
    ) -> None:
        """The loops over `order` outside, the vectors of the strip inside. `left`: the label behind all, if any."""
        if not order:
            self._vectors(point, [{}], own, left)
            return
        symbol, inner = order[0], order[1:]
        backward = self.stage.is_reversed
        together = 1 if inner else iterations_together(self.stage, self.writer.strip)
        parts = segments.get(symbol, whole(symbol))
        for lo, hi in reversed(parts) if backward else parts:
            for part in self.writer.nest.parts_of(self.stage, symbol, (lo, hi), point):
                for start, stop, step in self._steps(part, (lo, hi), together):
                    is_known = part.is_all(lo, hi)
                    with counted_loop(self._fn, start, stop, step, nonempty=is_known, as_written=True) as position:
                        base = self._fn.emit(f"sub nuw nsw i64 {lo + hi - 1}, {position}") if backward else position
                        around = point.nested({}, ranges={symbol: (lo, hi - 1)}, assumed=part.assumed)
                        if inner:
                            self._loops(inner, segments, around.nested({symbol: Index(base)}), own, left)
                        else:
                            iterations = [{symbol: Index(base, number)} for number in range(step)]
                            self._vectors(around, iterations, own, left)

    def _steps(self, part: Part, within: tuple[int, int], together: int) -> list[tuple[str, str, int]]:
        """The loops over a part of what lies between two numbers: several iterations at a time, then one by one."""
        lo, hi = within
        if part.is_all(lo, hi):
            middle = lo + (hi - lo) // together * together
            loops = [(lo, middle, together), (middle, hi, 1)]
            return [(str(start), str(stop), step) for start, stop, step in loops if start != stop]
        if together == 1:
            return [(part.start, part.stop, 1)]
        length = self._fn.emit(f"sub nsw i64 {part.stop}, {part.start}")
        rest = self._fn.emit(f"urem i64 {length}, {together}")
        edge = self._fn.emit(f"sub nsw i64 {part.stop}, {rest}")
        return [(part.start, edge, together), (edge, part.stop, 1)]

    def _vectors(self, point: Group, iterations: Sequence[Mapping[Symbol, Index]], own: Flight, left: str) -> None:
        if self.writer.strip.together:
            for at in iterations:
                self._block(point.nested(at), own, left)
            return

        def inside(group: Group, number: str) -> None:
            flight = self._flight(group, number, own)
            for at in iterations:
                self.writer.body.write(self.stage.body, [group.nested(at)], [flight])

        self.writer.vectors(self.first, self.last, point, inside)

    def _block(self, point: Group, own: Flight, left: str) -> None:
        """One iteration of the block; the last one if all of the block is settled, as nothing changes any more then."""
        writer = self.writer

        def flight(group: Group, place: Index) -> Flight:
            number = "0"
            if place.base:
                number = writer.number(self._fn.emit(f"add nuw nsw i64 {place.base}, {place.addend}"))
            return self._flight(group, number, own)

        block = writer.block(point, self.first, self.last, packs=writer.strip.packs(self.stage))
        line = BlockLine(writer.body, block, point, writer.spread, flight, writer.nest.room)
        leave = self.stage.leave
        if leave is None:
            line.write(self.stage.body)
            return
        stay = self._fn.label("stay")
        settled = line.write([s for s in self.stage.body if s is not leave], leave.settled)
        self._fn.branch_if(settled, left, stay)
        self._fn.block(stay)

    def _flight(self, group: Group, number: str, own: Flight) -> Flight:
        """What a vector reduces or hands on; what earlier stages did lands in the group's values."""
        self._read_kept(group, number, self.stage.body)
        return {scalar: accumulator.element(self._fn, number) for scalar, accumulator in own.items()}

    def _read_kept(self, group: Group, number: str, statements: Sequence[Statement]) -> None:
        wanted = used_scalars(statements)
        for scalar, accumulator in self.kept.items():
            if scalar in wanted:
                group.values[scalar] = accumulator.element(self._fn, number).lane_values(self._fn)
