"""Comparisons of positions become tests: a causal mask is a condition on two loops, not arithmetic on integers.

Positions of an iota are often wider than the floats they guard, and would halve the lanes; as a condition they are
compared in 32 bits, and where one loop decides it, the loop is cut instead.
"""

from __future__ import annotations

from collections.abc import Mapping

from autofuse.ir.dtypes import DType
from autofuse.ir.index import Affine, bounds
from autofuse.ir.pieces import Condition
from autofuse.lazydataclass import replace
from autofuse.lower.statements import ArgReduce, Carry, Constant, Effect, Map, Position, Reduce, Scan, Statement, Test
from autofuse.lower.tile import Phase, RowGroup, Stage, TileProgram
from autofuse.targets.cpu.codegen.conditions import live_scalars

Known = dict[int, Affine]
"""Integer scalars whose value is an index expression."""


def compare_positions(program: TileProgram) -> TileProgram:
    """The same program with such comparisons replaced, and without what nothing needs any more."""
    launches = tuple(tuple(_phase(phase) for phase in launch) for launch in program.launches)
    return replace(program, launches=launches)


def _phase(phase: Phase) -> Phase:
    steps = tuple(
        RowGroup(tuple(_stage(stage) for stage in step.stages)) if isinstance(step, RowGroup) else step
        for step in phase.steps
    )
    return replace(phase, steps=steps)


def _stage(stage: Stage) -> Stage:
    known: Known = {}
    body: list[Statement] = []
    for statement in stage.body:
        if not isinstance(statement, Effect):
            value = _value(statement, known)
            if value is not None:
                known[statement.result] = value
        body.append(_compared(statement, known) or statement)
    live = live_scalars(body, {})
    return replace(stage, body=tuple(s for s in body if _is_needed(s, live)))


def _is_needed(statement: Statement, live: frozenset[int]) -> bool:
    return isinstance(statement, Effect | Reduce | ArgReduce | Scan | Carry) or statement.result in live


def _value(statement: Statement, known: Mapping[int, Affine]) -> Affine | None:
    match statement:
        case Position(_, dtype, value) if _fits(value, dtype):
            return value
        case Constant(_, dtype, value) if dtype.is_integer:
            return Affine(int(value))
        case Map(_, dtype, opcode, operands) if known and all(number in known for number in operands):
            found = _arithmetic(opcode, [known[number] for number in operands])
            return found if found is not None and _fits(found, dtype) else None
        case _:
            return None


def _arithmetic(opcode: str, operands: list[Affine]) -> Affine | None:
    match opcode, operands:
        case "convert", [x]:
            return x
        case "negate", [x]:
            return x * -1
        case "add", [x, y]:
            return x + y
        case "subtract", [x, y]:
            return x - y
        case "multiply", [x, y] if y.is_constant:
            return x * y.constant
        case "multiply", [x, y] if x.is_constant:
            return y * x.constant
        case _:
            return None


def _fits(value: Affine, dtype: DType) -> bool:
    """Whether the expression never leaves the dtype, so that nothing wraps."""
    if not dtype.is_integer:
        return False
    lo, hi = bounds(value)
    least, most = (
        (0, (1 << dtype.bits) - 1) if dtype.kind == "uint" else (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1)
    )
    return least <= lo and hi <= most


def _compared(statement: Statement, known: Mapping[int, Affine]) -> Test | None:
    if not isinstance(statement, Map) or statement.opcode not in ("eq", "lt", "le", "gt", "ge"):
        return None
    if not all(number in known for number in statement.operands):
        return None
    left, right = (known[number] for number in statement.operands)
    difference = left - right
    lo, hi = bounds(difference)
    limits = {
        "eq": (0, 1),
        "lt": (min(lo, 0), 0),
        "le": (min(lo, 1), 1),
        "gt": (1, max(hi + 1, 1)),
        "ge": (0, max(hi + 1, 0)),
    }
    return Test(statement.result, (Condition(difference, *limits[statement.opcode]),))
