"""Phases whose lanes are grid points: runs of the last grid symbol, by vectors, strips or squares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autofuse.backends.cpu.codegen.grid import At, write_runs
from autofuse.backends.cpu.codegen.layout import Layout
from autofuse.backends.cpu.codegen.nest import Nest
from autofuse.backends.cpu.codegen.segments import Segments, plan_segments, whole
from autofuse.backends.cpu.codegen.streaming import head_length, streamed_store, write_streamed
from autofuse.backends.cpu.codegen.strips import StripWriter
from autofuse.backends.cpu.codegen.turning import Turn, store_square, write_square
from autofuse.backends.cpu.codegen.values import Group, Index, Lanes, counted_loop
from autofuse.backends.cpu.codegen.variants import write_variants
from autofuse.backends.cpu.scalars import emit_tail_mask
from autofuse.backends.cpu.text import FunctionText
from autofuse.ir.index import Symbol
from autofuse.lower.tile import RowGroup, Stage, Store


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
    def _lane(self) -> Symbol:
        return self.grid[-1]

    @staticmethod
    def of(grid: tuple[Symbol, ...], steps: Sequence[object], nest: Nest, layout: Layout) -> Sweep:
        """For the only RowGroup of a phase."""
        (group,) = steps
        assert isinstance(group, RowGroup)
        return Sweep(grid, group.stages, nest, layout)

    def write(self) -> None:
        """Append the loops over the blocks and all inside."""
        turn = self.layout.turn
        outer = [turn.blocks if turn is not None and s == turn.symbol else s for s in self.grid[:-1]]
        write_runs(self._fn, outer, self._lane.extent, self.layout.tile, self._run)

    def _run(self, at: At, start: str, stop: str) -> None:
        """Grid points `start` to `stop` of the lane symbol."""
        outer = self.grid[:-1]
        turn = self.layout.turn
        if turn is not None:
            at = {symbol: at[turn.blocks] if symbol == turn.symbol else at[symbol] for symbol in outer}
            outer = tuple(symbol for symbol in outer if symbol != turn.symbol)
        segments = self._lane_segments()

        def inside(point: Group) -> None:
            self._segments(point, start, stop, whole(self._lane) if point.masked else segments)

        write_variants(self._fn, outer, self.stages, Group(Lanes(), dict(at), {}, {}), inside, len(segments))

    def _lane_segments(self) -> Segments:
        if self._lane.extent <= 2 * self.layout.lanes:
            return whole(self._lane)
        return plan_segments(self.stages, (self._lane,)).get(self._lane, whole(self._lane))

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
        if self.layout.strip is not None:
            StripWriter(self.nest.body, self.layout.strip, within).write(self.stages, point, start, stop)
        elif self.layout.turn is not None:
            self._squares(self.layout.turn, point, start, stop, within)
        else:
            self._vectors(point, start, stop, within, self.layout.unroll)

    def _vectors(self, point: Group, start: str, stop: str, within: tuple[int, int], unroll: int) -> None:
        """`unroll` vectors at a time, then single ones, the last one masked."""
        fn, lanes = self._fn, self.layout.lanes
        if self.nest.widths.stream_stores and self._streamed(point, start, stop, within, unroll):
            return
        middle = self._last_multiple(start, stop, within, lanes * unroll)
        with counted_loop(fn, start, middle, lanes * unroll, nonempty=False, as_written=True) as position:
            self._vectors_at(point, position, within, unroll, None)
        if middle == stop:
            return
        with counted_loop(fn, middle, stop, lanes, nonempty=False, as_written=True) as position:
            self._vectors_at(point, position, within, 1, self._active(position, stop, within))

    def _streamed(self, point: Group, start: str, stop: str, within: tuple[int, int], unroll: int) -> bool:
        """The same with stores that bypass the caches, where there is one that can."""
        fn, lanes = self._fn, self.layout.lanes
        if len(self.stages) != 1 or self.stages[0].symbols or lanes == 1:
            return False
        position = Index(start) if start.startswith("%") else Index("", int(start))
        first = self._group(point, position, within, None)
        store = streamed_store(self.stages[0], self.nest.body.places, first)
        if store is None:
            return False

        def part(position: str, limit: str) -> None:
            active = emit_tail_mask(fn, fn.emit(f"sub nsw i64 {limit}, {position}"), lanes)
            self._vectors_at(point, position, within, 1, active)

        write_streamed(
            fn,
            (start, stop),
            (lanes, lanes * unroll),
            head_length(fn, self.nest.body.places[store.buffer], store, first),
            lambda position: self._vectors_at(point, position, within, unroll, None, store),
            part,
        )
        return True

    def _last_multiple(self, start: str, stop: str, within: tuple[int, int], step: int) -> str:
        """Where whole steps from `start` end."""
        if within == (0, self._lane.extent) and self._lane.extent % step == 0:
            return stop
        fn = self._fn
        length = fn.emit(f"sub nsw i64 {stop}, {start}")
        length = fn.intrinsic("llvm.smax.i64", "i64", [("i64", length), ("i64", "0")])
        rest = fn.emit(f"urem i64 {length}, {step}")
        return fn.emit(f"sub nsw i64 {fn.emit(f'add nsw i64 {start}, {length}')}, {rest}")

    def _active(self, position: str, stop: str, within: tuple[int, int]) -> str | None:
        lanes = self.layout.lanes
        if lanes == 1 or (within == (0, self._lane.extent) and self._lane.extent % lanes == 0):
            return None
        return emit_tail_mask(self._fn, self._fn.emit(f"sub nsw i64 {stop}, {position}"), lanes)

    def _vectors_at(
        self,
        point: Group,
        position: str,
        within: tuple[int, int],
        unroll: int,
        active: str | None,
        streamed: Store | None = None,
    ) -> None:
        groups: list[Group] = []
        for number in range(unroll):
            group = self._group(point, Index(position, number * self.layout.lanes), within, active)
            group.slot, group.streamed = number * self.layout.lanes, streamed
            group.scalars = groups[0].scalars if groups else {}
            groups.append(group)
        for stage in self.stages:
            self.nest.write(stage, groups)

    def _group(self, point: Group, position: Index, within: tuple[int, int], active: str | None) -> Group:
        count = self.layout.lanes
        lanes = Lanes(count, self._lane if count > 1 else None, self.layout.copies)
        ranges = {self._lane: (within[0], within[1] - 1)}
        return point.nested({self._lane: position}, lanes=lanes, ranges=ranges, active=active)

    def _squares(self, turn: Turn, point: Group, start: str, stop: str, within: tuple[int, int]) -> None:
        """A row of squares; row by row where a square would not be whole."""
        fn, number = self._fn, point.at[turn.symbol]
        first = fn.emit(f"mul nuw nsw i64 {number.base}, {turn.rows}") if number.base else "0"
        edge = self._last_multiple(start, stop, within, turn.rows)
        all_whole = edge == stop and turn.symbol.extent % turn.rows == 0
        last = fn.emit(f"add nuw nsw i64 {first}, {turn.rows}")
        if turn.symbol.extent % turn.rows:
            whole_rows = fn.emit(f"icmp sle i64 {last}, {turn.symbol.extent}")
            last = fn.intrinsic("llvm.smin.i64", "i64", [("i64", last), ("i64", str(turn.symbol.extent))])
            edge = fn.emit(f"select i1 {whole_rows}, i64 {edge}, i64 {start}")
        with counted_loop(fn, start, edge, turn.rows, nonempty=False, as_written=True) as position:
            row = Index(first) if first.startswith("%") else Index("", 0)
            self._square(turn, point.nested({turn.symbol: row}), position, within)
        if not all_whole:
            with counted_loop(fn, first, last, 1, nonempty=True, as_written=True, hint="row") as row:
                self._vectors(point.nested({turn.symbol: Index(row)}), edge, stop, within, 1)

    def _square(self, turn: Turn, point: Group, position: str, within: tuple[int, int]) -> None:
        fn, body, (stage,) = self._fn, self.nest.body, self.stages
        square = self._group(point, Index(position), within, None)
        rows = write_square(fn, body.places, stage, square, turn)
        stores = [s for s in stage.body if isinstance(s, Store) and s in turn.statements]
        plain = [s for s in stage.body if s not in stores]
        for row in rows:
            body.write(plain, [row], [{}], frozenset(s.value for s in stores))
        for s in stores:
            store_square(fn, body.places[s.buffer], s, [row.vector(fn, s.value) for row in rows], square, turn)
