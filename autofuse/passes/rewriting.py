"""Pattern rewriting: one forward walk that replaces nodes by expressions until no rule of the table applies.

A rule is a pure function of a node and of what is known of its operands. It returns None, a value that already
exists, or a `Call` (nested, for several nodes). The walk goes from operands to users, so a rule always sees operands
that are rewritten already, and what it returns is offered to the rules again: one walk settles a chain of any length in
linear time. The replacement of a node defines the node's own value: name, type and location stay, its readers are
untouched; only the nodes in between get new names. Nothing that no output needs is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import is_
from typing import Any

from autofuse.errors import GraphError
from autofuse.ir import attributes
from autofuse.ir.graph import Attrs, Graph, Location, Node, Value
from autofuse.ir.graphbuilder import free_values
from autofuse.ir.optable import lookup
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass, replace
from autofuse.passes.facts import Facts


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """An operation to add: operands are values or further calls. A call that stands twice is added once."""

    op: str
    inputs: tuple[Expression, ...]
    attrs: Attrs


Expression = Value | Call
Rule = Callable[[Node, Facts], Expression | tuple[Value, ...] | None]
"""What a node becomes: nothing new (None), an expression of its only result, or one value per result."""

Rules = Mapping[str, Sequence[Rule]]
"""Op name to the rules tried on it, in order; the rules of "*" are tried on every node after those."""

_MOST_STEPS = 64  # replacements of one node; every table shrinks a measure, this bounds a table that does not
_ANY = "*"


def call(op: str, *inputs: Expression, **attrs: Any) -> Call:
    """The expression `op(inputs)`."""
    return Call(op, inputs, attrs)


def rewrite(graph: Graph, make_rules: Callable[[], Rules]) -> Graph:
    """`graph` after all rules; `graph` itself if nothing changed.

    `make_rules` is called once for the graph and once for each region, so that rules may remember what they saw.
    Raises GraphError if a rule returns a result of another type.
    """
    names = Names(graph)
    return _Walk(graph, make_rules, names).run({}, {})


class Names:
    """Names no value of a graph or of its regions has."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._counts: dict[str, int] = {}

    @cached_property
    def _taken(self) -> set[str]:
        """Looked up where there is a name to give: most walks give none."""
        return {value.name for value in _all_values(self._graph)}

    def fresh(self, stem: str) -> str:
        taken = self._taken
        while True:
            number = self._counts.get(stem, 0)
            self._counts[stem] = number + 1
            name = f"{stem}_{number}" if number else stem
            if name not in taken:
                taken.add(name)
                return name


def _all_values(graph: Graph) -> Iterator[Value]:
    yield from graph.values()
    for node in graph.nodes:
        for region in node.regions:
            yield from _all_values(region)


class _Walk:
    """One graph or region on its way through the rules."""

    def __init__(self, graph: Graph, make_rules: Callable[[], Rules], names: Names) -> None:
        self._graph = graph
        self._make_rules = make_rules
        self._rules = make_rules()
        self._names = names
        self._replaced: dict[Value, Value] = {}
        self._emitted: dict[Call, Value] = {}
        self._nodes: list[Node] = []
        self._facts = Facts(_reads(graph))
        self._location: Location | None = None

    def run(self, outer: Mapping[Value, Value], numbers: Mapping[Value, Call]) -> Graph:
        """`outer` gives what replaces captured values; `numbers`, the captures that become constants in here."""
        graph = self._graph
        self._replaced.update(outer)
        for value, constant in numbers.items():
            self._replaced[value] = self._value(constant)
        for node in graph.nodes:
            self._visit(node)
        outputs = self._current(graph.outputs)
        nodes = live_nodes(self._nodes, outputs)
        if _same(nodes, graph.nodes) and _same(outputs, graph.outputs):
            return graph
        captures = free_values(graph.inputs, nodes, outputs) if graph.captures else ()
        return Graph(graph.name, graph.inputs, tuple(nodes), outputs, captures)

    def _visit(self, node: Node) -> None:
        self._location = node.location
        inputs = node.inputs
        if not self._replaced.keys().isdisjoint(inputs):
            inputs = self._current(inputs)
        regions = tuple(self._region(region) for region in node.regions) if node.regions else ()
        if not (inputs is node.inputs or _same(inputs, node.inputs)) or (regions and not _same(regions, node.regions)):
            node = replace(node, inputs=inputs, regions=regions)
        found = self._settle(node)
        if found is node.outputs:
            return
        for old, new in zip(node.outputs, found, strict=True):
            if new is not old:
                self._replaced[old] = new

    def _region(self, region: Graph) -> Graph:
        outer = {value: self._replaced.get(value, value) for value in region.captures}
        splats = {value: self._facts.splat(new) for value, new in outer.items()}
        numbers = {value: splat_call(splat, value.type) for value, splat in splats.items() if splat is not None}
        return _Walk(region, self._make_rules, self._names).run(outer, numbers)

    def _settle(self, node: Node) -> tuple[Value, ...]:
        for _ in range(_MOST_STEPS):
            found = self._first_match(node)
            if found is None:
                break
            if isinstance(found, Call):
                node = self._node(found, node.outputs)
                continue
            values = found if isinstance(found, tuple) else (found,)
            _check_types(node, [value.type for value in values])
            return values
        self._nodes.append(node)
        self._facts.add(node)
        return node.outputs

    def _first_match(self, node: Node) -> Expression | tuple[Value, ...] | None:
        for rules in (self._rules.get(node.op, ()), self._rules.get(_ANY, ())):
            for rule in rules:
                found = rule(node, self._facts)
                if found is not None:
                    return found
        return None

    def _node(self, expression: Call, outputs: tuple[Value, ...] | None) -> Node:
        """The node of a call, its operands settled; the result is `outputs`, or new."""
        inputs = tuple(map(self._value, expression.inputs))
        entry = lookup(expression.op)
        held = attributes.normalized(entry, expression.attrs)
        types = entry.infer([value.type for value in inputs], held, ())
        made = outputs or tuple(Value(self._names.fresh(expression.op), type_) for type_ in types)
        node = Node(expression.op, inputs, made, held, (), self._location)
        _check_types(node, types)
        return node

    def _value(self, expression: Expression) -> Value:
        if isinstance(expression, Value):
            return expression
        if expression not in self._emitted:
            (self._emitted[expression],) = self._settle(self._node(expression, None))
        return self._emitted[expression]

    def _current(self, values: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple(self._replaced.get(value, value) for value in values)


def splat_call(number: Any, type_: TensorType) -> Call:
    """One value repeated: a scalar constant, broadcast unless the type is a scalar's."""
    scalar = call("constant", value=_frozen(number))
    return scalar if not type_.shape else call("broadcast_in_dim", scalar, shape=type_.shape, broadcast_dimensions=())


def _frozen(number: Any) -> Any:
    held = number.copy()
    held.setflags(write=False)
    return held


def live_nodes(nodes: Sequence[Node], outputs: Iterable[Value]) -> list[Node]:
    """The nodes that `outputs` need, in order."""
    needed = set(outputs)
    kept: list[Node] = []
    for node in reversed(nodes):
        if not needed.isdisjoint(node.outputs):
            kept.append(node)
            needed.update(node.inputs)
            for region in node.regions:
                needed.update(region.captures)
    kept.reverse()
    return kept


def _reads(graph: Graph) -> Counter[Value]:
    """How many operands, captures and outputs of the graph each value is."""
    read = list(graph.outputs)
    for node in graph.nodes:
        read += node.inputs
        for region in node.regions:
            read += region.captures
    return Counter(read)


def _same(left: Sequence[Any], right: Sequence[Any]) -> bool:
    return len(left) == len(right) and all(map(is_, left, right))


def _check_types(node: Node, came: Sequence[TensorType]) -> None:
    required = [value.type for value in node.outputs]
    if list(came) != required:
        raise GraphError(
            f"rewriting %{node.name}: its replacement must have the types "
            f"{', '.join(map(str, required))}, got {', '.join(map(str, came))}"
        )
