"""Rules of `sort` and `top_k`: comparators by what they decide, several keys by stable sorts one after the other.

Complex numbers are sorted as their parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autofuse.frontend.stablehlo.bodies import body_of
from autofuse.frontend.stablehlo.comparators import PLAIN, Key, keys_of
from autofuse.frontend.stablehlo.emitter import Emitter
from autofuse.frontend.stablehlo.operation import Operation
from autofuse.frontend.stablehlo.ordering import Order, ascending_key
from autofuse.frontend.stablehlo.refusals import UnsupportedOperation
from autofuse.frontend.stablehlo.rules import Rule
from autofuse.ir import dtypes
from autofuse.ir.graph import Graph, Value
from autofuse.ir.substitution import replaced, substituted_node
from autofuse.ir.types import TensorType

_PLAIN: Mapping[Order, bool] = {order: order.descending for order in PLAIN}
"""Orders that the op table's sort has: whether it descends."""


def _sort(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    arrays = operation.operands
    axis = operation.integer("dimension", arrays[0].type.rank - 1)
    kinds = [value.type.dtype for value in arrays for _ in range(2)]
    held = [part for value in arrays for part in _parts(value, emitter)]
    keys = keys_of(_of_parts(body_of(emitter, operation.regions[0], kinds)), len(held))
    stable = operation.flag("is_stable", default=False) or len(keys) > 1
    for key in reversed(keys):
        held = _sorted_by(key, held, axis % max(arrays[0].type.rank, 1), stable, emitter)
    parts = iter(held)
    return [
        emitter.emit("complex", next(parts), next(parts)) if value.type.dtype.is_complex else next(parts)
        for value in arrays
    ]


def _parts(value: Value, emitter: Emitter) -> tuple[Value, ...]:
    """The real and the imaginary part of complex numbers; anything else as it is."""
    if not value.type.dtype.is_complex:
        return (value,)
    return emitter.emit("real", value), emitter.emit("imag", value)


def _of_parts(body: Graph) -> Graph:
    """A comparator whose complex arguments come as two. What reads one as a whole stays, and has none to read."""
    inputs: list[Value] = []
    parts: dict[Value, dict[str, Value]] = {}
    for first, second in zip(body.inputs[::2], body.inputs[1::2], strict=True):
        if not first.type.dtype.is_complex:
            inputs += (first, second)
            continue
        for part in ("real", "imag"):
            for value in (first, second):
                own = Value(f"{value.name}.{part}", TensorType((), value.type.dtype.part))
                parts.setdefault(value, {})[part] = own
                inputs.append(own)
    taken = [node for node in body.nodes if node.op in ("real", "imag") and node.inputs[0] in parts]
    to = {node.output: parts[node.inputs[0]][node.op] for node in taken}
    nodes = tuple(substituted_node(node, to) for node in body.nodes if node not in taken)
    return Graph(body.name, tuple(inputs), nodes, replaced(body.outputs, to), body.captures)


def _sorted_by(key: Key, held: Sequence[Value], axis: int, stable: bool, emitter: Emitter) -> list[Value]:
    by, others = held[key.operand], [n for n in range(len(held)) if n != key.operand]
    plain = _PLAIN.get(key.order) if by.type.dtype.is_float else key.order.descending
    if plain is None:
        first = ascending_key(by, key.order, emitter)
        results = emitter.builder.emit_many("sort", [first, *held], dimension=axis, descending=False, stable=stable)
        return list(results[1:])
    operands = [by, *(held[n] for n in others)]
    results = emitter.builder.emit_many("sort", operands, dimension=axis, descending=plain, stable=stable)
    placed = dict(zip((key.operand, *others), results, strict=True))
    return [placed[n] for n in range(len(held))]


def _top_k(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    """The greatest elements along the last dimension, NaN before all, the first of equals first; and where they are."""
    (x,) = operation.operands
    axis = x.type.rank - 1
    places = emitter.emit("iota", shape=x.type.shape, dtype=dtypes.I32, iota_dimension=axis)
    held = _sorted_by(Key(0, Order(True, "greatest", False)), [x, places], axis, True, emitter)
    limits = (*x.type.shape[:-1], operation.integer("k"))
    return [_first(value, limits, emitter) for value in held]


def first_by_comparator(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    """What calls of `ApproxTopK` give: the first elements by a comparator; exact, whatever recall is asked for."""
    arrays = operation.operands[: len(operation.operands) // 2]
    axis = operation.entry("mhlo.backend_config", "reduction_dim")
    comparators = operation.names("called_computations")
    if axis is None or len(comparators) != 1:
        raise UnsupportedOperation("has no reduction_dim, or not one comparator", "write it as a stablehlo.sort")
    apart, inputs = emitter.apart("comparator", [TensorType((), x.type.dtype) for x in arrays for _ in range(2)])
    body = apart.builder.finish(apart.function(comparators[0], inputs))
    held = list(arrays)
    for key in reversed(keys_of(body, len(arrays))):
        held = _sorted_by(key, held, int(axis), True, emitter)
    return [_first(value, type_.shape, emitter) for value, type_ in zip(held, operation.types, strict=True)]


def _first(value: Value, limits: tuple[int, ...], emitter: Emitter) -> Value:
    starts, steps = (0,) * value.type.rank, (1,) * value.type.rank
    return emitter.emit("slice", value, start_indices=starts, limit_indices=limits, strides=steps)


RULES: Mapping[str, Rule] = {"chlo.top_k": _top_k, "stablehlo.sort": _sort}
