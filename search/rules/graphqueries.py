"""How rules of other compilers see a program: operands behind views, numbers, uses."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from autofuse.fusion.atoms import AtomGraph
from autofuse.fusion.candidate import is_view
from autofuse.fusion.domain import is_opaque
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.optable import role_of
from autofuse.lazydataclass import dataclass
from autofuse.passes.facts import Facts
from autofuse.passes.matching import number_of


@dataclass(frozen=True, slots=True)
class Use:
    """One operand of a node, looked at through views."""

    reader: Node
    operand: int
    source: Value
    """What lies behind the views: a program input, a constant, or the result of an operation."""
    views: tuple[Node, ...]
    """The views between, the one nearest to the source first."""


@dataclass(frozen=True)
class Reading:
    """Questions about the nodes of one program."""

    atoms: AtomGraph

    @property
    def graph(self) -> Graph:
        return self.atoms.graph

    @cached_property
    def facts(self) -> Facts:
        """What the clean-up passes know of values."""
        facts = Facts({})
        for node in self.graph.nodes:
            facts.add(node)
        return facts

    @cached_property
    def uses(self) -> dict[Value, tuple[Use, ...]]:
        """By source, everything that reads it, an operand at a time; in order."""
        found: dict[Value, list[Use]] = {}
        for atom in self.atoms.atoms:
            for node in atom.nodes:
                for use in self.operands(node):
                    found.setdefault(use.source, []).append(use)
        return {value: tuple(uses) for value, uses in found.items()}

    def operands(self, node: Node) -> tuple[Use, ...]:
        """The operands of a node, each looked at through its views. A region's captures come last."""
        return tuple(self._look(node, number, value) for number, value in enumerate(self._values(node)))

    def maker(self, value: Value) -> Node | None:
        """The operation that makes a value, through views; None for inputs and constants."""
        source = self.source(value)
        node = self.graph.producers.get(source)
        return node if node in self.atoms.atom_of else None

    def source(self, value: Value) -> Value:
        """What lies behind the views of a value."""
        while (node := self.graph.producers.get(value)) is not None and self._is_passed(node):
            value = node.inputs[0]
        return value

    def number(self, value: Value) -> float | int | None:
        """The number that is repeated in a value; None if it is not one number, known beforehand."""
        return number_of(self.facts, value)

    def is_output(self, node: Node) -> bool:
        """Whether the program returns a result of the node."""
        return any(value in self.graph.outputs for value in node.outputs)

    def used_once(self, node: Node) -> bool:
        """Whether one operand of one other node is all that reads the node's only result."""
        return len(node.outputs) == 1 and not self.is_output(node) and len(self.uses.get(node.output, ())) == 1

    def _values(self, node: Node) -> Iterator[Value]:
        yield from node.inputs
        for region in node.regions:
            yield from region.captures

    def _look(self, reader: Node, number: int, value: Value) -> Use:
        views: list[Node] = []
        while (node := self.graph.producers.get(value)) is not None and self._is_passed(node):
            views.append(node)
            value = node.inputs[0]
        return Use(reader, number, value, tuple(reversed(views)))

    def _is_passed(self, node: Node) -> bool:
        """Whether a node is a view that belongs to whoever reads it."""
        return is_view(node) and node not in self.atoms.atom_of


def stands_alone(node: Node) -> bool:
    """Whether rules fuse nothing with a node: a call of a library, or an op that owns regions."""
    return is_opaque(node) or role_of(node).is_control
