"""Few grid points with long loops each (column reductions): the warps of a block share the loops of neighbours.

A block is `width` neighbouring points by `slices`: threads of one slice read neighbouring elements, slices walk
interleaved iterations, and what they reduced is combined through shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import ExitStack

from autofuse.ir.index import Symbol
from autofuse.lazydataclass import dataclass
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import ArgReduce, Buffer, Phase, Reduce, Space, Stage
from autofuse.targets.cuda.codegen.access import accesses_of, has_scan, stages_of
from autofuse.targets.cuda.codegen.blockreductions import ThreadReductions
from autofuse.targets.cuda.codegen.body import StageBody
from autofuse.targets.cuda.codegen.copies import Copies
from autofuse.targets.cuda.codegen.gridpoints import define_symbols
from autofuse.targets.cuda.codegen.phasecode import PhaseCode
from autofuse.targets.cuda.codegen.places import Place, SharedArena
from autofuse.targets.cuda.codegen.rows import StageWriter
from autofuse.targets.cuda.codegen.threads import ENOUGH_THREADS, write_serial_stage
from autofuse.targets.cuda.ctypes_text import memory_type
from autofuse.targets.cuda.decisions import THREADS

LEAST_ITERATIONS = 4
"""A slice walks at least this many iterations of the longest loop."""


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """How a phase is cut into blocks."""

    threads: int
    width: int
    """Neighbouring grid points of a block: a power of two up to 32."""
    points: int

    @property
    def slices(self) -> int:
        """Threads that share one grid point."""
        return self.threads // self.width

    @property
    def blocks(self) -> int:
        return -(-self.points // self.width)


def plan_columns(
    phase: Phase, buffers: Mapping[str, Buffer], schedule: Schedule, threads: int | None, arena: SharedArena
) -> ColumnPlan | None:
    """The plan, or None where one thread per grid point does as well."""
    points = math.prod(symbol.extent for symbol in phase.grid)
    longest = max((_loop(stage).extent for stage in stages_of(phase) if stage.symbols), default=1)
    if not 0 < points < ENOUGH_THREADS or any(has_scan(stage) for stage in stages_of(phase)):
        return None
    width = min(32, 1 << (points - 1).bit_length())
    most = threads or max(32, schedule[THREADS] // 32 * 32)
    while threads is None and most > 32 and most // width * LEAST_ITERATIONS > longest:
        most = max(32, most // 64 * 32)
    plan = ColumnPlan(most, width, points)
    enough = plan.slices > 1 and plan.slices * LEAST_ITERATIONS <= longest
    return plan if enough and _shared_bytes(phase, buffers, plan) <= arena.capacity else None


def _loop(stage: Stage) -> Symbol:
    """The symbol that slices share: the longest, the outermost of equals."""
    return max(stage.symbols, key=lambda symbol: symbol.extent)


def _shared_bytes(phase: Phase, buffers: Mapping[str, Buffer], plan: ColumnPlan) -> int:
    scratch = {a.buffer.name: a.buffer for stage in stages_of(phase) for a in accesses_of(stage, buffers)}
    kept = sum(b.type.nbytes * plan.width + 16 for b in scratch.values() if b.space is Space.SCRATCH)
    reductions = sum(isinstance(s, Reduce | ArgReduce) for stage in stages_of(phase) for s in stage.body)
    return kept + reductions * 2 * (8 * plan.threads + 16)


def write_columns(
    code: PhaseCode, phase: Phase, plan: ColumnPlan, buffers: Mapping[str, Buffer], block: str, arena: SharedArena
) -> None:
    """The code of one phase; `block` is the C name of the block's number within the phase."""
    out, type_ = code.out, code.index.type
    out.line(f"const int rank = threadIdx.x % {plan.width}, slice = threadIdx.x / {plan.width};")
    inside = ""
    if plan.points % plan.width:
        inside = "inside"
        out.line(f"const bool inside = {block} * {plan.width} + rank < {plan.points};")
        out.line(f"const {type_} point = inside ? {block} * {plan.width} + rank : {plan.points - 1};")
    else:
        out.line(f"const {type_} point = {block} * {plan.width} + rank;")
    define_symbols(code, phase.grid, "point")
    for access in (a for stage in stages_of(phase) for a in accesses_of(stage, buffers)):
        buffer = access.buffer
        if buffer.space is Space.SCRATCH and buffer.name not in code.places:
            dtype, name = buffer.type.dtype, code.names.fresh(buffer.name)
            offset = arena.take(buffer.type.nbytes * plan.width, f"scratch {buffer.name}")
            out.line(f"{memory_type(dtype)}* const {name} = {arena.pointer(memory_type(dtype), offset)};")
            code.places[buffer.name] = Place(name, dtype, "striped", shared=True, stride=plan.width, column="rank")
    ColumnWriter(code, plan, arena, inside).write(tuple(stages_of(phase)))


class ColumnWriter(StageWriter):
    """Writes the stages of a block's grid points in order."""

    def __init__(self, code: PhaseCode, plan: ColumnPlan, arena: SharedArena, inside: str) -> None:
        super().__init__(code, "__syncthreads();")
        self.plan = plan
        self.inside = inside
        """C condition that the thread's point exists; empty if always."""
        self.reductions = ThreadReductions(code, arena)

    def single(self, stage: Stage) -> None:
        """All slices compute the same; one of them stores."""
        leader = " && ".join(("slice == 0", *([self.inside] if self.inside else [])))
        write_serial_stage(self.code, stage, Copies(None, 1, leader=leader))

    def spread(self, stage: Stage) -> None:
        """Slices walk interleaved iterations of the longest loop."""
        code, type_ = self.code, self.code.index.type
        body = StageBody(code, stage, 1)
        body.declare()
        shared = _loop(stage)
        with ExitStack() as stack:
            for symbol in (*(s for s in stage.symbols if s != shared), shared):
                name = code.loop_name(symbol)
                first, step = ("slice", self.plan.slices) if symbol is shared else ("0", 1)
                if symbol is shared:
                    code.out.line("#pragma unroll 4")
                head = f"for ({type_} {name} = {first}; {name} < {symbol.extent}; {name} += {step})"
                stack.enter_context(code.out.braces(head))
            body.body(Copies(None, 1, leader=self.inside or None, combined=True))
        self._combine(stage, body)
        body.finish()

    def _combine(self, stage: Stage, body: StageBody) -> None:
        reductions = [s for s in stage.body if isinstance(s, Reduce | ArgReduce)]
        if not reductions:
            return
        totals = [body.accumulators[s.result] for s in reductions]
        parts = [
            self.reductions.publish(s, total, self.plan.threads, "threadIdx.x")
            for s, total in zip(reductions, totals, strict=True)
        ]
        self.barrier()
        for s, total, part in zip(reductions, totals, parts, strict=True):
            self.reductions.collect(s, total, part, self.plan.slices, f"{{}} * {self.plan.width} + rank")
