"""Phases whose lanes are grid points: runs of the last grid symbol, by vectors, strips or squares."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.ir.index import Symbol
from autofuse.lazydataclass import dataclass
from autofuse.lower.statements import Store
from autofuse.lower.tile import RowGroup, Space, Stage
from autofuse.targets.cpu.codegen.grid import At, write_runs
from autofuse.targets.cpu.codegen.indexsplitting import Segments, plan_segments, whole
from autofuse.targets.cpu.codegen.nest import Nest
from autofuse.targets.cpu.codegen.phaselayout import Layout
from autofuse.targets.cpu.codegen.registertranspose import Transpose, store_square, write_square
from autofuse.targets.cpu.codegen.runtimebounds import left_to_do
from autofuse.targets.cpu.codegen.streaming import LINE_BYTES, head_length, streamed_store, write_streamed
from autofuse.targets.cpu.codegen.strips import StripWriter
from autofuse.targets.cpu.codegen.values import Group, Index, Lanes, counted_loop
from autofuse.targets.cpu.codegen.versioning import write_variants
from autofuse.targets.cpu.llvmtext import FunctionText
from autofuse.targets.cpu.scalars import emit_tail_mask


@dataclass(frozen=True, slots=True)
class Sweep:
    """Writes the body of a phase that spreads its last grid symbol over lanes."""

    grid: tuple[Symbol, ...]
    stages: tuple[Stage, ...]
    nest: Nest
    layout: Layout

    @property
    def _fn(self) -> FunctionText:
        return self.nest.body.fn

    @property
    def _vectorised(self) -> Symbol:
        return self.grid[-1]

    @staticmethod
    def of(grid: tuple[Symbol, ...], steps: Sequence[object], nest: Nest, layout: Layout) -> Sweep:
        """For the only RowGroup of a phase."""
        (group,) = steps
        assert isinstance(group, RowGroup)
        return Sweep(grid, group.stages, nest, layout)

    def write(self) -> None:
        """Append the loops over the blocks and all inside."""
        transpose = self.layout.transpose
        if transpose is not None and transpose.in_columns:
            SquareColumns(self, transpose).write()
            return
        outer = [transpose.blocks if transpose is not None and s == transpose.symbol else s for s in self.grid[:-1]]
        write_runs(self._fn, outer, self._vectorised.extent, self.layout.tile, self._run)

    def _run(self, at: At, start: str, stop: str) -> None:
        """Grid points `start` to `stop` of the vectorised symbol."""
        outer = self.grid[:-1]
        transpose = self.layout.transpose
        if transpose is not None:
            at = {symbol: at[transpose.blocks] if symbol == transpose.symbol else at[symbol] for symbol in outer}
            outer = tuple(symbol for symbol in outer if symbol != transpose.symbol)
        segments = self._lane_segments()

        def inside(point: Group) -> None:
            self._segments(point, start, stop, whole(self._vectorised) if point.masked else segments)

        def bounded(point: Group) -> None:
            self.nest.bounds.branches(
                self._fn, point, lambda assumed: left_to_do(self.stages, point.ranges, assumed), inside
            )

        write_variants(self._fn, outer, self.stages, Group(Lanes(), dict(at), {}, {}), bounded, len(segments))

    def _lane_segments(self) -> Segments:
        if self._vectorised.extent <= 2 * self.layout.lanes:
            return whole(self._vectorised)
        return plan_segments(self.stages, (self._vectorised,)).get(self._vectorised, whole(self._vectorised))

    def _segments(self, point: Group, start: str, stop: str, segments: Segments) -> None:
        if len(segments) == 1:
            self._range(point, start, stop, segments[0])
            return
        for lo, hi in segments:
            limits = ("max", start, lo), ("min", stop, hi)
            first, last = (
                self._fn.intrinsic(f"llvm.s{kind}.i64", "i64", [("i64", own), ("i64", str(limit))])
                for kind, own, limit in limits
            )
            self._range(point, first, last, (lo, hi))

    def _range(self, point: Group, start: str, stop: str, within: tuple[int, int]) -> None:
        """Grid points `start` to `stop`, all of them in `within`."""
        if self.layout.transpose is not None:
            self._squares(self.layout.transpose, point, start, stop, within)
            return
        ranges = {**point.ranges, self._vectorised: (within[0], within[1] - 1)}
        parts = self.nest.bounds.parts(
            self._fn, self._vectorised, (start, stop), point, lambda assumed: left_to_do(self.stages, ranges, assumed)
        )
        for part in parts:
            self._part(point.nested({}, assumed=part.assumed), part.start, part.stop, within)

    def _part(self, point: Group, start: str, stop: str, within: tuple[int, int]) -> None:
        if self.layout.strip is not None:
            stages = self._needed(point)
            StripWriter(self.nest, self.layout.strip, within).write(stages, point, start, stop)
        else:
            self._vectors(point, start, stop, within, self.layout.unroll)

    def _needed(self, group: Group) -> Sequence[Stage]:
        """The stages that stores need, where something is known."""
        if not group.assumed:
            return self.stages
        return [self.stages[number] for number, _ in left_to_do(self.stages, group.ranges, group.assumed)]

    def _vectors(self, point: Group, start: str, stop: str, within: tuple[int, int], unroll: int) -> None:
        """`unroll` vectors at a time, then single ones, the last one masked."""
        fn, lanes = self._fn, self.layout.lanes
        if not point.assumed and self.nest.widths.stream_stores and self._streamed(point, start, stop, within, unroll):
            return
        cut = None if point.assumed else within
        middle = self._last_multiple(start, stop, cut, lanes * unroll)
        with counted_loop(fn, start, middle, lanes * unroll, nonempty=False, as_written=True) as position:
            self.vectors_at(point, position, within, unroll, None)
        if middle == stop:
            return
        with counted_loop(fn, middle, stop, lanes, nonempty=False, as_written=True) as position:
            self.vectors_at(point, position, within, 1, self._active(position, stop, cut))

    def _streamed(self, point: Group, start: str, stop: str, within: tuple[int, int], unroll: int) -> bool:
        """The same with stores that bypass the caches, where there is one that can."""
        fn, lanes = self._fn, self.layout.lanes
        if len(self.stages) != 1 or self.stages[0].symbols or lanes == 1:
            return False
        position = Index(start) if start.startswith("%") else Index("", int(start))
        first = self.group(point, position, within, None)
        store = streamed_store(self.stages[0], self.nest.body.places, first)
        if store is None:
            return False

        def part(position: str, limit: str) -> None:
            active = emit_tail_mask(fn, fn.emit(f"sub nsw i64 {limit}, {position}"), lanes)
            self.vectors_at(point, position, within, 1, active)

        write_streamed(
            fn,
            (start, stop),
            (lanes, lanes * unroll),
            head_length(fn, self.nest.body.places[store.buffer], store, first),
            lambda position: self.vectors_at(point, position, within, unroll, None, store),
            part,
        )
        return True

    def _last_multiple(self, start: str, stop: str, within: tuple[int, int] | None, step: int) -> str:
        """Where whole steps from `start` end. `within`: None where the run decides what part of the loop this is."""
        if within == (0, self._vectorised.extent) and self._vectorised.extent % step == 0:
            return stop
        fn = self._fn
        length = fn.emit(f"sub nsw i64 {stop}, {start}")
        length = fn.intrinsic("llvm.smax.i64", "i64", [("i64", length), ("i64", "0")])
        rest = fn.emit(f"urem i64 {length}, {step}")
        return fn.emit(f"sub nsw i64 {fn.emit(f'add nsw i64 {start}, {length}')}, {rest}")

    def _active(self, position: str, stop: str, within: tuple[int, int] | None) -> str | None:
        lanes = self.layout.lanes
        if lanes == 1 or (within == (0, self._vectorised.extent) and self._vectorised.extent % lanes == 0):
            return None
        return emit_tail_mask(self._fn, self._fn.emit(f"sub nsw i64 {stop}, {position}"), lanes)

    def vectors_at(
        self,
        point: Group,
        position: str,
        within: tuple[int, int],
        unroll: int,
        active: str | None,
        streamed: Store | None = None,
    ) -> None:
        """All stages for the vectors in flight from `position` on."""
        groups: list[Group] = []
        for number in range(unroll):
            group = self.group(point, Index(position, number * self.layout.lanes), within, active)
            group.slot, group.streamed = number * self.layout.lanes, streamed
            group.scalars = groups[0].scalars if groups else {}
            groups.append(group)
        for stage in self._needed(groups[0]):
            self.nest.write(stage, groups)

    def group(self, point: Group, position: Index, within: tuple[int, int], active: str | None) -> Group:
        """The group of the lanes from `position` on."""
        count = self.layout.lanes
        lanes = Lanes(count, self._vectorised if count > 1 else None, self.layout.copies)
        ranges = {self._vectorised: (within[0], within[1] - 1)}
        return point.nested({self._vectorised: position}, lanes=lanes, ranges=ranges, active=active)

    def _squares(self, transpose: Transpose, point: Group, start: str, stop: str, within: tuple[int, int]) -> None:
        """A row of squares; row by row where a square would not be whole."""
        fn, number = self._fn, point.at[transpose.symbol]
        first = fn.emit(f"mul nuw nsw i64 {number.base}, {transpose.rows}") if number.base else "0"
        edge = self._last_multiple(start, stop, within, transpose.rows)
        all_whole = edge == stop and transpose.symbol.extent % transpose.rows == 0
        last = fn.emit(f"add nuw nsw i64 {first}, {transpose.rows}")
        if transpose.symbol.extent % transpose.rows:
            whole_rows = fn.emit(f"icmp sle i64 {last}, {transpose.symbol.extent}")
            last = fn.intrinsic("llvm.smin.i64", "i64", [("i64", last), ("i64", str(transpose.symbol.extent))])
            edge = fn.emit(f"select i1 {whole_rows}, i64 {edge}, i64 {start}")
        with counted_loop(fn, start, edge, transpose.rows, nonempty=False, as_written=True) as position:
            row = Index(first) if first.startswith("%") else Index("", 0)
            self.square(transpose, point.nested({transpose.symbol: row}), position, within)
        if not all_whole:
            with counted_loop(fn, first, last, 1, nonempty=True, as_written=True, hint="row") as row:
                self._vectors(point.nested({transpose.symbol: Index(row)}), edge, stop, within, 1)

    def square(
        self, transpose: Transpose, point: Group, position: str, within: tuple[int, int], streamed: Store | None = None
    ) -> None:
        """A square whose first row is where `point` is and whose first lane is at `position`."""
        fn, body, (stage,) = self._fn, self.nest.body, self.stages
        square = self.group(point, Index(position), within, None)
        rows = write_square(fn, body.places, stage, square, transpose)
        for row in rows:
            row.streamed = streamed
        stores = [s for s in stage.body if isinstance(s, Store) and s in transpose.statements]
        plain = [s for s in stage.body if s not in stores]
        for row in rows:
            body.write(plain, [row], [{}], frozenset(s.value for s in stores))
        for s in stores:
            store_square(fn, body.places[s.buffer], s, [row.vector(fn, s.value) for row in rows], square, transpose)


@dataclass(frozen=True, slots=True)
class SquareColumns:
    """Writes a phase of squares that follow each other along the transposed symbol, one vector of lanes after another.

    What is loaded transposed is then read in as many streams as there are lanes. What is stored goes a line here and a
    line there: past the caches where lines are whole, because nothing else would come for them before they are evicted.
    """

    sweep: Sweep
    transpose: Transpose

    @property
    def _fn(self) -> FunctionText:
        return self.sweep.nest.body.fn

    def write(self) -> None:
        """Append the loops over the blocks and all inside."""
        vectorised = self.sweep.grid[-1]
        outer = [symbol for symbol in self.sweep.grid[:-1] if symbol != self.transpose.symbol]
        number = Symbol(f"{vectorised.name}.block", 1 + -(-vectorised.extent // self.transpose.rows))
        store = self._streamed() if self.sweep.nest.widths.stream_transposed else None
        head = self._head(store, outer) if store is not None else "0"

        def inside(at: At, start: str, stop: str) -> None:
            point = Group(Lanes(), {symbol: at[symbol] for symbol in outer}, {}, {})
            self._block(point, at[number].base, (head, store), start, stop)

        write_runs(self._fn, [*outer, number], self.transpose.symbol.extent, self.sweep.layout.tile, inside)

    def _streamed(self) -> Store | None:
        """The first store of whole lines, if all its rows begin at the same place in a line."""
        vectorised, places = self.sweep.grid[-1], self.sweep.nest.body.places
        for s in self.sweep.stages[0].body:
            if not isinstance(s, Store) or s.mask is not None or s in self.transpose.statements:
                continue
            size = places[s.buffer].dtype.itemsize
            strides = [c * size % LINE_BYTES for variable, c in s.offset.terms if variable != vectorised]
            plain = all(isinstance(v, Symbol) for v, _ in s.offset.terms) and s.offset.coefficient(vectorised) == 1
            is_output = places[s.buffer].buffer.space is Space.OUTPUT
            if plain and is_output and size * self.transpose.rows == LINE_BYTES and not any(strides):
                return s
        return None

    def _head(self, store: Store, outer: Sequence[Symbol]) -> str:
        """Lanes before the first line boundary."""
        origin = Group(Lanes(), {symbol: Index("", 0) for symbol in (*outer, self.transpose.symbol)}, {}, {})
        first = self.sweep.group(origin, Index("", 0), (0, self.sweep.grid[-1].extent), None)
        return head_length(self._fn, self.sweep.nest.body.places[store.buffer], store, first)

    def _block(self, point: Group, number: str, streamed: tuple[str, Store | None], start: str, stop: str) -> None:
        """One vector of lanes, whole or cut short by an end of the loop; the rows `start` to `stop`."""
        fn, lanes, extent = self._fn, self.transpose.rows, self.sweep.grid[-1].extent
        head, store = streamed
        within = (0, extent)
        first = fn.emit(f"add nsw i64 {fn.emit(f'mul nsw i64 {number}, {lanes}')}, {head}")
        last = fn.intrinsic("llvm.smin.i64", "i64", [("i64", first), ("i64", str(extent))])
        first = fn.emit(f"sub nsw i64 {first}, {lanes}")
        first = fn.intrinsic("llvm.smax.i64", "i64", [("i64", first), ("i64", "0")])
        length = fn.emit(f"sub nsw i64 {last}, {first}")
        full, part, done = fn.label("whole"), fn.label("part"), fn.label("finished")
        fn.branch_if(fn.emit(f"icmp eq i64 {length}, {lanes}"), full, part)
        fn.block(full)
        rows = fn.emit(f"sub nsw i64 {stop}, {start}")
        edge = fn.emit(f"sub nsw i64 {stop}, {fn.emit(f'and i64 {rows}, {lanes - 1}')}")
        with counted_loop(fn, start, edge, lanes, nonempty=False, as_written=True) as row:
            self.sweep.square(self.transpose, point.nested({self.transpose.symbol: Index(row)}), first, within, store)
        with counted_loop(fn, edge, stop, 1, nonempty=False, as_written=True) as row:
            self.sweep.vectors_at(point.nested({self.transpose.symbol: Index(row)}), first, within, 1, None)
        fn.branch(done)
        fn.block(part)
        active = emit_tail_mask(fn, length, lanes)
        rest = fn.emit(f"select i1 {fn.emit(f'icmp sgt i64 {length}, 0')}, i64 {stop}, i64 {start}")
        with counted_loop(fn, start, rest, 1, nonempty=False, as_written=True) as row:
            self.sweep.vectors_at(point.nested({self.transpose.symbol: Index(row)}), first, within, 1, active)
        fn.branch(done)
        fn.block(done)
