"""Contraction: a sum with a product becomes one operation that rounds once."""

from __future__ import annotations

from typing import ClassVar

from autofuse.ir.graph import Graph, Node
from autofuse.lazydataclass import dataclass
from autofuse.passes.facts import Facts
from autofuse.passes.matching import is_float
from autofuse.passes.rewriting import Call, Rules, call, rewrite


@dataclass(frozen=True, slots=True)
class ContractProducts:
    """Replaces x * y + z by `fma(x, y, z)`, whose product is not rounded. It runs last: other rules look for sums."""

    name: ClassVar[str] = "contraction"

    def apply(self, graph: Graph) -> Graph:
        """The graph with contracted sums; the same object if there are none."""
        return rewrite(graph, lambda: _RULES)


def contract(node: Node, facts: Facts) -> Call | None:
    """x * y + z = fma(x, y, z)."""
    if not is_float(node):
        return None
    for added, other in (node.inputs, node.inputs[::-1]):
        product = facts.producer(added, "multiply")
        if product is not None:
            return call("fma", *product.inputs, other)
    return None


_RULES: Rules = {"add": (contract,)}
