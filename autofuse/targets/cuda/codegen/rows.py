"""A group of threads per grid point: a block, or part of a warp. Stage lanes are spread over the group."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Literal

from autofuse.ir import index
from autofuse.ir.index import Symbol
from autofuse.lazydataclass import dataclass
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import ArgReduce, Buffer, Load, Phase, Reduce, Space, Stage, Store
from autofuse.targets.cuda.codegen.access import Access, accesses_of, has_scan, stages_of, vector_width, words
from autofuse.targets.cuda.codegen.blockreductions import ThreadReductions
from autofuse.targets.cuda.codegen.body import Copies, PhaseCode, StageBody
from autofuse.targets.cuda.codegen.places import Place, SharedArena
from autofuse.targets.cuda.codegen.threads import define_symbols, write_serial_stage
from autofuse.targets.cuda.ctypes_text import memory_type, register_type
from autofuse.targets.cuda.decisions import ITEMS, THREADS

OWNED_WORDS = 32
"""Scratch that threads own is kept in registers up to this many words of each thread."""
SHORT_ROW = 128
"""Rows of at most this many vectors take a warp or less instead of a block."""


@dataclass(frozen=True, slots=True)
class Group:
    """The threads that work on one grid point."""

    kind: Literal["warp", "block"]
    threads: int
    """Threads of the block."""
    width: int
    """Threads of the group; a power of two up to 32 for `warp`."""
    vector: int
    """Neighbouring lanes of one thread."""

    @property
    def per_block(self) -> int:
        """Groups in a block."""
        return self.threads // self.width

    @property
    def mask(self) -> str:
        """The C name or value of the warp lanes in the group."""
        return "0xffffffffu" if self.width >= 32 else "mask"

    def barrier(self) -> str:
        return "__syncthreads();" if self.kind == "block" else f"__syncwarp({self.mask});"


def lane_of(stage: Stage) -> Symbol | None:
    """The symbol spread over threads: what the stage names, else its innermost; None for scans and single points."""
    if has_scan(stage) or not stage.symbols:
        return None
    return stage.vectorised if stage.vectorised is not None else stage.symbols[-1]


def is_flattened(stage: Stage, width: int) -> bool:
    """Whether all symbols together are spread, because the lane alone would leave threads idle."""
    lane = lane_of(stage)
    return lane is not None and len(stage.symbols) > 1 and lane.extent < width


def plan_group(
    stages: Sequence[Stage], points: int, buffers: Mapping[str, Buffer], schedule: Schedule, threads: int | None
) -> Group:
    """Choose group and vector width by the longest stage; `threads` fixes the block's width if given."""
    spread = [stage for stage in stages if lane_of(stage) is not None]
    longest = max((_spread_extent(stage) for stage in spread), default=1)
    vector = _vector(spread, buffers, schedule[ITEMS])
    most = threads or max(32, schedule[THREADS] // 32 * 32)
    wanted = _power_above(-(-longest // vector))
    if wanted <= SHORT_ROW:
        width = min(32, wanted)
        block = threads or min(most, max(32, _power_above(points * width)))
        return Group("warp", block, width, vector)
    return Group("block", threads or min(most, wanted), threads or min(most, wanted), vector)


def _spread_extent(stage: Stage) -> int:
    lane = lane_of(stage)
    return lane.extent if lane is not None and lane.extent >= 32 else math.prod(s.extent for s in stage.symbols)


def _vector(stages: Sequence[Stage], buffers: Mapping[str, Buffer], items: int) -> int:
    lanes = [(stage, lane) for stage in stages if (lane := lane_of(stage)) is not None]
    straight = [(stage, lane) for stage, lane in lanes if not is_flattened(stage, 32)]
    accesses = [(access, lane) for stage, lane in straight for access in accesses_of(stage, buffers)]
    return vector_width(accesses, [lane.extent for _, lane in straight], items)


def _power_above(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()


def is_owned(buffer: Buffer, accesses: Sequence[Access], group: Group) -> bool:
    """Whether every thread reads only elements of `buffer` that it wrote, and few enough for registers."""
    if not accesses:
        return False
    bases: set[index.Affine] = set()
    extents: set[int] = set()
    for access in accesses:
        lane = lane_of(access.stage)
        if lane is None or access.stage.symbols != (lane,) or access.offset.coefficient(lane) != 1:
            return False
        base = access.offset - index.of(lane)
        if lane in index.symbols_of(base):
            return False
        bases.add(base)
        extents.add(lane.extent)
    if len(bases) != 1 or len(extents) != 1:
        return False
    return owned_count(extents.pop(), group) * words(buffer.type.dtype) <= OWNED_WORDS


def owned_count(extent: int, group: Group) -> int:
    """Elements of a row of `extent` that one thread walks."""
    return -(-extent // (group.width * group.vector)) * group.vector


def row_places(
    stages: Sequence[Stage], buffers: Mapping[str, Buffer], group: Group, arena: SharedArena, code: PhaseCode
) -> dict[str, Place]:
    """Declare the scratch of a grid point: registers where owned, else shared memory."""
    accesses = [a for stage in stages for a in accesses_of(stage, buffers) if a.buffer.space is Space.SCRATCH]
    places: dict[str, Place] = {}
    for buffer in {a.buffer.name: a.buffer for a in accesses}.values():
        dtype, name = buffer.type.dtype, code.names.fresh(buffer.name)
        own = [a for a in accesses if a.buffer is buffer]
        if is_owned(buffer, own, group):
            lane = lane_of(own[0].stage)
            count = owned_count(lane.extent if lane else 1, group)
            code.out.line(f"{register_type(dtype)} {name}[{count}];")
            places[buffer.name] = Place(name, dtype, "owned")
            continue
        step = -(-buffer.type.nbytes // 16) * 16 // dtype.itemsize
        offset = arena.take(step * dtype.itemsize * group.per_block, f"scratch {buffer.name} of {group.per_block} rows")
        slot = f" + slot * {step}" if group.kind == "warp" else ""
        code.out.line(f"{memory_type(dtype)}* const {name} = {arena.pointer(memory_type(dtype), offset)}{slot};")
        places[buffer.name] = Place(name, dtype, "memory", shared=True)
    return places


def write_group_head(code: PhaseCode, group: Group) -> None:
    """Define `rank` (and `slot`, `mask` in a warp): who this thread is in its group."""
    if group.kind == "block":
        code.out.line("const int rank = threadIdx.x;")
        return
    code.out.line(f"const int rank = threadIdx.x % {group.width}, slot = threadIdx.x / {group.width};")
    if group.width < 32:
        ones = (1 << group.width) - 1
        code.out.line(f"const unsigned int mask = {ones:#x}u << (threadIdx.x % 32 - rank);")


def write_rows(
    code: PhaseCode, phase: Phase, group: Group, buffers: Mapping[str, Buffer], block: str, arena: SharedArena
) -> None:
    """The code of a phase without row blocks; `block` is the C name of the block's number within the phase."""
    points = math.prod(symbol.extent for symbol in phase.grid)
    write_group_head(code, group)
    code.places.update(row_places(tuple(stages_of(phase)), buffers, group, arena, code))
    with ExitStack() as stack:
        if group.kind == "warp":
            code.out.line(f"const {code.index.type} point = {block} * {group.per_block} + slot;")
            if points % group.per_block:
                stack.enter_context(code.out.braces(f"if (point < {points})"))
            define_symbols(code, phase.grid, "point")
        else:
            define_symbols(code, phase.grid, block)
        RowWriter(code, group, arena).write(tuple(stages_of(phase)))


class StageWriter(ABC):
    """Writes the stages of one grid point in order, with the barriers that shared scratch needs."""

    def __init__(self, code: PhaseCode, barrier: str) -> None:
        self.code = code
        self._barrier = barrier
        self._read: set[str] = set()
        self._written: set[str] = set()

    def write(self, stages: Sequence[Stage]) -> None:
        for stage in stages:
            self._order(stage)
            if lane_of(stage) is None:
                self.single(stage)
            else:
                self.spread(stage)

    @abstractmethod
    def single(self, stage: Stage) -> None:
        """A stage that every thread walks alike."""

    @abstractmethod
    def spread(self, stage: Stage) -> None:
        """A stage whose iterations the threads share."""

    def barrier(self) -> None:
        """All threads of the group meet; what they stored before is visible behind."""
        self.code.out.line(self._barrier)
        self._read, self._written = set(), set()

    def _order(self, stage: Stage) -> None:
        """A barrier, if this stage touches shared scratch that other threads wrote or still read."""
        reads, writes = self._touched(stage)
        if reads & self._written or writes & (self._written | self._read):
            self.barrier()
        self._read |= reads
        self._written |= writes

    def _touched(self, stage: Stage) -> tuple[set[str], set[str]]:
        places = self.code.places
        reads = {s.buffer for s in stage.body if isinstance(s, Load) and places[s.buffer].shared}
        writes = {s.buffer for s in stage.body if isinstance(s, Store) and places[s.buffer].shared}
        return reads, writes


class RowWriter(StageWriter):
    """The stages of a group's grid point."""

    def __init__(self, code: PhaseCode, group: Group, arena: SharedArena) -> None:
        super().__init__(code, group.barrier())
        self.group = group
        self.reductions = ThreadReductions(code, arena)

    def single(self, stage: Stage) -> None:
        """All threads walk the same iterations; one of them stores."""
        write_serial_stage(self.code, stage, Copies(None, 1, leader="rank == 0"))

    def spread(self, stage: Stage) -> None:
        """Lanes are spread over the group's threads, and what they reduced is combined."""
        body = StageBody(self.code, stage, 1)
        body.declare()
        if is_flattened(stage, self.group.width):
            self._flat_loop(stage, body)
        else:
            self._lane_loop(stage, body)
        self._combine(stage, body)
        body.finish()

    def _flat_loop(self, stage: Stage, body: StageBody) -> None:
        code, total = self.code, math.prod(symbol.extent for symbol in stage.symbols)
        with code.out.braces(f"for ({code.index.type} each = rank; each < {total}; each += {self.group.width})"):
            define_symbols(code, stage.symbols, "each")
            body.body(Copies(None, 1, combined=True))

    def _lane_loop(self, stage: Stage, body: StageBody) -> None:
        code, group, lane = self.code, self.group, lane_of(stage)
        assert lane is not None
        step = group.width * group.vector
        full = lane.extent // step
        with ExitStack() as stack:
            for symbol in stage.symbols:
                if symbol != lane:
                    name = code.loop_name(symbol)
                    head = f"for ({code.index.type} {name} = 0; {name} < {symbol.extent}; ++{name})"
                    stack.enter_context(code.out.braces(head))
            name = code.loop_name(lane)
            if full == 1:
                with code.out.braces(""):
                    self._chunk(body, lane, name, "0")
            elif full > 1:
                self._unroll(stage, full)
                with code.out.braces(f"for (int chunk = 0; chunk < {full}; ++chunk)"):
                    self._chunk(body, lane, name, "chunk")
            if lane.extent % step:
                self._tail(body, lane, name, full)

    def _unroll(self, stage: Stage, count: int) -> None:
        places = self.code.places
        owned = any(places[b].kind == "owned" for s in stage.body if (b := getattr(s, "buffer", None)) is not None)
        self.code.out.line("#pragma unroll" if owned or count <= 8 else "#pragma unroll 4")

    def _start(self, chunk: str) -> str:
        group = self.group
        if chunk == "0":
            return "rank" if group.vector == 1 else f"rank * {group.vector}"
        first = f"{chunk} * {group.width} + rank"
        return first if group.vector == 1 else f"({first}) * {group.vector}"

    def _chunk(self, body: StageBody, lane: Symbol, name: str, chunk: str) -> None:
        self.code.out.line(f"const {self.code.index.type} {name} = {self._start(chunk)};")
        body.body(Copies(lane, self.group.vector, chunk, combined=True))

    def _tail(self, body: StageBody, lane: Symbol, name: str, full: int) -> None:
        start = self._start(str(full))
        with self.code.out.braces(f"if (const {self.code.index.type} {name} = {start}; {name} < {lane.extent})"):
            body.body(Copies(lane, self.group.vector, str(full), combined=True))

    def _combine(self, stage: Stage, body: StageBody) -> None:
        """Combine each thread's partial results over the group; every thread gets the result."""
        group = self.group
        pairs = [(s, body.accumulators[s.result]) for s in stage.body if isinstance(s, Reduce | ArgReduce)]
        for reduction, total in pairs:
            self.reductions.across_lanes(reduction, total, min(32, group.width), group.mask)
        if group.kind == "warp" or not pairs:
            return
        warps = group.width // 32
        parts = [self.reductions.publish(s, total, warps, "rank / 32", "rank % 32 == 0") for s, total in pairs]
        self.barrier()
        for (reduction, total), part in zip(pairs, parts, strict=True):
            self.reductions.collect(reduction, total, part, warps, "{}")
