"""Finishing a recorded graph: drop what no output needs, find captures, and give readable names."""

from __future__ import annotations

import re
from collections.abc import Mapping

from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.graphbuilder import free_values
from autofuse.ir.substitution import substituted

_WORD = re.compile(r"[^A-Za-z0-9_]")


def finish(graph: Graph, names: Mapping[Value, str]) -> Graph:
    """`graph` without dead nodes; values, of regions too, are renamed by `names`, or numbered after their op."""
    live = pruned(graph)
    renamed: dict[Value, Value] = {}
    _rename(live, names, {}, renamed)
    return substituted(live, renamed)


def pruned(graph: Graph) -> Graph:
    """`graph` without the nodes that no output needs; its captures are found again."""
    nodes = _live(graph)
    return Graph(graph.name, graph.inputs, tuple(nodes), graph.outputs, free_values(graph.inputs, nodes, graph.outputs))


def _rename(graph: Graph, names: Mapping[Value, str], taken: dict[str, int], renamed: dict[Value, Value]) -> None:
    """Give every value defined in `graph` and its regions a name of its own."""
    for value in graph.inputs:
        renamed[value] = Value(_unique(names.get(value, value.name), taken), value.type)
    for node in graph.nodes:
        for region in node.regions:
            _rename(region, names, taken, renamed)
        for value in node.outputs:
            renamed[value] = Value(_unique(names.get(value, node.op), taken), value.type)


def _live(graph: Graph) -> list[Node]:
    needed = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if any(value in needed for value in node.outputs):
            kept.append(node)
            needed.update(graph.reads(node))
    kept.reverse()
    return kept


def _unique(name: str, taken: dict[str, int]) -> str:
    base = _WORD.sub("_", name) or "value"
    if base[0].isdigit():
        base = f"v{base}"
    count = taken.get(base, 0)
    candidate = base if count == 0 else f"{base}_{count}"
    while candidate in taken:
        count += 1
        candidate = f"{base}_{count}"
    taken[base] = count + 1
    taken.setdefault(candidate, 1)
    return candidate
