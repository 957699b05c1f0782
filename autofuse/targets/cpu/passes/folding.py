"""Indices read from constants become constants, so that loops can be cut where conditions on them change."""

from __future__ import annotations

from collections.abc import Mapping

from autofuse.ir.index import Affine, Element, Quotient, Remainder, Symbol, Variable, substitute
from autofuse.lazydataclass import replace
from autofuse.lower.statements import ArgReduce, Constant, Load, Position, Statement, Store, Test
from autofuse.lower.tile import Phase, RowGroup, Stage, TileProgram


def fold_indices(program: TileProgram) -> TileProgram:
    """The same program with every `Element` of a constant replaced by its value."""
    launches = tuple(tuple(_phase(phase) for phase in launch) for launch in program.launches)
    return replace(program, launches=launches)


def _phase(phase: Phase) -> Phase:
    steps = tuple(
        RowGroup(tuple(_stage(stage) for stage in step.stages)) if isinstance(step, RowGroup) else step
        for step in phase.steps
    )
    return replace(phase, steps=steps)


def _stage(stage: Stage) -> Stage:
    known = {s.result: int(s.value) for s in stage.body if isinstance(s, Constant) and s.dtype.is_integer}
    if not known:
        return stage
    return replace(stage, body=tuple(_statement(statement, known) for statement in stage.body))


def _statement(statement: Statement, known: Mapping[int, int]) -> Statement:
    match statement:
        case Load() | Store():
            return replace(statement, offset=_folded(statement.offset, known))
        case Position():
            return replace(statement, value=_folded(statement.value, known))
        case ArgReduce():
            return replace(statement, position=_folded(statement.position, known))
        case Test():
            conditions = tuple(replace(c, value=_folded(c.value, known)) for c in statement.conditions)
            return replace(statement, conditions=conditions)
        case _:
            return statement


def _folded(value: Affine, known: Mapping[int, int]) -> Affine:
    if not any(_reads(variable, known) for variable, _ in value.terms):
        return value

    def constant(variable: Variable) -> Affine | None:
        if isinstance(variable, Element) and int(variable.source) in known:
            return Affine(min(max(known[int(variable.source)], variable.lo), variable.hi))
        return None

    return substitute(value, constant)


def _reads(variable: Variable, known: Mapping[int, int]) -> bool:
    match variable:
        case Symbol():
            return False
        case Element(source, _, _, _):
            return int(source) in known
        case Quotient(value, _) | Remainder(value, _):
            return any(_reads(inner, known) for inner, _ in value.terms)
