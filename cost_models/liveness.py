"""How many scalars of a straight line of statements are alive at a time: what must lie in registers."""

from __future__ import annotations

from autofuse.lower.tile import (
    ArgReduce,
    Constant,
    Effect,
    Leave,
    Load,
    Map,
    Next,
    Reduce,
    Repeat,
    Scan,
    Statement,
    Store,
)


def most_live(body: tuple[Statement, ...]) -> int:
    """The most scalars alive at a time in a straight line of statements."""
    read = [operands_of(statement) for statement in body]
    last: dict[int, int] = {}
    for at, numbers in enumerate(read):
        for number in numbers:
            last[number] = at
    held: set[int] = set()
    most = 0
    for at, (statement, numbers) in enumerate(zip(body, read, strict=True)):
        if not isinstance(statement, Effect | Constant | Reduce | ArgReduce) and statement.result in last:
            held.add(statement.result)
        most = max(most, len(held))
        for number in numbers:
            if last[number] == at:
                held.discard(number)
    return most


def operands_of(statement: Statement) -> tuple[int, ...]:
    """The scalars that a statement reads."""
    match statement:
        case Map():
            return statement.operands
        case Store(_, _, value, mask):
            return (value,) if mask is None else (value, mask)
        case Load(mask=mask, fill=fill):
            return tuple(number for number in (mask, fill) if number is not None)
        case Reduce(operand=operand) | Scan(operand=operand) | ArgReduce(operand=operand):
            return (operand,)
        case Next(value=value) | Leave(settled=value) | Repeat(settled=value):
            return (value,)
        case _:
            return ()
