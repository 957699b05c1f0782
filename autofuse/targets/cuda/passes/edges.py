"""What only the edges of an array need is loaded at the edges alone.

Before (the inside of an array is replaced):      After:

    t = test 1 <= i < 99                              t = test 1 <= i < 99;  n = not t
    a = load x[i];  b = load y[i] if t                a = load x[i] if n;    b = load y[i] if t
    c = select t, b, a                                c = select t, b, a

The test is of indices alone, so no load waits for another. What is selected, and so every bit, stays as it was.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping

from autofuse.ir.dtypes import BOOL
from autofuse.ir.index import Symbol
from autofuse.ir.pieces import Condition
from autofuse.lazydataclass import replace
from autofuse.lower.rewrite import operands, statements
from autofuse.lower.statements import Constant, Effect, Load, Map, Scalar, Statement, Test
from autofuse.lower.tile import Buffer, Phase, RowGroup, Space, Stage, Step, TileProgram
from autofuse.targets.cuda.codegen.access import is_threaded

_MOST_OUTSIDE = 0.5
"""Of the positions: where more of them need a load, a branch around it saves little."""


def load_at_edges(program: TileProgram) -> TileProgram:
    """The program with a mask on each load that is only the other side of selects whose test nearly always holds."""
    buffers = {buffer.name: buffer for buffer in program.buffers}
    made = (s.result for phase in program.phases() for _, s in statements(phase.steps) if not isinstance(s, Effect))
    numbers = itertools.count(max(made, default=-1) + 1)
    launches = tuple(tuple(_phase(phase, buffers, numbers) for phase in launch) for launch in program.launches)
    return program if launches == program.launches else replace(program, launches=launches)


def inside_shares(conditions: Iterable[Condition]) -> Mapping[Symbol, float] | None:
    """Of each symbol that conditions are on, the share of its positions where they hold; None where that is unknown."""
    ranges: dict[Symbol, tuple[int, int]] = {}
    for condition in conditions:
        terms = condition.value.terms
        if len(terms) != 1 or condition.multiple > 1:
            return None
        ((symbol, step),) = terms
        if not isinstance(symbol, Symbol) or abs(step) != 1:
            return None
        low, high = condition.lo - condition.value.constant, condition.hi - condition.value.constant
        low, high = (low, high) if step == 1 else (1 - high, 1 - low)
        before = ranges.get(symbol, (0, symbol.extent))
        ranges[symbol] = max(before[0], low), min(before[1], high)
    return {symbol: max(high - low, 0) / max(symbol.extent, 1) for symbol, (low, high) in ranges.items()}


def edge_share(test: Test, lane: Symbol | None, together: int) -> float:
    """The share of an array that is read where a test does not hold, as neighbours along `lane` come `together`.

    All of it, where that is unknown.
    """
    shares = inside_shares(test.conditions)
    if shares is None:
        return 1.0
    rows = math.prod(share for symbol, share in shares.items() if symbol != lane)
    own = 1.0 - shares.get(lane, 1.0) if lane is not None else 0.0
    ends = min(1.0, own + 2.0 * (together - 1) / max(lane.extent, 1)) if lane is not None and own else 0.0
    return 1.0 - rows * (1.0 - ends)


def outsides(stage: Stage) -> Mapping[Scalar, Test]:
    """The tests of a stage, by the scalars that say that one does not hold."""
    tests = {s.result: s for s in stage.body if isinstance(s, Test)}
    negations = (s for s in stage.body if isinstance(s, Map) and s.opcode == "not")
    return {s.result: tests[s.operands[0]] for s in negations if s.operands[0] in tests}


def _phase(phase: Phase, buffers: Mapping[str, Buffer], numbers: Iterator[Scalar]) -> Phase:
    if not is_threaded(phase) or phase.iterations is not None:
        return phase
    steps: list[Step] = []
    for step in phase.steps:
        assert isinstance(step, RowGroup), "threads of their own have no products"
        stages = tuple(_stage(stage, buffers, numbers, _read_by_others(stage, step)) for stage in step.stages)
        steps.append(step if stages == step.stages else RowGroup(stages))
    return phase if tuple(steps) == phase.steps else replace(phase, steps=tuple(steps))


def _read_by_others(stage: Stage, group: RowGroup) -> frozenset[Scalar]:
    """Scalars that the other stages of a group read."""
    others = (other for other in group.stages if other is not stage)
    return frozenset(number for other in others for s in (*other.before, *other.body) for number in operands(s))


def _stage(
    stage: Stage, buffers: Mapping[str, Buffer], numbers: Iterator[Scalar], elsewhere: frozenset[Scalar]
) -> Stage:
    """The stage with masks; itself where no load gets one.

    `numbers`: those that no scalar has. `elsewhere`: scalars that other stages read.
    """
    wanted = _wanted(stage, buffers, elsewhere)
    if not wanted:
        return stage
    loads = [s for s in stage.body if isinstance(s, Load) and s.result in wanted]
    masks = {test: next(numbers) for test in dict.fromkeys(wanted.values())}
    fills = {dtype: next(numbers) for dtype in dict.fromkeys(load.dtype for load in loads)}
    head: list[Statement] = [s for s in stage.body if isinstance(s, Test) and s.result in masks]
    head += [Map(mask, BOOL, "not", (test,)) for test, mask in masks.items()]
    head += [Constant(fill, dtype, 0.0 if dtype.is_float else 0) for dtype, fill in fills.items()]
    masked = {load: replace(load, mask=masks[wanted[load.result]], fill=fills[load.dtype]) for load in loads}
    rest = [
        masked.get(s, s) if isinstance(s, Load) else s for s in stage.body if getattr(s, "result", None) not in masks
    ]
    return replace(stage, body=(*head, *rest))


def _wanted(stage: Stage, buffers: Mapping[str, Buffer], elsewhere: frozenset[Scalar]) -> Mapping[Scalar, Scalar]:
    """By loads that are to have a mask: the test outside of which they are needed."""
    tests = {s.result for s in stage.body if isinstance(s, Test) and _is_mostly_true(s)}
    if not tests:
        return {}
    uses: dict[Scalar, set[Scalar | None]] = {}
    for statement in stage.body:
        others = tuple(operands(statement))
        if isinstance(statement, Map) and statement.opcode == "select":
            test, yes, no = statement.operands
            uses.setdefault(no, set()).add(test)
            others = (test, yes)
        for number in others:
            uses.setdefault(number, set()).add(None)
    found: dict[Scalar, Scalar] = {}
    anyway: set[str] = set()
    loads = [s for s in stage.body if isinstance(s, Load)]
    for load in loads:
        used = uses.get(load.result, set())
        test = next(iter(used)) if len(used) == 1 else None
        is_free = load.mask is None and load.result not in elsewhere
        if test in tests and is_free and buffers[load.buffer].space is Space.INPUT:
            found[load.result] = test
        else:
            anyway.add(load.buffer)  # what is near is read, and is in the first-level cache
    return {load.result: found[load.result] for load in loads if load.result in found and load.buffer not in anyway}


def _is_mostly_true(test: Test) -> bool:
    shares = inside_shares(test.conditions)
    return shares is not None and 1.0 - math.prod(shares.values()) <= _MOST_OUTSIDE
