"""The frame of a loop or a branch that a driver runs: the pointers with which the programs inside find their arrays.

The programs take their arguments and leave their results where the frame points to. Between two iterations pointers
move, not data: the state that an iteration made is handed to the next one by its address, rows step from one to the
next. A part of the state alternates between two buffers, one of which is the result itself. One that is handed on for
several iterations (`before, now = now, next`) has a ring of as many buffers more; one that the body's kernels may
overwrite has a single one; one that is stacked too is read where it is stacked. What the loop starts from is never
written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from numpy.typing import NDArray

from autofuse.fusion.regionprograms import reshaped_results
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.lazydataclass import dataclass
from autofuse.lower.tile import OpaqueProgram
from autofuse.runtime.planlowering import LoweredKernel

_ALIGNMENT = 64

Home = Value | int | NDArray[Any]
"""An array of the enclosing program, an offset in the frame's own memory in bytes, or a constant."""


@dataclass(frozen=True, slots=True, eq=False)
class Pointer:
    """One pointer."""

    home: Home
    """Where it points to at first."""
    offset: int = 0
    """Bytes behind that."""
    step: int = 0
    """Bytes by which it moves after each iteration."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A result that no kernel writes: something that is returned as it is, or twice."""

    source: int
    target: int
    nbytes: int
    first: bool = False
    """Whether it is done before the program's kernels, which may overwrite the source; else after them."""


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """Pointers by number, and what happens to them."""

    kind: Literal["counted", "while", "branch"]
    """A loop with a trip count, a loop that a condition ends, or a branch."""
    pointers: tuple[Pointer, ...]
    places: tuple[Mapping[Value, int], ...]
    """For each program, the pointers to what it reads and to what it makes."""
    copies: tuple[tuple[Copy, ...], ...]
    """For each program."""
    moves: tuple[tuple[int, int], ...]
    """(to, from): after each iteration, all at once and before the steps."""
    results: tuple[Copy, ...]
    """After the last iteration, in this order, where source and target are not the same address."""
    trips: int | None
    """How often the last program runs; None where data decide."""
    flag: int | None
    """Points to a bool: whether a `while` goes on, which its second program computes; whether a branch runs its second
    program, else its third."""
    own_bytes: int


def frame_of(kernel: LoweredKernel, overwritten: frozenset[Value]) -> Frame:
    """The frame of a kernel with regions. `overwritten`: values that may take the place of the state they follow."""
    assert isinstance(kernel.program, OpaqueProgram)
    builder = _Builder(kernel, overwritten)
    match role_of(builder.node):
        case Role.BRANCH:
            return builder.branch()
        case Role.LOOP:
            return builder.loop()
        case _:
            return builder.counted()


class _Builder:
    def __init__(self, kernel: LoweredKernel, overwritten: frozenset[Value]) -> None:
        assert isinstance(kernel.program, OpaqueProgram)
        node = control_node_of(kernel.program.graph)
        self.node, self.overwritten = node, overwritten
        shapes = reshaped_results(kernel.program.graph.nodes, node)
        self.arrays = {shapes[value]: value for value in kernel.writes if value in shapes}
        """Results that are written in another shape."""
        self.written = {*kernel.writes, *self.arrays}
        self.programs = [region.program.graph for region in kernel.regions]
        self.pointers: list[Pointer] = []
        self.copies: list[list[Copy]] = [[] for _ in self.programs]
        self.places: list[dict[Value, int]] = [{} for _ in self.programs]
        self.own_bytes = 0
        self._fixed: dict[Value, int] = {}
        for value in self.programs[0].outputs:
            self._fixed[value] = self.pointer(value if value in self.written else self.own(value.type.nbytes))
        producers = kernel.program.graph.producers
        for value in (*kernel.program.graph.inputs, *node.inputs, *_captures(node)):
            if value not in self._fixed:
                maker = producers.get(value)
                self._fixed[value] = self.pointer(value if maker is None else maker.attrs["value"])
        for value in node.outputs:
            if value in self.written:
                self._fixed[value] = self.pointer(value)
        for graph, places in zip(self.programs, self.places, strict=True):
            places.update((value, self._fixed[value]) for value in graph.inputs if value in self._fixed)
        self.places[0].update((value, self._fixed[value]) for value in self.programs[0].outputs)

    def pointer(self, home: Home, offset: int = 0, step: int = 0) -> int:
        array = self.arrays.get(home, home) if isinstance(home, Value) else home
        self.pointers.append(Pointer(array, offset, step))
        return len(self.pointers) - 1

    def own(self, nbytes: int) -> int:
        begin = self.own_bytes
        self.own_bytes += max(-(-nbytes // _ALIGNMENT), 1) * _ALIGNMENT
        return begin

    def done(
        self,
        kind: Literal["counted", "while", "branch"],
        moves: Sequence[tuple[int, int]] = (),
        results: Sequence[Copy] = (),
        trips: int | None = None,
        flag: int | None = None,
    ) -> Frame:
        places, copies = tuple(self.places), tuple(map(tuple, self.copies))
        return Frame(
            kind, tuple(self.pointers), places, copies, tuple(moves), tuple(results), trips, flag, self.own_bytes
        )

    # ---- branches ------------------------------------------------------------------------------------------------

    def branch(self) -> Frame:
        for number, region in enumerate(self.node.regions, 1):
            for value, result in zip(region.outputs, self.node.outputs, strict=True):
                self._put(number, region, value, result)
        return self.done("branch", flag=self._fixed[self.node.inputs[0]])

    def _put(self, number: int, region: Graph, value: Value, result: Value) -> None:
        """Have a region's value where a result is to be, if that is wanted."""
        places, made = self.places[number], _is_made(region, value)
        target = self._fixed.get(result)
        if made and value not in places:
            places[value] = self.pointer(self.own(value.type.nbytes)) if target is None else target
        elif target is not None:
            self.copies[number].append(Copy(self._source(number, region, value), target, value.type.nbytes, not made))

    def _source(self, number: int, region: Graph, value: Value) -> int:
        """The pointer to any value that a region returns."""
        places = self.places[number]
        if value not in places:
            maker = region.producers.get(value)
            places[value] = self._fixed[value] if maker is None else self.pointer(maker.attrs["value"])
        return places[value]

    # ---- loops ---------------------------------------------------------------------------------------------------

    def loop(self) -> Frame:
        condition, body = self.node.regions
        state = self._state(condition, 1, len(self.node.inputs))
        for value, pointer in zip(body.inputs, state, strict=True):
            self.places[2][value] = pointer
        going = condition.outputs[0]
        if _is_made(condition, going):
            self.places[1][going] = self.pointer(self.own(1))
        flag = self._source(1, condition, going)
        moves, results = self._handed_on(body, 2, state, None)
        return self.done("while", moves, results, None, flag)

    def counted(self) -> Frame:
        (body,) = self.node.regions
        count, trips = self.node.attrs["carries"], self.node.attrs["length"]
        state = self._state(body, 1, count)
        for value, operand in zip(body.inputs[count:], self.node.inputs[count:], strict=True):
            first = self.pointers[self._fixed[operand]]
            self.places[1][value] = self._rows(first.home, value.type.nbytes, trips)
        for value, result in zip(body.outputs[count:], self.node.outputs[count:], strict=True):
            if result in self.written:
                self._put_row(body, value, result, trips)
        moves, results = self._handed_on(body, 1, state, trips)
        for value in self.programs[1].outputs:
            if value not in self.places[1]:  # a row that nobody wants
                self.places[1][value] = self.pointer(self.own(value.type.nbytes))
        return self.done("counted", moves, results, trips)

    def _state(self, region: Graph, number: int, count: int) -> list[int]:
        """Pointers to the parts of the state, which begin at what the loop starts from."""
        found = [self.pointer(self.pointers[self._fixed[value]].home) for value in self.node.inputs[:count]]
        self.places[number].update(zip(region.inputs[:count], found, strict=True))
        return found

    def _rows(self, home: Home, nbytes: int, trips: int) -> int:
        """A pointer to the rows of an array, one after the other."""
        back = self.node.attrs["reverse"]
        return self.pointer(home, (trips - 1) * nbytes if back else 0, -nbytes if back else nbytes)

    def _put_row(self, body: Graph, value: Value, result: Value, trips: int) -> None:
        nbytes, places, made = value.type.nbytes, self.places[1], _is_made(body, value)
        rows = self._rows(result, nbytes, trips)
        if made and value not in places:
            places[value] = rows
        else:
            self.copies[1].append(Copy(self._source(1, body, value), rows, nbytes, not made))

    def _handed_on(
        self, body: Graph, number: int, state: list[int], trips: int | None
    ) -> tuple[list[tuple[int, int]], list[Copy]]:
        """How the state moves from one iteration to the next, and at last into the results."""
        after = body.outputs[: len(state)]
        place = {value: part for part, value in enumerate(body.inputs[: len(state)])}
        moves: list[tuple[int, int]] = []
        delays = [0] * len(state)
        for value in dict.fromkeys(after):
            if _is_made(body, value) and value not in self.places[number]:
                levels = _levels(after, place, value)
                for delay, parts in enumerate(levels, 1):
                    for part in parts:
                        delays[part] = delay
                ring = self._ring(value, levels, trips)
                self.places[number][value] = ring[0]
                moves += [pair for pair in zip(ring, (*ring[1:], ring[0]), strict=True) if pair[0] != pair[1]]
        for part, value in enumerate(after):
            source = self._source(number, body, value)
            if source != state[part]:
                moves.append((state[part], source))
        # who reads a ring longest is copied first: the buffers of a ring are results of those that read it first
        results = [
            Copy(state[part], self._fixed[result], result.type.nbytes)
            for part, result in sorted(enumerate(self.node.outputs[: len(state)]), key=lambda p: -delays[p[0]])
            if result in self.written
        ]
        return moves, results

    def _ring(self, value: Value, levels: Sequence[Sequence[int]], trips: int | None) -> list[int]:
        """Pointers to the buffers that iterations write a next state to in turn, the first one first.

        `levels`: the parts of the state that it is for one iteration, two, ... Its size is known, so are the last ones
        that are written: they are the results.
        """
        size = 1 if value in self.overwritten and len(levels) == 1 else len(levels) + 1
        homes: dict[int, Home] = {}
        for delay, parts in enumerate(levels, 1):
            if trips is None and delay > 1:
                break
            turn = 0 if trips is None else trips - delay
            wanted = [self.node.outputs[part] for part in parts if self.node.outputs[part] in self.written]
            if turn >= 0 and wanted:
                homes[turn % size] = wanted[0]
        return [self.pointer(homes[turn] if turn in homes else self.own(value.type.nbytes)) for turn in range(size)]


def control_node_of(graph: Graph) -> Node:
    """The loop or branch of the graph of a kernel that is one."""
    return next(node for node in graph.nodes if role_of(node).is_control)


def _captures(node: Node) -> list[Value]:
    return [value for region in node.regions for value in region.captures]


def _is_made(region: Graph, value: Value) -> bool:
    """Whether a kernel computes it."""
    return value in region.producers and role_of(region.producers[value]) is not Role.CONSTANT


def _levels(after: Sequence[Value], place: Mapping[Value, int], value: Value) -> list[list[int]]:
    """The parts of the state that are `value` in the next iteration, those that get it from them, and so on."""
    found = [[part for part, made in enumerate(after) if made is value]]
    while found[-1]:
        found.append([part for part, made in enumerate(after) if place.get(made) in found[-1]])
    return found[:-1]
