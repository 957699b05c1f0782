"""Common-subexpression elimination: equal nodes on equal operands are computed once."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.oprecord import ElementwiseOp
from autofuse.ir.optable import lookup
from autofuse.lazydataclass import dataclass
from autofuse.passes.facts import Facts
from autofuse.passes.rewriting import Rules, rewrite

_SAMPLE = 64  # elements that tell most large constants apart


@dataclass(frozen=True, slots=True)
class MergeCommon:
    """Replaces a node by an earlier one with the same op, attributes and operands; the earlier name survives.

    Constants merge if they are equal bit for bit. Operands of commutative ops count in any order where that is exact:
    not for float minimum and maximum, which choose between -0 and 0 by position.
    Never merged: custom calls, nodes with regions. Inside a region, nodes merge with nodes of that region.
    """

    name: ClassVar[str] = "common-subexpressions"

    def apply(self, graph: Graph) -> Graph:
        """The graph with equal nodes merged; the same object if there are none."""
        return rewrite(graph, _rules)


def _rules() -> Rules:
    return {"*": (_Seen().earlier,)}


class _Seen:
    """The nodes of one graph so far."""

    def __init__(self) -> None:
        self._first: dict[Any, Node] = {}
        self._constants: dict[Any, list[Node]] = {}

    def earlier(self, node: Node, facts: Facts) -> tuple[Value, ...] | None:
        """The results of an equal node that came before."""
        if node.regions or node.op == "custom_call":
            return None
        found = self._equal_constant(node) if node.op == "constant" else self._first.setdefault(_key(node), node)
        return None if found is node else found.outputs

    def _equal_constant(self, node: Node) -> Node:
        array = node.attrs["value"]
        flat = array.reshape(-1)
        sample = flat[:: max(1, flat.size // _SAMPLE)]
        alike = self._constants.setdefault((node.output.type, sample.tobytes()), [])
        for other in alike:
            if _equal_bits(other.attrs["value"], array):
                return other
        alike.append(node)
        return node


def _key(node: Node) -> Any:
    return node.op, _operands(node), tuple(node.attrs.items()), tuple(value.type for value in node.outputs)


def _operands(node: Node) -> Any:
    entry = lookup(node.op)
    keeps_order = node.inputs and node.inputs[0].type.dtype.is_float and node.op in ("minimum", "maximum")
    if isinstance(entry, ElementwiseOp) and entry.commutative and not keeps_order:
        return frozenset(node.inputs), len(node.inputs)
    return node.inputs


def _equal_bits(left: NDArray[Any], right: NDArray[Any]) -> bool:
    return left is right or np.array_equal(left.reshape(-1).view(np.uint8), right.reshape(-1).view(np.uint8))
