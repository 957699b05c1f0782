"""Marking: updates of a loop's state may take the memory of what they update."""

from __future__ import annotations

from typing import ClassVar

from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.lazydataclass import dataclass, replace

_UPDATE = "dynamic_update_slice"


@dataclass(frozen=True, slots=True)
class MarkOverwrites:
    """Marks the updates that lead from a part of a loop's state to what the next iteration gets of it.

    What an iteration replaces, no later one reads: a driver may run such an update in place. It runs last: other passes
    need not know, and what is computed is the same.
    """

    name: ClassVar[str] = "overwrites"

    def apply(self, graph: Graph) -> Graph:
        """The marked graph; the same object if there is nothing to mark."""
        return _marked(graph, frozenset()) if any(node.regions for node in graph.nodes) else graph


def _marked(graph: Graph, updates: frozenset[Node]) -> Graph:
    """A graph or region. `updates`: the nodes to mark."""
    nodes = tuple(_marked_node(node, node in updates) for node in graph.nodes)
    if all(new is old for new, old in zip(nodes, graph.nodes, strict=True)):
        return graph
    return Graph(graph.name, graph.inputs, nodes, graph.outputs, graph.captures)


def _marked_node(node: Node, overwrites: bool) -> Node:
    if overwrites and not node.attrs.get("overwrites"):
        return replace(node, attrs={**node.attrs, "overwrites": True})
    regions = tuple(
        _marked(region, _updates(node, region) if number == len(node.regions) - 1 else frozenset())
        for number, region in enumerate(node.regions)
    )
    same = all(new is old for new, old in zip(regions, node.regions, strict=True))
    return node if same else replace(node, regions=regions)


def _updates(node: Node, body: Graph) -> frozenset[Node]:
    """The updates of the state in the body of a loop."""
    match role_of(node):
        case Role.COUNTED_LOOP:
            count = node.attrs["carries"]
        case Role.LOOP:
            count = len(node.inputs)
        case _:
            return frozenset()
    pairs = zip(body.inputs[:count], body.outputs[:count], strict=True)
    return frozenset(update for given, following in pairs for update in _way(body, given, following))


def _way(body: Graph, given: Value, following: Value) -> list[Node]:
    """The updates that one value is made of another by, one after the other; none if it is made otherwise."""
    found: list[Node] = []
    while following is not given:
        node = body.producers.get(following)
        if node is None or node.op != _UPDATE:
            return []
        found.append(node)
        following = node.inputs[0]
    return found
