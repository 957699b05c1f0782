"""Maxima and the sums that they stabilise are taken in one walk along a row that is too long to be kept on chip.

Before (logsumexp, softmax):              After:

    stage (k): m = reduce maximum x           stage (k) stabilised by m:
    stage (k): e = exp(x - m)                     m = reduce maximum x; e = exp(x - m)
               l = reduce add e                   l = reduce add e
"""

from __future__ import annotations

from collections.abc import Mapping

from autofuse.ir import index
from autofuse.ir.dtypes import BOOL, DType
from autofuse.lazydataclass import replace
from autofuse.lower.merging import once
from autofuse.lower.rewrite import rewritten
from autofuse.lower.stabilised import RowValues, UnknownFormError, Weights
from autofuse.lower.statements import Effect, Load, Reduce, Scalar, Store, Test
from autofuse.lower.tile import Buffer, Phase, RowGroup, Space, Stage, TileProgram
from autofuse.targets.cuda.codegen.access import is_threaded
from autofuse.targets.cuda.decisions import ONLINE


def walk_once(program: TileProgram) -> TileProgram:
    """The program with neighbouring stages joined where the first has the maximum of the second's sums."""
    if program.schedule[ONLINE] == "off":
        return program
    buffers = {buffer.name: buffer for buffer in program.buffers}
    launches = tuple(tuple(_phase(phase, buffers) for phase in launch) for launch in program.launches)
    return program if launches == program.launches else replace(program, launches=launches)


def _phase(phase: Phase, buffers: Mapping[str, Buffer]) -> Phase:
    if phase.row_block is not None or len(phase.steps) != 1 or is_threaded(phase):
        return phase
    (group,) = phase.steps
    if not isinstance(group, RowGroup):
        return phase
    stages: list[Stage] = []
    made: dict[Scalar, DType] = {}
    """By stages before the last one."""
    for stage in group.stages:
        joined = _joined(stages[-1], stage, buffers, made) if stages else None
        if joined is None and stages:
            made |= _results(stages[-1])
        stages[-1:] = [stage] if not stages else [joined] if joined is not None else [stages[-1], stage]
    return replace(phase, steps=(RowGroup(tuple(stages)),))


def _results(stage: Stage) -> dict[Scalar, DType]:
    """What stages behind one may read of it: reductions, and all that is computed once for the row."""
    kept = [s for s in stage.body if not isinstance(s, Effect) and (not stage.symbols or isinstance(s, Reduce))]
    return {s.result: BOOL if isinstance(s, Test) else s.dtype for s in kept}


def _joined(first: Stage, second: Stage, buffers: Mapping[str, Buffer], made: Mapping[Scalar, DType]) -> Stage | None:
    """Two stages as one, if the second only sums what a maximum of the first stabilises, of memory it walks again.

    `made`: what stages before them reduced rows to.
    """
    walks = [stage.vectorised for stage in (first, second)]
    if first.stabiliser is not None or any(s.symbols != (w,) for s, w in zip((first, second), walks, strict=True)):
        return None
    loads = [s for s in second.body if isinstance(s, Load)]
    again = any(buffers[s.buffer].space is Space.INPUT and walks[1] in index.symbols_of(s.offset) for s in loads)
    plain = not any(isinstance(s, Store) for s in second.body)
    on_chip = any(buffers[s.buffer].space is Space.SCRATCH for s in loads)
    if not again or not plain or on_chip:
        return None
    maximum = _maximum(first, second, made)
    if maximum is None or walks[0] is None or walks[1] is None:
        return None
    place = {walks[1]: index.of(walks[0])}
    body = [rewritten(statement, lambda value: index.renamed(value, place)) for statement in second.body]
    return Stage(first.symbols, once([*first.body, *body]), walks[0], maximum)


def _maximum(first: Stage, second: Stage, made: Mapping[Scalar, DType]) -> Scalar | None:
    """The maximum of the first stage that all of the second's sums are stabilised by, or need not be."""
    row = RowValues(first.symbols[0].extent)
    for scalar, dtype in made.items():
        row.give(scalar, dtype)
    try:
        row.read((first, second), frozenset())
    except UnknownFormError:
        return None
    weights = Weights(row)
    sums = [row.known[s.result] for s in second.body if isinstance(s, Reduce)]
    for statement in first.body:
        if isinstance(statement, Reduce) and statement.combiner == "maximum":
            maximum = row.known[statement.result]
            operands = [s.operand for number in sums if isinstance(s := row.values[number].statement, Reduce)]
            follows = any(row.values[operand].reduced for operand in operands)
            if follows and all(weights.carries(number, maximum) for number in sums):
                return statement.result
    return None
