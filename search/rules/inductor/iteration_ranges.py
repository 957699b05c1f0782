"""The loops of operations, and where in their operands an iteration reads."""

from __future__ import annotations

from autofuse.fusion.nodeaxes import dot_axes
from autofuse.ir import index
from autofuse.ir.graph import Node
from autofuse.ir.index import Affine, Symbol
from autofuse.ir.optable import index_op
from autofuse.ir.pieces import Piece

Index = tuple[Affine, ...]


def is_repeated(node: Node) -> bool:
    """Whether a node joins a value with itself, and with nothing else."""
    return node.op == "concatenate" and len(set(node.inputs)) == 1


def result_loops(node: Node) -> tuple[tuple[Symbol, ...], Index]:
    """The loops over a result, and its index in terms of them: one per axis.

    The axis along which a value is joined with itself has two: over the copies, and within one.
    """
    shape = node.output.type.shape
    if not is_repeated(node):
        symbols = tuple(Symbol(f"d{axis}", extent) for axis, extent in enumerate(shape))
        return symbols, tuple(map(index.of, symbols))
    axis = node.attrs["dimension"]
    extent = node.inputs[0].type.shape[axis]
    split = (*shape[:axis], len(node.inputs), extent, *shape[axis + 1 :])
    symbols = tuple(Symbol(f"d{number}", size) for number, size in enumerate(split))
    at = [index.of(symbol) for symbol in symbols]
    return symbols, (*at[:axis], at[axis] * extent + at[axis + 1], *at[axis + 2 :])


def reduced_axes(node: Node) -> tuple[int, ...]:
    """The operand's axes that a node reduces, in order; of a `cumulative`, the axis it walks."""
    if node.op == "reduce":
        return tuple(sorted(node.attrs["dimensions"]))
    return (node.attrs["dimension"],)


def reduced_extents(node: Node) -> tuple[int, ...]:
    """The extents of the loops that a reduction, a window or a product reduces."""
    if node.op == "reduce_window":
        return tuple(node.attrs["window_dimensions"])
    shape = node.inputs[0].type.shape
    axes = dot_axes(node).lhs_contracting if node.op == "dot_general" else reduced_axes(node)
    return tuple(shape[axis] for axis in axes)


def reduction_index(node: Node, at: Index, place: Index) -> Index:
    """Where a reduction reads for an element of its result and a place in its reduced loops."""
    where = list(at)
    for axis, position in zip(reduced_axes(node), place, strict=True):
        where.insert(axis, position)
    return tuple(where)


def product_index(node: Node, at: Index, place: Index) -> tuple[Index, Index]:
    """Where a product's factors lie."""
    axes = dot_axes(node)
    batch, rows = len(axes.lhs_batch), len(axes.lhs_free)
    left: dict[int, Affine] = dict(zip(axes.lhs_batch, at[:batch], strict=True))
    left |= zip(axes.lhs_free, at[batch : batch + rows], strict=True)
    left |= zip(axes.lhs_contracting, place, strict=True)
    right: dict[int, Affine] = dict(zip(axes.rhs_batch, at[:batch], strict=True))
    right |= zip(axes.rhs_free, at[batch + rows :], strict=True)
    right |= zip(axes.rhs_contracting, place, strict=True)
    return tuple(left[axis] for axis in sorted(left)), tuple(right[axis] for axis in sorted(right))


def pieces_of(node: Node, at: Index) -> tuple[Piece, ...]:
    """Where an op that moves elements takes one from; the last piece where none before it holds."""
    return index_op(node).access([value.type for value in node.inputs], node.output.type, node.attrs, at)
