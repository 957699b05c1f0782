"""Rules for dynamic_slice, dynamic_update_slice and gather whose indices are known: plain slices."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.ir.graph import Node, Value
from autofuse.passes.facts import Facts
from autofuse.passes.matching import filled, number_of
from autofuse.passes.rewriting import Call, Expression, Rules, call
from autofuse.passes.slicerules import AxisSlice, sliced, whole
from autofuse.passes.viewrules import broadcast


def dynamic_slice_at_numbers(node: Node, facts: Facts) -> Call | None:
    """A dynamic slice whose starts are known, or cannot differ from 0, is a slice."""
    x, *starts = node.inputs
    room = [extent - size for extent, size in zip(x.type.shape, node.attrs["slice_sizes"], strict=True)]
    known = [0 if most == 0 else number_of(facts, start) for start, most in zip(starts, room, strict=True)]
    held = [start for start in known if start is not None]
    if len(held) < len(known):
        return None
    sizes = zip(held, room, node.attrs["slice_sizes"], strict=True)
    return sliced(x, [AxisSlice(min(max(int(start), 0), most), size) for start, most, size in sizes])


def dynamic_slice_of_slice(node: Node, facts: Facts) -> Call | None:
    """A dynamic slice of a slice is one of the array, where each axis is cut by one of the two only."""
    cut = facts.producer(node.inputs[0], "slice")
    if cut is None or any(stride != 1 for stride in cut.attrs["strides"]):
        return None
    starts = _starts_in_whole(cut, node.inputs[1:], node.attrs["slice_sizes"])
    return (
        None if starts is None else call("dynamic_slice", *cut.inputs, *starts, slice_sizes=node.attrs["slice_sizes"])
    )


def _starts_in_whole(cut: Node, starts: Sequence[Value], sizes: Sequence[int]) -> Sequence[Expression] | None:
    """Where what starts there in a slice starts in the array, if each axis is cut by one of the two only."""
    (x,), offsets = cut.inputs, cut.attrs["start_indices"]
    found: list[Expression] = []
    for axis, (start, size, extent) in enumerate(zip(starts, sizes, cut.output.type.shape, strict=True)):
        if extent == x.type.shape[axis]:
            found.append(start)
        elif extent == size:
            found.append(filled(offsets[axis], start.type))
        else:
            return None
    return found


def update_of_slice(node: Node, facts: Facts) -> Call | None:
    """A slice that is updated and written back where it came from is one update of the array."""
    x, update, *at = node.inputs
    inner = facts.producer(update, "dynamic_update_slice")
    cut = None if inner is None else facts.producer(inner.inputs[0], "slice")
    if inner is None or cut is None or cut.inputs != (x,) or any(stride != 1 for stride in cut.attrs["strides"]):
        return None
    room = [extent - size for extent, size in zip(x.type.shape, update.type.shape, strict=True)]
    back = zip(at, room, cut.attrs["start_indices"], strict=True)
    same = all(most == 0 or number_of(facts, start) == offset for start, most, offset in back)
    starts = _starts_in_whole(cut, inner.inputs[2:], inner.inputs[1].type.shape)
    return call("dynamic_update_slice", x, inner.inputs[1], *starts) if same and starts is not None else None


def update_of_what_it_covers(node: Node, facts: Facts) -> Call | None:
    """An update of all that an earlier one has written, which others may have read, is one of the array before."""
    x, update, *starts = node.inputs
    inner = facts.producer(x, "dynamic_update_slice")
    if inner is None:
        return None
    sides = zip(x.type.shape, update.type.shape, inner.inputs[1].type.shape, strict=True)
    places = zip(starts, inner.inputs[2:], strict=True)
    covered = all(_covers(facts, *side, *place) for side, place in zip(sides, places, strict=True))
    return call("dynamic_update_slice", inner.inputs[0], update, *starts) if covered else None


def _covers(facts: Facts, extent: int, size: int, inner: int, start: Value, first: Value) -> bool:
    """Whether `size` elements of an axis from `start` on take in `inner` from `first` on. Starts are clamped."""
    if size == extent or (start is first and inner <= size):
        return True
    known, other = number_of(facts, start), number_of(facts, first)
    if known is None or other is None:
        return False
    low, high = (min(max(int(at), 0), extent - count) for at, count in ((known, size), (other, inner)))
    return low <= high and high + inner <= low + size


def read_what_was_written(node: Node, facts: Facts) -> Value | None:
    """A dynamic slice of what a dynamic_update_slice has just written there."""
    write = facts.producer(node.inputs[0], "dynamic_update_slice")
    if write is None or write.inputs[2:] != node.inputs[1:] or write.inputs[1].type != node.output.type:
        return None
    return write.inputs[1]


def update_everything(node: Node, facts: Facts) -> Value | None:
    """An update as large as the operand replaces it, wherever it starts: starts are clamped to 0."""
    x, update = node.inputs[:2]
    return update if update.type == x.type else None


def update_nothing(node: Node, facts: Facts) -> Value | None:
    """An empty update."""
    return node.inputs[0] if node.inputs[1].type.size == 0 else None


def gather_one(node: Node, facts: Facts) -> Call | None:
    """A gather of one window at a known place is a slice, reshaped."""
    x, indices = node.inputs
    known = facts.known(indices)
    rows = _index_rows(node, known)
    if rows is None or len(rows) != 1 or node.attrs["operand_batching_dims"] or node.output.type.size == 0:
        return None
    starts = [0] * x.type.rank
    for axis, start in zip(node.attrs["start_index_map"], rows[0], strict=True):
        starts[axis] = min(max(int(start), 0), x.type.shape[axis] - node.attrs["slice_sizes"][axis])
    slices = [AxisSlice(start, size) for start, size in zip(starts, node.attrs["slice_sizes"], strict=True)]
    return call("reshape", sliced(x, slices), shape=node.output.type.shape)


def gather_progression(node: Node, facts: Facts) -> Expression | None:
    """A gather along one axis at evenly spaced places is a slice: reversed if they descend, repeated if they stay."""
    x, indices = node.inputs
    rows = _index_rows(node, facts.known(indices))
    axis = _only_axis(node)
    if rows is None or axis is None or len(rows) < 2 or node.output.type.size == 0:
        return None
    places = [min(max(int(place), 0), x.type.shape[axis] - 1) for place in rows[:, 0]]
    steps = {second - first for first, second in pairwise(places)}
    return _spaced(node, axis, places, steps.pop()) if len(steps) == 1 else None


def _spaced(node: Node, axis: int, places: Sequence[int], step: int) -> Expression | None:
    x, count = node.inputs[0], len(places)
    first, last = places[0], places[-1]
    slices = whole(x.type.shape)
    slices[axis] = AxisSlice(min(first, last), count if step else 1, abs(step) or 1)
    taken: Expression = sliced(x, slices)
    if step < 0:
        taken = call("reverse", taken, dimensions=(axis,))
    if step == 0:
        shape = tuple(count if d == axis else extent for d, extent in enumerate(x.type.shape))
        taken = broadcast(taken, shape, range(x.type.rank))
    return _placed(node, axis, taken)


def _placed(node: Node, axis: int, taken: Expression) -> Expression | None:
    """The gathered axis moved to where the gather puts it, in the shape of the indices."""
    offsets, rank = node.attrs["offset_dims"], node.output.type.rank
    batch = [dim for dim in range(rank) if dim not in offsets]
    if batch != list(range(batch[0], batch[0] + len(batch))):
        return None
    others = [d for d in range(node.inputs[0].type.rank) if d != axis]
    permutation = (*others[: batch[0]], axis, *others[batch[0] :])
    return call("reshape", call("transpose", taken, permutation=permutation), shape=node.output.type.shape)


def _index_rows(node: Node, indices: NDArray[Any] | None) -> NDArray[Any] | None:
    """The index vectors, one per row."""
    if indices is None:
        return None
    components = len(node.attrs["start_index_map"])
    dim = node.attrs["index_vector_dim"]
    moved = indices[..., np.newaxis] if dim == indices.ndim else np.moveaxis(indices, dim, -1)
    return moved.reshape(-1, components)


def _only_axis(node: Node) -> int | None:
    """The axis that a gather picks along, if it takes single positions of one axis and all of the others."""
    mapped, sizes = node.attrs["start_index_map"], node.attrs["slice_sizes"]
    if len(mapped) != 1 or node.attrs["collapsed_slice_dims"] != mapped or node.attrs["operand_batching_dims"]:
        return None
    (axis,) = mapped
    shape = node.inputs[0].type.shape
    takes_all = all(size == extent for d, (size, extent) in enumerate(zip(sizes, shape, strict=True)) if d != axis)
    return axis if takes_all and sizes[axis] == 1 else None


RULES: Rules = {
    "dynamic_slice": (dynamic_slice_at_numbers, dynamic_slice_of_slice, read_what_was_written),
    "dynamic_update_slice": (update_everything, update_nothing, update_of_slice, update_of_what_it_covers),
    "gather": (gather_one, gather_progression),
}
