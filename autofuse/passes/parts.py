"""Reductions of concatenations as those of the parts, with the elementwise work that lies between done on the parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from autofuse.fusion.candidate import is_view
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import all_ops, role_of
from autofuse.lazydataclass import dataclass
from autofuse.passes.facts import Facts
from autofuse.passes.matching import is_float
from autofuse.passes.rewriting import Call, Expression, Rules, call, rewrite
from autofuse.passes.slicerules import AxisSlice, sliced, whole

_MOST_PARTS = 8
"""Each part is one more loop."""


@dataclass(frozen=True, slots=True)
class SplitConcatenations:
    """Reduces the parts of a concatenation instead of the concatenation, then combines or concatenates the results.

    Elementwise ops whose results are only reduced go before the concatenation, where their other operands are
    concatenated alike, or lie in memory and can be sliced. Exact but for the order in which floats are added; products
    of floats and sums of 16-bit ones along the concatenation stay, since partial results round.
    """

    name: ClassVar[str] = "concatenations-in-parts"

    def apply(self, graph: Graph) -> Graph:
        """The graph with reductions of parts; the same object if nothing applied."""
        reduced = _only_reduced(graph)
        return rewrite(graph, lambda: _rules(reduced))


def _only_reduced(graph: Graph) -> frozenset[Value]:
    """Results of elementwise ops that are read by reductions, and by ops of which the same holds, alone."""
    reduced: set[Value] = set()
    for node in reversed(graph.nodes):
        if role_of(node) is not Role.ELEMENTWISE or node.output in graph.outputs:
            continue
        readers = graph.users[node.output]
        if readers and all(reader.op == "reduce" or reader.outputs[0] in reduced for reader in readers):
            reduced.add(node.output)
    return frozenset(reduced)


def _rules(reduced: frozenset[Value]) -> Rules:
    def compute_parts(node: Node, facts: Facts) -> Call | None:
        return _computed_in_parts(node, facts) if node.output in reduced else None

    elementwise = {op.name: (compute_parts,) for op in all_ops() if op.role is Role.ELEMENTWISE}
    return {**elementwise, "reduce": (reduce_parts,)}


def _computed_in_parts(node: Node, facts: Facts) -> Call | None:
    """f(concatenate([x, y]), z) = concatenate([f(x, z[:k]), f(y, z[k:])])."""
    found = [facts.producer(value, "concatenate") for value in node.inputs]
    joined = next((maker for maker in found if maker is not None), None)
    if joined is None or not _can_split(joined):
        return None
    operands: list[Sequence[Expression]] = []
    for value in node.inputs:
        parts = _parts_of(value, joined, facts)
        if parts is None:
            return None
        operands.append(parts)
    done = [call(node.op, *parts, **node.attrs) for parts in zip(*operands, strict=True)]
    return call("concatenate", *done, dimension=joined.attrs["dimension"])


def reduce_parts(node: Node, facts: Facts) -> Expression | None:
    """sum(concatenate([x, y])) = sum(x) + sum(y) along the concatenation; along other axes, the sums concatenated."""
    joined = facts.producer(node.inputs[0], "concatenate")
    if joined is None or not _can_split(joined):
        return None
    axis, gone, combiner = joined.attrs["dimension"], node.attrs["dimensions"], node.attrs["combiner"]
    reductions = [call("reduce", part, dimensions=gone, combiner=combiner) for part in joined.inputs]
    if axis not in gone:
        return call("concatenate", *reductions, dimension=axis - sum(d < axis for d in gone))
    if _rounds(node):
        return None
    total: Expression = reductions[0]
    for reduction in reductions[1:]:
        total = call(combiner, total, reduction)
    return total


def _can_split(joined: Node) -> bool:
    return len(joined.inputs) <= _MOST_PARTS and all(part.type.size for part in joined.inputs)


def _rounds(node: Node) -> bool:
    """Whether combined partial results are no result of reducing everything in some order, or may not be reordered."""
    combiner = node.attrs["combiner"]
    return is_float(node) and (combiner == "multiply" or (combiner == "add" and node.output.type.dtype.bits == 16))


def _parts_of(value: Value, joined: Node, facts: Facts) -> Sequence[Expression] | None:
    """A value in the pieces in which `joined` has its own; None if it would have to be computed first."""
    axis = joined.attrs["dimension"]
    extents = [part.type.shape[axis] for part in joined.inputs]
    own = facts.producer(value, "concatenate")
    if own is not None:
        alike = own.attrs["dimension"] == axis and [part.type.shape[axis] for part in own.inputs] == extents
        return own.inputs if alike else None
    if not _lies_in_memory(value, facts):
        return None
    pieces: list[Expression] = []
    begin = 0
    for extent in extents:
        slices = whole(value.type.shape)
        slices[axis] = AxisSlice(begin, extent)
        pieces.append(sliced(value, slices))
        begin += extent
    return pieces


def _lies_in_memory(value: Value, facts: Facts) -> bool:
    """Whether a value is an argument, a leaf, or a view of one."""
    node = facts.producer(value)
    while node is not None and is_view(node):
        node = facts.producer(node.inputs[0])
    return node is None or role_of(node).is_leaf
