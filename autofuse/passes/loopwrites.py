"""Arrays that a loop writes position by position leave its state: what it writes is stacked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autofuse.ir.graph import Node, Value
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass
from autofuse.passes.loopediting import Carry, Loop, Stack, reads
from autofuse.passes.looprows import moving_axis, places_of, progressions_of_rows
from autofuse.passes.progressions import Progression, Progressions

_MOST_BEHIND = 8
"""A position written so many iterations ago is handed on from one to the next; one further back is read in the array."""


@dataclass(frozen=True, slots=True)
class _Write:
    """One position along an axis, the next in each iteration."""

    node: Node
    axis: int
    places: Sequence[Progression]
    """Where the update starts along each axis, by rows."""
    reverse: bool
    """Whether the last row is written first."""

    @property
    def update(self) -> Value:
        return self.node.inputs[1]

    def in_time(self, progression: Progression) -> Progression:
        """From by rows to by iterations."""
        return progression.turned() if self.reverse else progression

    @property
    def along(self) -> Progression:
        """By iterations."""
        return self.in_time(self.places[self.axis])


def writes_to_stacks(loop: Loop) -> None:
    """In a `scan`, an array that each iteration writes the next position of becomes a stack of what is written.

    The body may read positions that are not written yet: those of the array before the loop. What an iteration shortly
    before has written becomes a part of the state. An array that is read in another way stays.
    """
    for carry in list(loop.carries):
        known = progressions_of_rows(loop)
        write = _write(loop, carry, known)
        if write is None:
            continue
        readers = [node for node in loop.nodes if node is not write.node and carry.given in reads(node)]
        behind = {node: _behind(write, node, known) for node in readers}
        if all(found is not None for found in behind.values()):
            for node, count in behind.items():
                _read_otherwise(loop, carry, write, node, count or 0)
            _stack(loop, carry, write)


def _write(loop: Loop, carry: Carry, known: Progressions) -> _Write | None:
    """How a part of the state is written; None if that is not once, at the next position, with nobody reading after."""
    node = next((node for node in loop.nodes if carry.next in node.outputs), None)
    if node is None or node.op != "dynamic_update_slice" or node.inputs[0] is not carry.given:
        return None
    handed_on = [other.next for other in loop.carries if other is not carry] + [stack.row for stack in loop.stacks]
    if carry.given in node.inputs[1:] or not {carry.given, carry.next}.isdisjoint(handed_on):
        return None
    if any(carry.next in reads(other) for other in loop.nodes):
        return None
    sizes = node.inputs[1].type.shape
    places = places_of(known, carry.given, node.inputs[2:], sizes)
    axis = None if places is None else moving_axis(places, sizes)
    if places is None or axis is None or abs(places[axis].step) != 1:
        return None
    return _Write(node, axis, places, loop.reverse)


def _behind(write: _Write, node: Node, known: Progressions) -> int | None:
    """How many iterations ago what a node reads was written: 0 if it is not written yet. None if that differs."""
    if node.op != "dynamic_slice" or node.inputs[0] is not write.node.inputs[0]:
        return None
    sizes = node.attrs["slice_sizes"]
    places = places_of(known, node.inputs[0], node.inputs[1:], sizes)
    if places is None:
        return None
    along, size = write.in_time(places[write.axis]), sizes[write.axis]
    if _is_unwritten(write.along, along, size):
        return 0
    others = [axis for axis in range(len(sizes)) if axis != write.axis]
    same = all(places[axis] == write.places[axis] for axis in others) and sizes == write.update.type.shape
    lag = (write.along - along) if same else Progression(0, 1, 1)
    distance = lag.first * write.along.step
    return distance if lag.step == 0 and 0 < distance <= _MOST_BEHIND else None


def _is_unwritten(written: Progression, read: Progression, size: int) -> bool:
    """Whether the positions from `read` on are in no iteration among those written before it."""
    end = Progression(read.first + size - 1, read.step, read.count)
    if read.least > written.greatest or end.greatest < written.least:
        return True
    ahead = read - written if written.step > 0 else written - end
    return ahead.least >= 0


def _read_otherwise(loop: Loop, carry: Carry, write: _Write, node: Node, behind: int) -> None:
    """Read the array before the loop, or what an iteration before has written."""
    if not behind:
        to = {carry.given: carry.initial}
        at = loop.nodes.index(node)
        loop.nodes[at] = Node(
            node.op, (to[node.inputs[0]], *node.inputs[1:]), node.outputs, node.attrs, node.regions, node.location
        )
        return
    row = write.update
    for distance in range(1, behind + 1):
        given = Value(loop.names.fresh("before"), write.update.type)
        last = Value(loop.names.fresh("before"), write.update.type)
        loop.carries.append(Carry(_first(loop, carry, write, distance), given, row, last))
        row = given
    loop.substitute({node.output: row})


def _first(loop: Loop, carry: Carry, write: _Write, distance: int) -> Value:
    """What stands so many positions before the first that is written, or anything where no iteration asks for it."""
    starts = [at.first for at in write.places]
    extent = carry.initial.type.shape[write.axis]
    starts[write.axis] = min(max(write.along.first - distance * write.along.step, 0), extent - 1)
    limits = [start + size for start, size in zip(starts, write.update.type.shape, strict=True)]
    return loop.before("slice", carry.initial, start_indices=starts, limit_indices=limits, strides=[1] * len(starts))


def _stack(loop: Loop, carry: Carry, write: _Write) -> None:
    """Take the array out of the state; what was written is put into it at once behind the loop."""
    sizes, axis, along = write.update.type.shape, write.axis, write.places[write.axis]
    stacked = Value(loop.names.fresh("written"), TensorType((along.count, *sizes), write.update.type.dtype))
    loop.stacks.append(Stack(write.update, stacked))
    loop.nodes.remove(write.node)
    loop.carries.remove(carry)
    others = [size for other, size in enumerate(sizes) if other != axis]
    box = loop.after("reshape", stacked, shape=(along.count, *others))
    box = loop.after("transpose", box, permutation=(*range(1, axis + 1), 0, *range(axis + 1, len(sizes))))
    if along.step < 0:
        box = loop.after("reverse", box, dimensions=(axis,))
    starts = [loop.after("constant", value=_held(at.least)) for at in write.places]
    loop.after("dynamic_update_slice", carry.initial, box, *starts, output=carry.last)


def _held(number: int) -> np.ndarray[tuple[()], np.dtype[np.int64]]:
    array = np.array(number, np.int64)
    array.setflags(write=False)
    return array
