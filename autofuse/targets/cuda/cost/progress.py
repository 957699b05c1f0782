"""How far a thread goes on before it waits for memory: what it has asked for by then is in flight."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set

from autofuse.ir import index
from autofuse.ir.index import Symbol
from autofuse.lazydataclass import dataclass
from autofuse.lower.schedule import Schedule
from autofuse.lower.statements import ArgReduce, Load, Reduce, Scan, Store
from autofuse.lower.tile import Buffer, RowGroup, Space, Stage
from autofuse.targets.cuda.codegen.access import begun_together, stages_of
from autofuse.targets.cuda.codegen.blockplans import RowBlockPlan
from autofuse.targets.cuda.codegen.columns import ColumnPlan
from autofuse.targets.cuda.codegen.gridpoints import ThreadPlan
from autofuse.targets.cuda.codegen.program import Planned
from autofuse.targets.cuda.codegen.rowgroups import Group, is_flattened, rows_together
from autofuse.targets.cuda.codegen.rowloops import WRITTEN_OUT
from autofuse.targets.cuda.codegen.rowscratch import lane_of
from autofuse.targets.cuda.codegen.scans import chunks_together
from autofuse.targets.cuda.codegen.transposes import TransposePlan
from autofuse.targets.cuda.cost.onchip import in_registers

_UNROLLED = 4
"""Iterations of a long loop that are written out, by what the generator asks of NVRTC or by NVRTC itself."""
_WARP = 32
_MEETING = 3.0
"""Dependent steps for a barrier, and for what warps leave each other in shared memory."""


def iterations_at_once(planned: Planned, stage: Stage, schedule: Schedule) -> float:
    """Iterations of a stage that a thread begins before it needs the result of the first."""
    match planned.plan:
        case ThreadPlan() as plan:
            return plan.vector * (_UNROLLED if stage.symbols else plan.packs)
        case TransposePlan() as plan:
            return max(1.0, plan.height * plan.width / plan.threads)
        case ColumnPlan() as plan:
            return plan.vector * begun_together(stage, plan.vector)
        case Group() as group:
            return _of_row(planned, stage, group)
        case RowBlockPlan() as plan:
            return _of_row(planned, stage, plan.group((stage,), planned.phase, planned.buffers, schedule))


def _of_row(planned: Planned, stage: Stage, group: Group) -> float:
    """What is kept in registers is written out whole; of other loops, several iterations are begun together."""
    lane = lane_of(stage)
    if lane is None or is_flattened(stage, group.width):
        return _UNROLLED if stage.symbols else 1
    share = group.share(lane.extent)
    inside = in_registers(planned)
    kept = any(isinstance(s, Load | Store) and s.buffer in inside for s in stage.body)
    if kept or group.vector < share <= WRITTEN_OUT * group.vector:
        return share
    lines = math.prod(symbol.extent for symbol in stage.symbols if symbol != lane) if share <= group.vector else 1
    return min(share * lines, group.vector * begun_together(stage, group.vector))


def pack_of(planned: Planned) -> int:
    """Neighbouring elements that a thread takes side by side."""
    match planned.plan:
        case ThreadPlan(vector=vector) | Group(vector=vector) | ColumnPlan(vector=vector):
            return vector
        case TransposePlan(walk=walk):
            return walk.vector
        case _:
            return 1


def dependent_rounds(planned: Planned, stage: Stage, rounds: int) -> int:
    """How many iterations of a stage one thread does one after the other, neighbours that it takes together as one.

    `rounds`: of a warp, if all its lanes share out the stage's lane; else of a thread that does them all.
    """
    match planned.plan:
        case Group() as group if lane_of(stage) is not None:
            return -(-rounds * _WARP // (group.step * group.cluster))
        case ColumnPlan() as plan:
            return -(-rounds // plan.slices)
        case _:
            return rounds


@dataclass(frozen=True, slots=True)
class RowChain:
    """What a group of threads does one behind the other: its rows of a row block, or the chunks of a running sum."""

    waits: float
    """For memory."""
    steps: float
    """That depend on one another: packs, and the shuffles of reductions."""


def row_chain(planned: Planned, schedule: Schedule) -> RowChain:
    """Of a block; nothing where there is none."""
    if isinstance(planned.plan, Group):
        scans = [_of_scan(planned, stage) for stage in stages_of(planned.phase) if _scans_of(stage)]
        return RowChain(sum(one.waits for one in scans), sum(one.steps for one in scans))
    if isinstance(planned.plan, RowBlockPlan) and (planned.phase.row_block or planned.phase.iterations):
        return _of_row_block(planned, planned.plan, schedule)
    return RowChain(0.0, 0.0)


def _of_row_block(planned: Planned, plan: RowBlockPlan, schedule: Schedule) -> RowChain:
    """Of its stages, but for those that a sweep takes; and of the meetings between the steps of iterations."""
    waits = steps = 0.0
    phase, block = planned.phase, planned.phase.row_block
    own = set[Symbol]() if block is None else {block.symbol, block.local}
    even, rows = (False, 1) if block is None else (block.symbol.extent % plan.rows == 0, plan.rows)
    for number, step in enumerate(phase.steps):
        times, again = phase.times(number), phase.iterations
        if again is not None and number in again.steps:
            steps += times * _MEETING
        if not isinstance(step, RowGroup) or (phase.sweep is not None and number in phase.sweep.steps):
            continue
        group = plan.group(step.stages, phase, planned.buffers, schedule)
        walked = own | ({again.symbol} if again is not None else set())
        turns = -(-rows // group.per_block)
        if any(_asks_memory(stage, planned.buffers, walked) for stage in step.stages):
            waits += times * turns / (rows_together(step.stages, group, rows) if even else 1)
        steps += times * turns * sum(_steps(stage, group) for stage in step.stages)
    return RowChain(waits, steps)


def _asks_memory(stage: Stage, buffers: Mapping[str, Buffer], walked: Set[Symbol]) -> bool:
    """Whether a stage reads memory, at places of their own for what `walked` goes through."""
    loads = [s for s in stage.body if isinstance(s, Load) and buffers[s.buffer].space is not Space.SCRATCH]
    return any(not walked.isdisjoint(index.symbols_of(load.offset)) for load in loads)


def _scans_of(stage: Stage) -> list[Scan]:
    return [s for s in stage.body if isinstance(s, Scan)]


def _of_scan(planned: Planned, stage: Stage) -> RowChain:
    """Of chunks that are begun together: a wait, the shuffles of a scan after those of another, and a meeting."""
    group, (walk,) = planned.plan, stage.symbols
    assert isinstance(group, Group)
    inside = in_registers(planned)
    held = any(isinstance(s, Load | Store) and s.buffer in inside for s in stage.body)
    begun, chunks = chunks_together(stage, group, held=held), -(-walk.extent // group.step)
    turns = chunks // begun + chunks % begun
    lanes, warps = min(_WARP, group.width).bit_length(), group.width // _WARP
    met = 0.0 if group.in_warp else _MEETING + begun * warps / 4
    steps = sum(lanes * max(scan.dtype.bits // 32, 1) + met for scan in _scans_of(stage))
    return RowChain(turns * float(_asks_memory(stage, planned.buffers, {walk})), turns * steps)


def _steps(stage: Stage, group: Group) -> float:
    """Of a stage, for one row: its packs, and of each reduction a shuffle for each half of the threads."""
    lane = lane_of(stage)
    shuffles = (group.width.bit_length() - 1) if lane is not None else 0
    reduced = sum((1 if isinstance(s, Reduce) else 2) for s in stage.body if isinstance(s, Reduce | ArgReduce))
    packs = 1 if lane is None else math.prod(stage.trips) // max(lane.extent, 1) * -(-lane.extent // group.step)
    return packs + reduced * shuffles


def load_bytes(stage: Stage, buffers: Mapping[str, Buffer]) -> int:
    """Bytes that an iteration reads from memory, or writes if it reads none; the same element counts once."""
    lane = lane_of(stage)
    loads = [s for s in stage.body if isinstance(s, Load)] or [s for s in stage.body if isinstance(s, Store)]
    walked = {(s.buffer, s.offset) for s in loads if lane is None or lane in index.symbols_of(s.offset)}
    outside = [buffers[name] for name, _ in walked]
    return sum(buffer.type.dtype.itemsize for buffer in outside if buffer.space is not Space.SCRATCH)
