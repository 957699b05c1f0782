"""Kernel candidates: a set of nodes computed by one kernel, and the values it writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import index_op, role_of
from autofuse.lazydataclass import dataclass


@dataclass(frozen=True, slots=True)
class KernelCandidate:
    """One possible kernel of `graph`."""

    graph: Graph
    nodes: tuple[Node, ...]
    """In the graph's order; with the views, iotas and splat constants they read, without large constants."""
    outputs: tuple[Value, ...]
    """The values it writes to memory, in the graph's order."""

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The values it reads from memory, in order of first use."""
        made = {value for node in self.nodes for value in node.outputs}
        return tuple(
            dict.fromkeys(value for node in self.nodes for value in self.graph.reads(node) if value not in made)
        )


def make_candidate(graph: Graph, nodes: frozenset[Node], outputs: tuple[Value, ...]) -> KernelCandidate:
    """The candidate that computes `nodes`, with every inlined leaf they read added."""
    wanted = set(nodes)
    for node in nodes:
        for value in graph.reads(node):
            producer = graph.producers.get(value)
            if producer is not None and is_inlined(producer):
                wanted.add(producer)
    return KernelCandidate(graph, tuple(sorted(wanted, key=graph.positions.__getitem__)), outputs)


def candidate_of(graph: Graph, nodes: Sequence[str], outputs: Sequence[str]) -> KernelCandidate:
    """The candidate that computes the named nodes and writes the named values; inlined leaves are added."""
    chosen = frozenset(graph.node_by_name[name] for name in nodes)
    return make_candidate(graph, chosen, tuple(graph.value_by_name[name] for name in outputs))


def part_of(candidate: KernelCandidate, values: Sequence[Value], more: Sequence[Value] = ()) -> KernelCandidate:
    """The part of a candidate that computes `values`, which it writes, and `more`."""
    producers = {value: node for node in candidate.nodes for value in node.outputs}
    wanted: set[Node] = set()
    todo = [*values, *more]
    while todo:
        node = producers.get(todo.pop())
        if node is not None and node not in wanted:
            wanted.add(node)
            todo += candidate.graph.reads(node)
    return KernelCandidate(candidate.graph, tuple(n for n in candidate.nodes if n in wanted), tuple(values))


_repeats_one_value: WeakKeyDictionary[Node, bool] = WeakKeyDictionary()
"""What is known of constants: to look at all elements of a weight is slow. It pins no node."""


def is_inlined(node: Node) -> bool:
    """Whether every reader computes the node's elements itself: an iota, or a constant that is one value repeated."""
    role = role_of(node)
    if role is not Role.CONSTANT:
        return role is Role.IOTA
    known = _repeats_one_value.get(node)
    if known is None:
        known = _repeats_one_value[node] = _is_one_value(node.attrs["value"])
    return known


def _is_one_value(array: NDArray[Any]) -> bool:
    """Whether all elements are the same bits."""
    if array.size < 2:
        return array.size == 1
    elements = array.reshape(-1)
    return bool(np.all(elements.view(np.uint8).reshape(array.size, -1) == elements[:1].view(np.uint8)))


def is_view(node: Node) -> bool:
    """Whether the node only renames elements: readers rewrite their indices instead of loading a copy."""
    return role_of(node).is_view


def is_permuted(node: Node) -> bool:
    """Whether the node is a view of all elements, each once: a reshape, a transpose, a reversal."""
    return is_view(node) and index_op(node).once > 0


def class_of(work: str, steering: str) -> str:
    """The name of a class of kernels: a digest of what they do and, after a colon, one of the values that steer them.

    `steering`: empty where no values are known, or none say where a kernel reads and what its calls and loops do.
    """
    return f"{work}:{steering}" if steering else work


def work_of(digest: str) -> str:
    """What the kernels of a class do, whatever steers them. Records and notes of kernels name this alone."""
    return digest.partition(":")[0]
