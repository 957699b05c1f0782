"""What a sweep does to its product in the end: where it is stored, and the same done to weights.

out[j] = a[j] / l        the product, scaled by what its row has one of
p[k] = p[k] / l          the weights, where l is known before the axis is walked
"""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.ir import index
from autofuse.ir.dtypes import DType
from autofuse.ir.index import Affine
from autofuse.lower.rewrite import operands, reading
from autofuse.lower.statements import Effect, Load, Map, Reduce, Scalar, Statement, Store
from autofuse.lower.tile import Matrix, RowBlock, Stage, Sweep


def written_matrix(result: Stage, block: RowBlock) -> Matrix:
    """Where the last stage of a sweep stores. Raises StopIteration where it stores nothing."""
    store = next(s for s in result.body if isinstance(s, Store))
    (walk,) = result.symbols
    row = store.offset.coefficient(block.symbol) + store.offset.coefficient(block.local)
    offset = index.renamed(store.offset, {walk: Affine()})
    return Matrix(store.buffer, offset, row, store.offset.coefficient(walk))


def scaling_of(result: Stage) -> tuple[Load, list[Statement], Scalar]:
    """What the last stage does to an element of the product: where that is read, what scales it, and what comes out.

    What comes out is still of the type that was read; it may be narrowed when it is stored.
    """
    (store,) = (s for s in result.body if isinstance(s, Store))
    first, made = result.body[0], {s.result: s for s in result.body if not isinstance(s, Effect)}
    assert isinstance(first, Load), "the product comes first"
    value, last = store.value, made[store.value]
    if isinstance(last, Map) and last.opcode == "convert":
        (value,) = last.operands
    return first, [s for s in made.values() if s is not first and (s is not last or s.result == value)], value


def scaled_weights(result: Stage, stages: Sequence[Stage], sweep: Sweep, weights: str, dtype: DType) -> Stage:
    """What the last stage does to an element of the product, done to each weight and rounded to its type.

    `stages`: those between the products: the second one stores `weights`, of a `dtype`. A weight that is zero by choice
    is not scaled by what its row has of the weights alone.
    """
    first, scaling, value = scaling_of(result)
    stage = stages[1]
    chosen: list[Statement] = []
    if sweep.chosen is not None:
        condition = next(s.operand for s in stage.body if isinstance(s, Reduce) and s.result == sweep.chosen)
        chosen = _needed(stage.body, condition)
        known = {load.result: condition for load in _loads_of(scaling, sweep.chosen, stages[2:])}
        scaling = [reading(s, known) for s in scaling if isinstance(s, Effect) or s.result not in known]
    fresh = max(s.result for s in (first, *scaling, *chosen) if not isinstance(s, Effect)) + 1
    return Stage(
        stage.symbols,
        (
            *chosen,
            Load(fresh, dtype, weights, Affine()),
            Map(first.result, first.dtype, "convert", (fresh,)),
            *scaling,
            Map(fresh + 1, dtype, "convert", (value,)),
            Store(weights, Affine(), fresh + 1),
        ),
        None,
    )


def _loads_of(scaling: Sequence[Statement], value: Scalar, stages: Sequence[Stage]) -> list[Load]:
    """Loads of what some stage stored of a value."""
    buffers = {s.buffer for stage in stages for s in stage.body if isinstance(s, Store) and s.value == value}
    return [s for s in scaling if isinstance(s, Load) and s.buffer in buffers]


def _needed(body: Sequence[Statement], wanted: Scalar) -> list[Statement]:
    """The statements that compute a value."""
    needed, found = {wanted}, list[Statement]()
    for statement in reversed(body):
        if not isinstance(statement, Effect) and statement.result in needed:
            needed.update(operands(statement))
            found.append(statement)
    return found[::-1]
