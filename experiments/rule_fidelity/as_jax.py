"""A graph of autofuse in the words of jax.lax, one op for one node, each under a scope with the node's number.

The scope reaches the metadata of the optimised HLO, which so tells what became of which node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from autofuse.ir.combiners import combiner_identity
from autofuse.ir.graph import Graph, Node

SCOPE = "af_"


class UnsupportedError(Exception):
    """An op that has no form here."""


def evaluate(graph: Graph, args: Sequence[Any]) -> list[Any]:
    """The graph's outputs. Raises UnsupportedError."""
    env = dict(zip(graph.inputs, args, strict=True))
    for number, node in enumerate(graph.nodes):
        if node.op not in OPS:
            raise UnsupportedError(node.op)
        with jax.named_scope(f"{SCOPE}{number}"):
            env[node.output] = OPS[node.op](node, *(env[value] for value in node.inputs))
    return [env[value] for value in graph.outputs]


def _same(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _, *operands: function(*operands)


_SAME_NAME = (
    *("abs", "sign", "exp", "exp2", "expm1", "log", "log1p", "sqrt", "rsqrt", "cbrt", "tanh", "sin", "cos", "tan"),
    *("logistic", "erf", "floor", "ceil", "atan2", "is_finite", "shift_left", "shift_right_arithmetic"),
    "shift_right_logical",
)
_OTHER_NAME = {
    "negate": lax.neg,
    "add": lax.add,
    "subtract": lax.sub,
    "multiply": lax.mul,
    "divide": lax.div,
    "remainder": lax.rem,
    "maximum": lax.max,
    "minimum": lax.min,
    "power": lax.pow,
    "and": lax.bitwise_and,
    "or": lax.bitwise_or,
    "xor": lax.bitwise_xor,
    "not": lax.bitwise_not,
    "popcnt": lax.population_count,
    "count_leading_zeros": lax.clz,
    "select": lax.select,
    "clamp": lax.clamp,
}
_COMBINERS = {
    "add": lax.add,
    "multiply": lax.mul,
    "maximum": lax.max,
    "minimum": lax.min,
    "and": lax.bitwise_and,
    "or": lax.bitwise_or,
}


def _compare(node: Node, x: Any, y: Any) -> Any:
    return getattr(lax, node.attrs["direction"].lower())(x, y)


def _reduce(node: Node, x: Any) -> Any:
    combiner = node.attrs["combiner"]
    start = np.array(combiner_identity(combiner, node.output.type.dtype), x.dtype)
    return lax.reduce(x, start, _COMBINERS[combiner], node.attrs["dimensions"])


def _pad(node: Node, x: Any, value: Any) -> Any:
    sides = zip(
        node.attrs["edge_padding_low"], node.attrs["edge_padding_high"], node.attrs["interior_padding"], strict=True
    )
    return lax.pad(x, value, list(sides))


def _dot(node: Node, left: Any, right: Any) -> Any:
    at = node.attrs
    contracting = at["lhs_contracting_dimensions"], at["rhs_contracting_dimensions"]
    batching = at["lhs_batching_dimensions"], at["rhs_batching_dimensions"]
    return lax.dot_general(left, right, (contracting, batching))


def _cumulative(node: Node, x: Any) -> Any:
    walk = {"add": lax.cumsum, "multiply": lax.cumprod, "maximum": lax.cummax, "minimum": lax.cummin}
    return walk[node.attrs["combiner"]](x, axis=node.attrs["dimension"], reverse=node.attrs["reverse"])


def _gather(node: Node, x: Any, indices: Any) -> Any:
    at = node.attrs
    if at["index_vector_dim"] != indices.ndim - 1:
        raise UnsupportedError("gather whose index vectors are not the last dimension")
    numbers = lax.GatherDimensionNumbers(
        offset_dims=at["offset_dims"],
        collapsed_slice_dims=at["collapsed_slice_dims"],
        start_index_map=at["start_index_map"],
        operand_batching_dims=at["operand_batching_dims"],
        start_indices_batching_dims=at["start_indices_batching_dims"],
    )
    return lax.gather(x, indices, numbers, at["slice_sizes"], mode=lax.GatherScatterMode.CLIP)


def _reduce_index(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda node, x: function(x, node.attrs["dimension"], node.attrs["dtype"].numpy)


OPS: dict[str, Callable[..., Any]] = {
    **{name: _same(getattr(lax, name)) for name in _SAME_NAME},
    **{name: _same(function) for name, function in _OTHER_NAME.items()},
    "log2": lambda _, x: lax.div(lax.log(x), np.array(np.log(2.0), x.dtype)),
    "round_nearest_even": lambda _, x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    "round_nearest_afz": lambda _, x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "compare": _compare,
    "convert": lambda node, x: lax.convert_element_type(x, node.output.type.dtype.numpy),
    "bitcast_convert": lambda node, x: lax.bitcast_convert_type(x, node.output.type.dtype.numpy),
    "constant": lambda node: jax.numpy.asarray(node.attrs["value"]),
    "iota": lambda node: lax.broadcasted_iota(
        node.output.type.dtype.numpy, node.output.type.shape, node.attrs["iota_dimension"]
    ),
    "broadcast_in_dim": lambda node, x: lax.broadcast_in_dim(
        x, node.attrs["shape"], node.attrs["broadcast_dimensions"]
    ),
    "reshape": lambda node, x: lax.reshape(x, node.attrs["shape"]),
    "transpose": lambda node, x: lax.transpose(x, node.attrs["permutation"]),
    "slice": lambda node, x: lax.slice(
        x, node.attrs["start_indices"], node.attrs["limit_indices"], node.attrs["strides"]
    ),
    "reverse": lambda node, x: lax.rev(x, node.attrs["dimensions"]),
    "pad": _pad,
    "concatenate": lambda node, *operands: lax.concatenate(operands, node.attrs["dimension"]),
    "reduce": _reduce,
    "argmin": _reduce_index(lax.argmin),
    "argmax": _reduce_index(lax.argmax),
    "cumulative": _cumulative,
    "dot_general": _dot,
    "gather": _gather,
    "dynamic_slice": lambda node, x, *starts: lax.dynamic_slice(x, starts, node.attrs["slice_sizes"]),
    "dynamic_update_slice": lambda _, x, update, *starts: lax.dynamic_update_slice(x, update, starts),
}
"""By op: (node, operands...) to the result."""
