"""Arrays of constants inside of loops and branches stand before them, where kernels can read them from memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from autofuse.fusion.candidate import is_inlined
from autofuse.ir.graph import Graph, Node
from autofuse.ir.graphbuilder import free_values
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.lazydataclass import dataclass


@dataclass(frozen=True, slots=True)
class LiftConstants:
    """Moves constants of different elements out of regions, which capture them: kernels read memory then. Exact."""

    name: ClassVar[str] = "region constants"

    def apply(self, graph: Graph) -> Graph:
        """The graph without such constants in regions; the same object if there is none."""
        nodes, lifted = _without(graph.nodes)
        if not lifted:
            return graph
        return Graph(graph.name, graph.inputs, (*lifted, *nodes), graph.outputs, graph.captures)


def _without(nodes: Sequence[Node]) -> tuple[tuple[Node, ...], list[Node]]:
    """Nodes whose regions have no such constants, and the constants."""
    lifted: list[Node] = []
    made: list[Node] = []
    for node in nodes:
        regions: list[Graph] = []
        count = len(lifted)
        for region in node.regions:
            inner, from_inside = _without(region.nodes)
            own = [one for one in inner if _is_array(one)]
            lifted += [*from_inside, *own]
            kept = tuple(one for one in inner if not _is_array(one)) if own else inner
            captures = free_values(region.inputs, kept, region.outputs)
            regions.append(Graph(region.name, region.inputs, kept, region.outputs, captures))
        is_same = count == len(lifted)
        made.append(
            node if is_same else Node(node.op, node.inputs, node.outputs, node.attrs, tuple(regions), node.location)
        )
    return tuple(made), lifted


def _is_array(node: Node) -> bool:
    return role_of(node) is Role.CONSTANT and not is_inlined(node)
