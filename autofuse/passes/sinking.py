"""Sinking views: elementwise ops are computed before the views of their operands, so that chains become neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import all_ops
from autofuse.lazydataclass import dataclass
from autofuse.passes.facts import Facts
from autofuse.passes.matching import joined
from autofuse.passes.rewriting import Call, Expression, Rules, call, rewrite
from autofuse.passes.viewrules import (
    broadcast,
    broadcast_broadcast,
    broadcast_in_shape,
    reshape_reshaped,
    transpose_nothing,
    transpose_transposed,
)

_SUNK = ("reshape", "transpose", "broadcast_in_dim")
_MOST_VIEWS = 8
"""So many views, one of the other, are as much as an op goes before: in a chain that keeps turning its operand, each op
would go before all views that there are."""


@dataclass(frozen=True, slots=True)
class SinkViews:
    """Moves reshapes, transposes and broadcasts from the operands of an elementwise op to its result.

    It applies where all operands are the same view of arrays of one shape. Scalars broadcast fit any shape, and next
    to a reshape or a transpose other broadcasts do where they can be made in the shape before it. So an elementwise
    op on broadcasts computes the small array, and an epilogue meets the contraction before it. Views only ever move
    towards the outputs. Exact: the same scalars are combined.
    """

    name: ClassVar[str] = "view-sinking"

    def apply(self, graph: Graph) -> Graph:
        """The graph with sunken views; the same object if none could move."""
        return rewrite(graph, _rules)


def _rules() -> Rules:
    """Views that meet on their way are one: a chain has as many rewritten nodes as it has nodes."""
    merged: Rules = {
        "reshape": (reshape_reshaped,),
        "transpose": (transpose_nothing, transpose_transposed),
        "broadcast_in_dim": (broadcast_broadcast,),
    }
    return joined(merged, {op.name: (_sink,) for op in all_ops() if op.role is Role.ELEMENTWISE})


def _sink(node: Node, facts: Facts) -> Call | None:
    if node.output.type.size == 0:
        return None
    view = _common_view(node, facts)
    if view is None or _is_high(view, facts):
        return None
    shape = view.inputs[0].type.shape
    operands = [_before(value, view, shape, facts) for value in node.inputs]
    held = [operand for operand in operands if operand is not None]
    if len(held) < len(operands):
        return None
    return call(view.op, call(node.op, *held, **node.attrs), **view.attrs)


def _common_view(node: Node, facts: Facts) -> Node | None:
    """The view that the operands share: a transpose or a reshape if there is one, else a broadcast."""
    producers = [facts.producer(value, *_SUNK) for value in node.inputs]
    views = [producer for producer in producers if producer is not None]
    if len(views) < len(producers):
        return None
    moved = [view for view in views if view.op != "broadcast_in_dim"]
    of_arrays = [view for view in views if view.inputs[0].type.shape]
    return (moved or of_arrays or views)[0]


def _is_high(view: Node, facts: Facts) -> bool:
    """Whether a view is one of many others."""
    below: Node | None = view
    for _ in range(_MOST_VIEWS):
        below = facts.producer(below.inputs[0], *_SUNK)
        if below is None:
            return False
    return True


def _before(value: Value, view: Node, shape: Sequence[int], facts: Facts) -> Expression | None:
    """What `value` is before `view`, in the shape that `view` takes; None if it is no such view of anything."""
    own = facts.producer(value)
    if own is None:
        return None
    (x,) = own.inputs
    if own.op == view.op and own.attrs == view.attrs and x.type.shape == shape:
        return x
    if own.op != "broadcast_in_dim":
        return None
    if not x.type.shape:
        return broadcast(x, shape, ()) if shape else x
    dims = own.attrs["broadcast_dimensions"]
    match view.op:
        case "transpose":
            return broadcast(x, shape, [view.attrs["permutation"][dim] for dim in dims])
        case "reshape":
            return broadcast_in_shape(x, value.type.shape, dims, shape)
        case _:
            return None
