"""Running sums of whole vectors: a scan whose neighbours lie side by side in memory is walked a vector at a time.

    stage (k0<2048) vectorised=none { scan add }   ->   stage (k0<2048) vectorised=k0 { scan add }

Inside a vector the prefixes are found in log steps; from vector to vector one operation is left in the chain, so that
a scan costs a few instructions per vector instead of an operation's latency per element. Sums of floats are added in
another order than one by one, a fixed one for each vector width, with errors that are no larger.
"""

from __future__ import annotations

from autofuse.ir.index import Affine, Symbol
from autofuse.lazydataclass import replace
from autofuse.lower.statements import Load, Scan, Store
from autofuse.lower.tile import Phase, RowGroup, Stage, TileProgram


def vectorise_scans(program: TileProgram, *, strided: bool = False) -> TileProgram:
    """The same program with vectorised loops in the stages whose scans can have them.

    `strided`: also where neighbours do not lie side by side in memory.
    """
    launches = tuple(tuple(_phase(phase, strided) for phase in launch) for launch in program.launches)
    return replace(program, launches=launches)


def _phase(phase: Phase, strided: bool) -> Phase:
    if phase.vectorised is not None:
        return phase
    steps = tuple(
        RowGroup(tuple(_stage(stage, strided) for stage in step.stages)) if isinstance(step, RowGroup) else step
        for step in phase.steps
    )
    return replace(phase, steps=steps)


def _stage(stage: Stage, strided: bool) -> Stage:
    scans = [s for s in stage.body if isinstance(s, Scan)]
    if not scans or len(stage.symbols) != 1 or len({scan.reverse for scan in scans}) > 1:
        return stage
    (walk,) = stage.symbols
    side_by_side = all(is_plain(s.offset, walk) for s in stage.body if isinstance(s, Load | Store))
    return replace(stage, vectorised=walk) if side_by_side or strided else stage


def is_plain(offset: Affine, walk: Symbol) -> bool:
    """Whether the elements along `walk` are neighbours, or one and the same."""
    return offset.coefficient(walk) in (-1, 0, 1) and all(isinstance(variable, Symbol) for variable, _ in offset.terms)
