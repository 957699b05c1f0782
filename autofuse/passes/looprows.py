"""What a loop reads that moves with its counter becomes its rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autofuse.ir.graph import Node, Value
from autofuse.passes.loopediting import Loop, Row
from autofuse.passes.progressions import Progression, Progressions


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
        if node is None or 0 in node.attrs["broadcast_dimensions"]:
            continue
        dimensions = tuple(dim - 1 for dim in node.attrs["broadcast_dimensions"])
        alike = loop.before("broadcast_in_dim", *node.inputs, shape=row.row.type.shape, broadcast_dimensions=dimensions)
        loop.rows.remove(row)
        loop.substitute({row.row: alike})


def slices_to_rows(loop: Loop) -> None:
    """A slice of an array from outside, one position further in each iteration, is a row."""
    known, made = progressions_of_rows(loop), loop.made_inside()
    for node in [node for node in loop.nodes if node.op == "dynamic_slice" and node.inputs[0] not in made]:
        sizes = node.attrs["slice_sizes"]
        places = places_of(known, node.inputs[0], node.inputs[1:], sizes)
        axis = None if places is None else moving_axis(places, sizes)
        if places is not None and axis is not None:
            _read_rows(loop, node, places, axis)


def places_of(
    known: Progressions, array: Value, starts: Sequence[Value], sizes: Sequence[int]
) -> Sequence[Progression] | None:
    """Where a slice starts along each axis, in each iteration; None if that is not known, or is clamped for a part."""
    found: list[Progression] = []
    for start, size, extent in zip(starts, sizes, array.type.shape, strict=True):
        at = known.of(start) if size < extent else Progression(0, 0, 1)
        if at is None:
            return None
        if not at.step:
            at = Progression(min(max(at.first, 0), extent - size), 0, at.count)
        if at.least < 0 or at.greatest > extent - size:
            return None
        found.append(at)
    return found


def moving_axis(places: Sequence[Progression], sizes: Sequence[int]) -> int | None:
    """The axis that a slice moves along, if it is one, and the slice one position of it."""
    moving = [axis for axis, at in enumerate(places) if at.step]
    return moving[0] if len(moving) == 1 and sizes[moving[0]] == 1 else None


def _read_rows(loop: Loop, node: Node, places: Sequence[Progression], axis: int) -> None:
    """Slice the positions of all iterations at once, and put their axis first."""
    array, sizes, along = node.inputs[0], node.attrs["slice_sizes"], places[axis]
    starts = [at.least for at in places]
    limits = [at.greatest + size for at, size in zip(places, sizes, strict=True)]
    strides = [max(abs(at.step), 1) for at in places]
    taken = loop.before("slice", array, start_indices=starts, limit_indices=limits, strides=strides)
    if along.step < 0:
        taken = loop.before("reverse", taken, dimensions=(axis,))
    others = [other for other in range(len(places)) if other != axis]
    taken = loop.before("transpose", taken, permutation=(axis, *others))
    rows = loop.before("reshape", taken, shape=(along.count, *sizes))
    loop.rows.append(Row(rows, node.output))
    loop.nodes.remove(node)
