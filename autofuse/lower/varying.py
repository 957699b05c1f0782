"""Which scalars of a stage differ between lanes, where what is carried may come to differ in a later iteration."""

from __future__ import annotations

from collections.abc import Set

from autofuse.ir import index
from autofuse.ir.index import Symbol
from autofuse.ir.optable import scalar_op
from autofuse.lower.rewrite import affines, operands
from autofuse.lower.statements import Carry, Leave, Map, Next, Repeat, Scalar, Statement, Store
from autofuse.lower.tile import Stage


def varying_scalars(stage: Stage, known: Set[Scalar], lane: Symbol | None) -> Set[Scalar]:
    """The scalars in which lanes may differ: all others one computation serves for all lanes.

    `known`: those of earlier stages that differ. `lane`: what lanes are positions of. A carry differs if any iteration
    can make it so.
    """
    found = set(known)
    before = -1
    while len(found) != before:
        before = len(found)
        for statement in (*stage.before, *stage.body):
            if any(number in found for number in operands(statement)) or any(
                lane in index.symbols_of(value) for value in affines(statement)
            ):
                found.update(_made_by(statement))
    return found


def recurrence(stage: Stage) -> float:
    """The longest chain of instructions from what an iteration gets to what it hands on; 0 where that is nothing."""
    length: dict[Scalar, float] = {}
    longest = 0.0
    for statement in stage.body:
        longest_operand = max((length[number] for number in operands(statement) if number in length), default=None)
        match statement:
            case Carry():
                length[statement.result] = 0.0
            case Next():
                longest = max(longest, longest_operand or 0.0)
            case Map() if longest_operand is not None:
                length[statement.result] = longest_operand + max(1.0, scalar_op(statement.opcode).work.vectors)
            case _ if longest_operand is not None and not isinstance(statement, Leave | Repeat | Store):
                length[statement.result] = longest_operand + 1.0
            case _:
                pass
    return longest


def _made_by(statement: Statement) -> tuple[Scalar, ...]:
    match statement:
        case Next():
            return (statement.carry,)
        case Leave() | Repeat() | Store():
            return ()
        case _:
            return (statement.result,)
