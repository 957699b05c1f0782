"""Random graphs for property tests: well-typed, of small shapes, with values that stay finite and well-conditioned.

Magnitudes are tracked while a graph grows, so no exp overflows and no logarithm meets a negative number; floats are
never compared, rounded or sorted after arithmetic, so a reordered sum cannot flip a decision. With the same generator
state the same graph comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autofuse.ir import dtypes
from autofuse.ir.builder import GraphBuilder
from autofuse.ir.dtypes import F32, I32, DType
from autofuse.ir.graph import Graph, Value
from autofuse.ir.types import TensorType

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

INPUT_BOUND = 2.0
"""Float inputs lie in -2..2."""
_LIMIT = 100.0
"""Floats of a larger possible magnitude are squashed by tanh."""


def random_graph(
    rng: np.random.Generator,
    nodes: int = 12,
    *,
    families: Collection[str] = ("elementwise", "broadcast", "reduce", "index", "dot", "integer"),
    dtype: DType = F32,
    extents: Sequence[int] = (1, 2, 3, 4, 5, 8),
    max_rank: int = 3,
) -> Graph:
    """A graph of at least `nodes` nodes, all of them live.

    `families`: what to draw from; see `FAMILIES`. `dtype`: of its floats. `extents`: what dimensions are drawn from.
    """
    grower = _Grower(rng, dtype, extents, max_rank)
    rules = [rule for family in sorted(families) for rule in FAMILIES[family]]
    while len(grower.values) < nodes + len(grower.inputs):
        rules[int(rng.integers(len(rules)))](grower)
    return grower.finish()


def random_graphs(max_nodes: int = 16, **options: Any) -> SearchStrategy[Graph]:
    """A hypothesis strategy over `random_graph`; `options` are its keywords. Shrinks to fewer nodes."""
    from hypothesis import strategies as st

    sizes = st.integers(1, max_nodes)
    seeds = st.integers(0, 2**32 - 1)
    return st.builds(lambda n, seed: random_graph(np.random.default_rng(seed), n, **options), sizes, seeds)


def random_inputs(graph: Graph, rng: np.random.Generator) -> tuple[NDArray[Any], ...]:
    """Arguments for a random graph: floats in -2..2, integers in 0..7."""
    return tuple(_array(value.type, rng) for value in graph.inputs)


def _array(type_: TensorType, rng: np.random.Generator) -> NDArray[Any]:
    if type_.dtype.is_float:
        return rng.uniform(-INPUT_BOUND, INPUT_BOUND, type_.shape).astype(type_.dtype.numpy)
    return rng.integers(0, 2 if type_.dtype.kind == "bool" else 8, type_.shape).astype(type_.dtype.numpy)


class _Grower:
    """A graph under construction and, per float value, a bound of its magnitude."""

    def __init__(self, rng: np.random.Generator, dtype: DType, extents: Sequence[int], max_rank: int) -> None:
        self.rng = rng
        self.dtype = dtype
        self.extents = [int(n) for n in rng.choice(extents, 3)]
        self.max_rank = max_rank
        self.builder = GraphBuilder("random")
        self.values: dict[Value, float] = {}
        self.inputs: list[Value] = []
        self.used: set[Value] = set()
        self.input(self.shape(), dtype)

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def below(self, count: int) -> int:
        return int(self.rng.integers(count))

    def one_of(self, items: Sequence[Any]) -> Any:
        return items[self.below(len(items))]

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        count = self.below(self.max_rank + 1) if rank is None else rank
        return tuple(self.one_of(self.extents) for _ in range(count))

    def input(self, shape: tuple[int, ...], dtype: DType) -> Value:
        value = self.builder.input(TensorType(shape, dtype), f"x{len(self.inputs)}")
        self.inputs.append(value)
        self.values[value] = INPUT_BOUND
        return value

    def pick(self, dtype: DType | None = None, shape: tuple[int, ...] | None = None, least_rank: int = 0) -> Value:
        """An existing value of that kind, the later the likelier; else a new input."""
        wanted = dtype or self.dtype
        found = [
            value
            for value in self.values
            if value.type.dtype == wanted and value.type.rank >= least_rank and shape in (None, value.type.shape)
        ]
        if not found or self.chance(0.1):
            rank = max(least_rank, self.below(self.max_rank + 1))
            return self.input(self.shape(rank) if shape is None else shape, wanted)
        return found[max(self.below(len(found)), self.below(len(found)))]

    def emit(self, op: str, inputs: Sequence[Value], bound: float, **attrs: Any) -> Value:
        """Add a node; a float that could become large is squashed."""
        self.used.update(inputs)
        value = self.builder.emit(op, inputs, **attrs)
        self.values[value] = bound
        if value.type.dtype.is_float and bound > _LIMIT:
            return self.emit("tanh", [value], 1.0)
        return value

    def bound(self, value: Value) -> float:
        return self.values[value]

    def finish(self) -> Graph:
        """All values that nobody reads are outputs, and now and then one that somebody does."""
        made = [value for value in self.values if value not in self.inputs]
        outputs = [value for value in made if value not in self.used or self.chance(0.1)]
        return self.builder.finish(outputs)


_BOUNDED = ("tanh", "sin", "cos", "logistic", "erf")
_SAME_BOUND = ("negate", "abs")


def _unary(grower: _Grower) -> None:
    x = grower.pick()
    if grower.bound(x) <= 3 and grower.chance(0.3):
        grower.emit("exp", [x], float(np.exp(grower.bound(x))))
    elif grower.chance(0.5):
        grower.emit(grower.one_of(_BOUNDED), [x], 1.0)
    else:
        grower.emit(grower.one_of(_SAME_BOUND), [x], grower.bound(x))


def _positive(grower: _Grower) -> None:
    """Square root or log1p of something that cannot be negative."""
    x = grower.pick()
    size = grower.emit("abs", [x], grower.bound(x))
    grower.emit(grower.one_of(("sqrt", "log1p")), [size], grower.bound(size) + 1)


def _binary(grower: _Grower) -> None:
    x = grower.pick()
    y = grower.pick(shape=x.type.shape)
    a, b = grower.bound(x), grower.bound(y)
    op = grower.one_of(("add", "subtract", "multiply", "maximum", "minimum"))
    grower.emit(op, [x, y], a * b if op == "multiply" else a + b if op in ("add", "subtract") else max(a, b))


def _quotient(grower: _Grower) -> None:
    x = grower.pick()
    y = grower.pick(shape=x.type.shape)
    safe = grower.emit("exp", [grower.emit("tanh", [y], 1.0)], 3.0)
    grower.emit("divide", [x, safe], 3 * grower.bound(x))


def _choice(grower: _Grower) -> None:
    x = grower.pick()
    y = grower.pick(shape=x.type.shape)
    pred = _predicate(grower, x.type.shape)
    grower.emit("select", [pred, x, y], max(grower.bound(x), grower.bound(y)))


def _predicate(grower: _Grower, shape: tuple[int, ...]) -> Value:
    a, b = (grower.pick(I32, shape) for _ in range(2))
    return grower.emit("compare", [a, b], 1, direction=grower.one_of(("EQ", "NE", "LT", "LE", "GT", "GE")))


def _clamp(grower: _Grower) -> None:
    x = grower.pick()
    low, high = (_scalar(grower, number, x.type.shape) for number in (-1.0, 1.5))
    grower.emit("clamp", [low, x, high], 1.5)


def _scalar(grower: _Grower, number: float, shape: tuple[int, ...]) -> Value:
    constant = grower.builder.constant(np.array(number, grower.dtype.numpy))
    return grower.emit("broadcast_in_dim", [constant], abs(number), shape=shape, broadcast_dimensions=())


def _broadcast(grower: _Grower) -> None:
    x = grower.pick()
    fresh = max(0, grower.max_rank - x.type.rank)
    rank = x.type.rank + grower.below(fresh + 1)
    dims = sorted(int(d) for d in grower.rng.permutation(rank)[: x.type.rank])
    shape = list(grower.shape(rank))
    for d, extent in zip(dims, x.type.shape, strict=True):
        shape[d] = extent if extent != 1 else shape[d]
    grower.emit("broadcast_in_dim", [x], grower.bound(x), shape=tuple(shape), broadcast_dimensions=tuple(dims))


def _reduce(grower: _Grower) -> None:
    x = grower.pick(least_rank=1)
    dims = tuple(d for d in range(x.type.rank) if grower.chance(0.5)) or (x.type.rank - 1,)
    combiner = grower.one_of(("add", "add", "maximum", "minimum"))
    folded = int(np.prod([x.type.shape[d] for d in dims]))
    bound = grower.bound(x) * (folded if combiner == "add" else 1)
    grower.emit("reduce", [x], bound, dimensions=dims, combiner=combiner)


def _normalize(grower: _Grower) -> None:
    """A softmax over the last dimension: two reductions and what stands between them."""
    x = grower.pick(least_rank=1)
    shape, last = x.type.shape, x.type.rank - 1
    kept = {"shape": shape, "broadcast_dimensions": tuple(range(last))}
    top = grower.emit("reduce", [x], grower.bound(x), dimensions=(last,), combiner="maximum")
    spread = grower.emit("broadcast_in_dim", [top], grower.bound(x), **kept)
    e = grower.emit("exp", [grower.emit("subtract", [x, spread], 2.0)], 1.0)
    total = grower.emit("reduce", [e], 1.0 * shape[last], dimensions=(last,), combiner="add")
    grower.emit("divide", [e, grower.emit("broadcast_in_dim", [total], 1.0 * shape[last], **kept)], 1.0)


def _arg(grower: _Grower) -> None:
    """Of an input: a tie decided by rounding would be no fair test."""
    found = [value for value in grower.inputs if value.type.rank]
    if found:
        x = grower.one_of(found)
        op = grower.one_of(("argmin", "argmax"))
        grower.emit(op, [x], 8, dimension=grower.below(x.type.rank), dtype=I32)


def _transpose(grower: _Grower) -> None:
    x = grower.pick(least_rank=1)
    permutation = tuple(int(d) for d in grower.rng.permutation(x.type.rank))
    grower.emit("transpose", [x], grower.bound(x), permutation=permutation)


def _reshape(grower: _Grower) -> None:
    x = grower.pick(least_rank=1)
    shape = list(x.type.shape)
    if len(shape) > 1 and grower.chance(0.5):
        d = grower.below(len(shape) - 1)
        shape[d : d + 2] = [shape[d] * shape[d + 1]]
    else:
        d = grower.below(len(shape))
        divisors = [n for n in range(1, shape[d] + 1) if shape[d] % n == 0]
        part = grower.one_of(divisors)
        shape[d : d + 1] = [part, shape[d] // part]
    grower.emit("reshape", [x], grower.bound(x), shape=tuple(shape))


def _slice(grower: _Grower) -> None:
    x = grower.pick(least_rank=1)
    starts = tuple(grower.below(n) for n in x.type.shape)
    limits = tuple(s + 1 + grower.below(n - s) for s, n in zip(starts, x.type.shape, strict=True))
    strides = tuple(grower.one_of((1, 1, 2)) for _ in starts)
    grower.emit("slice", [x], grower.bound(x), start_indices=starts, limit_indices=limits, strides=strides)


def _pad(grower: _Grower) -> None:
    x = grower.pick(least_rank=1)
    edges = [tuple(grower.one_of((-1, 0, 1, 2)) if n > 2 else grower.below(2) for n in x.type.shape) for _ in range(2)]
    interior = tuple(grower.one_of((0, 0, 1)) for _ in x.type.shape)
    number = grower.builder.constant(np.array(0.5, grower.dtype.numpy))
    padding = {"edge_padding_low": edges[0], "edge_padding_high": edges[1], "interior_padding": interior}
    grower.emit("pad", [x, number], max(grower.bound(x), 0.5), **padding)


def _concatenate(grower: _Grower) -> None:
    x = grower.pick(least_rank=1)
    parts = [x, *(grower.pick(shape=x.type.shape) for _ in range(1 + grower.below(2)))]
    grower.emit("concatenate", parts, max(map(grower.bound, parts)), dimension=grower.below(x.type.rank))


def _reverse(grower: _Grower) -> None:
    x = grower.pick(least_rank=1)
    grower.emit("reverse", [x], grower.bound(x), dimensions=(grower.below(x.type.rank),))


def _dynamic_slice(grower: _Grower) -> None:
    x = grower.pick(least_rank=1)
    starts = [grower.pick(I32, ()) for _ in x.type.shape]
    sizes = tuple(1 + grower.below(n) for n in x.type.shape)
    grower.emit("dynamic_slice", [x, *starts], grower.bound(x), slice_sizes=sizes)


def _take(grower: _Grower) -> None:
    """Rows of a value by an index vector."""
    x = grower.pick(least_rank=1)
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


def _dot(grower: _Grower) -> None:
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


def _integers(grower: _Grower) -> None:
    x = grower.pick(I32)
    y = grower.pick(I32, x.type.shape)
    names = ("add", "subtract", "multiply", "maximum", "minimum", "and", "or", "xor", "divide", "remainder")
    grower.emit(grower.one_of((*names, "shift_left", "shift_right_arithmetic")), [x, y], 8)


def _positions(grower: _Grower) -> None:
    shape = grower.shape(1 + grower.below(grower.max_rank))
    dimension = grower.below(len(shape))
    steps = grower.emit("iota", [], 8, shape=shape, dtype=I32, iota_dimension=dimension)
    if grower.chance(0.5):
        grower.emit("convert", [steps], float(shape[dimension]), dtype=grower.dtype)


def _count(grower: _Grower) -> None:
    """How often a predicate holds, as an integer sum."""
    shape = grower.shape(1 + grower.below(grower.max_rank))
    ones = grower.emit("convert", [_predicate(grower, shape)], 1, dtype=dtypes.I32)
    grower.emit("reduce", [ones], 8, dimensions=(grower.below(len(shape)),), combiner="add")


FAMILIES: Mapping[str, tuple[Callable[[_Grower], None], ...]] = {
    "elementwise": (_unary, _unary, _binary, _binary, _binary, _positive, _quotient, _choice, _clamp),
    "broadcast": (_broadcast, _broadcast),
    "reduce": (_reduce, _reduce, _normalize, _arg),
    "index": (_transpose, _reshape, _slice, _pad, _concatenate, _reverse, _dynamic_slice, _take),
    "dot": (_dot,),
    "integer": (_integers, _positions, _count),
}
"""What `random_graph` draws from: family -> rules, each adding one node or a few."""
