"""Giving values of a graph new definitions, where a rule would have to look at more than one node and its operands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autofuse.errors import GraphError
from autofuse.ir import attributes
from autofuse.ir.graph import Graph, Location, Node, Value
from autofuse.ir.optable import lookup
from autofuse.passes.rewriting import Names, live_nodes


class Editor:
    """Collects new nodes and new definitions of values that are there; readers, names and types stay.

    A definition may need what stands later in the graph, if that does not depend on it: `finish` puts nodes in order.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._names = Names(graph)
        self._makers: dict[Value, Node] = {}
        self._redefined: dict[Node, Node] = {}

    def emit(self, op: str, *inputs: Value, like: Node, **attrs: Any) -> Value:
        """The result of a new node, which has the location of `like`."""
        node = self._node(op, inputs, None, like, attrs)
        self._makers[node.output] = node
        return node.output

    def define(self, node: Node, op: str, *inputs: Value, **attrs: Any) -> None:
        """Compute the only result of `node` in another way. Raises GraphError if that has another type."""
        self._redefined[node] = self._node(op, inputs, node.output, node, attrs)

    def finish(self) -> Graph:
        """The graph with the new definitions, and what they leave unread taken out; the same object without any."""
        if not self._redefined:
            return self._graph
        graph = self._graph
        nodes = [self._redefined.get(node, node) for node in graph.nodes]
        makers = {**self._makers, **{value: node for node in nodes for value in node.outputs}}
        order: list[Node] = []
        placed: set[Node] = set()

        def place(node: Node) -> None:
            """After what it reads: recursion goes as deep as the views that have to move up."""
            if node in placed:
                return
            placed.add(node)
            for value in graph.reads(node):
                if value in makers:
                    place(makers[value])
            order.append(node)

        for node in nodes:
            place(node)
        return Graph(graph.name, graph.inputs, tuple(live_nodes(order, graph.outputs)), graph.outputs, graph.captures)

    def _node(
        self, op: str, inputs: tuple[Value, ...], output: Value | None, like: Node, attrs: dict[str, Any]
    ) -> Node:
        return new_node(self._names, op, inputs, attrs, output, like.location)


def new_node(
    names: Names,
    op: str,
    inputs: tuple[Value, ...],
    attrs: Mapping[str, Any],
    output: Value | None = None,
    location: Location | None = None,
) -> Node:
    """A node with one result: `output`, or a new value. Raises GraphError if the op's result has another type."""
    entry = lookup(op)
    held = attributes.normalized(entry, attrs)
    (type_,) = entry.infer([value.type for value in inputs], held, ())
    made = output or Value(names.fresh(op), type_)
    if made.type != type_:
        raise GraphError(f"%{made.name} is {made.type}; its new definition by {op} is {type_}")
    return Node(op, inputs, (made,), held, (), location)
