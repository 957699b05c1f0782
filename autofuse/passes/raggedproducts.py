"""Products of a matrix and a vector inside of loops, of slices that grow and shrink, as sums of products.

Such slices are windows under masks. A product that is code of its own does all of the window; a sum is a loop, which a
target ends where the mask does.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from autofuse.fusion.nodeaxes import dot_axes
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.lazydataclass import dataclass
from autofuse.passes.editing import Editor
from autofuse.passes.raggedmasks import in_bodies, is_ragged, unmoved


@dataclass(frozen=True, slots=True)
class SumRaggedProducts:
    """Writes products of a matrix and a vector in loops as sums, where a mask that the run decides is on an operand.

    Or on all that reads the result. Exact up to the order of the sum. It runs last: other passes know products.
    """

    name: ClassVar[str] = "ragged products"

    def apply(self, graph: Graph) -> Graph:
        """The rewritten graph; the same object if there is nothing to rewrite."""
        return in_bodies(graph, _summed)


def _summed(region: Graph) -> Graph:
    editor = Editor(region)
    for node in region.nodes:
        if _is_of_a_vector(node) and (
            any(_is_masked(region, value) for value in node.inputs) or _is_read_under_masks(region, node.output)
        ):
            _sum(editor, region, node)
    return editor.finish()


def _is_of_a_vector(node: Node) -> bool:
    """Whether a node is a product of a matrix and a vector, of floats that are added as they are."""
    if role_of(node) is not Role.DOT:
        return False
    axes, (left, right) = dot_axes(node), node.inputs
    sides = math.prod(left.type.shape[a] for a in axes.lhs_free), math.prod(right.type.shape[a] for a in axes.rhs_free)
    plain = left.type.dtype == right.type.dtype == node.output.type.dtype and left.type.dtype.bits >= 32
    return 1 in sides and not axes.lhs_batch and len(axes.lhs_contracting) == 1 and plain


def _sum(editor: Editor, region: Graph, node: Node) -> None:
    axes, (left, right) = dot_axes(node), node.inputs
    depth = left.type.shape[axes.lhs_contracting[0]]
    shape = (*node.output.type.shape, depth)
    mask, left, right = _with_one_mask(region, left, axes.lhs_contracting, right, axes.rhs_contracting)
    ways = (
        _way(axes.lhs_free, axes.lhs_contracting, 0, len(shape)),
        _way(axes.rhs_free, axes.rhs_contracting, len(axes.lhs_free), len(shape)),
    )
    wide = [
        editor.emit("broadcast_in_dim", side, like=node, shape=shape, broadcast_dimensions=way)
        for side, way in zip((left, right), ways, strict=True)
    ]
    products = editor.emit("multiply", *wide, like=node)
    last = len(shape) - 1
    masks = [] if mask is None else [(mask, (last,))]
    wanted = _wanted(region, node)
    masks += [] if wanted is None else [(wanted, (*range(last),))]
    if masks:
        zero = editor.emit("constant", like=node, value=np.zeros((), left.type.dtype.numpy))
        zeros = editor.emit("broadcast_in_dim", zero, like=node, shape=shape, broadcast_dimensions=())
        wide = [
            editor.emit("broadcast_in_dim", part, like=node, shape=shape, broadcast_dimensions=way)
            for part, way in masks
        ]
        where = wide[0] if len(wide) == 1 else editor.emit("and", *wide, like=node)
        products = editor.emit("select", where, products, zeros, like=node)
    editor.define(node, "reduce", products, dimensions=(last,), combiner="add")


def _wanted(region: Graph, node: Node) -> Value | None:
    """The mask under which the only reader of a result chooses it; None if more of it may be read."""
    users = region.users[node.output]
    if node.output in region.outputs or len(users) != 1 or users[0].op != "select":
        return None
    mask, chosen, other = users[0].inputs
    is_chosen = chosen is node.output and other is not node.output
    return mask if is_chosen and is_ragged(region, mask) else None


def _with_one_mask(
    region: Graph, left: Value, left_axes: tuple[int, ...], right: Value, right_axes: tuple[int, ...]
) -> tuple[Value | None, Value, Value]:
    """A mask of the contracting axis that leaves zeros of both operands, and the operands without it; else None."""
    found = [_zeroed(region, side, axis) for side, (axis,) in ((left, left_axes), (right, right_axes))]
    if found[0] is None or found[1] is None or found[0][0] is not found[1][0]:
        return None, left, right
    return found[0][0], found[0][1], found[1][1]


def _zeroed(region: Graph, value: Value, axis: int) -> tuple[Value, Value] | None:
    """The mask of rank 1 along an axis that leaves zeros of an operand, and what the operand is without it."""
    node = region.producers.get(value)
    if node is None or node.op != "select" or not _is_zero(region, node.inputs[2]):
        return None
    mask, whole, _ = node.inputs
    way = region.producers.get(mask)
    if way is not None and way.op == "broadcast_in_dim":
        if way.attrs["broadcast_dimensions"] != (axis,):
            return None
        mask = way.inputs[0]
    return (mask, whole) if mask.type.shape == (value.type.shape[axis],) else None


def _is_zero(region: Graph, value: Value) -> bool:
    node = region.producers.get(unmoved(region, value))
    return node is not None and role_of(node) is Role.CONSTANT and not node.attrs["value"].any()


def _way(free: tuple[int, ...], contracting: tuple[int, ...], first: int, rank: int) -> tuple[int, ...]:
    """Where the axes of an operand are in the products: free ones from `first` on, the contracting one last."""
    places = {axis: first + number for number, axis in enumerate(free)} | dict.fromkeys(contracting, rank - 1)
    return tuple(places[axis] for axis in sorted(places))


# ---- masks ---------------------------------------------------------------------------------------------------------


def _is_masked(region: Graph, value: Value) -> bool:
    """Whether a value is a choice by a mask that the run decides, moved by views."""
    node = region.producers.get(unmoved(region, value))
    return node is not None and node.op == "select" and is_ragged(region, node.inputs[0])


def _is_read_under_masks(region: Graph, value: Value) -> bool:
    """Whether all that reads a value, behind elementwise nodes and views, chooses it by such masks."""
    if value in region.outputs:
        return False
    users = region.users[value]
    return bool(users) and all(_chooses(region, value, user) for user in users)


def _chooses(region: Graph, value: Value, user: Node) -> bool:
    if user.op == "select" and value is not user.inputs[0] and is_ragged(region, user.inputs[0]):
        return True
    goes_on = role_of(user) is Role.ELEMENTWISE or role_of(user).is_view
    return goes_on and _is_read_under_masks(region, user.output)
