"""What a loop reads that moves with its counter becomes its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.ir.graph import Node, Value
from autofuse.passes.loopediting import Loop, Row
from autofuse.passes.loopinvariants import Invariants
from autofuse.passes.progressions import Progression, Progressions

Array = NDArray[Any]


def progressions_of_rows(loop: Loop) -> Progressions:
    """What is known of integers in the body of a `scan`."""
    assert loop.length is not None
    outside = Progressions(loop.outer, loop.length)
    found = {row.row: outside.of(row.array) for row in loop.rows if row.row.type.shape == ()}
    return Progressions(loop.inner(), loop.length, {row: held for row, held in found.items() if held is not None})


def decide_comparisons(loop: Loop) -> None:
    """Comparisons of numbers and counters that come out the same in all iterations are constants.

    So an index that is never negative loses what counts negative ones from the end.
    """
    known = progressions_of_rows(loop)
    for node in [node for node in loop.nodes if node.op == "compare" and node.output.type.shape == ()]:
        decided = known.decided(node)
        if decided is not None:
            held = np.array(decided)
            held.setflags(write=False)
            loop.substitute({node.output: loop.inside("constant", like=node, value=held)})


def repeated_rows(loop: Loop) -> None:
    """Rows that are all the same array are read as one."""
    for row in list(loop.rows):
        node = loop.outer.producer(row.array, "broadcast_in_dim")
        if node is None:
            continue
        (source,), dimensions = node.inputs, node.attrs["broadcast_dimensions"]
        if 0 in dimensions:
            axis = dimensions.index(0)
            if source.type.shape[axis] != 1:
                continue
            shape = (*source.type.shape[:axis], *source.type.shape[axis + 1 :])
            source = loop.before("reshape", source, shape=shape)
        kept = tuple(dim - 1 for dim in dimensions if dim)
        alike = loop.before("broadcast_in_dim", source, shape=row.row.type.shape, broadcast_dimensions=kept)
        loop.rows.remove(row)
        loop.substitute({row.row: alike})


def slices_to_rows(loop: Loop) -> None:
    """A slice of an array from outside, one position further in each iteration, is a row."""
    places = Places(loop)
    for node in [node for node in loop.nodes if node.op == "dynamic_slice" and node.inputs[0] in places.same]:
        found = places.of(node)
        axis = None if found is None else moving_axis(found, node.attrs["slice_sizes"])
        if found is not None and axis is not None:
            _read_rows(loop, node, places.same, found, axis)


Place = Progression | Value
"""Where a slice starts along an axis, by iterations; or a value that is the same in all, which may be clamped."""


class Places:
    """Where slices of arrays start."""

    def __init__(self, loop: Loop) -> None:
        self._known = progressions_of_rows(loop)
        self.same = Invariants(loop)

    def of(self, node: Node) -> Sequence[Place] | None:
        """Along each axis, for what a node reads or writes of its first operand; None if that is not known."""
        array = node.inputs[0]
        if node.op == "slice":
            return [Progression(start, 0, 1) for start in node.attrs["start_indices"]]
        starts = node.inputs[1:] if node.op == "dynamic_slice" else node.inputs[2:]
        room = [extent - size for extent, size in zip(array.type.shape, sizes_of(node), strict=True)]
        found = [self._place(start, most) for start, most in zip(starts, room, strict=True)]
        held = [place for place in found if place is not None]
        return held if len(held) == len(found) else None

    def _place(self, start: Value, most: int) -> Place | None:
        """Starts beyond 0..most are clamped: a progression must not be."""
        at = self._known.of(start) if most else Progression(0, 0, 1)
        if at is None:
            return start if start in self.same else None
        if not at.step:
            return Progression(min(max(at.first, 0), most), 0, 1)
        return at if at.least >= 0 and at.greatest <= most else None


def sizes_of(node: Node) -> Sequence[int]:
    """How many positions a node reads or writes along each axis."""
    match node.op:
        case "dynamic_slice":
            return node.attrs["slice_sizes"]
        case "dynamic_update_slice":
            return node.inputs[1].type.shape
        case _:
            return [b - a for a, b in zip(node.attrs["start_indices"], node.attrs["limit_indices"], strict=True)]


def moving_axis(places: Sequence[Place], sizes: Sequence[int]) -> int | None:
    """The axis that a slice moves along, if it is one, and the slice one position of it."""
    moving = [axis for axis, at in enumerate(places) if isinstance(at, Progression) and at.step]
    return moving[0] if len(moving) == 1 and sizes[moving[0]] == 1 else None


def _read_rows(loop: Loop, node: Node, same: Invariants, places: Sequence[Place], axis: int) -> None:
    """Slice the positions of all iterations at once, and put their axis first."""
    array, sizes, along = same.outside(node.inputs[0]), node.attrs["slice_sizes"], places[axis]
    assert isinstance(along, Progression)
    if not all(isinstance(place, Progression) for place in places):
        array = _at_values(loop, array, same, places, sizes)
    held = [place if isinstance(place, Progression) else Progression(0, 0, 1) for place in places]
    starts = [at.least for at in held]
    limits = [at.greatest + size for at, size in zip(held, sizes, strict=True)]
    strides = [max(abs(at.step), 1) for at in held]
    taken = loop.before("slice", array, start_indices=starts, limit_indices=limits, strides=strides)
    if along.step < 0:
        taken = loop.before("reverse", taken, dimensions=(axis,))
    others = [other for other in range(len(held)) if other != axis]
    taken = loop.before("transpose", taken, permutation=(axis, *others))
    rows = loop.before("reshape", taken, shape=(along.count, *sizes))
    loop.rows.append(Row(rows, node.output))
    loop.nodes.remove(node)


def _at_values(loop: Loop, array: Value, same: Invariants, places: Sequence[Place], sizes: Sequence[int]) -> Value:
    """The slice at the positions that only the run knows; whole along the other axes."""
    zero = loop.before("constant", value=held(0))
    starts = [zero if isinstance(at, Progression) else same.outside(at) for at in places]
    kept = zip(places, array.type.shape, sizes, strict=True)
    wide = [extent if isinstance(at, Progression) else size for at, extent, size in kept]
    return loop.before("dynamic_slice", array, *starts, slice_sizes=wide)


def held(number: int) -> Array:
    """A read-only scalar."""
    array = np.array(number, np.int64)
    array.setflags(write=False)
    return array
