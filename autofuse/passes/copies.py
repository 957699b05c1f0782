"""Copies of nodes and regions, with values of their own."""

from __future__ import annotations

from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.substitution import replaced
from autofuse.passes.rewriting import Names


def copied_node(node: Node, to: dict[Value, Value], names: Names) -> Node:
    """The same of other values. `to`: what it reads in place of others; what it makes is added."""
    inputs = replaced(node.inputs, to)
    regions = tuple(copied_region(region, to, names) for region in node.regions)
    outputs = tuple(_like(value, names) for value in node.outputs)
    to.update(zip(node.outputs, outputs, strict=True))
    return Node(node.op, inputs, outputs, node.attrs, regions, node.location)


def copied_region(region: Graph, outer: dict[Value, Value], names: Names) -> Graph:
    """A region with values of its own. `outer`: what it captures in place of others."""
    to = {**outer, **{value: _like(value, names) for value in region.inputs}}
    nodes = tuple(copied_node(node, to, names) for node in region.nodes)
    captures = tuple(dict.fromkeys(replaced(region.captures, to)))
    return Graph(region.name, replaced(region.inputs, to), nodes, replaced(region.outputs, to), captures)


def _like(value: Value, names: Names) -> Value:
    return Value(names.fresh(value.name), value.type)
