"""Conditions at which loops are cut: the share of iterations that a condition, or what it chooses, is needed in."""

from __future__ import annotations

import math
from collections.abc import Collection

from autofuse.cost_models.liveness import operands_of
from autofuse.cost_models.loopnest import LoopNest
from autofuse.ir.index import Symbol, bounds
from autofuse.ir.pieces import Condition
from autofuse.lower.tile import ArgReduce, Carry, Effect, Map, Reduce, Scan, Stage, Statement, Test
from autofuse.targets.cpu.codegen.indexsplitting import plan_segments


def needed_shares(body: tuple[Statement, ...], cut: Collection[Test]) -> dict[int, float]:
    """For each scalar the share of iterations that need it, where loops are cut at the conditions that choose."""
    shares = {s.result: math.prod(map(share_of, s.conditions)) for s in body if isinstance(s, Test) and s in cut}
    needed: dict[int, float] = {}
    for statement in reversed(body):
        share = 1.0 if isinstance(statement, Effect) else needed.get(statement.result, 0.0)
        if isinstance(statement, Reduce | ArgReduce | Scan | Carry):
            share = 1.0
        operands = operands_of(statement)
        chosen = shares.get(operands[0]) if isinstance(statement, Map) and statement.opcode == "select" else None
        for place, number in enumerate(operands):
            part = 1.0 if chosen is None or place == 0 else (chosen if place == 1 else 1.0 - chosen)
            needed[number] = min(1.0, needed.get(number, 0.0) + share * part)
    return needed


def cut_tests(stage: Stage, nest: LoopNest, tiles: Symbol | None) -> frozenset[Test]:
    """The tests at which the loops are cut: each condition hangs on one symbol.

    With tiles of rows, conditions on a tile's rows are known too, and others as far as the code has copies for them.
    """
    tests = [s for s in stage.body if isinstance(s, Test)]
    if tiles is None:
        return frozenset(t for t in tests if all(len(c.value.terms) <= 1 and c.multiple == 1 for c in t.conditions))
    candidates = [s for s in stage.symbols if s != stage.vectorised or s.extent > 2 * nest.lanes]
    known = plan_segments((stage,), candidates)

    def is_known(condition: Condition) -> bool:
        symbols = [variable for variable, _ in condition.value.terms]
        return condition.multiple == 1 and (
            tiles in symbols or (len(symbols) <= 1 and all(s in known for s in symbols))
        )

    return frozenset(t for t in tests if all(map(is_known, t.conditions)))


def share_of(condition: Condition) -> float:
    """The share of positions at which a condition holds, if each value is equally likely."""
    lo, hi = bounds(condition.value)
    inside = min(hi + 1, condition.hi) - max(lo, condition.lo)
    return min(max(inside, 0) / max(hi + 1 - lo, 1), 1.0) / max(condition.multiple, 1)
