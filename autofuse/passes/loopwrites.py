"""Arrays that a loop writes position by position leave its state: what it writes is stacked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autofuse.ir.graph import Node, Value
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass, replace
from autofuse.passes.loopediting import Carry, Loop, Stack, reads
from autofuse.passes.loopinvariants import Invariants
from autofuse.passes.looprows import Place, Places, held, moving_axis, sizes_of
from autofuse.passes.progressions import Progression

_MOST_BEHIND = 8
"""What was written up to so many iterations ago is handed on in the state; what is further back, read in the array."""


@dataclass(frozen=True, slots=True)
class _Write:
    """One position along an axis, the next in each iteration."""

    node: Node
    axis: int
    along: Progression
    """Its positions, by rows."""
    places: Sequence[Place]
    """Where the update starts along each axis."""
    same: Invariants
    reverse: bool
    """Whether the last row is written first."""

    @property
    def update(self) -> Value:
        return self.node.inputs[1]

    def in_time(self, progression: Progression) -> Progression:
        """From by rows to by iterations."""
        return progression.turned() if self.reverse else progression


def writes_to_stacks(loop: Loop) -> None:
    """In a `scan`, an array that each iteration writes the next position of becomes a stack of what is written.

    The body may read positions that are not written yet: those of the array before the loop. What an iteration shortly
    before has written becomes a part of the state. An array that is read in another way stays.
    """
    for carry in list(loop.carries):
        places = Places(loop)
        write = _write(loop, carry, places)
        if write is None:
            continue
        readers = [node for node in loop.nodes if node is not write.node and carry.given in reads(node)]
        behind = {node: _behind(write, node, places) for node in readers}
        if all(found is not None for found in behind.values()):
            for node, count in behind.items():
                _read_otherwise(loop, carry, write, node, count or 0)
            _stack(loop, carry, write)


def _write(loop: Loop, carry: Carry, places: Places) -> _Write | None:
    """How a part of the state is written; None if that is not once, at the next position, with nobody reading after."""
    node = next((node for node in loop.nodes if carry.next in node.outputs), None)
    if node is None or node.op != "dynamic_update_slice" or node.inputs[0] is not carry.given:
        return None
    handed_on = [other.next for other in loop.carries if other is not carry] + [stack.row for stack in loop.stacks]
    if carry.given in node.inputs[1:] or not {carry.given, carry.next}.isdisjoint(handed_on):
        return None
    if any(carry.next in reads(other) for other in loop.nodes):
        return None
    found = places.of(node)
    axis = None if found is None else moving_axis(found, sizes_of(node))
    if found is None or axis is None:
        return None
    along = found[axis]
    assert isinstance(along, Progression)
    return _Write(node, axis, along, found, places.same, loop.reverse) if abs(along.step) == 1 else None


def _behind(write: _Write, node: Node, places: Places) -> int | None:
    """How many iterations ago what a node reads was written: 0 if it is not written yet. None if that differs."""
    if node.op not in ("dynamic_slice", "slice") or node.inputs[0] is not write.node.inputs[0]:
        return None
    found, sizes = places.of(node), sizes_of(node)
    if found is None:
        return None
    others = [axis for axis in range(len(sizes)) if axis != write.axis]
    if any(_is_apart(found[axis], sizes[axis], write, axis) for axis in others):
        return 0
    along = found[write.axis]
    if not isinstance(along, Progression):
        return None
    written, read = write.in_time(write.along), write.in_time(replace(along, count=write.along.count))
    if _is_unwritten(written, read, sizes[write.axis]):
        return 0
    same = all(found[axis] == write.places[axis] for axis in others) and tuple(sizes) == write.update.type.shape
    lag = written - read
    distance = lag.first * written.step
    return distance if same and lag.step == 0 and 0 < distance <= _MOST_BEHIND else None


def _is_apart(place: Place, size: int, write: _Write, axis: int) -> bool:
    """Whether what is read and what is written have no position along an axis in common."""
    other, written = write.places[axis], write.update.type.shape[axis]
    if not (isinstance(place, Progression) and isinstance(other, Progression)):
        return False
    return place.greatest + size <= other.least or other.greatest + written <= place.least


def _is_unwritten(written: Progression, read: Progression, size: int) -> bool:
    """Whether the positions from `read` on are in no iteration among those written before it."""
    end = replace(read, first=read.first + size - 1)
    if read.least > written.greatest or end.greatest < written.least:
        return True
    ahead = read - written if written.step > 0 else written - end
    return ahead.least >= 0


def _read_otherwise(loop: Loop, carry: Carry, write: _Write, node: Node, behind: int) -> None:
    """Read the array before the loop, or what an iteration before has written."""
    if not behind:
        before = replace(node, inputs=(carry.initial, *node.inputs[1:]))
        loop.nodes[loop.nodes.index(node)] = before
        return
    row = write.update
    for distance in range(1, behind + 1):
        given, last = (Value(loop.names.fresh("before"), write.update.type) for _ in range(2))
        loop.carries.append(Carry(_first(loop, carry, write, distance), given, row, last))
        row = given
    loop.substitute({node.output: row})


def _first(loop: Loop, carry: Carry, write: _Write, distance: int) -> Value:
    """What stands so many positions before the first that is written, or anything where no iteration asks for it."""
    written = write.in_time(write.along)
    most = carry.initial.type.shape[write.axis] - 1
    at = min(max(written.first - distance * written.step, 0), most)
    starts = _starts(loop.before, write, at)
    return loop.before("dynamic_slice", carry.initial, *starts, slice_sizes=write.update.type.shape)


def _stack(loop: Loop, carry: Carry, write: _Write) -> None:
    """Take the array out of the state; what was written is put into it at once behind the loop."""
    sizes, axis, along = write.update.type.shape, write.axis, write.along
    others = tuple(size for other, size in enumerate(sizes) if other != axis)
    row = _before_reshape(loop, write.update, others)
    box = Value(loop.names.fresh("written"), TensorType((along.count, *row.type.shape), row.type.dtype))
    loop.stacks.append(Stack(row, box))
    loop.nodes.remove(write.node)
    loop.carries.remove(carry)
    if row.type.shape != others:
        box = loop.after("reshape", box, shape=(along.count, *others))
    box = loop.after("transpose", box, permutation=(*range(1, axis + 1), 0, *range(axis + 1, len(sizes))))
    if along.step < 0:
        box = loop.after("reverse", box, dimensions=(axis,))
    starts = _starts(loop.after, write, along.least)
    loop.after("dynamic_update_slice", carry.initial, box, *starts, output=carry.last)


def _before_reshape(loop: Loop, update: Value, shape: tuple[int, ...]) -> Value:
    """What an update is made of, if that has this shape: its stack is not reshaped behind the loop."""
    for node in loop.nodes:
        if update in node.outputs and node.op == "reshape" and node.inputs[0].type.shape == shape:
            return node.inputs[0]
    return update


def _starts(emit: Callable[..., Value], write: _Write, along: int) -> Sequence[Value]:
    """Where the update starts along each axis, if it starts at `along` on the one that it moves along."""
    places = [Progression(along, 0, 1) if axis == write.axis else at for axis, at in enumerate(write.places)]
    held_ = [at.first if isinstance(at, Progression) else at for at in places]
    return [emit("constant", value=held(at)) if isinstance(at, int) else write.same.outside(at) for at in held_]
