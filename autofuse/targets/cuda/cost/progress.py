"""How far a thread goes on before it waits for memory: what it has asked for by then is in flight."""

from __future__ import annotations

import math
from collections.abc import Mapping

from autofuse.ir import index
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import Buffer, Load, Space, Stage, Store
from autofuse.targets.cuda.codegen.access import begun_together
from autofuse.targets.cuda.codegen.blockplans import RowBlockPlan
from autofuse.targets.cuda.codegen.columns import ColumnPlan
from autofuse.targets.cuda.codegen.gridpoints import ThreadPlan
from autofuse.targets.cuda.codegen.program import Planned
from autofuse.targets.cuda.codegen.rowgroups import Group, is_flattened, row_vector
from autofuse.targets.cuda.codegen.rowloops import WRITTEN_OUT
from autofuse.targets.cuda.codegen.rowscratch import lane_of
from autofuse.targets.cuda.codegen.transposes import TransposePlan
from autofuse.targets.cuda.cost.onchip import in_registers

_UNROLLED = 4
"""Iterations of a long loop that are written out, by what the generator asks of NVRTC or by NVRTC itself."""
_WARP = 32


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
            vector = row_vector((stage,), planned.buffers, schedule)
            width = plan.threads if planned.phase.row_block is None else _WARP
            return _of_row(planned, stage, Group(plan.threads, width, vector))


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


def load_bytes(stage: Stage, buffers: Mapping[str, Buffer]) -> int:
    """Bytes that an iteration reads from memory, or writes if it reads none; the same element counts once."""
    lane = lane_of(stage)
    loads = [s for s in stage.body if isinstance(s, Load)] or [s for s in stage.body if isinstance(s, Store)]
    walked = {(s.buffer, s.offset) for s in loads if lane is None or lane in index.symbols_of(s.offset)}
    outside = [buffers[name] for name, _ in walked]
    return sum(buffer.type.dtype.itemsize for buffer in outside if buffer.space is not Space.SCRATCH)
