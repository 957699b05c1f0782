"""Random graphs for property tests: well-typed, of small shapes, with values that stay finite and well-conditioned.

Magnitudes are tracked while a graph grows, so no exp overflows and no logarithm meets a negative number; floats are
never compared, rounded or sorted after arithmetic, so a reordered sum cannot flip a decision. With the same generator
state the same graph comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.ir import dtypes
from autofuse.ir.dtypes import F32, I32, DType
from autofuse.ir.graph import Graph, Value
from autofuse.ir.types import TensorType
from autofuse.testing.grower import INPUT_BOUND, Grower


def random_inputs(graph: Graph, rng: np.random.Generator) -> tuple[NDArray[Any], ...]:
    """Arguments for a random graph: floats in -2..2, integers in 0..7."""
    return tuple(_array(value.type, rng) for value in graph.inputs)


def _array(type_: TensorType, rng: np.random.Generator) -> NDArray[Any]:
    if type_.dtype.is_float:
        return rng.uniform(-INPUT_BOUND, INPUT_BOUND, type_.shape).astype(type_.dtype.numpy)
    return rng.integers(0, 2 if type_.dtype.kind == "bool" else 8, type_.shape).astype(type_.dtype.numpy)


_BOUNDED = ("tanh", "sin", "cos", "logistic", "erf")
_SAME_BOUND = ("negate", "abs")


def _unary(grower: Grower) -> None:
    x = grower.pick()
    if grower.bound(x) <= 3 and grower.chance(0.3):
        grower.emit("exp", [x], float(np.exp(grower.bound(x))))
    elif grower.chance(0.5):
        grower.emit(grower.one_of(_BOUNDED), [x], 1.0)
    else:
        grower.emit(grower.one_of(_SAME_BOUND), [x], grower.bound(x))


def _positive(grower: Grower) -> None:
    """Square root or log1p of something that cannot be negative."""
    x = grower.pick()
    size = grower.emit("abs", [x], grower.bound(x))
    grower.emit(grower.one_of(("sqrt", "log1p")), [size], grower.bound(size) + 1)


def _binary(grower: Grower) -> None:
    x = grower.pick()
    y = grower.pick(shape=x.type.shape)
    a, b = grower.bound(x), grower.bound(y)
    op = grower.one_of(("add", "subtract", "multiply", "maximum", "minimum"))
    grower.emit(op, [x, y], a * b if op == "multiply" else a + b if op in ("add", "subtract") else max(a, b))


def _quotient(grower: Grower) -> None:
    x = grower.pick()
    y = grower.pick(shape=x.type.shape)
    safe = grower.emit("exp", [grower.emit("tanh", [y], 1.0)], 3.0)
    grower.emit("divide", [x, safe], 3 * grower.bound(x))


def _choice(grower: Grower) -> None:
    x = grower.pick()
    y = grower.pick(shape=x.type.shape)
    pred = _predicate(grower, x.type.shape)
    grower.emit("select", [pred, x, y], max(grower.bound(x), grower.bound(y)))


def _predicate(grower: Grower, shape: tuple[int, ...]) -> Value:
    a, b = (grower.pick(I32, shape) for _ in range(2))
    return grower.emit("compare", [a, b], 1, direction=grower.one_of(("EQ", "NE", "LT", "LE", "GT", "GE")))


def _clamp(grower: Grower) -> None:
    x = grower.pick()
    low, high = (grower.splat(number, x) for number in (-1.0, 1.5))
    grower.emit("clamp", [low, x, high], 1.5)


def _broadcast(grower: Grower) -> None:
    x = grower.pick()
    fresh = max(0, grower.max_rank - x.type.rank)
    rank = x.type.rank + grower.below(fresh + 1)
    dims = sorted(int(d) for d in grower.rng.permutation(rank)[: x.type.rank])
    shape = list(grower.shape(rank))
    for d, extent in zip(dims, x.type.shape, strict=True):
        shape[d] = extent if extent != 1 else shape[d]
    grower.emit("broadcast_in_dim", [x], grower.bound(x), shape=tuple(shape), broadcast_dimensions=tuple(dims))


def _reduce(grower: Grower) -> None:
    x = grower.pick(least_rank=1)
    dims = tuple(d for d in range(x.type.rank) if grower.chance(0.5)) or (x.type.rank - 1,)
    reduced = int(np.prod([x.type.shape[d] for d in dims]))
    combiner = grower.one_of(("add", "add", "maximum", "minimum") if reduced else ("add",))
    bound = grower.bound(x) * (reduced if combiner == "add" else 1)
    grower.emit("reduce", [x], bound, dimensions=dims, combiner=combiner)


def _normalize(grower: Grower) -> None:
    """A softmax over the last dimension: two reductions and what stands between them."""
    x = grower.pick(least_rank=1)
    shape, last = x.type.shape, x.type.rank - 1
    if shape[last] == 0:
        return
    kept = {"shape": shape, "broadcast_dimensions": tuple(range(last))}
    top = grower.emit("reduce", [x], grower.bound(x), dimensions=(last,), combiner="maximum")
    spread = grower.emit("broadcast_in_dim", [top], grower.bound(x), **kept)
    e = grower.emit("exp", [grower.emit("subtract", [x, spread], 2.0)], 1.0)
    total = grower.emit("reduce", [e], 1.0 * shape[last], dimensions=(last,), combiner="add")
    grower.emit("divide", [e, grower.emit("broadcast_in_dim", [total], 1.0 * shape[last], **kept)], 1.0)


def _arg(grower: Grower) -> None:
    """Of an input: a tie decided by rounding would be no fair test."""
    found = [value for value in grower.inputs if value.type.rank and 0 not in value.type.shape]
    if found:
        x = grower.one_of(found)
        op = grower.one_of(("argmin", "argmax"))
        grower.emit(op, [x], 8, dimension=grower.below(x.type.rank), dtype=I32)


def _transpose(grower: Grower) -> None:
    x = grower.pick(least_rank=1)
    permutation = tuple(int(d) for d in grower.rng.permutation(x.type.rank))
    grower.emit("transpose", [x], grower.bound(x), permutation=permutation)


def _reshape(grower: Grower) -> None:
    x = grower.pick(least_rank=1)
    shape = list(x.type.shape)
    if len(shape) > 1 and grower.chance(0.5):
        d = grower.below(len(shape) - 1)
        shape[d : d + 2] = [shape[d] * shape[d + 1]]
    else:
        d = grower.below(len(shape))
        divisors = [n for n in range(1, shape[d] + 1) if shape[d] % n == 0]
        part = grower.one_of(divisors or [1])
        shape[d : d + 1] = [part, shape[d] // part]
    grower.emit("reshape", [x], grower.bound(x), shape=tuple(shape))


def _slice(grower: Grower) -> None:
    x = grower.pick(least_rank=1)
    starts = tuple(n and grower.below(n) for n in x.type.shape)
    limits = tuple(n and s + 1 + grower.below(n - s) for s, n in zip(starts, x.type.shape, strict=True))
    strides = tuple(grower.one_of((1, 1, 2)) for _ in starts)
    grower.emit("slice", [x], grower.bound(x), start_indices=starts, limit_indices=limits, strides=strides)


def _pad(grower: Grower) -> None:
    x = grower.pick(least_rank=1)
    edges = [tuple(grower.one_of((-1, 0, 1, 2)) if n > 2 else grower.below(2) for n in x.type.shape) for _ in range(2)]
    interior = tuple(grower.one_of((0, 0, 1)) for _ in x.type.shape)
    number = grower.builder.constant(np.array(0.5, grower.dtype.numpy))
    padding = {"edge_padding_low": edges[0], "edge_padding_high": edges[1], "interior_padding": interior}
    grower.emit("pad", [x, number], max(grower.bound(x), 0.5), **padding)


def _concatenate(grower: Grower) -> None:
    x = grower.pick(least_rank=1)
    parts = [x, *(grower.pick(shape=x.type.shape) for _ in range(1 + grower.below(2)))]
    grower.emit("concatenate", parts, max(map(grower.bound, parts)), dimension=grower.below(x.type.rank))


def _reverse(grower: Grower) -> None:
    x = grower.pick(least_rank=1)
    grower.emit("reverse", [x], grower.bound(x), dimensions=(grower.below(x.type.rank),))


def _dynamic_slice(grower: Grower) -> None:
    x = grower.pick(least_rank=1)
    starts = [grower.pick(I32, ()) for _ in x.type.shape]
    sizes = tuple(n and 1 + grower.below(n) for n in x.type.shape)
    grower.emit("dynamic_slice", [x, *starts], grower.bound(x), slice_sizes=sizes)


def _take(grower: Grower) -> None:
    """Rows of a value by an index vector."""
    x = grower.pick(least_rank=1)
    if 0 in x.type.shape:
        return
    rows = grower.pick(I32, grower.shape(1))
    grower.emit(
        "gather",
        [x, rows],
        grower.bound(x),
        offset_dims=tuple(range(1, x.type.rank)),
        collapsed_slice_dims=(0,),
        operand_batching_dims=(),
        start_indices_batching_dims=(),
        start_index_map=(0,),
        index_vector_dim=1,
        slice_sizes=(1, *x.type.shape[1:]),
    )


def _dot(grower: Grower) -> None:
    x = grower.pick(least_rank=2)
    batch = tuple(range(x.type.rank - 2))
    depth = x.type.shape[-1]
    y = grower.pick(shape=(*x.type.shape[:-2], depth, grower.one_of(grower.extents)))
    grower.emit(
        "dot_general",
        [x, y],
        grower.bound(x) * grower.bound(y) * depth,
        lhs_batching_dimensions=batch,
        rhs_batching_dimensions=batch,
        lhs_contracting_dimensions=(x.type.rank - 1,),
        rhs_contracting_dimensions=(x.type.rank - 2,),
    )


def _integers(grower: Grower) -> None:
    x = grower.pick(I32)
    y = grower.pick(I32, x.type.shape)
    names = ("add", "subtract", "multiply", "maximum", "minimum", "and", "or", "xor", "divide", "remainder")
    grower.emit(grower.one_of((*names, "shift_left", "shift_right_arithmetic")), [x, y], 8)


def _positions(grower: Grower) -> None:
    shape = grower.shape(1 + grower.below(grower.max_rank))
    dimension = grower.below(len(shape))
    steps = grower.emit("iota", [], 8, shape=shape, dtype=I32, iota_dimension=dimension)
    if grower.chance(0.5):
        grower.emit("convert", [steps], float(shape[dimension]), dtype=grower.dtype)


def _count(grower: Grower) -> None:
    """How often a predicate holds, as an integer sum."""
    shape = grower.shape(1 + grower.below(grower.max_rank))
    ones = grower.emit("convert", [_predicate(grower, shape)], 1, dtype=dtypes.I32)
    grower.emit("reduce", [ones], 8, dimensions=(grower.below(len(shape)),), combiner="add")


Rule = Callable[[Grower], None]
"""Adds one node or a few to a graph."""
FAMILIES: Mapping[str, tuple[Rule, ...]] = {
    "elementwise": (_unary, _unary, _binary, _binary, _binary, _positive, _quotient, _choice, _clamp),
    "broadcast": (_broadcast, _broadcast),
    "reduce": (_reduce, _reduce, _normalize, _arg),
    "index": (_transpose, _reshape, _slice, _pad, _concatenate, _reverse, _dynamic_slice, _take),
    "dot": (_dot,),
    "integer": (_integers, _positions, _count),
}
"""What random graphs are of: ops that most programs use."""


def random_graph(
    rng: np.random.Generator,
    nodes: int = 12,
    *,
    families: Mapping[str, Sequence[Rule]] = FAMILIES,
    dtype: DType = F32,
    extents: Sequence[int] = (1, 2, 3, 4, 5, 8),
    max_rank: int = 3,
) -> Graph:
    """A graph of at least `nodes` nodes, all of them live.

    `families`: the rules to draw from. `dtype`: of its floats. `extents`: what dimensions are drawn from.
    """
    grower = Grower(rng, dtype, extents, max_rank)
    rules = [rule for family in sorted(families) for rule in families[family]]
    while len(grower.values) < nodes + len(grower.inputs):
        rules[int(rng.integers(len(rules)))](grower)
    return grower.finish()
