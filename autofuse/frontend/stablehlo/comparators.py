"""What a comparator orders by: which operands, one after another, and how each.

A comparator of several keys is taken apart. Where the first key's two values differ, it must say which comes first,
whatever it makes of the others; where they are equal, it must say what a comparator of the others says. Whether it does
is tried for all ways in which the key's values can be ordered, and all answers that the rest could give.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.frontend.stablehlo.bodies import answered, computed
from autofuse.frontend.stablehlo.ordering import Order, ascending_key
from autofuse.frontend.stablehlo.refusals import UnsupportedOperation
from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Graph, Node, Value
from autofuse.lazydataclass import dataclass

Array = NDArray[Any]
PLAIN = (Order(False, "greatest", False), Order(True, "least", False))
"""Of numbers as they are compared, NaN last either way."""
_ORDERS = tuple(
    Order(descending, nan, zeros_apart)
    for nan in ("greatest", "least", "total")
    for descending in (False, True)
    for zeros_apart in (False, True)
)
_OF_INTEGERS = (Order(False, "greatest", False), Order(True, "greatest", False))
_MOST_TOGETHER = 3
"""Keys that are tried at once, where none of them can be taken apart from the others."""
_MOST_ANSWERS = 4
"""Values of the rest that the first key is combined with."""


@dataclass(frozen=True, slots=True)
class Key:
    """One operand that decides the order."""

    operand: int
    order: Order


def keys_of(body: Graph, count: int) -> Sequence[Key]:
    """What a comparator of `count` operands orders by. Raises UnsupportedOperation for one that is no such order."""
    found: list[Key] = []
    rest: Graph | None = body
    while rest is not None:
        keys, rest = _first_keys(rest, count)
        found += keys
    return found


def _first_keys(body: Graph, count: int) -> tuple[Sequence[Key], Graph | None]:
    """The first key and the comparator of the others; all of them where it cannot be taken apart."""
    used = _operands_read(body, count)
    for number in used if len(used) > 1 else ():
        taken = _taken_apart(body, number)
        if taken is not None:
            return taken
    asked = answered(body) if 0 < len(used) <= _MOST_TOGETHER else None
    if asked is not None:
        columns, (less,) = asked
        kinds = {number: body.inputs[2 * number].type.dtype for number in used}
        ranks = _Ranks(columns)
        numbers = np.all([column == column for column in columns], axis=0)
        for orders, matters in ((_ORDERS, np.ones_like(numbers)), (PLAIN, numbers)):
            # a comparator of floats as numbers leaves the place of NaN open: it may be last
            for keys in _possible(used, kinds, orders):
                if np.array_equal(ranks.less(keys)[matters], less[matters]):
                    return keys, None
    raise UnsupportedOperation(
        "has a comparator that is no ascending or descending order of its operands",
        "compare elements by LT or GT, ties by those of the next operand, and so on",
    )


def _taken_apart(body: Graph, number: int) -> tuple[Sequence[Key], Graph] | None:
    """An operand as the first key, and the comparator of the others; None if that is not what the body is."""
    first, second = body.inputs[2 * number : 2 * number + 2]
    nodes, answers = _mixing(body, (first, second))
    if not 0 < len(answers) <= _MOST_ANSWERS or any(value.type.dtype.kind != "bool" for value in answers):
        return None
    asked = answered(Graph(body.name, (first, second, *answers), nodes, body.outputs))
    if asked is None:
        return None
    columns, (less,) = asked
    ranks = _Ranks(columns)
    numbers = (columns[0] == columns[0]) & (columns[1] == columns[1])
    kind = first.type.dtype
    for orders, matters in ((_ORDERS if kind.is_float else _OF_INTEGERS, np.ones_like(numbers)), (PLAIN, numbers)):
        for order in orders if kind.is_float else _OF_INTEGERS:
            before, equal = ranks.compared(0, order)
            for answer, column in zip(answers, columns[2:], strict=True):
                if np.array_equal((before | (equal & column))[matters], less[matters]):
                    return [Key(number, order)], _of(body, answer)
    return None


def _of(body: Graph, result: Value) -> Graph:
    """A body that gives another of its values, and what that needs."""
    needed = {result}
    nodes: list[Node] = []
    for node in reversed(body.nodes):
        if not needed.isdisjoint(node.outputs):
            nodes.append(node)
            needed.update(node.inputs)
    return Graph(body.name, body.inputs, tuple(reversed(nodes)), (result,), body.captures)


def _mixing(body: Graph, own: tuple[Value, Value]) -> tuple[tuple[Node, ...], tuple[Value, ...]]:
    """The nodes of the result that depend on some inputs or on none, and what they read of others alone."""
    mixed, others = set(own), {value for value in body.inputs if value not in own}
    for node in body.nodes:
        if not mixed.isdisjoint(node.inputs):
            mixed.update(node.outputs)
        elif not others.isdisjoint(node.inputs):
            others.update(node.outputs)
    needed = set(body.outputs)
    nodes: list[Node] = []
    for node in reversed(body.nodes):
        if needed.isdisjoint(node.outputs) or not others.isdisjoint(node.outputs):
            continue
        nodes.append(node)
        needed.update(node.inputs)
    return tuple(reversed(nodes)), tuple(value for value in _in_order(body) if value in needed and value in others)


def _in_order(body: Graph) -> Iterator[Value]:
    yield from body.inputs
    for node in body.nodes:
        yield from node.outputs


def _possible(used: Sequence[int], kinds: Mapping[int, DType], orders: Sequence[Order]) -> Iterator[Sequence[Key]]:
    """All ways to order by some operands."""
    for order in itertools.permutations(used):
        for chosen in itertools.product(*(orders if kinds[n].is_float else _OF_INTEGERS for n in order)):
            yield [Key(n, found) for n, found in zip(order, chosen, strict=True)]


class _Ranks:
    """The arguments of a comparator, as integers that ascend in an order."""

    def __init__(self, columns: Sequence[Array]) -> None:
        self._columns = columns
        self._found: dict[tuple[int, Order], Array] = {}

    def less(self, keys: Sequence[Key]) -> Array:
        """Where the first argument comes before the second."""
        less, equal = np.zeros(self._columns[0].shape, np.bool_), np.ones(self._columns[0].shape, np.bool_)
        for key in keys:
            before, same = self.compared(key.operand, key.order)
            less |= equal & before
            equal &= same
        return less

    def compared(self, operand: int, order: Order) -> tuple[Array, Array]:
        """Where the first argument's value of an operand comes before the second's, and where they are equal."""
        first, second = (self._ranked(2 * operand + side, order) for side in (0, 1))
        return first < second, first == second

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
