"""What the statements of a stage need of one another, and an order in which loads come first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autofuse.ir import dtypes, index
from autofuse.ir.dtypes import DType
from autofuse.lower.rewrite import affines, operands
from autofuse.lower.statements import (
    ArgReduce,
    Carry,
    Constant,
    Effect,
    Load,
    Map,
    Position,
    Reduce,
    Scalar,
    Scan,
    Statement,
    Store,
    Test,
)
from autofuse.lower.tile import Stage
from autofuse.targets.cuda.codegen.places import Place


def dtype_of(statement: Constant | Position | Test | Load | Map | Reduce | ArgReduce | Scan | Carry) -> DType:
    """The dtype of a statement's result."""
    return dtypes.BOOL if isinstance(statement, Test) else statement.dtype


def loads_first(body: Sequence[Statement], places: Mapping[str, Place]) -> list[Statement | tuple[Load, ...]]:
    """The statements in an order in which memory is asked as early as can be: loads that can be made together are one.

    Loads of what other loads found come behind these. All else keeps its order, and so does everything where the
    statements read what they store: there, which is first matters.
    """
    stored = {s.buffer for s in body if isinstance(s, Store) and places[s.buffer].size}
    if any(isinstance(s, Load) and s.buffer in stored for s in body):
        return list(body)
    rounds: dict[Scalar, int] = {}
    """How many loads lie in a row on the way to a value that this stage makes."""
    batches: dict[int, list[Load]] = {}
    for statement in body:
        if not isinstance(statement, Effect):
            before = max((rounds.get(number, 0) for number in operands(statement)), default=0)
            rounds[statement.result] = before + isinstance(statement, Load)
            if isinstance(statement, Load) and places[statement.buffer].size:
                batches.setdefault(before, []).append(statement)
    order: list[Statement | tuple[Load, ...]] = []
    done: set[Scalar] = set()
    for number in sorted(batches):
        batch = batches[number]
        order += _made_before(body, batch, done)
        order.append(tuple(batch))
        done.update(load.result for load in batch)
    return [*order, *(s for s in body if isinstance(s, Effect) or s.result not in done)]


def _made_before(body: Sequence[Statement], batch: Sequence[Load], done: set[Scalar]) -> Sequence[Statement]:
    """What loads need that was not made yet; then it is."""
    wanted = {number for load in batch for number in operands(load)}
    for statement in reversed(body):
        if not isinstance(statement, Effect) and statement.result in wanted:
            wanted.update(operands(statement))
    needed = [s for s in body if not isinstance(s, Effect) and s.result in wanted and s.result not in done]
    done.update(s.result for s in needed)
    return needed


def invariants(stage: Stage, places: Mapping[str, Place]) -> tuple[list[Statement], list[Statement]]:
    """Statements of a stage that give the same in all of its iterations, and the others, both in order.

    Of loads, those of global memory that nothing in the stage writes. A loop without iterations has none.
    """
    if not all(symbol.extent for symbol in stage.symbols):
        return [], list(stage.body)
    stored = {statement.buffer for statement in stage.body if isinstance(statement, Store)}
    walked = frozenset(stage.symbols)
    varying: set[Scalar] = set()
    same: list[Statement] = []
    others: list[Statement] = []
    for statement in stage.body:
        varies = isinstance(statement, Effect | Reduce | ArgReduce | Scan | Carry)
        varies = varies or not all(walked.isdisjoint(index.symbols_of(value)) for value in affines(statement))
        varies = varies or not varying.isdisjoint(operands(statement))
        if isinstance(statement, Load):
            varies = varies or not places[statement.buffer].size or statement.buffer in stored
        (others if varies else same).append(statement)
        if varies and not isinstance(statement, Effect):
            varying.add(statement.result)
    return same, others
