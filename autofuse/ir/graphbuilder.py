"""Building graphs: emit nodes one by one, types inferred and checked as they are added."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from numpy.typing import NDArray

from autofuse.errors import GraphError
from autofuse.ir import attributes
from autofuse.ir.graph import Graph, Location, Node, Value
from autofuse.ir.optable import lookup
from autofuse.ir.types import TensorType


def free_values(inputs: Sequence[Value], nodes: Sequence[Node], outputs: Sequence[Value]) -> tuple[Value, ...]:
    """Values that nodes, their regions or outputs read but that are defined outside, in order of first reading."""
    made = {*inputs, *(value for node in nodes for value in node.outputs)}
    read = [value for node in nodes for part in (node, *node.regions) for value in _read_by(part)]
    return tuple(dict.fromkeys(value for value in (*read, *outputs) if value not in made))


def _read_by(part: Node | Graph) -> tuple[Value, ...]:
    return part.inputs if isinstance(part, Node) else part.captures


class GraphBuilder:
    """Collects nodes in topological order. Not thread-safe; one builder makes one graph."""

    def __init__(self, name: str, parent: GraphBuilder | None = None) -> None:
        """`parent`: the builder of the enclosing graph, where this one makes a region; names are unique across both."""
        self.name = name
        self.location: Location | None = None
        """Given to every node emitted from now on."""
        self._inputs: list[Value] = []
        self._nodes: list[Node] = []
        self._producers: dict[Value, Node] = {}
        self._counts: dict[str, int] = {} if parent is None else parent._counts

    def input(self, type_: TensorType, name: str = "arg", at: int | None = None) -> Value:
        """Add a graph input, behind the others or as number `at`. The name is made unique."""
        value = Value(self._unique(name), type_)
        self._inputs.insert(len(self._inputs) if at is None else at, value)
        return value

    @property
    def inputs(self) -> Sequence[Value]:
        """The inputs so far."""
        return self._inputs

    @property
    def nodes(self) -> Sequence[Node]:
        """The nodes so far."""
        return self._nodes

    def producer(self, value: Value) -> Node | None:
        """The node of this graph that makes a value, if one does."""
        return self._producers.get(value)

    def emit(
        self,
        op: str,
        inputs: Sequence[Value] = (),
        *,
        name: str | None = None,
        regions: Sequence[Graph] = (),
        **attrs: Any,
    ) -> Value:
        """Add a node with one result and return it. Raises GraphError for ill-typed operands or attributes."""
        (value,) = self.emit_many(op, inputs, name=name, regions=regions, **attrs)
        return value

    def emit_many(
        self,
        op: str,
        inputs: Sequence[Value] = (),
        *,
        name: str | None = None,
        regions: Sequence[Graph] = (),
        **attrs: Any,
    ) -> tuple[Value, ...]:
        """Add a node with any number of results."""
        entry = lookup(op)
        if entry.arity is not None and len(inputs) != entry.arity:
            raise GraphError(f"{op} takes {entry.arity} operands, got {len(inputs)}")
        if regions and not entry.role.is_control:
            raise GraphError(f"{op} owns no regions, got {len(regions)}")
        held = attributes.normalized(entry, attrs)
        result_types = entry.infer([value.type for value in inputs], held, regions)
        outputs = tuple([Value(self._unique(name or op), t) for t in result_types])
        self._add(Node(op, tuple(inputs), outputs, held, tuple(regions), self.location))
        return outputs

    def adopt(self, node: Node, inputs: Sequence[Value], regions: Sequence[Graph] = ()) -> tuple[Value, ...]:
        """Add a node of another graph, which was checked there, on values of the same types; its results are new."""
        outputs = tuple([Value(self._unique(node.op), value.type) for value in node.outputs])
        self._add(Node(node.op, tuple(inputs), outputs, node.attrs, tuple(regions), self.location))
        return outputs

    def take_over(self, nodes: Iterable[Node]) -> None:
        """Add nodes of another graph as they are: they read what is here, and their names were unique here, too."""
        for node in nodes:
            self._add(node)

    def _add(self, node: Node) -> None:
        self._nodes.append(node)
        for value in node.outputs:
            self._producers[value] = node

    def constant(self, array: NDArray[Any], name: str = "constant") -> Value:
        """Add a constant; a writeable array is copied."""
        return self.emit("constant", (), name=name, value=array)

    def finish(self, outputs: Sequence[Value]) -> Graph:
        """The graph so far, with these outputs. What it reads from outside becomes its captures."""
        captures = free_values(self._inputs, self._nodes, outputs)
        return Graph(self.name, tuple(self._inputs), tuple(self._nodes), tuple(outputs), captures)

    def _unique(self, name: str) -> str:
        count = self._counts.get(name, 0)
        self._counts[name] = count + 1
        candidate = name if count == 0 else f"{name}_{count}"
        if count and candidate in self._counts:
            return self._unique(candidate)
        self._counts.setdefault(candidate, 1)
        return candidate
