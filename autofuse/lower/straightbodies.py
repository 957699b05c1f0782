"""The body of a loop without control: short loops inside are written out, and branches become choices.

    h = scan of { for l < 2: h = tanh(h @ u[l]);  if(t) h = 0 }
 -> h = scan of { h1 = tanh(h @ u[0]); h2 = tanh(h1 @ u[1]); h = select(t, 0, h2) }

Values are those of the program: a side that is not taken is computed too, and nothing but results comes of that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autofuse.errors import LegalityError
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.graphbuilder import free_values
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import lookup, role_of
from autofuse.ir.substitution import replaced, substituted_node

MOST_NODES = 256
"""Of a body that is written out: more would be much code, and a driver's kernels are as well."""


def straight_body(region: Graph) -> Graph:
    """The body; itself if there is no control in it.

    Raises LegalityError for a loop that data end, and for what would be too long.
    """
    if not any(node.regions for node in region.nodes):
        return region
    writer = _Writer(region)
    to: dict[Value, Value] = {}
    for node in region.nodes:
        writer.write(node, to)
    outputs = replaced(region.outputs, to)
    needed, nodes = set(outputs), list[Node]()
    for node in reversed(writer.nodes):
        if not needed.isdisjoint(node.outputs):
            needed.update(node.inputs)
            nodes.append(node)
    held = tuple(reversed(nodes))
    return Graph(region.name, region.inputs, held, outputs, free_values(region.inputs, held, outputs))


class _Writer:
    """Writes the nodes of one body."""

    def __init__(self, region: Graph) -> None:
        self.nodes: list[Node] = []
        self._taken = {value.name for graph in _graphs(region) for value in graph.values()}

    def write(self, node: Node, to: dict[Value, Value], *, copied: bool = False) -> None:
        """A node. `to`: what it reads in place of others; what is made in place of its results is added.

        `copied`: whether its results are values of their own, as it is written more than once.
        """
        match role_of(node):
            case Role.LOOP:
                raise LegalityError(f"there is a loop in its body that data end, {node.op} %{node.name}")
            case Role.COUNTED_LOOP:
                self._loop(node, to)
            case Role.BRANCH:
                self._branch(node, to)
            case _:
                if copied:
                    to |= {value: Value(self._fresh(value.name), value.type) for value in node.outputs}
                self._append(substituted_node(node, to))

    def _loop(self, node: Node, to: dict[Value, Value]) -> None:
        (body,) = node.regions
        count, length = node.attrs["carries"], node.attrs["length"]
        operands = replaced(node.inputs, to)
        state, arrays = operands[:count], operands[count:]
        stacked: dict[int, Sequence[Value]] = {}
        for i in range(length)[:: -1 if node.attrs["reverse"] else 1]:
            rows = [self._row(node, array, i) for array in arrays]
            made = self._region(body, (*state, *rows), to)
            state, stacked[i] = made[:count], made[count:]
        to.update(zip(node.outputs, state, strict=False))
        for number, result in enumerate(node.outputs[count:]):
            parts = [self._as_row(node, stacked[i][number]) for i in range(length)]
            to[result] = self._new(node, "concatenate", *parts, dimension=0) if length > 1 else parts[0]

    def _branch(self, node: Node, to: dict[Value, Value]) -> None:
        on_true, on_false = (self._region(side, (), to) for side in node.regions)
        (test,) = replaced(node.inputs, to)
        for result, one, other in zip(node.outputs, on_true, on_false, strict=True):
            shape = result.type.shape
            pred = self._new(node, "broadcast_in_dim", test, shape=shape, broadcast_dimensions=()) if shape else test
            to[result] = one if one is other else self._new(node, "select", pred, one, other)

    def _region(self, region: Graph, given: Sequence[Value], outer: Mapping[Value, Value]) -> tuple[Value, ...]:
        """The results of a region, written here."""
        to = {**outer, **dict(zip(region.inputs, given, strict=True))}
        for node in region.nodes:
            self.write(node, to, copied=True)
        return replaced(region.outputs, to)

    def _row(self, node: Node, array: Value, i: int) -> Value:
        _, *shape = array.type.shape
        starts, limits = (i, *(0 for _ in shape)), (i + 1, *shape)
        strides = (1,) * len(starts)
        taken = self._new(node, "slice", array, start_indices=starts, limit_indices=limits, strides=strides)
        return self._new(node, "reshape", taken, shape=tuple(shape))

    def _as_row(self, node: Node, value: Value) -> Value:
        return self._new(node, "reshape", value, shape=(1, *value.type.shape))

    def _new(self, like: Node, op: str, *inputs: Value, **attrs: Any) -> Value:
        (type_,) = lookup(op).infer([value.type for value in inputs], attrs, ())
        made = Value(self._fresh(like.name), type_)
        self._append(Node(op, inputs, (made,), attrs, (), like.location))
        return made

    def _append(self, node: Node) -> None:
        if len(self.nodes) == MOST_NODES:
            raise LegalityError(f"its body has more than {MOST_NODES} operations with the loops in it written out")
        self.nodes.append(node)

    def _fresh(self, wish: str) -> str:
        number = 1
        while f"{wish}.{number}" in self._taken:
            number += 1
        self._taken.add(f"{wish}.{number}")
        return f"{wish}.{number}"


def _graphs(graph: Graph) -> Iterator[Graph]:
    yield graph
    for node in graph.nodes:
        for region in node.regions:
            yield from _graphs(region)
