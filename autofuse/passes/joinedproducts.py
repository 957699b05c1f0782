"""Products that share an operand as one product: side by side for one left operand, step by step for one matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from autofuse.fusion.candidate import is_view
from autofuse.ir.graph import Graph, Node, Value
from autofuse.lazydataclass import dataclass
from autofuse.passes.editing import Editor
from autofuse.passes.productrules import free_dimensions, has_one_column_axis
from autofuse.passes.slicerules import AxisSlice, sliced, slices_of, whole

_DIMENSIONS = (
    *("lhs_batching_dimensions", "rhs_batching_dimensions"),
    *("lhs_contracting_dimensions", "rhs_contracting_dimensions"),
)


@dataclass(frozen=True, slots=True)
class JoinColumns:
    """Joins products of one left operand with several matrices: one product with the matrices side by side.

    The matrices are arguments, constants, or views of these, so that the products need not wait for one another;
    constants are joined now, others in every call. Where each product has a vector of such a kind added, and nothing
    else reads it, the vectors are joined too. What were products become slices. Exact: the sums are the same.
    """

    name: ClassVar[str] = "joined-columns"

    def apply(self, graph: Graph) -> Graph:
        """The graph with fewer and wider products; the same object if none could be joined."""
        groups: dict[Any, list[Node]] = {}
        for node in graph.nodes:
            if node.op == "dot_general" and has_one_column_axis(node) and _is_given(node.inputs[1], graph):
                dimensions = tuple(node.attrs[key] for key in _DIMENSIONS)
                groups.setdefault((node.inputs[0], node.inputs[1].type.rank, dimensions), []).append(node)
        editor = Editor(graph)
        for dots in groups.values():
            if len(dots) > 1:
                _join_columns(dots, graph, editor)
        return editor.finish()


@dataclass(frozen=True, slots=True)
class JoinSteps:
    """Joins products of the slices of one array, one position of an axis each, with one matrix: one product of all.

    The positions follow one another, so that nothing is copied; products that have batching dimensions stay. What were
    products become slices. Exact: the sums are the same.
    """

    name: ClassVar[str] = "joined-steps"

    def apply(self, graph: Graph) -> Graph:
        """The graph with fewer and taller products; the same object if none could be joined."""
        groups: dict[Any, list[tuple[int, Node]]] = {}
        for node in graph.nodes:
            step = _step_of(node, graph)
            if step is not None:
                dimensions = tuple(node.attrs[key] for key in _DIMENSIONS)
                key = step.array, step.axis, node.inputs[1], dimensions
                groups.setdefault(key, []).append((step.at, node))
        editor = Editor(graph)
        for (array, axis, *_), found in groups.items():
            steps = dict(found)
            first = min(steps)
            if len(steps) == len(found) > 1 and sorted(steps) == list(range(first, first + len(steps))):
                _join_steps(array, axis, steps, editor)
        return editor.finish()


# ---- side by side ----------------------------------------------------------------------------------------------------


def _is_given(value: Value, graph: Graph) -> bool:
    """Whether a value is an argument, a constant, or a view of one: there before anything is computed."""
    node = graph.producers.get(value)
    while node is not None and is_view(node):
        value = node.inputs[0]
        node = graph.producers.get(value)
    return value in graph.inputs if node is None else node.op == "constant"


def _join_columns(dots: Sequence[Node], graph: Graph, editor: Editor) -> None:
    like = dots[0]
    matrices = [dot.inputs[1] for dot in dots]
    (axis,) = free_dimensions(like.attrs, "rhs", matrices[0].type.rank)
    matrix = _joined(matrices, axis, graph, editor, like)
    total = editor.emit("dot_general", like.inputs[0], matrix, like=like, **like.attrs)
    ends = list(dots)
    added = [_added_vector(dot, graph) for dot in dots]
    biased = [pair for pair in added if pair is not None]
    if len(biased) == len(dots):
        ends = [end for end, _ in biased]
        vector = _joined([vector for _, vector in biased], 0, graph, editor, like)
        last = total.type.rank - 1
        wide = editor.emit(
            "broadcast_in_dim", vector, like=ends[0], shape=total.type.shape, broadcast_dimensions=(last,)
        )
        total = editor.emit("add", total, wide, like=ends[0])
    begin = 0
    for end in ends:
        slices = whole(total.type.shape)
        slices[-1] = AxisSlice(begin, end.output.type.shape[-1])
        editor.define(end, "slice", total, **sliced(total, slices).attrs)
        begin += slices[-1].count


def _joined(values: Sequence[Value], axis: int, graph: Graph, editor: Editor, like: Node) -> Value:
    """The values one after another along an axis: a constant if they are constants."""
    makers = [graph.producers.get(value) for value in values]
    arrays = [maker.attrs["value"] for maker in makers if maker is not None and maker.op == "constant"]
    if len(arrays) == len(values):
        return editor.emit("constant", like=like, value=np.concatenate(arrays, axis))
    return editor.emit("concatenate", *values, like=like, dimension=axis)


def _added_vector(dot: Node, graph: Graph) -> tuple[Node, Value] | None:
    """The addition of a vector to the columns of a product, if that is all that reads it, and the vector."""
    readers = graph.users[dot.output]
    if len(readers) != 1 or readers[0].op != "add" or dot.output in graph.outputs:
        return None
    others = [value for value in readers[0].inputs if value is not dot.output]
    wide = graph.producers.get(others[0]) if len(others) == 1 else None
    if wide is None or wide.op != "broadcast_in_dim":
        return None
    (vector,), last = wide.inputs, dot.output.type.rank - 1
    columns = dot.output.type.shape[-1:]
    if vector.type.shape != columns or wide.attrs["broadcast_dimensions"] != (last,) or not _is_given(vector, graph):
        return None
    return readers[0], vector


# ---- step by step ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Step:
    """One position of an axis of an array."""

    array: Value
    axis: int
    at: int


def _step_of(node: Node, graph: Graph) -> _Step | None:
    """Which step the left operand of a product with a matrix is; None if it is none, or the node is no such product."""
    if node.op != "dot_general" or node.output.type.size == 0:
        return None
    if node.attrs["lhs_batching_dimensions"] or len(node.attrs["lhs_contracting_dimensions"]) != 1:
        return None
    outer = graph.producers.get(node.inputs[0])
    inner = None if outer is None or outer.op != "reshape" else graph.producers.get(outer.inputs[0])
    if inner is None or inner.op != "slice":
        return None
    array, slices = inner.inputs[0], slices_of(inner)
    shape = array.type.shape
    narrowed = [axis for axis, (taken, extent) in enumerate(zip(slices, shape, strict=True)) if taken.count != extent]
    if len(narrowed) != 1 or slices[narrowed[0]].count != 1:
        return None
    (axis,) = narrowed
    if node.inputs[0].type.shape != (*shape[:axis], *shape[axis + 1 :]):
        return None
    return _Step(array, axis, slices[axis].start)


def _join_steps(array: Value, axis: int, steps: dict[int, Node], editor: Editor) -> None:
    first = min(steps)
    like = steps[first]
    if len(steps) < array.type.shape[axis]:
        slices = whole(array.type.shape)
        slices[axis] = AxisSlice(first, len(steps))
        array = editor.emit("slice", array, like=like, **sliced(array, slices).attrs)
    (depth,) = like.attrs["lhs_contracting_dimensions"]
    attrs = {**like.attrs, "lhs_contracting_dimensions": (depth if depth < axis else depth + 1,)}
    product = editor.emit("dot_general", array, like.inputs[1], like=like, **attrs)
    place = free_dimensions(attrs, "lhs", array.type.rank).index(axis)
    for at, node in steps.items():
        slices = whole(product.type.shape)
        slices[place] = AxisSlice(at - first, 1)
        row = editor.emit("slice", product, like=node, **sliced(product, slices).attrs)
        editor.define(node, "reshape", row, shape=node.output.type.shape)
