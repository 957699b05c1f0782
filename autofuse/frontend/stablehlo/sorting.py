"""Rules of `sort` and `top_k`: comparators by what they decide, several keys by stable sorts one after the other.

Complex numbers are sorted as their parts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.frontend.stablehlo.bodies import answered, body_of, computed
from autofuse.frontend.stablehlo.emitter import Emitter
from autofuse.frontend.stablehlo.operation import Operation
from autofuse.frontend.stablehlo.ordering import Order, ascending_key
from autofuse.frontend.stablehlo.refusals import UnsupportedOperation
from autofuse.frontend.stablehlo.rules import Rule
from autofuse.ir import dtypes
from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Graph, Value
from autofuse.ir.substitution import replaced, substituted_node
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass

Array = NDArray[Any]
_ORDERS = tuple(
    Order(descending, nan, zeros_apart)
    for nan in ("greatest", "least", "total")
    for descending in (False, True)
    for zeros_apart in (False, True)
)
_PLAIN: Mapping[Order, bool] = {Order(False, "greatest", False): False, Order(True, "least", False): True}
"""Orders that the op table's sort has: whether it descends."""
_OF_INTEGERS = (Order(False, "greatest", False), Order(True, "greatest", False))
_MOST_KEYS = 3


@dataclass(frozen=True, slots=True)
class _Key:
    """One operand that decides the order."""

    operand: int
    order: Order


def _sort(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    arrays = operation.operands
    axis = operation.integer("dimension", arrays[0].type.rank - 1)
    kinds = [value.type.dtype for value in arrays for _ in range(2)]
    held = [part for value in arrays for part in _parts(value, emitter)]
    keys = _keys_of(_of_parts(body_of(emitter, operation.regions[0], kinds)), len(held))
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


def _sorted_by(key: _Key, held: Sequence[Value], axis: int, stable: bool, emitter: Emitter) -> list[Value]:
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


def _keys_of(body: Graph, count: int) -> Sequence[_Key]:
    """What a comparator orders by. Raises UnsupportedOperation for one that is no such order."""
    used = _operands_read(body, count)
    asked = answered(body) if 0 < len(used) <= _MOST_KEYS else None
    if asked is not None:
        columns, (less,) = asked
        kinds = {number: body.inputs[2 * number].type.dtype for number in used}
        ranks = _Ranks(columns)
        numbers = np.all([column == column for column in columns], axis=0)
        for orders, matters in ((_ORDERS, np.ones_like(numbers)), (tuple(_PLAIN), numbers)):
            # a comparator of floats as numbers leaves the place of NaN open: it may be last
            for keys in _possible(used, kinds, orders):
                if np.array_equal(ranks.less(keys)[matters], less[matters]):
                    return keys
    raise UnsupportedOperation(
        "has a comparator that is no ascending or descending order of its operands",
        f"compare elements of one to {_MOST_KEYS} operands by LT or GT, and ties by the next operand",
    )


def _possible(used: Sequence[int], kinds: Mapping[int, DType], orders: Sequence[Order]) -> Iterator[Sequence[_Key]]:
    """All ways to order by some operands."""
    for order in itertools.permutations(used):
        for chosen in itertools.product(*(orders if kinds[n].is_float else _OF_INTEGERS for n in order)):
            yield [_Key(n, found) for n, found in zip(order, chosen, strict=True)]


class _Ranks:
    """The arguments of a comparator, as integers that ascend in an order."""

    def __init__(self, columns: Sequence[Array]) -> None:
        self._columns = columns
        self._found: dict[tuple[int, Order], Array] = {}

    def less(self, keys: Sequence[_Key]) -> Array:
        """Where the first argument comes before the second."""
        less, equal = np.zeros(self._columns[0].shape, np.bool_), np.ones(self._columns[0].shape, np.bool_)
        for key in keys:
            first, second = (self._ranked(2 * key.operand + side, key.order) for side in (0, 1))
            less |= equal & (first < second)
            equal &= first == second
        return less

    def _ranked(self, number: int, order: Order) -> Array:
        if (number, order) not in self._found:
            column = self._columns[number]
            self._found[number, order] = computed(lambda emitter, x: ascending_key(x, order, emitter), column)
        return self._found[number, order]


def _operands_read(body: Graph, count: int) -> list[int]:
    needed = set(body.outputs)
    for node in reversed(body.nodes):
        if any(value in needed for value in node.outputs):
            needed |= {*node.inputs}
    return [n for n in range(count) if needed & {body.inputs[2 * n], body.inputs[2 * n + 1]}]


def _top_k(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    """The greatest elements along the last dimension, NaN before all, the first of equals first; and where they are."""
    (x,) = operation.operands
    axis = x.type.rank - 1
    places = emitter.emit("iota", shape=x.type.shape, dtype=dtypes.I32, iota_dimension=axis)
    held = _sorted_by(_Key(0, Order(True, "greatest", False)), [x, places], axis, True, emitter)
    limits = (*x.type.shape[:-1], operation.integer("k"))
    starts, steps = (0,) * x.type.rank, (1,) * x.type.rank
    return [emitter.emit("slice", value, start_indices=starts, limit_indices=limits, strides=steps) for value in held]


RULES: Mapping[str, Rule] = {"chlo.top_k": _top_k, "stablehlo.sort": _sort}
