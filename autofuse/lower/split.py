"""Splitting a reduction that has too few grid points: partial results first, a second launch folds them."""

from __future__ import annotations

from dataclasses import replace

from autofuse.ir import dtypes, index
from autofuse.ir.combiners import combiner_identity
from autofuse.ir.index import Affine, Symbol
from autofuse.ir.optable import Condition
from autofuse.ir.types import TensorType
from autofuse.lower.rewrite import rewritten
from autofuse.lower.tile import (
    Buffer,
    Constant,
    Load,
    Map,
    Phase,
    Reduce,
    RowGroup,
    Scalar,
    Space,
    Stage,
    Statement,
    Store,
    Test,
    TileProgram,
)

AUTOMATIC_PARTS = 16
"""Parts of an automatic split: fixed, so that a result does not depend on the number of threads."""
_LEAST_ITERATIONS = 1 << 15
_FEW_POINTS = 8


def split_reductions(program: TileProgram, parts: int) -> TileProgram:
    """Split each first-level reduction of a program with few grid points into `parts`; 0 = decide, 1 = leave."""
    if parts == 1 or len(program.launches) != 1 or len(program.launches[0]) != 1:
        return program
    phase = program.launches[0][0]
    if phase.panel is not None or len(phase.steps) != 1 or not isinstance(phase.steps[0], RowGroup):
        return program
    stage = phase.steps[0].stages[0]
    if not _can_split(stage) or (parts == 0 and not _worth_splitting(phase, stage)):
        return program
    return _Splitter(program, phase, stage, min(parts or AUTOMATIC_PARTS, stage.symbols[0].extent)).run()


def _can_split(stage: Stage) -> bool:
    return (
        bool(stage.symbols)
        and stage.symbols[0].extent > 1
        and any(isinstance(s, Reduce) for s in stage.body)
        and not any(type(s).__name__ in ("Scan", "ArgReduce") for s in stage.body)
        and not any(isinstance(s, Store) for s in stage.body)
    )


def _worth_splitting(phase: Phase, stage: Stage) -> bool:
    points = 1
    for symbol in phase.grid:
        points *= symbol.extent
    iterations = 1
    for symbol in stage.symbols:
        iterations *= symbol.extent
    lanes = 64 if phase.lane is not None else 1
    return points // lanes < _FEW_POINTS and iterations * min(points, 64) >= _LEAST_ITERATIONS


class _Splitter:
    """Rewrites one phase into two launches."""

    def __init__(self, program: TileProgram, phase: Phase, stage: Stage, parts: int) -> None:
        self.program, self.phase, self.stage = program, phase, stage
        outer = stage.symbols[0]
        self.chunk = -(-outer.extent // parts)
        self.parts = -(-outer.extent // self.chunk)
        self.part = Symbol("part", self.parts)
        self.inner = Symbol(outer.name, self.chunk)
        self.ragged = self.parts * self.chunk != outer.extent
        self.next = 1 + max(s.result for s in stage.body if not isinstance(s, Store))
        for step in phase.steps:
            if isinstance(step, RowGroup):
                for other in step.stages:
                    self.next = max([self.next, *(1 + s.result for s in other.body if not isinstance(s, Store))])
        self.workspaces: list[Buffer] = []

    def run(self) -> TileProgram:
        """The program as two launches."""
        reduces = [s for s in self.stage.body if isinstance(s, Reduce)]
        first = self._partial_phase(reduces)
        rest = self._rest_phase(reduces)
        buffers = (*self.program.buffers, *self.workspaces)
        return replace(self.program, buffers=buffers, launches=((first,), (rest,)))

    def _partial_phase(self, reduces: list[Reduce]) -> Phase:
        outer = self.stage.symbols[0]
        whole = index.of(self.part) * self.chunk + index.of(self.inner)
        body = [rewritten(s, lambda a: index.renamed(a, {outer: whole})) for s in self.stage.body]
        if self.ragged:
            body = self._guarded(body, whole, outer.extent)
        lane = self.inner if self.stage.lane == outer else self.stage.lane
        points = 1
        for symbol in self.phase.grid:
            points *= symbol.extent
        stores: list[Statement] = []
        for reduce in reduces:
            type_ = TensorType((points, self.parts), reduce.dtype)
            taken = len(self.workspaces)
            buffer = Buffer(f"partial_{taken}", type_, Space.WORKSPACE)
            self.workspaces.append(buffer)
            stores.append(Store(buffer.name, self._slot(index.of(self.part)), reduce.result))
        stages = (Stage((self.inner, *self.stage.symbols[1:]), tuple(body), lane), Stage((), tuple(stores), None))
        lane_symbol = self.phase.lane
        grid = (*self.phase.grid, self.part)
        if lane_symbol is not None:
            grid = (*(s for s in self.phase.grid if s != lane_symbol), self.part, lane_symbol)
        return Phase(grid, (RowGroup(stages),), lane_symbol)

    def _slot(self, part: Affine) -> Affine:
        """Where a part's result lies: parts are slowest, so that lanes over the grid store side by side."""
        point = Affine()
        points = 1
        for symbol in self.phase.grid:
            point = point * symbol.extent + index.of(symbol)
            points *= symbol.extent
        return part * points + point

    def _guarded(self, body: list[Statement], whole: Affine, extent: int) -> list[Statement]:
        """Mask the iterations past the end of a ragged last part."""
        test = self._fresh()
        out: list[Statement] = [Test(test, (Condition(whole, 0, extent),))]
        for statement in body:
            match statement:
                case Load(mask=None):
                    fill = self._fresh()
                    zero = False if statement.dtype.kind == "bool" else 0
                    out.append(Constant(fill, statement.dtype, zero))
                    out.append(replace(statement, mask=test, fill=fill))
                case Load(mask=int(mask)):
                    both = self._fresh()
                    out.append(Map(both, dtypes.BOOL, "and", (mask, test)))
                    out.append(replace(statement, mask=both))
                case Reduce():
                    identity, chosen = self._fresh(), self._fresh()
                    out.append(Constant(identity, statement.dtype, _neutral(statement)))
                    out.append(Map(chosen, statement.dtype, "select", (test, statement.operand, identity)))
                    out.append(replace(statement, operand=chosen))
                case _:
                    out.append(statement)
        return out

    def _rest_phase(self, reduces: list[Reduce]) -> Phase:
        walk = Symbol("part", self.parts)
        body: list[Statement] = []
        for reduce, buffer in zip(reduces, self.workspaces, strict=True):
            scalar = self._fresh()
            body.append(Load(scalar, reduce.dtype, buffer.name, self._slot(index.of(walk))))
            body.append(replace(reduce, operand=scalar))
        lane = None if self.phase.lane is not None else walk
        (group,) = self.phase.steps
        assert isinstance(group, RowGroup)
        stages = (Stage((walk,), tuple(body), lane), *(s for s in group.stages if s is not self.stage))
        return replace(self.phase, steps=(RowGroup(stages),))

    def _fresh(self) -> Scalar:
        self.next += 1
        return self.next - 1


def _neutral(reduce: Reduce) -> bool | int | float:
    """What changes nothing when folded in, signs of zeros included."""
    if reduce.combiner == "add" and reduce.dtype.is_float:
        return -0.0
    return combiner_identity(reduce.combiner, reduce.dtype)
