"""What is done in a part of the loops inside of a loop: loops that follow one another are parts of one.

A stage walks all loops in the body of a loop by symbols of its own; tests of these say what is done where. Between two
positions at which such a test changes, code needs only what matters there.

    %7 = test 1 <= k < 4             known in each part: true in [1, 4), false elsewhere
    %9 = select %7 %8 %3             is %3 elsewhere,
    next %3 = %9                     and nothing is handed on there, so %8 is needed in [1, 4) only
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autofuse.ir.dtypes import BOOL
from autofuse.ir.index import Symbol
from autofuse.ir.pieces import Condition
from autofuse.lower.rewrite import operands
from autofuse.lower.statements import (
    ArgReduce,
    Carry,
    Constant,
    Effect,
    Leave,
    Load,
    Map,
    Next,
    Reduce,
    Repeat,
    Scalar,
    Scan,
    Statement,
    Store,
    Test,
)
from autofuse.lower.tile import Stage

Ranges = Mapping[Symbol, tuple[int, int]]
"""The least and greatest value of symbols; absent: the whole extent."""


def parts_of(stage: Stage, symbol: Symbol) -> Sequence[tuple[int, int]]:
    """The half-open ranges of a symbol in which a stage does different things, in order."""
    cuts = dict(stage.sections).get(symbol, ())
    return [*zip((0, *cuts), (*cuts, symbol.extent), strict=True)] if symbol.extent else []


def repeated(stage: Stage, symbol: Symbol, ranges: Ranges) -> Repeat | None:
    """What is done again and again in each of some iterations of a symbol."""
    found = [s for s in stage.body if isinstance(s, Repeat) and s.symbol == symbol]
    known = _known(stage.body, ranges) if found else {}
    return next((s for s in found if known.get(s.where) is True), None)


def cone(body: Sequence[Statement], wanted: Scalar) -> Sequence[Statement]:
    """The statements that compute a scalar."""
    return _needed([s for s in body if not isinstance(s, Effect)], {wanted})


def body_within(stage: Stage, ranges: Ranges) -> Sequence[Statement]:
    """What a stage's body does where symbols are in `ranges`: nothing, if it changes nothing there.

    When loops end is left out: whoever writes them asks for it.
    """
    known = _known(stage.body, ranges)
    same: dict[Scalar, Scalar] = {}
    """Scalars that are another one here."""
    kept: list[Statement] = []
    for statement in stage.body:
        if not isinstance(statement, Effect):
            kept.append(_simpler(statement, known, same))
        elif _does_something(statement, known, same):
            kept.append(statement)
    return _needed(kept, set())


def _does_something(effect: Effect, known: Mapping[Scalar, bool], same: Mapping[Scalar, Scalar]) -> bool:
    match effect:
        case Store(mask=mask):
            return mask is None or known.get(mask) is not False
        case Next(carry, value):
            return same.get(value, value) != carry
        case Leave() | Repeat():
            return False


def _known(body: Sequence[Statement], ranges: Ranges) -> dict[Scalar, bool]:
    """The conditions that are the same everywhere in `ranges`."""
    known: dict[Scalar, bool] = {}
    for statement in body:
        match statement:
            case Test(result, conditions):
                truths = [_truth(condition, ranges) for condition in conditions]
                found = False if False in truths else None if None in truths else True
            case Map(result, dtype, opcode, numbers) if dtype == BOOL:
                found = _folded(opcode, [known.get(number) for number in numbers])
            case _:
                continue
        if found is not None:
            known[result] = found
    return known


def _truth(condition: Condition, ranges: Ranges) -> bool | None:
    """Whether a condition on one symbol holds everywhere or nowhere; None if it depends, or is on more than that."""
    terms = [(symbol, c) for symbol, c in condition.value.terms if isinstance(symbol, Symbol)]
    if not len(terms) == len(condition.value.terms) == 1 or condition.multiple > 1:
        return None
    symbol, coefficient = terms[0]
    ends = [coefficient * end + condition.value.constant for end in ranges.get(symbol, (0, symbol.extent - 1))]
    if max(ends) < condition.lo or min(ends) >= condition.hi:
        return False
    return True if min(ends) >= condition.lo and max(ends) < condition.hi else None


def _folded(opcode: str, truths: Sequence[bool | None]) -> bool | None:
    match opcode:
        case "and":
            return False if False in truths else None if None in truths else True
        case "or":
            return True if True in truths else None if None in truths else False
        case "not":
            return None if truths[0] is None else not truths[0]
        case _:
            return None


def _simpler(statement: Statement, known: Mapping[Scalar, bool], same: dict[Scalar, Scalar]) -> Statement:
    """The statement with what is known put in: a constant, a choice that reads one side, or what stands for a load."""
    match statement:
        case Test(result=result) | Map(result=result) if result in known:
            return Constant(result, BOOL, known[result])
        case Map(result, dtype, "select", (condition, yes, no)) if condition in known:
            chosen = yes if known[condition] else no
            same[result] = same.get(chosen, chosen)
            return Map(result, dtype, "select", (condition, chosen, chosen))
        case Load(result, dtype, mask=int(mask), fill=int(fill)) if known.get(mask) is False:
            return Map(result, dtype, "select", (mask, fill, fill))
        case _:
            return statement


def _needed(body: Sequence[Statement], wanted: set[Scalar]) -> Sequence[Statement]:
    """Without what nothing needs: neither `wanted`, nor what is stored, reduced or handed on."""
    kept: list[Statement] = []
    for statement in reversed(body):
        if isinstance(statement, Effect | Reduce | ArgReduce | Scan) or statement.result in wanted:
            kept.append(statement)
            wanted.update(number for number in operands(statement) if not isinstance(statement, Carry))
    return kept[::-1]
