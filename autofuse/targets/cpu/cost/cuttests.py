"""Conditions at which loops are cut: the share of iterations that a condition, or what it chooses, is needed in."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection

from autofuse.cost_models.liveness import operands_of
from autofuse.cost_models.loopnest import LoopNest
from autofuse.ir.index import Symbol, bounds
from autofuse.ir.pieces import Condition
from autofuse.lazydataclass import dataclass
from autofuse.lower.statements import ArgReduce, Carry, Effect, Map, Reduce, Scan, Statement, Test
from autofuse.lower.tile import Phase, Stage
from autofuse.targets.cpu.codegen.indexsplitting import all_segments, copies_allowed, largest, plan_segments
from autofuse.targets.cpu.codegen.phaselayout import Layout, stages_of

Known = Callable[[Condition], bool]
"""Whether a condition is known wherever the code is."""


def needed_shares(body: tuple[Statement, ...], known: Known, masked: float = 0.0) -> dict[int, float]:
    """For each scalar the share of iterations that need it, where loops are cut at the conditions that choose.

    `masked`: the share of iterations where conditions are masks, and all is computed.
    """
    shares = {s.result: _taken(s, known) for s in body if isinstance(s, Test)}
    needed: dict[int, float] = {}
    for statement in reversed(body):
        share = 1.0 if isinstance(statement, Effect) else needed.get(statement.result, 0.0)
        if isinstance(statement, Reduce | ArgReduce | Scan | Carry):
            share = 1.0
        operands = operands_of(statement)
        chosen = shares.get(operands[0]) if isinstance(statement, Map) and statement.opcode == "select" else None
        for place, number in enumerate(operands):
            part = 1.0 if chosen is None or place == 0 else chosen[place - 1]
            needed[number] = min(1.0, needed.get(number, 0.0) + share * part)
    if masked:
        needed = {number: masked + (1.0 - masked) * share for number, share in needed.items()}
    return needed


def _taken(test: Test, known: Known) -> tuple[float, float]:
    """The shares of iterations that compute what is chosen where a test holds, and where it does not."""
    told = list(map(known, test.conditions))
    holds = math.prod(share_of(c) for c, is_known in zip(test.conditions, told, strict=True) if is_known)
    return holds, 1.0 - holds if all(told) else 1.0


@dataclass(frozen=True, slots=True)
class GridCuts:
    """What becomes of conditions on grid positions, which code decides once per row where it has copies for that."""

    masked: float
    """Of the grid points, the share at which they are masks, as there are too many ways (`write_variants`)."""
    whole: frozenset[Symbol]
    """Symbols whose loops are not cut."""


_NO_CUTS = GridCuts(0.0, frozenset())


def grid_cuts(phase: Phase, layout: Layout) -> GridCuts:
    """Of a phase. Tiles of rows are looked at by themselves."""
    stages = stages_of(phase)
    if layout.tiles is not None or not any(Test in map(type, stage.body) for stage in stages):
        return _NO_CUTS
    lane, inside = phase.vectorised, 1
    whole: frozenset[Symbol] = frozenset()
    if lane is not None:
        if lane.extent <= 2 * layout.lanes:
            whole = frozenset((lane,))
        else:
            inside = len(plan_segments(stages, (lane,)).get(lane, ((),)))
    squares = None if layout.transpose is None else layout.transpose.symbol
    planned = all_segments(stages, [symbol for symbol in phase.grid if symbol not in (lane, squares)])
    if not planned or math.prod(map(len, planned.values())) * inside <= copies_allowed(stages):
        return GridCuts(0.0, whole)
    largest_parts = [(largest(parts), symbol.extent) for symbol, parts in planned.items()]
    return GridCuts(1.0 - math.prod((hi - lo) / extent for (lo, hi), extent in largest_parts), whole)


def known_conditions(stage: Stage, nest: LoopNest, tiles: Symbol | None, whole: Collection[Symbol] = ()) -> Known:
    """Which conditions the code knows wherever it is, as loops are cut at them: such as hang on one symbol.

    `whole`: symbols of the grid whose loops are not cut. With tiles of rows, conditions on a tile's rows are known too,
    and others as far as the code has copies for them.
    """
    candidates = [s for s in stage.symbols if s != stage.vectorised or s.extent > 2 * nest.lanes]
    cut = plan_segments((stage,), candidates)
    uncut = {*whole, *(symbol for symbol in stage.symbols if symbol not in cut)}

    def known(condition: Condition) -> bool:
        symbols = [variable for variable, _ in condition.value.terms]
        if condition.multiple != 1:
            return False
        if tiles is None:
            return len(symbols) <= 1 and uncut.isdisjoint(symbols)
        return tiles in symbols or (len(symbols) <= 1 and all(s in cut for s in symbols))

    return known


def share_of(condition: Condition) -> float:
    """The share of positions at which a condition holds, if each value is equally likely."""
    lo, hi = bounds(condition.value)
    inside = min(hi + 1, condition.hi) - max(lo, condition.lo)
    return min(max(inside, 0) / max(hi + 1 - lo, 1), 1.0) / max(condition.multiple, 1)
