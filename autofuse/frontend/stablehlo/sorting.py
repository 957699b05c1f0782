"""Rules of `sort` and `top_k`: comparators by what they decide, several keys by stable sorts one after the other."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.frontend.stablehlo.bodies import body_of, chooses, computed
from autofuse.frontend.stablehlo.emitter import Emitter
from autofuse.frontend.stablehlo.operation import Operation
from autofuse.frontend.stablehlo.ordering import Order, ascending_key
from autofuse.frontend.stablehlo.refusals import UnsupportedOperation
from autofuse.frontend.stablehlo.rules import Rule
from autofuse.ir import dtypes
from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Graph, Value
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
    keys = _keys_of(body_of(emitter, operation.regions[0], kinds), len(arrays))
    stable = operation.flag("is_stable", default=False) or len(keys) > 1
    held = list(arrays)
    for key in reversed(keys):
        held = _sorted_by(key, held, axis % max(arrays[0].type.rank, 1), stable, emitter)
    return held


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
    if not used or len(used) > _MOST_KEYS:
        raise UnsupportedOperation(
            f"has a comparator that reads {len(used)} operands; orders by one to {_MOST_KEYS} are known",
            "sort by one key at a time, by stable sorts",
        )
    kinds = [body.inputs[2 * number].type.dtype for number in used]
    for order in itertools.permutations(range(len(used))):
        for chosen in itertools.product(*(_orders(kinds[n]) for n in order)):
            keys = [_Key(used[n], found) for n, found in zip(order, chosen, strict=True)]
            if _is_order(body, keys, with_nan=True):
                return keys
    plain = [_Key(number, Order(descending, "greatest", False)) for number in used for descending in (False, True)]
    for key in plain:  # floats compared as numbers: the order of NaN is nobody's
        if len(used) == 1 and _is_order(body, [key], with_nan=False):
            return [_Key(key.operand, Order(True, "least", False))] if key.order.descending else [key]
    raise UnsupportedOperation(
        "has a comparator that is no ascending or descending order of its operands",
        "compare elements of the operands themselves by LT or GT, and ties by the next operand",
    )


def _operands_read(body: Graph, count: int) -> list[int]:
    needed = set(body.outputs)
    for node in reversed(body.nodes):
        if any(value in needed for value in node.outputs):
            needed |= {*node.inputs}
    return [n for n in range(count) if needed & {body.inputs[2 * n], body.inputs[2 * n + 1]}]


def _orders(dtype: DType) -> Sequence[Order]:
    """The orders that elements of a dtype may have."""
    if dtype.is_float:
        return _ORDERS
    return (Order(False, "greatest", False), Order(True, "greatest", False))


def _is_order(body: Graph, keys: Sequence[_Key], *, with_nan: bool) -> bool:
    def expected(columns: Sequence[Array]) -> Sequence[Array]:
        less, equal = np.zeros(columns[0].shape, np.bool_), np.ones(columns[0].shape, np.bool_)
        for key in keys:
            first, second = (_ranked(columns[2 * key.operand + side], key.order) for side in (0, 1))
            less |= equal & (first < second)
            equal &= first == second
        return (less,)

    def matters(columns: Sequence[Array]) -> Array:
        return np.all([with_nan | (column == column) for column in columns], axis=0)

    return chooses(body, expected, matters)


def _ranked(column: Array, order: Order) -> Array:
    return computed(lambda emitter, x: ascending_key(x, order, emitter), column)


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
