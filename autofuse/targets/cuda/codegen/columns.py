"""Loops of neighbouring grid points (column reductions): packs of columns side by side, and threads that share loops.

    threads of a block:   slice 0   | pack 0 | pack 1 | ... | pack width-1 |     rows 0, slices, 2 slices, ...
                          slice 1   | pack 0 | pack 1 | ... | pack width-1 |     rows 1, slices + 1, ...

A thread reads a pack of neighbouring points at a time, in several iterations at once. Slices walk interleaved
iterations of the longest loop, and what they reduced is combined in a fixed order: by shuffles in a warp, then through
shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from autofuse.ir.index import Symbol
from autofuse.lazydataclass import dataclass
from autofuse.lower.schedule import Schedule
from autofuse.lower.statements import ArgReduce, Reduce
from autofuse.lower.tile import Buffer, Phase, Space, Stage
from autofuse.targets.cuda.codegen.access import (
    VECTOR_BYTES,
    accesses_of,
    begun_together,
    stages_of,
    vector_width,
    words,
)
from autofuse.targets.cuda.codegen.blockreductions import ThreadReductions
from autofuse.targets.cuda.codegen.body import StageBody
from autofuse.targets.cuda.codegen.copies import Copies, Neighbours
from autofuse.targets.cuda.codegen.gridpoints import pack_at, walked
from autofuse.targets.cuda.codegen.phasecode import PhaseCode
from autofuse.targets.cuda.codegen.places import Place, SharedArena
from autofuse.targets.cuda.codegen.rows import StageWriter
from autofuse.targets.cuda.codegen.threads import FULL_THREADS, serial_loop, write_serial_stage
from autofuse.targets.cuda.ctypes_text import memory_type
from autofuse.targets.cuda.decisions import PACK_BYTES, THREADS

LEAST_ITERATIONS = 4
"""A slice walks at least this many iterations of the longest loop."""
ENOUGH_PACKS = FULL_THREADS // 2
"""From here on a thread for each pack keeps a large GPU busy."""
FILLING_BLOCKS = 528
"""Blocks of 256 threads that keep a large GPU busy: four on each of 132 multiprocessors (H100, H200)."""
LEAST_BYTES = 64
"""That a block reads side by side: what memory gives at least at a time."""
MOST_TOTALS = 32
"""32-bit registers of a thread for what it reduces."""
_WARP = 32


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """How a phase is cut into blocks."""

    threads: int
    width: int
    """Threads side by side, each with a pack of points: a power of two, or whole warps."""
    vector: int
    """Neighbouring points of a pack."""
    points: int

    @property
    def slices(self) -> int:
        """Threads that share a pack."""
        return self.threads // self.width

    @property
    def published(self) -> int:
        """Threads that leave what they reduced to the others, through shared memory: 0 if one warp does all."""
        apart = max(self.width, _WARP)
        return self.threads // apart * self.width if self.threads > apart else 0

    @property
    def blocks(self) -> int:
        return -(-self.points // (self.width * self.vector))

    @property
    def exceeds(self) -> bool:
        """Whether the last block has threads that find no pack."""
        return self.points < self.blocks * self.width * self.vector


def plan_columns(
    phase: Phase, buffers: Mapping[str, Buffer], schedule: Schedule, threads: int | None, arena: SharedArena
) -> ColumnPlan | None:
    """The plan, or None where one thread for a pack does as well.

    `threads`: of a block that other phases have too; then there are others at work, and blocks stay wide.
    """
    stages = list(stages_of(phase))
    points = math.prod(symbol.extent for symbol in phase.grid)
    longest = max((_loop(stage).extent for stage in stages if stage.symbols), default=1)
    if any(stage.is_ordered for stage in stages):
        return None
    vector = column_vector(phase, buffers, schedule)
    packs = -(-points // vector)
    if not 0 < packs < ENOUGH_PACKS:
        return None
    pack_bytes = vector * _widest_bytes(stages, buffers)
    most = threads or max(_WARP, schedule[THREADS] // _WARP * _WARP)
    if threads is None:
        width = _width(packs, pack_bytes, most, longest)
    else:
        width = min(1 << (packs - 1).bit_length(), _WARP)
    while threads is None and most > _WARP and most // width * LEAST_ITERATIONS > longest:
        most = max(_WARP, most // 64 * 32)
        width = _width(packs, pack_bytes, most, longest)
    plan = ColumnPlan(most, width, vector, points)
    enough = plan.slices > 1 and plan.slices * (LEAST_ITERATIONS if threads is None else 1) <= longest
    return plan if enough and shared_bytes(stages, buffers, plan) <= arena.capacity else None


def column_vector(phase: Phase, buffers: Mapping[str, Buffer], schedule: Schedule) -> int:
    """Neighbouring points that a thread takes together: what loops read decides, as results are few."""
    grid, stages = walked(phase.grid), list(stages_of(phase))
    accesses = [access for stage in stages for access in accesses_of(stage, buffers)]
    if not grid or any(access.buffer.space is Space.SCRATCH for access in accesses):
        return 1
    looping = [(access, grid[-1]) for access in accesses if access.stage.symbols]
    vector, row = vector_width(looping, (), schedule[PACK_BYTES]), grid[-1].extent
    totals = _total_words(stages)
    while vector > 1 and ((row % vector and row < VECTOR_BYTES * vector) or vector * totals > MOST_TOTALS):
        vector //= 2
    return vector


def _width(packs: int, pack_bytes: int, threads: int, longest: int) -> int:
    """Threads side by side: fewer where there would be few blocks, as long as their loops are worth sharing."""
    divisor, least = threads & -threads, max(1, LEAST_BYTES // pack_bytes)
    width = min(1 << (packs - 1).bit_length(), divisor if divisor < threads else max(_WARP, threads // 2))
    while width > least and 2 * -(-packs // width) <= FILLING_BLOCKS:
        if 2 * threads // width * LEAST_ITERATIONS > longest:
            break
        width //= 2
    return width


def _widest_bytes(stages: Sequence[Stage], buffers: Mapping[str, Buffer]) -> int:
    loads = [a.buffer.type.dtype.itemsize for stage in stages if stage.symbols for a in accesses_of(stage, buffers)]
    return max(loads, default=1)


def _total_words(stages: Sequence[Stage]) -> int:
    """Registers for what a point reduces: positions count as one more value."""
    reductions = (s for stage in stages for s in stage.body if isinstance(s, Reduce | ArgReduce))
    return sum(2 if isinstance(s, ArgReduce) else words(s.dtype) for s in reductions)


def _loop(stage: Stage) -> Symbol:
    """The symbol that slices share: the longest, the outermost of equals."""
    return max(stage.symbols, key=lambda symbol: symbol.extent)


def shared_bytes(stages: Sequence[Stage], buffers: Mapping[str, Buffer], plan: ColumnPlan) -> int:
    """Shared memory of a block: what stages keep for each other, and what its warps reduced."""
    scratch = {a.buffer.name: a.buffer for stage in stages for a in accesses_of(stage, buffers)}
    kept = sum(b.type.nbytes * plan.width + 16 for b in scratch.values() if b.space is Space.SCRATCH)
    reductions = [s for stage in stages for s in stage.body if isinstance(s, Reduce | ArgReduce)]
    arrays = sum(2 if isinstance(s, ArgReduce) else 1 for s in reductions) * plan.vector
    return kept + arrays * (8 * plan.published + 16)


def write_columns(
    code: PhaseCode, phase: Phase, plan: ColumnPlan, buffers: Mapping[str, Buffer], block: str, arena: SharedArena
) -> None:
    """The code of one phase; `block` is the C name of the block's number within the phase."""
    out = code.out
    out.line(f"const int rank = threadIdx.x % {plan.width}, slice = threadIdx.x / {plan.width};")
    pack = pack_at(code, phase.grid, plan, f"{block} * {plan.width} + rank", exceeds=plan.exceeds)
    code.symbols.update(pack.symbols)
    for access in (a for stage in stages_of(phase) for a in accesses_of(stage, buffers)):
        buffer = access.buffer
        if buffer.space is Space.SCRATCH and buffer.name not in code.places:
            dtype, name = buffer.type.dtype, code.names.fresh(buffer.name)
            offset = arena.take(buffer.type.nbytes * plan.width, f"scratch {buffer.name}")
            out.line(f"{memory_type(dtype)}* const {name} = {arena.pointer(memory_type(dtype), offset)};")
            code.places[buffer.name] = Place(name, dtype, "striped", shared=True, stride=plan.width, column="rank")
    ColumnWriter(code, phase, plan, arena, pack).write(tuple(stages_of(phase)))


class ColumnWriter(StageWriter):
    """Writes the stages of a block's grid points in order."""

    def __init__(
        self,
        code: PhaseCode,
        phase: Phase,
        plan: ColumnPlan,
        arena: SharedArena,
        pack: Neighbours,
    ) -> None:
        super().__init__(code, "__syncthreads();")
        self.grid = walked(phase.grid)
        self.plan = plan
        self.pack = pack
        self.reductions = ThreadReductions(code, arena)

    def _copies(self, leader: str | None = None) -> Copies:
        lane = self.grid[-1] if self.grid else None
        return Copies(lane, self.plan.vector, leader=leader, grid=self.grid, packs=(self.pack,))

    def single(self, stage: Stage) -> None:
        """All slices compute the same; one of them stores."""
        write_serial_stage(self.code, stage, self._copies("slice == 0"))

    def spread(self, stage: Stage) -> None:
        """Slices walk interleaved iterations of the longest loop."""
        code, shared, copies = self.code, _loop(stage), self._copies()
        body = StageBody(code, stage, self.plan.vector)
        body.declare()
        body.ahead(copies)
        with ExitStack() as stack:
            for symbol in stage.symbols:
                if symbol != shared:
                    stack.enter_context(code.out.braces(serial_loop(code, symbol)))
            self._shared_loop(stage, body, shared, copies)
        self._combine(stage, body)
        body.finish()

    def _shared_loop(self, stage: Stage, body: StageBody, shared: Symbol, copies: Copies) -> None:
        """The loop that slices share: several iterations together, and then what is left of it."""
        code, slices, extent = self.code, self.plan.slices, shared.extent
        begun = begun_together(stage, self.plan.vector)
        while begun > 1 and begun * slices > extent:
            begun //= 2
        name, type_, step = code.loop_name(shared), code.index.type, begun * slices
        names = [name, *(code.names.fresh(f"{shared.name}_{number}") for number in range(1, begun))]
        with code.out.braces(""):
            code.out.line(f"{type_} {name} = slice;")
            last = f"{name} + {(begun - 1) * slices}" if begun > 1 else name
            code.out.line("#pragma unroll 1")
            with code.out.braces(f"for (; {last} < {extent}; {name} += {step})"):
                for number, other in enumerate(names[1:], 1):
                    code.out.line(f"const {type_} {other} = {name} + {number * slices};")
                body.body(copies.iterations(shared, names))
            if extent % step:
                with code.out.braces(f"for (; {name} < {extent}; {name} += {slices})"):
                    body.body(copies)

    def _combine(self, stage: Stage, body: StageBody) -> None:
        """What the slices reduced: first those of a warp, then those of all warps."""
        plan, reductions = self.plan, [s for s in stage.body if isinstance(s, Reduce | ArgReduce)]
        pairs = [(s, body.accumulators[s.result]) for s in reductions]
        for s, total in pairs:
            self.reductions.across_lanes(s, total, _WARP, "0xffffffffu", least=plan.width, rank="threadIdx.x")
        if not pairs or not plan.published:
            return
        place = "threadIdx.x" if plan.width >= _WARP else f"threadIdx.x / {_WARP} * {plan.width} + rank"
        leads = f"threadIdx.x % {_WARP} < {plan.width}" if plan.width < _WARP else ""
        parts = [self.reductions.publish(s, total, plan.published, place, leads) for s, total in pairs]
        self.barrier()
        for (s, total), part in zip(pairs, parts, strict=True):
            self.reductions.collect(s, total, part, plan.published // plan.width, f"{{}} * {plan.width} + rank")
