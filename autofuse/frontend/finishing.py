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
    if len(nodes) == len(graph.nodes):
        return graph
    captures = free_values(graph.inputs, nodes, graph.outputs) if graph.captures else ()
    return Graph(graph.name, graph.inputs, tuple(nodes), graph.outputs, captures)


def word(name: str) -> str:
    """A name as texts of graphs can have it."""
    if name.isidentifier() and name.isascii():
        return name
    made = _WORD.sub("_", name) or "value"
    return f"v{made}" if made[0].isdigit() else made


def _rename(graph: Graph, names: Mapping[Value, str], taken: dict[str, int], renamed: dict[Value, Value]) -> None:
    """Give every value defined in `graph` and its regions a name of its own."""
    for value in graph.inputs:
        _give(value, names.get(value, value.name), taken, renamed)
    for node in graph.nodes:
        for region in node.regions:
            _rename(region, names, taken, renamed)
        for value in node.outputs:
            _give(value, names.get(value, node.op), taken, renamed)


def _give(value: Value, name: str, taken: dict[str, int], renamed: dict[Value, Value]) -> None:
    unique = _unique(name, taken)
    if unique != value.name:
        renamed[value] = Value(unique, value.type)


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
    base = word(name)
    count = taken.get(base, 0)
    candidate = base if count == 0 else f"{base}_{count}"
    while candidate in taken:
        count += 1
        candidate = f"{base}_{count}"
    taken[base] = count + 1
    taken.setdefault(candidate, 1)
    return candidate
