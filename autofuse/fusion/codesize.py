"""How much code operations become, roughly: what generating a kernel's code takes grows faster than its size.

LLVM schedules instructions and allots registers within one block. A block of twice as many takes three times as long:
an unrolled loop of 100 steps of `tanh` 0.6 s, of 200 steps 1.7 s, of 400 steps 6 s on one core. So kernels are kept
below a size at which one more kernel is cheaper than a larger one. A value that passes between two such kernels is
written and read once in thousands of operations, which their work hides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.optable import lookup

MOST_CODE = 3000
"""The most code of a kernel that the search puts together, in plain operations: 0.3 to 0.7 s of LLVM on one core."""


def code_size(nodes: Iterable[Node]) -> int:
    """The code of some nodes, in plain operations: an exponential is like 30 of them, a view is none."""
    return sum(lookup(node.op).code for node in nodes)


def in_parts(graph: Graph, nodes: Sequence[Node]) -> list[list[Node]]:
    """The nodes, which stand in the graph's order, in parts that follow one another, each of at most `MOST_CODE`.

    A part ends where few values cross, and like the one before it, so that the steps of an unrolled loop fall into
    equal parts. A single node that is larger is a part.
    """
    if code_size(nodes) <= MOST_CODE:
        return [list(nodes)]
    crossing = _crossing(graph, nodes)
    parts: list[list[Node]] = []
    start, last = 0, None
    while start < len(nodes):
        end = _reach(nodes, start)
        if end < len(nodes):
            places = range(start + (end - start) // 2, end)
            alike = [n for n in places if last is not None and _mark(nodes[n]) == last]
            found = max(alike or places, key=lambda n: (-crossing[n], n))
            last, end = _mark(nodes[found]), found + 1
        parts.append(list(nodes[start:end]))
        start = end
    return parts


def _reach(nodes: Sequence[Node], start: int) -> int:
    """Where the longest part that begins at `start` ends."""
    end, size = start, 0
    while end < len(nodes):
        size += code_size((nodes[end],))
        if size > MOST_CODE and end > start:
            break
        end += 1
    return end


def _crossing(graph: Graph, nodes: Sequence[Node]) -> list[int]:
    """By position: how many values that were made up to there are read after it."""
    made: dict[Value, int] = {}
    ends: dict[Value, int] = {}
    for position, node in enumerate(nodes):
        for value in graph.reads(node):
            if value in made:
                ends[value] = position
        made.update((value, position) for value in node.outputs)
    change = [0] * (len(nodes) + 1)
    for value, end in ends.items():
        change[made[value]] += 1
        change[end] -= 1
    found, alive = list[int](), 0
    for step in change[: len(nodes)]:
        alive += step
        found.append(alive)
    return found


def _mark(node: Node) -> tuple[object, ...]:
    """Equal for the same operation of two steps of a loop."""
    return node.op, node.location, tuple(value.type for value in node.outputs)
