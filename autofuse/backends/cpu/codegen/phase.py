"""A phase as one LLVM function over its flattened blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autofuse.backends.cpu.codegen.body import Body
from autofuse.backends.cpu.codegen.dots import write_dot
from autofuse.backends.cpu.codegen.grid import At, write_points, write_runs
from autofuse.backends.cpu.codegen.indexing import scalar_index
from autofuse.backends.cpu.codegen.memory import Place
from autofuse.backends.cpu.codegen.nest import Nest
from autofuse.backends.cpu.codegen.segments import (
    Segments,
    all_segments,
    copies_allowed,
    largest,
    plan_segments,
    whole,
)
from autofuse.backends.cpu.codegen.strips import STRIP_BYTES, Strip, StripWriter
from autofuse.backends.cpu.codegen.values import Group, Index, Lanes, counted_loop
from autofuse.backends.cpu.codegen.widths import Widths
from autofuse.backends.cpu.codegen.work import point_ns
from autofuse.backends.cpu.program import PhaseCode
from autofuse.backends.cpu.scalars import emit_tail_mask
from autofuse.backends.cpu.text import FunctionText, ModuleText
from autofuse.ir.index import Symbol, of
from autofuse.lower.tile import Dot, Load, Phase, RowGroup, Space, Stage, Store, TileProgram

_SHARES = 64
"""Blocks wanted at least, where the work allows: enough to keep many workers evenly busy."""

_STRIP_SCRATCH_BYTES = 128 << 10
"""Scratch that a strip may fill: more would leave the caches that strips are for."""


def write_phase(
    module: ModuleText, program: TileProgram, phase: Phase, symbol: str, widths: Widths, tags: Mapping[str, str]
) -> PhaseCode:
    """Add the function `symbol` to the module. `tags` are the alias metadata of each buffer's loads and stores."""
    fn = module.function(
        symbol,
        "void",
        [("ptr noalias readonly captures(none)", "buffers"), ("i64", "begin"), ("i64", "end"), ("ptr", "scratch")],
    )
    writer = _PhaseWriter.of(fn, program, phase, widths, tags)
    writer.write()
    fn.ret()
    return PhaseCode(symbol, writer.blocks, writer.grain, writer.scratch_bytes)


@dataclass(frozen=True, slots=True)
class _PhaseWriter:
    fn: FunctionText
    phase: Phase
    nest: Nest
    lanes: int
    """Grid points side by side; 1 unless the phase's lane is a grid symbol."""
    unroll: int
    strip: Strip | None
    """How to walk the lane symbol where stages loop inside long strips of it."""
    tile: int
    """Grid points of the lane symbol in one block."""
    blocks: int
    grain: int
    scratch_bytes: int

    @staticmethod
    def of(
        fn: FunctionText, program: TileProgram, phase: Phase, widths: Widths, tags: Mapping[str, str]
    ) -> _PhaseWriter:
        stages = [stage for step in phase.steps if isinstance(step, RowGroup) for stage in step.stages]
        lanes, unroll = widths.of(stages, phase.lane.extent) if phase.lane is not None else (1, 1)
        strip = _strip(program, phase, stages, lanes, unroll)
        tile, blocks, grain = _blocks(phase, lanes, unroll, program.schedule.grain_us * 1000, widths)
        copies = lanes * unroll if strip is None else strip.points
        places, scratch_bytes = _places(fn, program, phase, tags, copies)
        nest = Nest(Body(fn, places), widths)
        return _PhaseWriter(fn, phase, nest, lanes, unroll, strip, tile, blocks, grain, scratch_bytes)

    def write(self) -> None:
        """Append the whole body of the function."""
        phase = self.phase
        if self.blocks == 0:
            return
        if phase.lane is not None:
            write_runs(self.fn, phase.grid[:-1], phase.lane.extent, self.tile, self._run)
        elif phase.panel is not None:
            outer = [symbol for symbol in phase.grid if symbol != phase.panel.symbol]
            panels = Symbol("panel", -(-phase.panel.symbol.extent // phase.panel.size))
            write_points(self.fn, [*outer, panels], lambda at: self._panel(at, panels))
        else:
            write_points(self.fn, phase.grid, self._point)

    def _point(self, at: At) -> None:
        for step in self.phase.steps:
            group = Group(Lanes(), dict(at), {}, {})
            if isinstance(step, Dot):
                write_dot(self.fn, self.nest.body.places, step, group, str(step.rows), self.nest.widths)
            else:
                self._rows(step.stages, group)

    def _rows(self, stages: Sequence[Stage], group: Group) -> None:
        """The stages at one grid point."""

        def inside(point: Group) -> None:
            for stage in stages:
                self.nest.write(stage, [point])

        self._variants(self.phase.grid, stages, group, inside)

    def _panel(self, at: At, panels: Symbol) -> None:
        panel = self.phase.panel
        assert panel is not None
        number = at[panels]
        first, rows = Index("", 0), str(min(panel.size, panel.symbol.extent))
        if number.base:
            first = Index(self.fn.emit(f"mul nuw nsw i64 {number.base}, {panel.size}"))
            left = self.fn.emit(f"sub nuw nsw i64 {panel.symbol.extent}, {first.base}")
            rows = str(panel.size)
            if panel.symbol.extent % panel.size:
                rows = self.fn.intrinsic("llvm.smin.i64", "i64", [("i64", left), ("i64", rows)])
        outer = {symbol: index for symbol, index in at.items() if symbol != panels}
        for step in self.phase.steps:
            if isinstance(step, Dot):
                group = Group(Lanes(), {**outer, panel.symbol: first, panel.local: Index("", 0)}, {}, {})
                write_dot(self.fn, self.nest.body.places, step, group, rows, self.nest.widths)
                continue
            with counted_loop(self.fn, "0", rows, 1, nonempty=True, hint="row") as local:
                row = Index(self.fn.emit(f"add nuw nsw i64 {first.base}, {local}") if first.base else local)
                group = Group(Lanes(), {**outer, panel.symbol: row, panel.local: Index(local)}, {}, {})
                self._rows(step.stages, group)

    def _run(self, at: At, start: str, stop: str) -> None:
        """Grid points `start` to `stop` of the lane symbol."""
        (group,) = self.phase.steps
        assert isinstance(group, RowGroup)
        outer = self.phase.grid[:-1]
        inside = Group(Lanes(), dict(at), {}, {})
        self._variants(outer, group.stages, inside, lambda point: self._segments(group.stages, point, start, stop))

    def _variants(
        self, symbols: Sequence[Symbol], stages: Sequence[Stage], group: Group, inside: Callable[[Group], None]
    ) -> None:
        """`inside`, once for each way in which the conditions on grid positions can fall out, chosen by branches.

        Where there are too many ways: once for the most frequent one, and once for all others, with masks.
        """
        planned = all_segments(stages, symbols)
        copies = math.prod(len(parts) for parts in planned.values()) * len(self._lane_segments(stages))
        if copies <= copies_allowed(stages):
            self._each_variant(planned, group, inside)
            return
        interior = {symbol: largest(parts) for symbol, parts in planned.items()}
        rare, done = self.fn.label("edge"), self.fn.label("decided")
        for symbol, (lo, hi) in interior.items():
            here = self.fn.label("interior")
            position = self.fn.emit(f"sub nsw i64 {scalar_index(self.fn, of(symbol), group)}, {lo}")
            self.fn.branch_if(self.fn.emit(f"icmp ult i64 {position}, {hi - lo}"), here, rare)
            self.fn.block(here)
        inside(group.nested({}, ranges={symbol: (lo, hi - 1) for symbol, (lo, hi) in interior.items()}))
        self.fn.branch(done)
        if interior:
            self.fn.block(rare)
            inside(group.nested({}, masked=True))
            self.fn.branch(done)
        self.fn.block(done)

    def _each_variant(self, planned: Mapping[Symbol, Segments], group: Group, inside: Callable[[Group], None]) -> None:
        symbol = next((s for s in planned if s not in group.ranges), None)
        if symbol is None:
            inside(group)
            return
        done = self.fn.label("decided")
        for lo, hi in planned[symbol]:
            otherwise = ""
            if hi < symbol.extent:
                here, otherwise = self.fn.label("within"), self.fn.label("beyond")
                position = scalar_index(self.fn, of(symbol), group)
                self.fn.branch_if(self.fn.emit(f"icmp slt i64 {position}, {hi}"), here, otherwise)
                self.fn.block(here)
            self._each_variant(planned, group.nested({}, ranges={symbol: (lo, hi - 1)}), inside)
            self.fn.branch(done)
            self.fn.block(otherwise or done)

    def _lane_segments(self, stages: Sequence[Stage]) -> Segments:
        lane = self.phase.lane
        if lane is None or lane.extent <= 2 * self.lanes:
            return whole(lane) if lane is not None else ((0, 1),)
        return plan_segments(stages, (lane,)).get(lane, whole(lane))

    def _segments(self, stages: Sequence[Stage], point: Group, start: str, stop: str) -> None:
        lane = self.phase.lane
        assert lane is not None
        segments = whole(lane) if point.masked else self._lane_segments(stages)
        if len(segments) == 1:
            self._range(stages, point, start, stop, segments[0])
            return
        for lo, hi in segments:
            limits = ("max", start, lo), ("min", stop, hi)
            first, last = (
                self.fn.intrinsic(f"llvm.s{kind}.i64", "i64", [("i64", own), ("i64", str(limit))])
                for kind, own, limit in limits
            )
            self._range(stages, point, first, last, (lo, hi))

    def _range(self, stages: Sequence[Stage], point: Group, start: str, stop: str, within: tuple[int, int]) -> None:
        """Grid points `start` to `stop`, all of them in `within`: `unroll` vectors at a time, then single ones."""
        lane = self.phase.lane
        assert lane is not None
        if self.strip is not None:
            StripWriter(self.nest.body, self.strip, within).write(stages, point, start, stop)
            return
        fn, step = self.fn, self.lanes * self.unroll
        aligned = within == (0, lane.extent)
        if aligned and lane.extent % step == 0:
            middle = stop
        else:
            length = fn.emit(f"sub nsw i64 {stop}, {start}")
            length = fn.intrinsic("llvm.smax.i64", "i64", [("i64", length), ("i64", "0")])
            rest = fn.emit(f"urem i64 {length}, {step}")
            middle = fn.emit(f"sub nsw i64 {fn.emit(f'add nsw i64 {start}, {length}')}, {rest}")
        with counted_loop(fn, start, middle, step, nonempty=False, as_written=True) as position:
            self._vectors(stages, point, position, within, self.unroll, None)
        if middle == stop:
            return
        with counted_loop(fn, middle, stop, self.lanes, nonempty=False, as_written=True) as position:
            active: str | None = None
            if not aligned or lane.extent % self.lanes:
                active = emit_tail_mask(fn, fn.emit(f"sub nsw i64 {stop}, {position}"), self.lanes)
            self._vectors(stages, point, position, within, 1, active)

    def _vectors(
        self,
        stages: Sequence[Stage],
        point: Group,
        position: str,
        within: tuple[int, int],
        unroll: int,
        active: str | None,
    ) -> None:
        lane = self.phase.lane
        assert lane is not None
        lanes = Lanes(self.lanes, lane if self.lanes > 1 else None, self.lanes * self.unroll)
        groups: list[Group] = []
        for number in range(unroll):
            at = {lane: Index(position, number * self.lanes)}
            group = point.nested(
                at, lanes=lanes, ranges={lane: (within[0], within[1] - 1)}, active=active if self.lanes > 1 else None
            )
            group.slot = number * self.lanes
            group.scalars = groups[0].scalars if groups else {}
            groups.append(group)
        for stage in stages:
            self.nest.write(stage, groups)


def _strip(program: TileProgram, phase: Phase, stages: Sequence[Stage], lanes: int, unroll: int) -> Strip | None:
    """Strips where a stage loops and they would be longer than the vectors in flight."""
    if phase.lane is None or lanes == 1 or not any(s.extent > 1 for stage in stages for s in stage.symbols):
        return None
    used = _used(phase)
    scratch = sum(b.type.nbytes for b in program.buffers if b.space is Space.SCRATCH and b.name in used)
    vectors = min(
        STRIP_BYTES * 8 // program.schedule.vector_bits,
        _STRIP_SCRATCH_BYTES // (lanes * scratch) if scratch else 1 << 20,
        -(-phase.lane.extent // lanes),
    )
    return Strip(phase.lane, lanes, vectors) if vectors > unroll else None


def _blocks(phase: Phase, lanes: int, unroll: int, grain_ns: float, widths: Widths) -> tuple[int, int, int]:
    """(grid points of the lane symbol per block, blocks, grain)."""
    points = math.prod(symbol.extent for symbol in phase.grid)
    if points == 0:
        return 1, 0, 1
    ns = point_ns(phase, lanes if phase.lane is not None else widths.vector_bits // 32)
    if phase.panel is not None:
        panel = phase.panel
        blocks = points // panel.symbol.extent * -(-panel.symbol.extent // panel.size)
        return 1, blocks, _grain(grain_ns, ns * min(panel.size, panel.symbol.extent))
    if phase.lane is None:
        return 1, points, _grain(grain_ns, ns)
    extent, step = phase.lane.extent, lanes * unroll
    wanted_ns = max(grain_ns / 8, min(grain_ns / 2, points * ns / _SHARES))
    tile = step * max(1, round(wanted_ns / (ns * step)))
    if tile >= extent:
        return extent, points // extent, _grain(grain_ns, ns * extent)
    return tile, points // extent * -(-extent // tile), _grain(grain_ns, ns * tile)


def _grain(grain_ns: float, block_ns: float) -> int:
    return max(1, round(grain_ns / max(block_ns, 1.0)))


def _places(
    fn: FunctionText, program: TileProgram, phase: Phase, tags: Mapping[str, str], copies: int
) -> tuple[dict[str, Place], int]:
    """Where the phase finds its buffers, and the bytes of scratch that it needs."""
    numbers = {buffer.name: number for number, buffer in enumerate(program.parameters())}
    used = _used(phase)
    places: dict[str, Place] = {}
    scratch_bytes = 0
    for buffer in program.buffers:
        if buffer.name not in used:
            continue
        if buffer.space is Space.SCRATCH:
            base = fn.emit(f"getelementptr inbounds i8, ptr %scratch, i64 {scratch_bytes}")
            scratch_bytes += -(-buffer.type.nbytes * copies // 64) * 64
        else:
            slot = fn.emit(f"getelementptr inbounds ptr, ptr %buffers, i64 {numbers[buffer.name]}")
            base = fn.emit(f"load ptr, ptr {slot}, align 8")
        places[buffer.name] = Place(buffer, base, tags[buffer.name])
    return places, scratch_bytes


def _used(phase: Phase) -> frozenset[str]:
    found: set[str] = set()
    for step in phase.steps:
        match step:
            case Dot():
                found.update((step.out.buffer, step.lhs.buffer, step.rhs.buffer))
            case RowGroup(stages):
                found.update(s.buffer for stage in stages for s in stage.body if isinstance(s, Load | Store))
    return frozenset(found)
