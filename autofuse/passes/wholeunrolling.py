"""Short loops that are no kernel, with all of their iterations written out: there is no loop left to drive."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import ClassVar

from autofuse.fusion.loops import refusal
from autofuse.ir.graph import Graph, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.lazydataclass import dataclass
from autofuse.passes.copies import copied_node
from autofuse.passes.loopediting import Loop, with_loops

MOST_NODES = 1024
"""Of a graph with loops written out, those in regions included: what is searched in about the time of a deadline."""


@dataclass(frozen=True, slots=True)
class UnrollWhole:
    """Writes out the iterations of counted loops that are no kernel, those inside of others first.

    A loop that would leave the graph with more than `MOST_NODES` nodes stays as it is. Exact: the same scalars are
    computed, in the same order.
    """

    name: ClassVar[str] = "short-loops-written-out"

    def apply(self, graph: Graph) -> Graph:
        """The graph with fewer loops; the same object if there is no such loop."""
        return with_loops(graph, _Unrolling(graph).change)


def count_nodes(graph: Graph) -> int:
    """Nodes, those in regions included."""
    return len(graph.nodes) + sum(count_nodes(region) for node in graph.nodes for region in node.regions)


class _Unrolling:
    """One run over a graph."""

    def __init__(self, graph: Graph) -> None:
        self._left = MOST_NODES - count_nodes(graph)
        """How many nodes may be added."""
        self._walked = set(_walked(graph, False))

    def change(self, loop: Loop, _: Collection[Value]) -> None:
        """Write a loop out, if it is a short one."""
        if loop.length is None or not self._walked.isdisjoint(loop.node.outputs) or refusal(loop.node) is None:
            return
        added = loop.length * (count_nodes(loop.node.regions[0]) + 2 * len(loop.rows) + len(loop.stacks))
        if added <= self._left:
            self._left -= added
            _write_out(loop, loop.length)


def _walked(graph: Graph, inside: bool) -> Iterator[Value]:
    """What loops make that are walked by a loop around them, which is a kernel. `inside`: whether one is around."""
    for node in graph.nodes:
        is_loop = role_of(node) in (Role.COUNTED_LOOP, Role.LOOP)
        if is_loop and inside:
            yield from node.outputs
        for region in node.regions:
            yield from _walked(region, inside or (is_loop and refusal(node) is None))


def _write_out(loop: Loop, length: int) -> None:
    """Put all iterations before the loop, and what they give in the place of its results."""
    state = {carry.given: carry.initial for carry in loop.carries}
    made: dict[int, list[Value]] = {}
    for i in range(length)[:: -1 if loop.reverse else 1]:
        to = {**state, **{row.row: _row(loop, row.array, i) for row in loop.rows}}
        for node in loop.nodes:
            loop.move_before(copied_node(node, to, loop.names))
        made[i] = [to.get(stack.row, stack.row) for stack in loop.stacks]
        state = {carry.given: to.get(carry.next, carry.next) for carry in loop.carries}
    for carry in loop.carries:
        loop.results[carry.last] = state[carry.given]
    for number, stack in enumerate(loop.stacks):
        loop.results[stack.stacked] = _stacked(loop, [made[i][number] for i in range(length)])
    loop.length = 0
    loop.changed = True


def _row(loop: Loop, array: Value, i: int) -> Value:
    _, *shape = array.type.shape
    starts, limits = (i, *(0 for _ in shape)), (i + 1, *shape)
    taken = loop.before("slice", array, start_indices=starts, limit_indices=limits, strides=(1,) * len(starts))
    return loop.before("reshape", taken, shape=tuple(shape))


def _stacked(loop: Loop, rows: list[Value]) -> Value:
    parts = [loop.before("reshape", row, shape=(1, *row.type.shape)) for row in rows]
    return parts[0] if len(parts) == 1 else loop.before("concatenate", *parts, dimension=0)
