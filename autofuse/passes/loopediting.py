"""A loop taken apart, so that passes can change its state, its rows and its body, and put together again.

`with_loops` has a pass change every loop of a graph, those inside of others first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.graphbuilder import free_values
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.ir.substitution import replaced, substituted, substituted_node
from autofuse.lazydataclass import dataclass, replace
from autofuse.passes.editing import new_node
from autofuse.passes.facts import Facts
from autofuse.passes.rewriting import Names, live_nodes


@dataclass(slots=True, eq=False)
class Carry:
    """One part of a loop's state."""

    initial: Value
    """In the enclosing graph: what it is before the first iteration."""
    given: Value
    """In the body: what an iteration gets."""
    next: Value
    """In the body, or captured by it: what the next iteration gets."""
    last: Value
    """In the enclosing graph: what it is after the last iteration."""
    tested: Value | None = None
    """In the condition of a `while`: what it gets."""


@dataclass(slots=True, eq=False)
class Row:
    """A sequence that a loop walks along."""

    array: Value
    """In the enclosing graph: the rows of all iterations."""
    row: Value
    """In the body: the row of one."""


@dataclass(slots=True, eq=False)
class Stack:
    """What every iteration adds a row to."""

    row: Value
    """In the body, or captured by it."""
    stacked: Value
    """In the enclosing graph."""


class Loop:
    """A `scan` or `while` node. Passes change its parts in place; `finish` gives what replaces the node."""

    def __init__(self, node: Node, outer: Facts, names: Names) -> None:
        """`outer`: of the enclosing graph."""
        self.node = node
        self.outer = outer
        self.names = names
        body = node.regions[-1]
        self.body_name = body.name
        self.nodes = list(body.nodes)
        self.condition: Graph | None = None
        self.length: int | None = None
        self.reverse = False
        self.unrolled: int | None = None
        """Iterations of the program that are one here, if a pass has joined some."""
        count = len(node.inputs)
        if role_of(node) is Role.LOOP:
            self.condition = node.regions[0]
        else:
            self.length, count, self.reverse = (node.attrs[key] for key in ("length", "carries", "reverse"))
            self.unrolled = node.attrs.get("unrolled")
        parts = zip(node.inputs, body.inputs, body.outputs, node.outputs, strict=False)
        self.carries = [Carry(*part) for part, _ in zip(parts, range(count), strict=False)]
        for carry, tested in zip(self.carries, self.condition.inputs if self.condition else (), strict=False):
            carry.tested = tested
        self.rows = [Row(*pair) for pair in zip(node.inputs[count:], body.inputs[count:], strict=True)]
        self.stacks = [Stack(*pair) for pair in zip(body.outputs[count:], node.outputs[count:], strict=True)]
        self.changed = False
        self.results: dict[Value, Value] = {}
        """Results of the node that are values of the enclosing graph."""
        self._before: list[Node] = []
        self._after: list[Node] = []

    def inner(self) -> Facts:
        """What is known in the body as it is now."""
        facts = Facts({})
        for node in self.nodes:
            facts.add(node)
        return facts

    def made_inside(self) -> set[Value]:
        """What an iteration gets or computes: all else that the body reads is the same in all of them."""
        return {
            *(carry.given for carry in self.carries),
            *(row.row for row in self.rows),
            *(value for node in self.nodes for value in node.outputs),
        }

    def before(self, op: str, *inputs: Value, like: Node | None = None, **attrs: Any) -> Value:
        """The result of a new node of the enclosing graph, before the loop. `like`: whose location it has."""
        node = new_node(self.names, op, inputs, attrs, location=(like or self.node).location)
        self.move_before(node)
        return node.output

    def move_before(self, node: Node) -> None:
        """Compute a node before the loop."""
        self._before.append(node)
        self.outer.add(node)
        self.changed = True

    def after(
        self, op: str, *inputs: Value, output: Value | None = None, like: Node | None = None, **attrs: Any
    ) -> Value:
        """The result of a new node of the enclosing graph, behind the loop. `output`: a result of the loop so far."""
        node = new_node(self.names, op, inputs, attrs, output, (like or self.node).location)
        self.put_after(node)
        return node.output

    def put_after(self, node: Node) -> None:
        """Compute a node behind the loop."""
        self._after.append(node)
        self.changed = True

    def inside(self, op: str, *inputs: Value, like: Node, **attrs: Any) -> Value:
        """The result of a new node of the body, before its other nodes: it reads what no node of the body makes."""
        node = new_node(self.names, op, inputs, attrs, location=like.location)
        self.nodes.insert(0, node)
        self.changed = True
        return node.output

    def substitute(self, to: Mapping[Value, Value]) -> None:
        """Read other values in the body, its results included. Nodes all of whose results are replaced go."""
        self.nodes = [
            substituted_node(node, to) for node in self.nodes if not all(value in to for value in node.outputs)
        ]
        for carry in self.carries:
            carry.next = to.get(carry.next, carry.next)
        for stack in self.stacks:
            stack.row = to.get(stack.row, stack.row)
        self.changed = True

    def drop_carry(self, carry: Carry, *, always: Value | None = None) -> None:
        """Take a part out of the state. `always`: what its readers in the body and in the condition get."""
        self.carries.remove(carry)
        if always is not None:
            self.substitute({carry.given: always})
        if self.condition is not None and carry.tested is not None:
            self.condition = _without(self.condition, carry.tested, always)
        self.changed = True

    def finish(self) -> tuple[Sequence[Node], Mapping[Value, Value]]:
        """The nodes that take the loop's place, in order, and which results are other values now."""
        loop = [] if self.length == 0 or not (self.carries or self.stacks) else [self._loop()]
        return (*self._before, *loop, *self._after), self.results

    def _loop(self) -> Node:
        inputs = (*(carry.given for carry in self.carries), *(row.row for row in self.rows))
        outputs = (*(carry.next for carry in self.carries), *(stack.row for stack in self.stacks))
        nodes = tuple(live_nodes(self.nodes, outputs))
        body = Graph(self.body_name, inputs, nodes, outputs, free_values(inputs, nodes, outputs))
        operands = (*(carry.initial for carry in self.carries), *(row.array for row in self.rows))
        results = (*(carry.last for carry in self.carries), *(stack.stacked for stack in self.stacks))
        if self.condition is not None:
            return Node("while", operands, results, {}, (self.condition, body), self.node.location)
        attrs: dict[str, Any] = {"length": self.length, "carries": len(self.carries), "reverse": self.reverse}
        if self.unrolled is not None:
            attrs["unrolled"] = self.unrolled
        return Node("scan", operands, results, attrs, (body,), self.node.location)


Change = Callable[[Loop, Set[Value]], None]
"""What a pass does with a loop of which the values in the set are read."""
_LOOPS = (Role.LOOP, Role.COUNTED_LOOP)


def with_loops(graph: Graph, change: Change) -> Graph:
    """The graph with all of its loops changed; the same object if none was."""
    return _changed(graph, {}, Names(graph), change) if any(node.regions for node in graph.nodes) else graph


def _changed(graph: Graph, outer: Mapping[Value, Value], names: Names, change: Change) -> Graph:
    """A graph or region. `outer`: what replaces values that it captures."""
    to = dict(outer)
    facts = Facts({})
    nodes: list[Node] = []
    read = {value for node in graph.nodes for value in reads(node)} | set(graph.outputs)
    for old in graph.nodes:
        node = substituted_node(old, to)
        regions = tuple(_changed(region, {}, names, change) for region in node.regions)
        if any(new is not before for new, before in zip(regions, node.regions, strict=True)):
            node = replace(node, regions=regions)
        made: Sequence[Node] = (node,)
        if role_of(node) in _LOOPS:
            loop = Loop(node, facts, names)
            change(loop, read)
            if loop.changed:
                made, results = loop.finish()
                to.update(results)
        for one in made:
            facts.add(one)
        nodes.extend(made)
    outputs = replaced(graph.outputs, to)
    if len(nodes) == len(graph.nodes) and all(a is b for a, b in zip(nodes, graph.nodes, strict=True)):
        return graph
    live = live_nodes(nodes, outputs)
    captures = free_values(graph.inputs, live, outputs) if graph.captures else ()
    return Graph(graph.name, graph.inputs, tuple(live), outputs, captures)


def reads(node: Node) -> Iterable[Value]:
    """What a node reads, its regions included."""
    yield from node.inputs
    for region in node.regions:
        yield from region.captures


def _without(region: Graph, value: Value, always: Value | None) -> Graph:
    """A region without one of its inputs, whose readers get `always`."""
    inputs = tuple(other for other in region.inputs if other is not value)
    bare = Graph(region.name, inputs, region.nodes, region.outputs, region.captures)
    if always is not None:
        bare = substituted(bare, {value: always})
    return Graph(bare.name, inputs, bare.nodes, bare.outputs, free_values(inputs, bare.nodes, bare.outputs))
