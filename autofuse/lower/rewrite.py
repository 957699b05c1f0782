"""Rewriting the index expressions of statements, and walking over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from autofuse.ir import index
from autofuse.ir.index import Affine, Element, Quotient, Remainder, Symbol
from autofuse.ir.pieces import Condition
from autofuse.lazydataclass import replace
from autofuse.lower.statements import (
    ArgReduce,
    Carry,
    Leave,
    Load,
    Map,
    Next,
    Position,
    Reduce,
    Repeat,
    Scalar,
    Scan,
    Statement,
    Store,
    Test,
)
from autofuse.lower.tile import Dot, Matrix, Phase, RowGroup, Stage, Step, TileProgram

Rewrite = Callable[[Affine], Affine]


def affines(statement: Statement) -> Iterator[Affine]:
    """Every index expression of a statement."""
    match statement:
        case Load(offset=offset) | Store(offset=offset):
            yield offset
        case Position(value=value):
            yield value
        case ArgReduce(position=position):
            yield position
        case Test(conditions=conditions):
            for condition in conditions:
                yield condition.value
        case _:
            return


def operands(statement: Statement) -> Iterator[Scalar]:
    """Every scalar that a statement reads, those inside index expressions included."""
    match statement:
        case Load(mask=mask, fill=fill):
            yield from (number for number in (mask, fill) if number is not None)
        case Store(value=value, mask=mask):
            yield value
            if mask is not None:
                yield mask
        case Map(operands=numbers):
            yield from numbers
        case (
            Reduce(operand=number)
            | Scan(operand=number)
            | ArgReduce(operand=number)
            | Next(value=number)
            | Leave(settled=number)
            | Carry(initial=number)
        ):
            yield number
        case Repeat(where=where, settled=settled):
            yield where
            yield settled
        case _:
            pass
    for value in affines(statement):
        yield from sources(value)


def sources(value: Affine) -> Iterator[Scalar]:
    """Every scalar that an index expression reads."""
    for variable, _ in value.terms:
        match variable:
            case Element(source=source):
                yield int(source)
            case Quotient(inner, _) | Remainder(inner, _):
                yield from sources(inner)
            case Symbol():
                pass


def rewritten(statement: Statement, rewrite: Rewrite) -> Statement:
    """The statement with every index expression rewritten; itself if that changes none."""
    match statement:
        case Load(result, dtype, buffer, before, mask, fill):  # not by `replace`: there are very many
            offset = rewrite(before)
            return statement if offset is before else Load(result, dtype, buffer, offset, mask, fill)
        case Store(buffer, before, scalar, mask):
            offset = rewrite(before)
            return statement if offset is before else Store(buffer, offset, scalar, mask)
        case Position():
            value = rewrite(statement.value)
            return statement if value is statement.value else replace(statement, value=value)
        case ArgReduce():
            return replace(statement, position=rewrite(statement.position))
        case Test():
            return replace(statement, conditions=tuple(_condition(c, rewrite) for c in statement.conditions))
        case _:
            return statement


def rewritten_dot(dot: Dot, rewrite: Rewrite) -> Dot:
    """The dot with the offsets of its matrices rewritten."""

    def matrix(m: Matrix) -> Matrix:
        return replace(m, offset=rewrite(m.offset))

    return replace(dot, out=matrix(dot.out), lhs=matrix(dot.lhs), rhs=matrix(dot.rhs))


def statements(steps: Iterable[Step]) -> Iterator[tuple[Stage, Statement]]:
    """Every statement of a phase's steps, with its stage."""
    for step in steps:
        if isinstance(step, RowGroup):
            for stage in step.stages:
                for statement in (*stage.before, *stage.body):
                    yield stage, statement


def number_elements(value: Affine) -> Affine:
    """Turn the sources of run-time indices from their drafted names `%n` into the scalar numbers n."""
    if index.is_static(value):
        return value

    def renumber(variable: index.Variable) -> Affine | None:
        if isinstance(variable, Element) and isinstance(variable.source, str):
            return index.of(Element(int(variable.source[1:]), (), variable.lo, variable.hi))
        return None

    return index.substitute(value, renumber)


def renamed_buffers(phase: Phase, names: Mapping[str, str]) -> Phase:
    """The phase with other names of its buffers."""
    sweep = phase.sweep
    if sweep is not None and sweep.part is not None:
        whole = tuple(_renamed_step(step, names) for step in sweep.part.whole)
        sweep = replace(sweep, part=replace(sweep.part, whole=whole))
    return replace(phase, steps=tuple(_renamed_step(step, names) for step in phase.steps), sweep=sweep)


def renamed_program(program: TileProgram, names: Mapping[str, str], name: str) -> TileProgram:
    """The program with another name, and other names of its buffers."""
    buffers = tuple(replace(b, name=names[b.name], holds=names.get(b.holds, "")) for b in program.buffers)
    launches = tuple(tuple(renamed_buffers(phase, names) for phase in launch) for launch in program.launches)
    return replace(program, name=name, buffers=buffers, launches=launches)


def _renamed_step(step: Step, names: Mapping[str, str]) -> Step:
    if isinstance(step, RowGroup):
        return RowGroup(tuple(_renamed_stage(stage, names) for stage in step.stages))

    def matrix(m: Matrix) -> Matrix:
        return replace(m, buffer=names[m.buffer])

    return replace(step, out=matrix(step.out), lhs=matrix(step.lhs), rhs=matrix(step.rhs))


def _renamed_stage(stage: Stage, names: Mapping[str, str]) -> Stage:
    def rename(statement: Statement) -> Statement:
        if isinstance(statement, Load | Store):
            return replace(statement, buffer=names[statement.buffer])
        return statement

    return replace(stage, before=tuple(map(rename, stage.before)), body=tuple(map(rename, stage.body)))


def _condition(condition: Condition, rewrite: Rewrite) -> Condition:
    return replace(condition, value=rewrite(condition.value))


def reading(statement: Statement, known: Mapping[Scalar, Scalar]) -> Statement:
    """The statement with other scalars for those that it reads."""

    def element(variable: index.Variable) -> Affine | None:
        if isinstance(variable, Element) and int(variable.source) in known:
            return index.of(replace(variable, source=known[int(variable.source)]))
        return None

    moved = rewritten(statement, lambda value: value if index.is_static(value) else index.substitute(value, element))
    match moved:
        case Map(operands=numbers):
            return replace(moved, operands=tuple(known.get(number, number) for number in numbers))
        case Load(mask=mask, fill=fill) if mask is not None or fill is not None:
            of = {None: None, **known}
            return replace(moved, mask=of.get(mask, mask), fill=of.get(fill, fill))
        case Store(value=value, mask=mask):
            return replace(moved, value=known.get(value, value), mask=None if mask is None else known.get(mask, mask))
        case _:
            return moved
