"""Marking: fast numerics let targets approximate functions, divisions and products of f32, and add in any order."""

from __future__ import annotations

from typing import ClassVar

from autofuse.ir import dtypes
from autofuse.ir.graph import Graph, Node
from autofuse.ir.oprecord import Role, is_fast
from autofuse.ir.optable import all_ops, role_of
from autofuse.lazydataclass import dataclass
from autofuse.passes.facts import Facts
from autofuse.passes.rewriting import Call, Rules, call, rewrite


@dataclass(frozen=True, slots=True)
class MarkApproximations:
    """Writes `numerics = "fast"` to nodes that a target may approximate. It runs last: other passes need not know.

    What such a node may be off by is said by `autofuse.measurement.errorbounds.approximations`.
    """

    name: ClassVar[str] = "approximations"

    def apply(self, graph: Graph) -> Graph:
        """The marked graph; the same object if there is nothing to mark."""
        return rewrite(graph, lambda: _RULES)


def mark(node: Node, facts: Facts) -> Call | None:
    """The same node, marked. Products of 16-bit floats are exact in any case, and f64 has no cheaper forms."""
    dtype = node.output.type.dtype
    widest = dtypes.F32.bits
    if is_fast(node.attrs) or not dtype.is_float or dtype.bits > widest:
        return None
    if role_of(node).is_contraction and dtype.bits < widest:
        return None
    return call(node.op, *node.inputs, **node.attrs, numerics="fast")


def mark_scatter(node: Node, facts: Facts) -> Call | None:
    """Sums of f32 and f64 at places, whose updates may then be added in any order; 16-bit ones round after each."""
    dtype = node.output.type.dtype
    if is_fast(node.attrs) or node.attrs["combiner"] != "add" or not dtype.is_float or dtype.bits < dtypes.F32.bits:
        return None
    return call(node.op, *node.inputs, **node.attrs, numerics="fast")


_RULES: Rules = {
    op.name: (mark_scatter if op.role is Role.SCATTER else mark,) for op in all_ops() if "numerics" in op.attrs
}
