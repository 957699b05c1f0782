"""Putting other values in place of values of a graph, in its regions too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autofuse.ir.graph import Graph, Node, Value


def substituted(graph: Graph, to: Mapping[Value, Value]) -> Graph:
    """The graph with values replaced by `to`, wherever they are read or defined; the same object if none is there."""
    if not to:
        return graph
    held = (
        replaced(graph.inputs, to),
        tuple(substituted_node(node, to) for node in graph.nodes),
        replaced(graph.outputs, to),
        tuple(dict.fromkeys(replaced(graph.captures, to))),
    )
    if held == (graph.inputs, graph.nodes, graph.outputs, graph.captures):
        return graph
    return Graph(graph.name, *held)


def substituted_node(node: Node, to: Mapping[Value, Value]) -> Node:
    """The node with its operands, results and the values of its regions replaced; the same object if none is there."""
    absent = to.keys().isdisjoint
    if not node.regions and absent(node.inputs) and absent(node.outputs):
        return node
    held = (replaced(node.inputs, to), replaced(node.outputs, to))
    regions = tuple(substituted(region, to) for region in node.regions)
    if held == (node.inputs, node.outputs) and regions == node.regions:
        return node
    return Node(node.op, *held, node.attrs, regions, node.location)


def replaced(values: Iterable[Value], to: Mapping[Value, Value]) -> tuple[Value, ...]:
    """Each value, or what takes its place."""
    return tuple([to.get(value, value) for value in values])
