"""The order in which Inductor lowers a program: each operation as near to its first reader as may be.

Source: torch/_inductor/fx_passes/post_grad.py (reorder_for_locality), which runs for inference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autofuse.ir.graph import Graph, Node, Value
from autofuse.lazydataclass import dataclass, field


def by_locality(graph: Graph, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """`nodes` in that order.

    From the end on, what a node reads is moved to just before it, unless something that comes earlier reads it too.
    Operands come to stand as they are listed.
    """
    line, members, seen = _Line.of(nodes), frozenset(nodes), set[Node]()
    where: Node | None = None
    while True:
        for value in graph.outputs if where is None else _read(where):
            maker = graph.producers.get(value)
            if maker is not None and maker in members and members.intersection(_readers(graph, maker)) <= seen:
                line.move(maker, where)
        where = line.before[where]
        if where is None:
            return tuple(line)
        seen.add(where)


def _read(node: Node) -> tuple[Value, ...]:
    return (*node.inputs, *(value for region in node.regions for value in region.captures))


def _readers(graph: Graph, maker: Node) -> Iterator[Node]:
    return (user for value in maker.outputs for user in graph.users[value])


@dataclass(slots=True)
class _Line:
    """Nodes one after the other; None stands before the first and after the last."""

    before: dict[Node | None, Node | None] = field(default_factory=dict[Node | None, Node | None])
    after: dict[Node | None, Node | None] = field(default_factory=dict[Node | None, Node | None])

    @staticmethod
    def of(nodes: Sequence[Node]) -> _Line:
        line = _Line()
        for first, second in zip((None, *nodes), (*nodes, None), strict=True):
            line._link(first, second)
        return line

    def __iter__(self) -> Iterator[Node]:
        node = self.after[None]
        while node is not None:
            yield node
            node = self.after[node]

    def move(self, node: Node, behind: Node | None) -> None:
        """To just before `behind`."""
        self._link(self.before[node], self.after[node])
        last = self.before[behind]
        self._link(last, node)
        self._link(node, behind)

    def _link(self, first: Node | None, second: Node | None) -> None:
        self.after[first] = second
        self.before[second] = first
