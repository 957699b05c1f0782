"""How the readings for Grappler look at our operations: what makes an operand, and what is repeated in it.

TensorFlow's binary operations repeat a smaller operand by themselves, and its reductions may keep reduced axes as axes
of one element. In our IR both are views: repetition, and reshapes that only add or drop such axes. Patterns look
through these and ask where the axes of the source went.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from autofuse.ir.graph import Node, Value
from autofuse.lazydataclass import dataclass
from autofuse.passes.matching import numbered_sides
from autofuse.search.rules.graphqueries import Reading, Use

MOST_FACTORS = 8
"""No pattern has a product of more factors, so none is taken apart any further: of squares of squares they double."""
_ROUNDING = 1e-3
"""Relative: what numbers such as 1/n may have lost in 16 bits."""


@dataclass(frozen=True, slots=True)
class Spread:
    """An operand, looked at through repetition."""

    source: Value
    axes: tuple[int, ...]
    """The axes of the operand that the source's axes became, those of one element left out."""


@dataclass(frozen=True, slots=True)
class Mean:
    """A sum divided by its count."""

    x: Value
    reduction: Node
    node: Node
    """The division."""

    @property
    def axes(self) -> tuple[int, ...]:
        return tuple(sorted(self.reduction.attrs["dimensions"]))

    @property
    def nodes(self) -> tuple[Node, ...]:
        return (self.node, self.reduction)


@dataclass(frozen=True, slots=True)
class Composite:
    """Several of our operations as one of TensorFlow's."""

    kind: str
    """Its name there."""
    nodes: tuple[Node, ...]
    """What it computes; the node that makes its result first."""
    inputs: tuple[Value, ...]
    """Its data inputs, as `nodes` read them."""
    axes: tuple[int, ...] = ()
    """Those that it reduces or normalises over."""


@dataclass(frozen=True, slots=True)
class NodeMatcher:
    """Questions about the nodes of one program. Nodes that a rule of the user forces together match nothing."""

    reading: Reading

    def node(self, value: Value, *ops: str) -> Node | None:
        """The operation that makes a value, no view between, if it is one of `ops`."""
        node = self.reading.graph.producers.get(value)
        return node if node is not None and node.op in ops and self.is_alone(node) else None

    def is_alone(self, node: Node) -> bool:
        """Whether the node is an operation for itself."""
        atom = self.reading.atoms.atom_of.get(node)
        return atom is not None and len(atom.nodes) == 1

    def number(self, value: Value) -> float | int | None:
        """The number that is repeated in a value."""
        return self.reading.number(value)

    def beside(self, node: Node | None, number: float) -> Value | None:
        """The other operand of a binary operation that has this number on one side."""
        if node is None:
            return None
        return next((x for x, _, found in numbered_sides(node, self.reading.facts) if found == number), None)

    def sides(self, node: Node) -> Iterable[tuple[Value, float | int]]:
        """For each operand of a binary operation that is a number: the other one, and it."""
        return [(x, number) for x, _, number in numbered_sides(node, self.reading.facts)]

    def spread(self, value: Value) -> Spread:
        """What is repeated to make a value; the value itself if nothing is."""
        axes = {axis: axis for axis in _long_axes(value)}
        while (view := self._repetition(value)) is not None:
            (value,) = view.inputs
            if view.op == "reshape":
                axes = dict(zip(_long_axes(value), axes.values(), strict=True))
            else:
                place = view.attrs["broadcast_dimensions"]
                axes = {axis: axes[place[axis]] for axis in _long_axes(value)}
        return Spread(value, tuple(axes.values()))

    def behind(self, value: Value, *ops: str) -> Node | None:
        """The operation whose result is repeated in a value, if it is one of `ops`."""
        return self.node(self.spread(value).source, *ops)

    def reduction(self, value: Value, combiner: str) -> Node | None:
        """The reduction whose result is repeated in a value."""
        node = self.behind(value, "reduce")
        return node if node is not None and node.attrs["combiner"] == combiner else None

    def is_in_place(self, value: Value, reduction: Node) -> bool:
        """Whether a value repeats results of a reduction along the axes that were reduced, as if they had been kept."""
        return self.spread(value).axes == tuple(
            axis for axis in _long_axes(reduction.inputs[0]) if axis not in reduction.attrs["dimensions"]
        )

    def is_vector(self, value: Value, axis: int) -> bool:
        """Whether a value is a vector along one axis, repeated along all others."""
        spread = self.spread(value)
        extent = value.type.shape[axis] if value.type.rank else 1
        return spread.source.type.size == extent and set(spread.axes) <= {axis}

    def mean(self, value: Value) -> Mean | None:
        """The mean that is repeated in a value: a sum over n, or times 1/n."""
        node = self.behind(value, "divide", "multiply")
        if node is None:
            return None
        for total, number in self.sides(node):
            reduction = self.reduction(total, "add")
            if reduction is None or reduction.output.type.size != total.type.size:
                continue
            count = math.prod(reduction.inputs[0].type.shape[axis] for axis in reduction.attrs["dimensions"])
            wanted = count if node.op == "divide" else 1 / max(count, 1)
            if total is node.inputs[0] or node.op == "multiply":
                return (
                    Mean(reduction.inputs[0], reduction, node)
                    if math.isclose(number, wanted, rel_tol=_ROUNDING)
                    else None
                )
        return None

    def is_closed(self, root: Node, nodes: Iterable[Node]) -> bool:
        """Whether nothing but `nodes` reads what they compute, the root's result excepted."""
        own = set(nodes)
        return all(
            not self.reading.is_output(node)
            and all(use.reader in own for use in self.reading.uses.get(node.output, ()))
            for node in own - {root}
        )

    def use(self, value: Value, nodes: Iterable[Node]) -> Use:
        """How the first of `nodes` that reads a value reads it."""
        node = next(node for node in nodes if any(operand is value for operand in node.inputs))
        place = next(number for number, operand in enumerate(node.inputs) if operand is value)
        return self.reading.operands(node)[place]

    def _repetition(self, value: Value) -> Node | None:
        """The view that makes a value, if it only repeats elements, or adds and drops axes of one element."""
        node = self.reading.graph.producers.get(value)
        if node is None or node in self.reading.atoms.atom_of:
            return None
        if node.op == "reshape":
            return node if _long_extents(value) == _long_extents(node.inputs[0]) else None
        return node if node.op == "broadcast_in_dim" else None


def _long_axes(value: Value) -> list[int]:
    return [axis for axis, extent in enumerate(value.type.shape) if extent != 1]


def _long_extents(value: Value) -> list[int]:
    return [extent for extent in value.type.shape if extent != 1]
