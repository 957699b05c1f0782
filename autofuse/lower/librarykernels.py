"""Library kernels that code is generated for: they call nothing, though nothing is fused with them."""

from __future__ import annotations

from autofuse.fusion.candidate import is_inlined, is_view
from autofuse.ir.graph import Graph, Node
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of


def scatter_in(graph: Graph) -> Node | None:
    """The node of a graph that is one scatter, of views of inputs and of repeated numbers; None for any other graph."""
    real = [node for node in graph.nodes if not (is_view(node) or is_inlined(node))]
    return real[0] if len(real) == 1 and role_of(real[0]) is Role.SCATTER and graph.outputs == real[0].outputs else None
