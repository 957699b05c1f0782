"""Distinct outputs: every result of the graph is a value that one node computes for it alone."""

from __future__ import annotations

from typing import ClassVar

from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.optable import role_of
from autofuse.lazydataclass import dataclass
from autofuse.passes.rewriting import Names


@dataclass(frozen=True, slots=True)
class MaterialiseOutputs:
    """Inserts a `reshape` to the same shape before an output that is an input, a leaf, or was an output already.

    So the runtime gives each output a buffer of its own. The inserted node is named after the value with `_out`
    appended. Runs last: simplification removes reshapes to the same shape, and a second run adds them again.
    """

    name: ClassVar[str] = "distinct-outputs"

    def apply(self, graph: Graph) -> Graph:
        """The graph with distinct, computed outputs; the same object if they are so already."""
        names = Names(graph)
        taken: set[Value] = set()
        added: list[Node] = []
        outputs: list[Value] = []
        for value in graph.outputs:
            if value in taken or not _is_computed(graph, value):
                added.append(_copy(graph, value, names))
                value = added[-1].output
            taken.add(value)
            outputs.append(value)
        if not added:
            return graph
        return Graph(graph.name, graph.inputs, (*graph.nodes, *added), tuple(outputs), graph.captures)


def _is_computed(graph: Graph, value: Value) -> bool:
    producer = graph.producers.get(value)
    return producer is not None and not role_of(producer).is_leaf


def _copy(graph: Graph, value: Value, names: Names) -> Node:
    producer = graph.producers.get(value)
    copied = Value(names.fresh(f"{value.name}_out"), value.type)
    location = None if producer is None else producer.location
    return Node("reshape", (value,), (copied,), {"shape": value.type.shape}, (), location)
