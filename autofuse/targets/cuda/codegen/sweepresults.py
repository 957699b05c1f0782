"""What a sweep does to its product in the end: where it is stored, and the same done to weights.

out[j] = a[j] / l        the product, scaled by what its row has one of
p[k] = p[k] / l          the weights, where l is known before the axis is walked
"""

from __future__ import annotations

from collections.abc import Mapping

from autofuse.ir import index
from autofuse.ir.index import Affine
from autofuse.lower.tile import Buffer, Effect, Load, Map, Matrix, RowBlock, Stage, Store


def written_matrix(result: Stage, block: RowBlock) -> Matrix:
    """Where the last stage of a sweep stores. Raises StopIteration where it stores nothing."""
    store = next(s for s in result.body if isinstance(s, Store))
    (walk,) = result.symbols
    row = store.offset.coefficient(block.symbol) + store.offset.coefficient(block.local)
    offset = index.renamed(store.offset, {walk: Affine()})
    return Matrix(store.buffer, offset, row, store.offset.coefficient(walk))


def scaled_weights(result: Stage, stage: Stage, weights: str, buffers: Mapping[str, Buffer]) -> Stage:
    """What the last stage does to an element of the product, done to each weight and rounded to its type.

    `stage`: the one that stores weights. `weights`: where.
    """
    (store,) = (s for s in result.body if isinstance(s, Store))
    first, made = result.body[0], {s.result: s for s in result.body if not isinstance(s, Effect)}
    assert isinstance(first, Load), "the product comes first"
    value, last = store.value, made[store.value]
    if isinstance(last, Map) and last.opcode == "convert":
        (value,) = last.operands
    scaling = [s for s in result.body[1:] if not isinstance(s, Effect) and (s is not last or s.result == value)]
    fresh, dtype = max(made) + 1, buffers[weights].type.dtype
    return Stage(
        stage.symbols,
        (
            Load(fresh, dtype, weights, Affine()),
            Map(first.result, first.dtype, "convert", (fresh,)),
            *scaling,
            Map(fresh + 1, dtype, "convert", (value,)),
            Store(weights, Affine(), fresh + 1),
        ),
        None,
    )
