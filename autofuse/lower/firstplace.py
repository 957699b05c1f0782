"""The position of an extremum, found in two steps, so that the loop can be cut into parts.

    launch 0  grid(part) { reduce maximum }                       as fast as a maximum; no position is carried along
    launch 1  { which part has the greatest?   in that part alone: the least position with this value }

The second step reads one part again. It finds the value, as both compute it by the same operations; a NaN is any NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autofuse.ir import index
from autofuse.ir.dtypes import BOOL, F32, I64, DType
from autofuse.ir.index import Element, Symbol
from autofuse.lazydataclass import replace
from autofuse.lower.rewrite import rewritten
from autofuse.lower.statements import (
    ArgReduce,
    Constant,
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


def is_searchable(search: ArgReduce, stage: Stage, cut: Symbol) -> bool:
    """Whether all positions in a later part of the loop over `cut` are greater.

    The first of equals is then in the first part that has it.
    """
    step = search.position.coefficient(cut)
    others = sum(abs(c) * (a.extent - 1) for a, c in search.position.terms if isinstance(a, Symbol) and a != cut)
    plain = all(isinstance(variable, Symbol) for variable, _ in search.position.terms)
    return plain and step > others and _dtype_of(stage, search.operand) != BOOL


def _dtype_of(stage: Stage, scalar: Scalar) -> DType | None:
    """The dtype of a value that the stage computes; None if it does not."""
    for statement in stage.body:
        match statement:
            case Test(result=result) if result == scalar:
                return BOOL
            case Constant() | Position() | Load() | Map() | Scan():
                if statement.result == scalar:
                    return statement.dtype
            case _:
                pass
    return None


def with_extrema(stage: Stage, fresh: Callable[[], Scalar]) -> tuple[Stage, dict[ArgReduce, Reduce]]:
    """The stage with the greatest or least value in place of each position, and which is which.

    Floats of 16 bits are compared as f32, as reductions of them are.
    """
    body: list[Statement] = []
    found: dict[ArgReduce, Reduce] = {}
    for statement in stage.body:
        if not isinstance(statement, ArgReduce):
            body.append(statement)
            continue
        dtype, operand = _dtype_of(stage, statement.operand), statement.operand
        assert dtype is not None, "is_searchable holds"
        if dtype.is_float and dtype.bits == 16:
            dtype, operand = F32, fresh()
            body.append(Map(operand, F32, "convert", (statement.operand,)))
        combiner = "maximum" if statement.direction == "argmax" else "minimum"
        found[statement] = Reduce(fresh(), dtype, combiner, operand)
        body.append(found[statement])
    return replace(stage, body=tuple(body)), found


def search_stages(
    stage: Stage,
    cut: tuple[Symbol, int],
    searches: tuple[ArgReduce, Reduce],
    partial: tuple[str, index.Affine, Symbol],
    fresh: Callable[[], Scalar],
) -> tuple[list[Stage], Scalar]:
    """The second step, and the scalar (i64) that it leaves the position in.

    `stage`: as `with_extrema` made it. `cut`: the loop's symbol, and the iterations of a part. `partial`: the buffer of
    the parts' extrema, the offset of each, and the symbol in it that walks the parts.
    """
    (symbol, chunk), (search, extremum), (buffer, offset, walk) = cut, searches, partial
    value, begin, best = fresh(), fresh(), fresh()
    which = Stage(
        (walk,),
        (
            Load(value, extremum.dtype, buffer, offset),
            ArgReduce(begin, I64, search.direction, value, index.of(walk) * chunk),
            Reduce(best, extremum.dtype, extremum.combiner, value),
        ),
        walk,
    )
    # the last part begins earlier where it would be shorter: what it has then besides does not have this value
    inner = Symbol(symbol.name, chunk)
    moved = index.of(Element(begin, (), 0, symbol.extent - chunk)) + index.of(inner)
    places: Mapping[Symbol, index.Affine] = {symbol: moved}
    kept = [s for s in stage.body if not isinstance(s, Reduce | Store)]
    body: list[Statement] = [rewritten(s, lambda a: index.renamed(a, places)) for s in kept]
    position, never, equal, place, found = (fresh() for _ in range(5))
    body += [
        Position(position, I64, index.renamed(search.position, places)),
        Constant(never, I64, index.bounds(search.position)[1]),
        Map(equal, BOOL, "eq", (extremum.operand, best)),
    ]
    if extremum.dtype.is_float:
        equal = _or_both_nan(body, equal, (extremum.operand, best), fresh)
    body += [Map(place, I64, "select", (equal, position, never)), Reduce(found, I64, "minimum", place)]
    symbols = tuple(inner if s == symbol else s for s in stage.symbols)
    return [which, Stage(symbols, tuple(body), inner if stage.vectorised == symbol else stage.vectorised)], found


def _or_both_nan(
    body: list[Statement], equal: Scalar, pair: tuple[Scalar, Scalar], fresh: Callable[[], Scalar]
) -> Scalar:
    own, other, both, either = (fresh() for _ in range(4))
    body += [
        Map(own, BOOL, "ne", (pair[0], pair[0])),
        Map(other, BOOL, "ne", (pair[1], pair[1])),
        Map(both, BOOL, "and", (own, other)),
        Map(either, BOOL, "or", (equal, both)),
    ]
    return either
