"""Values that wait long for their last readers, as those of a forward pass do for the backward one, computed again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import ClassVar

from autofuse.fusion.atoms import AtomGraph
from autofuse.fusion.candidate import is_inlined, is_view
from autofuse.fusion.domain import is_opaque
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.ir.substitution import replaced, substituted_node
from autofuse.lazydataclass import dataclass
from autofuse.passes.rewriting import Names, live_nodes

PRODUCTS = "products"
_MANY = 16
"""Places from which no more than a small part of the program is computed again at a time."""


@dataclass(frozen=True, slots=True)
class Recompute:
    """What is read behind the moment at which most memory is alive is computed again there, from what is kept.

    Of a number, that is what the program goes on with at so many places before that moment, spread evenly, where it is
    the least, and all that is made behind the last of them: so each part of the program is computed again when it is
    wanted (Chen et al. 2016, sublinear memory cost). Of "products", it is what the program goes on with at many places,
    and products, reductions and whatever else is no elementwise work. What no kernel computes, loops and branches are
    never computed again. The order of the program is taken for the order in which it runs, and what is joined with its
    readers (`autofuse.fusion.atoms`) for what takes no memory. Where the program would not take less by that measure,
    nothing is changed. Exact. Runs last: clean-up merges what is equal.
    """

    kept: str
    """`PRODUCTS`, or a number of places."""
    name: ClassVar[str] = "recomputed-values"

    def apply(self, graph: Graph) -> Graph:
        """The graph with late readers of copies; the same object if that saves nothing."""
        lives = Lives.of(graph)
        if not lives.peak_bytes:
            return graph
        light = self.kept == PRODUCTS
        kept = Lives.of(graph, lives.peak).kept(_MANY if light else int(self.kept))
        copied = _Copies(graph, lives.peak, kept, only_light=light).written()
        return copied if Lives.of(copied).peak_bytes < lives.peak_bytes else graph


@dataclass(frozen=True, slots=True)
class Lives:
    """From where to where each value is alive that takes memory, but arguments, constants and results."""

    spans: tuple[tuple[Value, int, int], ...]
    """Values with the positions of the nodes that make them and that read them last."""
    alive: tuple[int, ...]
    """Bytes alive before each node, and behind the last one."""
    end: int
    """The number of nodes that are looked at."""

    @staticmethod
    def of(graph: Graph, end: int | None = None) -> Lives:
        """Those of a graph whose nodes run in its order, one by one. `end`: as far as nodes before it read them."""
        atoms, last = AtomGraph(graph), dict[Value, int]()
        for number, node in enumerate(graph.nodes[:end]):
            last.update(dict.fromkeys(atoms.sources(node), number))
        written = {value for values in atoms.writes.values() for value in values} - atoms.returned
        positions = graph.positions
        spans = [
            (value, positions[graph.producers[value]], last[value])
            for value in atoms.value_order(written & last.keys())
        ]
        change = [0] * (len(graph.nodes) + 1)
        for value, made, read in spans:
            change[made + 1] += value.type.nbytes
            change[read + 1] -= value.type.nbytes
        return Lives(tuple(spans), tuple(accumulate(change)), len(graph.nodes[:end]))

    @property
    def peak(self) -> int:
        """The position before which the most is alive, the first of those."""
        return self.alive.index(max(self.alive))

    @property
    def peak_bytes(self) -> int:
        """What is alive there."""
        return max(self.alive)

    def kept(self, count: int) -> frozenset[Value]:
        """What is alive at `count` places, and all that is made from the last of them on."""
        step = self.end / (count + 1)
        places = [self._least(step * (n + 0.5), step * (n + 1.5)) for n in range(count)]
        return frozenset(
            value
            for value, made, read in self.spans
            if made >= places[-1] or any(made < place <= read for place in places)
        )

    def _least(self, begin: float, end: float) -> int:
        """Where the least is alive between two positions."""
        return min(range(int(begin), max(int(end), int(begin) + 1)), key=self.alive.__getitem__)


class _Copies:
    """Copies of what is made before a position, for the nodes from there on."""

    def __init__(self, graph: Graph, place: int, kept: frozenset[Value], *, only_light: bool) -> None:
        """`kept`: what is read as it is. `only_light`: so is whatever is no elementwise work."""
        self._graph, self._place, self._kept, self._only_light = graph, place, kept, only_light
        self._names = Names(graph)
        self._to: dict[Value, Value] = {}

    def written(self) -> Graph:
        """The graph with late readers of copies."""
        graph = self._graph
        nodes = list(graph.nodes[: self._place])
        for node in graph.nodes[self._place :]:
            for maker in self._missing(node):
                nodes += self._copied(maker)
            nodes.append(substituted_node(node, self._to))
        return Graph(graph.name, graph.inputs, tuple(live_nodes(nodes, graph.outputs)), graph.outputs, graph.captures)

    def _missing(self, node: Node) -> list[Node]:
        """The nodes that a late one needs copies of, and that have none, in order."""
        found: set[Node] = set()
        todo = [value for value in self._graph.reads(node) if self._is_copied(value)]
        while todo:
            maker = self._graph.producers[todo.pop()]
            if maker not in found and maker.outputs[0] not in self._to:
                found.add(maker)
                todo += [value for value in self._graph.reads(maker) if self._is_copied(value)]
        return sorted(found, key=self._graph.positions.__getitem__)

    def _is_copied(self, value: Value) -> bool:
        node = self._graph.producers.get(value)
        if node is None or value in self._kept or self._graph.positions[node] >= self._place:
            return False
        role = role_of(node)
        if node.regions or is_inlined(node) or is_opaque(node) or role is Role.CONSTANT:
            return False
        return not self._only_light or role is Role.ELEMENTWISE or role.moves

    def _copied(self, node: Node) -> list[Node]:
        if is_view(node) and replaced(node.inputs, self._to) == node.inputs:
            self._to.update((value, value) for value in node.outputs)  # of what is kept
            return []
        self._to.update((value, Value(self._names.fresh(value.name), value.type)) for value in node.outputs)
        return [substituted_node(node, self._to)]


def estimated_bytes(graph: Graph) -> int:
    """What a call takes if nothing is fused but atoms, and each kernel runs in the graph's order."""
    fixed: Sequence[Value] = (*graph.inputs, *(node.output for node in graph.nodes if role_of(node) is Role.CONSTANT))
    return sum(value.type.nbytes for value in (*fixed, *graph.outputs)) + Lives.of(graph).peak_bytes
