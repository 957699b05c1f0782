"""Python loops that a trace unrolled: many steps of one source line, each of which needs the one before.

Only what `af.scan` could take is such a loop: steps over data or time, which differ in what the step before left and in
an index. The layers of a network have parameters of their own, arrays that no other step reads, so they are none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from autofuse.ir.graph import Graph, Location, Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of, values_of
from autofuse.lazydataclass import dataclass

MANY = 32
"""Steps from which on an unrolled loop is worth a warning, however quickly it was compiled."""
_OWN_SHARE = 0.1
"""Of the steps: with so many that read arguments of their own, they are layers."""
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
        worth = max(least, found.steps + 1 if found else 0)
        steps = _steps(graph, nodes, worth)
        if steps >= worth:
            location = nodes[0].location
            assert location is not None
            found = UnrolledLoop(location, steps, len(nodes))
    return found


def _steps(graph: Graph, nodes: list[Node], worth: int) -> int:
    """How many times one after the other the rarest operation of a line stands in the graph: once in each step.

    0 if that is less than `worth`. A long formula repeats some of its operations too, but not all. Where one line has
    the same operation twice, in each step, these are two instructions. Views and leaves do not count: a step may have
    them or not, as the first slice of an array is not like the others.
    """
    counts = Counter(_kind(node) for node in nodes if role_of(node).computes)
    least = min(counts.values(), default=0)
    rarest = [kind for kind, count in counts.items() if count == least >= worth]
    chains = (_chain(graph, {node for node in nodes if _kind(node) == kind}) for kind in rarest)
    return max((len(chain) for chain in chains if not _are_layers(graph, chain)), default=0)


def _kind(node: Node) -> Hashable:
    instruction = None if node.location is None else node.location.instruction
    return instruction, node.op, tuple(value.type for value in node.outputs)


def _chain(graph: Graph, marked: set[Node]) -> list[Node]:
    """The most of the marked nodes on one path, in order."""
    before: dict[Value, tuple[int, Node | None]] = {}
    links: dict[Node, Node | None] = {}
    deepest: tuple[int, Node | None] = (0, None)
    for node in graph.nodes:
        depth, last = max((before.get(value, (0, None)) for value in graph.reads(node)), default=(0, None), key=_depth)
        if node in marked:
            links[node] = last
            depth, last = depth + 1, node
        before.update((value, (depth, last)) for value in node.outputs)
        deepest = max(deepest, (depth, last), key=_depth)
    chain: list[Node] = []
    node = deepest[1]
    while node is not None:
        chain.append(node)
        node = links[node]
    return chain[::-1]


def _depth(found: tuple[int, Node | None]) -> int:
    return found[0]


def _are_layers(graph: Graph, chain: list[Node]) -> bool:
    """Whether the steps of a chain, in order, read arguments or constants that no step before them reads."""
    arrays = {value for value in graph.inputs if value.type.shape}
    arrays |= {value for value in values_of(graph, Role.CONSTANT) if value.type.shape}
    seen: set[Value] = set()
    own = 0
    for number, node in enumerate(chain):
        fresh = _needed(graph, node, seen)
        own += bool(number) and not arrays.isdisjoint(fresh)
        seen |= fresh
    return own > _OWN_SHARE * len(chain)


def _needed(graph: Graph, node: Node, seen: set[Value]) -> set[Value]:
    """The values that a node needs, those aside that were seen before."""
    found: set[Value] = set()
    waiting = list(graph.reads(node))
    while waiting:
        value = waiting.pop()
        if value in found or value in seen:
            continue
        found.add(value)
        producer = graph.producers.get(value)
        if producer is not None:
            waiting += graph.reads(producer)
    return found
