"""Another vectorised loop for element-wise phases whose last grid symbol is too short to fill a vector.

    grid(i0<500000, i1<4) vectorised=i1 { 80 statements }
    ->  grid(i0<500000) vectorised=i0 { stage (i1<4) { 80 statements } }

Memory is then reached in strides, which costs per element moved; it pays where there is more to compute than to move.
The short symbol becomes a loop inside, so that a cache line is still used up before the next; where conditions depend
on it (a stack of several results), the loop is cut into its iterations.
"""

from __future__ import annotations

from autofuse.ir.index import Symbol
from autofuse.lazydataclass import replace
from autofuse.lower.statements import Load, Map, Store
from autofuse.lower.tile import Phase, RowGroup, Stage, TileProgram
from autofuse.targets.cpu.codegen.pointwork import map_weight
from autofuse.targets.cpu.codegen.widths import Widths

_STRIDED = 1.5
"""Cost of an element moved in strides, in vector instructions."""
_LONG = 4
"""Vectors that the new loop must fill at least."""


def vectorise_longer(program: TileProgram, widths: Widths) -> TileProgram:
    """The same program with better ones where there are any."""
    launches = tuple(tuple(_phase(phase, widths) for phase in launch) for launch in program.launches)
    return replace(program, launches=launches)


def _phase(phase: Phase, widths: Widths) -> Phase:
    stage = _only_stage(phase)
    if phase.vectorised is None or stage is None or phase.vectorised.extent < 2:
        return phase
    full, _ = widths.of((stage,), 1 << 30)
    others = [s for s in phase.grid if s != phase.vectorised and s.extent >= _LONG * full]
    if not others or phase.vectorised.extent * 2 > full or not _pays(stage, phase.vectorised, others[-1], full):
        return phase
    new, short = others[-1], phase.vectorised
    grid = (*(s for s in phase.grid if s not in (new, short)), new)
    inner = Stage((short,), stage.body, None)
    return Phase(grid, (RowGroup((inner,)),), vectorised=new)


def _only_stage(phase: Phase) -> Stage | None:
    if len(phase.steps) != 1 or not isinstance(phase.steps[0], RowGroup):
        return None
    stages = phase.steps[0].stages
    return stages[0] if len(stages) == 1 and not stages[0].symbols else None


def _pays(stage: Stage, short: Symbol, new: Symbol, full: int) -> bool:
    compute = sum(map_weight(s) for s in stage.body if isinstance(s, Map))
    moves = sum(abs(s.offset.coefficient(new)) > 1 for s in stage.body if isinstance(s, Load | Store))
    return compute / short.extent > compute / full + _STRIDED * moves
