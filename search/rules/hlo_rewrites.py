"""What XLA makes of single operations before fusion, in every version that is modelled.

`logistic`, `exp2` and `log2` are several operations. A product may become a multiplication (algebraic_simplifier.cc,
HandleDot). One that reduces nothing is a multiplication of two repeated operands, on all backends.

On a GPU a product with a vector is a multiplication, and a sum over the axes of the other operand. A vector is an
operand of which all axes are batches or reduced; those of one element do not count. XLA may transpose the other operand
first, in the hope of a layout that makes it free: here its axes are left in their order. Products whose operands have
another type than the result stay products.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from autofuse.fusion.nodeaxes import DotAxes, dot_axes
from autofuse.ir.graph import Node
from autofuse.lazydataclass import dataclass

EXPANDED: Mapping[str, tuple[str, ...]] = {
    "logistic": ("negate", "exp", "add", "divide"),
    "exp2": ("multiply", "exp"),
    "log2": ("log", "multiply"),
}
"""What XLA writes for ops that it does not have when fusion begins (LogisticExpander; the front ends)."""


@dataclass(frozen=True, slots=True)
class Factor:
    """What becomes of an operand: axes of one element are dropped, the others go to places of the multiplication."""

    kept: tuple[int, ...]
    """Extents of the axes that are left, in the operand's order."""
    places: tuple[int, ...]
    """For each of them, its axis in the multiplication."""


@dataclass(frozen=True, slots=True)
class Multiplication:
    """A product as a multiplication, and a sum if `reduced` is not empty."""

    shape: tuple[int, ...]
    factors: tuple[Factor, Factor]
    reduced: tuple[int, ...] = ()
    """The axes of the multiplication that are summed over."""
    order: tuple[int, ...] = ()
    """The axes of the sum as the result has them, which may also have axes of one element."""


def multiplication(node: Node) -> Multiplication | None:
    """A product that reduces nothing; None for all others, and for empty ones."""
    axes = _axes(node)
    if axes is None or prod(node.inputs[0].type.shape[axis] for axis in axes.lhs_contracting) != 1:
        return None
    batches, left = len(axes.lhs_batch), len(axes.lhs_free)
    first, second = (range(start, node.output.type.rank) for start in (batches, batches + left))
    lhs = (*zip(axes.lhs_batch, range(batches), strict=True), *zip(axes.lhs_free, first, strict=False))
    rhs = (*zip(axes.rhs_batch, range(batches), strict=True), *zip(axes.rhs_free, second, strict=True))
    factors = _factor(node, 0, lhs), _factor(node, 1, rhs)
    return Multiplication(node.output.type.shape, factors)


def product_with_vector(node: Node, below: int | None = None) -> Multiplication | None:
    """A product with a vector; None for all others, and for empty ones.

    `below`: a matrix is left to other passes unless (rows + columns) * depth is less; of two vectors nothing is asked.
    """
    axes = _axes(node)
    if axes is None:
        return None
    lhs, rhs = (value.type.shape for value in node.inputs)
    rows, columns = prod(lhs[axis] for axis in axes.lhs_free), prod(rhs[axis] for axis in axes.rhs_free)
    depth = prod(lhs[axis] for axis in axes.lhs_contracting)
    if min(rows, columns) > 1 or (below is not None and max(rows, columns) > 1 and (rows + columns) * depth >= below):
        return None
    matrix = 0 if columns == 1 else 1
    ours, free, theirs = (
        (axes.lhs_batch + axes.lhs_contracting, axes.lhs_free, axes.rhs_batch + axes.rhs_contracting),
        (axes.rhs_batch + axes.rhs_contracting, axes.rhs_free, axes.lhs_batch + axes.lhs_contracting),
    )[matrix]
    shape = node.inputs[matrix].type.shape
    whole = Factor(shape, tuple(range(len(shape))))
    vector = _factor(node, 1 - matrix, zip(theirs, ours, strict=True))
    batches = ours[: len(axes.lhs_batch)]
    reduced = tuple(sorted(ours[len(batches) :]))
    left = [axis for axis in range(len(shape)) if axis not in reduced]
    order = tuple(left.index(axis) for axis in (*batches, *free))
    return Multiplication(shape, (vector, whole) if matrix else (whole, vector), reduced, order)


def _axes(node: Node) -> DotAxes | None:
    """The axes of a product that is not empty, with operands of the result's type."""
    if node.op != "dot_general" or any(value.type.dtype != node.output.type.dtype for value in node.inputs):
        return None
    return None if any(value.type.size == 0 for value in node.inputs) else dot_axes(node)


def _factor(node: Node, number: int, places: Iterable[tuple[int, int]]) -> Factor:
    """An operand of which an axis goes to a place, for each pair; all its other axes have one element."""
    shape = node.inputs[number].type.shape
    pairs = sorted(places)
    return Factor(tuple(shape[axis] for axis, _ in pairs), tuple(place for _, place in pairs))
