"""Python loops that a trace unrolled: many steps of one source line, each of which needs the one before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

from autofuse.ir.graph import Graph, Location, Node, Value

MANY = 32
"""Steps from which on an unrolled loop is worth a warning, however quickly it was compiled."""
_LINES = 8
"""Source lines that are looked at, those with most operations first."""


@dataclass(frozen=True, slots=True)
class UnrolledLoop:
    """A loop that a graph holds step by step."""

    location: Location
    """A line of its body."""
    steps: int
    nodes: int
    """Operations of that line in the graph."""

    def __str__(self) -> str:
        return (
            f"{self.location} was traced {self.steps} times, each time with the result of the time before: a Python "
            f"loop that the program holds step by step ({self.nodes} operations from this line). It takes long to "
            "compile, and with another number of steps it is another program: write it as af.scan or af.fori_loop, "
            "which trace the body once"
        )


def unrolled_loop(graph: Graph, least: int = MANY) -> UnrolledLoop | None:
    """The longest loop of at least so many steps that was unrolled into a graph; None if there is none.

    Steps that do not need one another, as of a loop over parameters, are none: no loop of the graph could replace them.
    """
    lines: dict[Location, list[Node]] = {}
    for node in graph.nodes:
        if node.location is not None:
            lines.setdefault(node.location, []).append(node)
    longest = sorted((nodes for nodes in lines.values() if len(nodes) >= least), key=len, reverse=True)[:_LINES]
    found: UnrolledLoop | None = None
    for nodes in longest:
        steps = _steps(graph, nodes)
        if steps >= max(least, found.steps + 1 if found else 0):
            location = nodes[0].location
            assert location is not None
            found = UnrolledLoop(location, steps, len(nodes))
    return found


_MOVES = frozenset({"broadcast_in_dim", "reshape", "transpose", "slice", "reverse", "constant", "iota"})
"""Operations that a step may have or not: the first slice of an array is not like the others."""


def _steps(graph: Graph, nodes: list[Node]) -> int:
    """How many times one after the other the rarest operation of a line stands in the graph: once in each step.

    A long formula repeats some of its operations too, but not all.
    """
    counts = Counter(_kind(node) for node in nodes if node.op not in _MOVES)
    least = min(counts.values(), default=0)
    rarest = [kind for kind, count in counts.items() if count == least]
    return max((_chain(graph, {node for node in nodes if _kind(node) == kind}) for kind in rarest), default=0)


def _kind(node: Node) -> Hashable:
    return node.op, tuple(value.type for value in node.outputs)


def _chain(graph: Graph, marked: set[Node]) -> int:
    """The most of the marked nodes on one path."""
    before: dict[Value, int] = {}
    best = 0
    for node in graph.nodes:
        depth = max((before.get(value, 0) for value in graph.reads(node)), default=0) + (node in marked)
        before.update((value, depth) for value in node.outputs)
        best = max(best, depth)
    return best
