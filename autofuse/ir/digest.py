"""Structural digests: equal graphs hash equal, whatever their values are called and in which order nodes stand.

Nodes are numbered by a depth-first walk from the outputs, operands in order, so the numbering depends on the structure
alone; the digest is the sha256 of the numbered nodes. Sharing counts: computing a value twice is not computing it once.
Nodes that no output needs do not count, nor do locations. Operands of commutative ops are not reordered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from autofuse.errors import GraphError
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.literals import array_hash, attribute_text

_OWN_TEXTS: Mapping[Node, str] = {}
"""No node is taken for anything but what it is."""


def digest(graph: Graph) -> str:
    """The structural sha256 of a graph, in hex. Inputs count by position and type, outputs by order."""
    return _sha256(_canonical(graph.inputs, graph.producers, graph.outputs)[0])


def in_order(graph: Graph) -> list[Node]:
    """The nodes that outputs need, in the order in which `digest` numbers them: equal graphs have equal nodes there."""
    order: list[Node] = []
    _canonical(graph.inputs, graph.producers, graph.outputs, order=order)
    return order


def subgraph_digest(
    graph: Graph, nodes: Collection[Node], outputs: Sequence[Value], texts: Mapping[Node, str] = _OWN_TEXTS
) -> str:
    """The structural sha256 of a kernel: `nodes` of `graph`, of which `outputs` are written, in this order.

    What the nodes read from outside counts by type and by which reads share it, numbered in the walk's order.
    `texts`: what to take for some nodes in place of op, attributes and types, for digests of something coarser.
    Raises GraphError for an output that none of the nodes makes.
    """
    producers = {value: node for node in nodes for value in node.outputs}
    for value in outputs:
        if value not in producers:
            raise GraphError(f"graph {graph.name}: kernel output %{value.name} is made by none of the kernel's nodes")
    return _sha256(_canonical((), producers, outputs, texts)[0])


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _canonical(
    inputs: Sequence[Value],
    producers: Mapping[Value, Node],
    outputs: Sequence[Value],
    texts: Mapping[Node, str] = _OWN_TEXTS,
    order: list[Node] | None = None,
) -> tuple[str, tuple[Value, ...]]:
    """The text that is hashed, and the values read from outside, in the order of first use.

    `order`: where to put the nodes, in the order in which they are numbered.
    """
    numbers: dict[Value, str] = {value: f"a{number}" for number, value in enumerate(inputs)}
    free: list[Value] = []
    lines = [f"({','.join(str(value.type) for value in inputs)})"]
    for output in outputs:
        stack = [output]
        while stack:
            value = stack[-1]
            if value in numbers:
                stack.pop()
                continue
            node = producers.get(value)
            if node is None:
                stack.pop()
                _number_free(value, numbers, free, lines)
                continue
            text, reads = described(node)
            waiting = _waiting(reads, producers, numbers, free, lines)
            if waiting:
                stack.extend(reversed(waiting))
                continue
            stack.pop()
            if order is not None:
                order.append(node)
            lines.append(f"{texts.get(node, text)}({','.join([numbers[read] for read in reads])})")
            for number, made in enumerate(node.outputs, len(numbers)):
                numbers[made] = f"n{number}"
    lines.append(f"return {','.join(numbers[value] for value in outputs)}")
    return "\n".join(lines), tuple(free)


def _waiting(
    reads: Sequence[Value],
    producers: Mapping[Value, Node],
    numbers: dict[Value, str],
    free: list[Value],
    lines: list[str],
) -> list[Value]:
    """The reads that have no number yet, from the first on that a node makes. Free values before that get theirs."""
    waiting: list[Value] = []
    for read in reads:
        if read in numbers:
            continue
        if waiting or read in producers:
            waiting.append(read)
        else:
            _number_free(read, numbers, free, lines)
    return waiting


def _number_free(value: Value, numbers: dict[Value, str], free: list[Value], lines: list[str]) -> None:
    name = numbers[value] = f"f{len(free)}"
    free.append(value)
    lines.append(f"{name}:{value.type}")


def described(node: Node) -> tuple[str, tuple[Value, ...]]:
    """The node's text without names, and all it reads: operands, then its regions' captures in canonical order."""
    try:
        return node.description
    except AttributeError:
        attrs = ",".join(f"{key}={_attribute(node.attrs[key])}" for key in sorted(node.attrs))
        regions = [_canonical(region.inputs, region.producers, region.outputs) for region in node.regions]
        bodies = "".join(f"{{{body}}}" for body, _ in regions)
        types = ",".join(str(value.type) for value in node.outputs)
        reads = (*node.inputs, *(value for _, captured in regions for value in captured))
        counts = ",".join(str(len(captured)) for _, captured in regions)
        found = (f"{node.op}[{attrs}]{bodies}[{counts}]:{types}", reads)
        object.__setattr__(node, "description", found)
        return found


def _attribute(value: Any) -> str:
    return array_hash(value) if isinstance(value, np.ndarray) else attribute_text(value)
