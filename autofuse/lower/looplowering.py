"""How a loop inside a kernel is lowered: a stage that walks its iterations, and hands its state on in registers.

What is stored of a result is asked for element by element: that asks the body, which asks for elements of the state
at the start of the iteration, and each of those for what the next iteration gets. Elements that nobody asks for vanish,
and with them stacks of columns and slices of those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from autofuse.errors import LegalityError
from autofuse.fusion.conditions import ending
from autofuse.fusion.nodeaxes import loop_nodes
from autofuse.ir import dtypes, index
from autofuse.ir.graph import Node, Value
from autofuse.ir.index import Affine, Symbol
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.ir.pieces import Condition
from autofuse.lower.bodies import chosen, unrolled
from autofuse.lower.looptree import (
    Loop,
    counted_by,
    hands_on,
    is_done,
    is_reversed,
    iterates,
    loop_trees,
    row,
    sections,
    starts,
    walked,
)
from autofuse.lower.phasedrafts import Demand, Instance, Resting, StageDraft, Wanted
from autofuse.lower.phaseframe import PhaseFrame
from autofuse.lower.statelowering import InMemoryState
from autofuse.lower.statements import Carry, Leave, Next, Repeat, Scalar, Store

MOST_KEPT = 1024
"""Most rows, of one element each, of a loop in a body that are kept on chip for what follows it there."""


class Rows(NamedTuple):
    """Where rows of loops with loops in their bodies are made."""

    symbols: tuple[Symbol, ...]
    """What the stage walks."""
    numbers: Mapping[Symbol, Affine]
    """By the symbol of the axis that counts a loop's rows, which row it is."""
    conditions: tuple[Condition, ...]
    """When it is made."""


class _Used(NamedTuple):
    """A result of a loop that a value is made of."""

    loop: Loop
    row: Value | None
    """Of a stack, what an iteration makes of it."""
    is_own: bool
    """Whether an element of the value is made of the row at its own place."""


class LoopBuilder:
    """Lowers loops. It asks for elements by yielding requests; the phase comes with each call."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        loops = [loop for whole in loop_trees(nodes) for loop in whole.all()]
        self._loops = {loop.node.outputs[0]: loop for loop in loops}
        self._by_result = {v: loop for loop in loops for v in loop.node.outputs}
        self._given = {
            v: (loop, number)
            for loop in self._loops.values()
            for region in loop.node.regions
            for number, v in enumerate(region.inputs)
        }
        self._state = InMemoryState(loops)
        inside = [node for loop in self._loops.values() for node in loop_nodes(loop.node)]
        self._inside = {value for node in inside for value in node.outputs}

    def __bool__(self) -> bool:
        return bool(self._loops)

    def times(self, frame: PhaseFrame) -> frozenset[Symbol]:
        """The symbols that walk iterations of the loops in no other's body."""
        return frozenset(walked(frame, loop)[0] for loop in self._loops.values() if loop.outer is None)

    def is_inside(self, value: Value) -> bool:
        """Whether a body makes a value."""
        return value in self._inside

    def held(
        self, frame: PhaseFrame, stage: StageDraft, value: Value, at: tuple[Affine, ...], guard: Scalar | None
    ) -> Demand[Scalar | None]:
        """What has to do with a loop: its results, what an iteration gets, what a body unrolls. None for all else."""
        if value in self._state.versions:
            home = self._home(frame, self._state.versions[value].whole)
            return self._state.load(frame, home, Wanted(stage, value, at, guard))
        if value in self._given:
            return (yield from self._given_at(frame, stage, value, at, guard))
        if value in self._by_result:
            return (yield from self._result(frame, Wanted(stage, value, at, guard)))
        if value not in self._inside:  # what is read under a condition may not exist without it
            return (yield from self._captured(frame, stage, (value, at))) if guard is None else None
        node = frame.producers[value]
        match role_of(node):
            case Role.REDUCE | Role.DOT:
                return (yield from unrolled(frame, stage, node, at, guard))
            case Role.BRANCH:
                return (yield from chosen(frame, stage, node, (value, at), guard))
            case _:
                return None

    def is_in_memory(self, value: Value) -> bool:
        """Whether a loop keeps that in memory, and stores it there."""
        return value in self._state.versions

    def in_memory(self) -> list[tuple[Value, Value]]:
        """What lies in memory behind each loop, and what it starts from."""
        return self._state.results()

    def update(self, frame: PhaseFrame, value: Value) -> Demand[None]:
        """All stores of a result that lies in memory."""
        whole = self._state.versions[value].whole
        home = self._home(frame, whole)
        if frame.grid_set or value not in whole.node.outputs:
            raise LegalityError(f"%{value.name} is kept in memory by one worker, which elements of a grid would share")
        for loop in whole.all():
            if loop.is_while and not loop.is_draining:
                yield from self._drain(frame, loop)
        yield from self._state.updates(frame, home, value)
        while waiting := [loop for loop in whole.all() if loop.waiting and not loop.is_draining]:
            for loop in waiting:
                yield from self._drain(frame, loop)

    # ---- results ------------------------------------------------------------------------------------------------

    def _result(self, frame: PhaseFrame, wanted: Wanted) -> Demand[Scalar]:
        """What a loop makes: the state after the last iteration, or a row of this one."""
        stage, value, at, guard = wanted
        loop = self._by_result[value]
        number = loop.node.outputs.index(value)
        body, home = loop.body, self._home(frame, loop)
        if number < loop.parts:
            if frame.row_group(home.level) != frame.row_group(stage.level):
                raise LegalityError(f"%{value.name} is made by a loop in another group of rows")
            scalar = yield from self._carried(frame, loop, (body.inputs[number], at))
            loop.results.add(scalar)
        elif stage is not home:
            raise LegalityError(f"%{value.name} is read in another loop than the one that makes it")
        elif at[0] == row(frame, loop):
            scalar = yield Wanted(home, body.outputs[number], at[1:], guard)
        elif loop.outer is not None:
            scalar = yield from self._kept_row(frame, loop, wanted)
        else:
            raise LegalityError(f"%{value.name} is read in another iteration than the one that makes it")
        if not loop.is_draining:
            yield from self._drain(frame, loop)
        return scalar

    def _kept_row(self, frame: PhaseFrame, loop: Loop, wanted: Wanted) -> Demand[Scalar]:
        """A row that what follows the loop in its body reads: all of its rows are kept in scratch."""
        stage, value, at, guard = wanted
        length, dtype, instance = loop.node.attrs["length"], value.type.dtype, (value, at[1:])
        if length > MOST_KEPT or not frame.is_grid_only(at[1:]):
            raise LegalityError(
                f"%{value.name} is stacked by a loop and read in the body around it: more than {MOST_KEPT} "
                "elements, or elements at changing places, are not kept on chip"
            )
        if instance not in loop.kept:
            made = yield Wanted(stage, loop.body.outputs[loop.node.outputs.index(value)], at[1:], None)
            ends = frame.test(stage, hands_on(frame, loop))
            loop.kept[instance] = frame.scratch(value.name, dtype, length)
            place = frame.row_offset(length) + row(frame, loop)
            stage.body.append(Store(loop.kept[instance], place, made, ends))
        done = frame.both(stage, guard, frame.test(stage, is_done(frame, loop)))
        return frame.load_at(stage, loop.kept[instance], dtype, frame.row_offset(length) + at[0], done)

    def _drain(self, frame: PhaseFrame, loop: Loop) -> Demand[None]:
        """Lower what the next iteration gets of the elements asked for, until it asks for no new one."""
        loop.is_draining = True
        home, body = self._home(frame, loop), loop.body
        if loop.is_while and loop.settled is None:
            yield from self._end(frame, loop)
        following: list[Next] = []
        while loop.waiting:
            given, at = loop.waiting.pop(0)
            carry = loop.carries[given, at]
            scalar = yield Wanted(home, body.outputs[body.inputs.index(given)], at, None)
            loop.following[carry] = scalar
            if loop.whole.inner:
                scalar = yield from self._in_its_place(frame, loop, (given, at), scalar)
            following.append(Next(carry, scalar))
        home.body += following
        loop.is_draining = False

    def _in_its_place(self, frame: PhaseFrame, loop: Loop, instance: Instance, new: Scalar) -> Demand[Scalar]:
        """What a carry gets in a stage that walks several loops: `new` where the loop's iterations end."""
        (given, at), home, dtype = instance, self._home(frame, loop), instance[0].type.dtype
        carry = loop.carries[instance]
        if loop.outer is not None and loop.settled is not None:
            new = frame.map(home, dtype, "select", loop.settled, carry, new)
        ends = frame.test(home, hands_on(frame, loop))
        assert ends is not None
        new = frame.map(home, dtype, "select", ends, new, carry)
        if loop.outer is None:
            return new
        first = yield Wanted(home, loop.node.inputs[loop.body.inputs.index(given)], at, None)
        begins = frame.test(home, starts(frame, loop))
        assert begins is not None
        return frame.map(home, dtype, "select", begins, first, new)

    def _end(self, frame: PhaseFrame, loop: Loop) -> Demand[None]:
        """What ends a `while`: the stage is left, or where it stands in a body, its iterations are not repeated."""
        home = self._home(frame, loop)
        settled = loop.settled = yield from self._settled(frame, loop)
        if loop.outer is None:
            home.body.append(Leave(settled, required=True))
            return
        for condition, truth in loop.taken:  # on the other side of a branch it may have no end
            holds = yield Wanted(home, condition, (), None)
            idle = frame.map(home, dtypes.BOOL, "not", holds) if truth else holds
            settled = frame.map(home, dtypes.BOOL, "or", settled, idle)
        loop.settled = settled
        where = frame.test(home, iterates(frame, loop))
        assert where is not None
        home.body.append(Repeat(walked(frame, loop)[loop.depth], where, settled))

    def _settled(self, frame: PhaseFrame, loop: Loop) -> Demand[Scalar]:
        """Whether the condition of a `while` does not hold at a point: all of its terms, one of which may be of any.

        That one is asked of the elements of the point, which must not change any more where it is false.
        """
        home, asked = self._home(frame, loop), ending(loop.node)
        if asked is None or frame.grid_set.isdisjoint(_symbols(frame.index_of(asked.reduction.inputs[0]))):
            holds = yield Wanted(home, loop.node.regions[0].outputs[0], (), None)
            return frame.map(home, dtypes.BOOL, "not", holds)
        moving: Scalar | None = None
        for at in frame.places_held(asked.reduction.inputs[0]):
            moves = yield from _all_hold(frame, home, [(value, asked.truth) for value in asked.elements], at)
            moving = moves if moving is None else frame.map(home, dtypes.BOOL, "or", moving, moves)
        assert moving is not None
        home.resting.append(Resting(moving, loop.following, loop.results))
        holds = moving
        if asked.others:
            others = yield from _all_hold(frame, home, asked.others, ())
            holds = frame.map(home, dtypes.BOOL, "and", holds, others)
        return frame.map(home, dtypes.BOOL, "not", holds)

    # ---- what an iteration gets ----------------------------------------------------------------------------------

    def _given_at(
        self, frame: PhaseFrame, stage: StageDraft, value: Value, at: tuple[Affine, ...], guard: Scalar | None
    ) -> Demand[Scalar]:
        """An element of the state at the start of the iteration, or of the row that comes in."""
        loop, number = self._given[value]
        if number < loop.parts:
            return (yield from self._carried(frame, loop, (loop.body.inputs[number], at)))
        if loop.outer is not None:  # elsewhere there is no such row
            guard = frame.both(stage, guard, frame.test(stage, iterates(frame, loop)))
        return (yield Wanted(stage, loop.node.inputs[number], (row(frame, loop), *at), guard))

    def _carried(self, frame: PhaseFrame, loop: Loop, instance: Instance) -> Demand[Scalar]:
        if instance in loop.carries:
            return loop.carries[instance]
        value, at = instance
        self._check_place(frame, loop, value, at)
        home, dtype = self._home(frame, loop), value.type.dtype
        if loop.outer is not None:  # it starts where the loop does
            start = frame.constant(self._first_stage(home), dtype, False if dtype.kind == "bool" else 0)
        else:
            start = yield from self._before(frame, loop, loop.node.inputs[loop.body.inputs.index(value)], at)
        loop.carries[instance] = self._new(frame, loop, value, start)
        loop.waiting.append(instance)
        return loop.carries[instance]

    def _new(self, frame: PhaseFrame, loop: Loop, value: Value, start: Scalar) -> Scalar:
        dtype, home, reverse = value.type.dtype, self._home(frame, loop), is_reversed(loop)
        if any(isinstance(s, Carry) and s.reverse != reverse for s in home.body):
            raise LegalityError(f"{loop.node.op} %{loop.node.name} runs the other way than a loop over the same rows")
        result = frame.draft.scalar(dtype)
        home.body.append(Carry(result, dtype, start, reverse))
        return result

    def _check_place(self, frame: PhaseFrame, loop: Loop, value: Value, at: tuple[Affine, ...]) -> None:
        """Along the grid an iteration reads the state at its own position; elsewhere, at one that is known."""
        own = frame.index_of(value)
        for position, usual in zip(at, own, strict=True):
            if position != usual and not (position.is_constant and not index.symbols_of(usual) & frame.grid_set):
                raise LegalityError(
                    f"%{value.name} is read at another position than its own in {loop.node.op} %{loop.node.name}: "
                    "iterations of neighbours depend on one another"
                )
            if not (index.symbols_of(position) <= frame.grid_set):
                raise LegalityError(f"%{value.name} is read at all positions of an axis: it is not kept whole")

    def _captured(self, frame: PhaseFrame, stage: StageDraft, instance: Instance) -> Demand[Scalar | None]:
        """A value of the enclosing graph that is the same in all iterations, computed before; None if it is cheap."""
        loops = (loop for loop in self._loops.values() if loop.outer is None)
        loop = next((loop for loop in loops if stage is self._home(frame, loop)), None)
        value, at = instance
        if loop is None or not frame.is_grid_only(at):
            return None
        if value in frame.producers and role_of(frame.producers[value]).is_leaf:
            return None
        if instance not in loop.constant:
            start = yield from self._before(frame, loop, value, at)
            loop.constant[instance] = self._new(frame, loop, value, start)
        return loop.constant[instance]

    def _before(self, frame: PhaseFrame, loop: Loop, value: Value, at: tuple[Affine, ...]) -> Demand[Scalar]:
        """A value that is computed once, before the first iteration."""
        return (yield Wanted(self._first_stage(self._home(frame, loop)), value, at, None))

    @staticmethod
    def _first_stage(home: StageDraft) -> StageDraft:
        """What is done before a loop's first iteration."""
        if home.before is None:
            home.before = StageDraft(home.level - 1, False, ())
        return home.before

    # ---- the loop's stage ----------------------------------------------------------------------------------------

    def _home(self, frame: PhaseFrame, loop: Loop) -> StageDraft:
        """The stage of a loop, and of those around and inside of it."""
        home = frame.draft.stage(self._level(frame, loop.whole), walked(frame, loop))
        if loop.whole.inner and not home.sections:
            home.sections, home.in_order = sections(frame, loop), True
        return home

    def rows(self, frame: PhaseFrame, value: Value) -> Rows | None:
        """Where rows are made that a value is of; None if no loop with loops in its body makes them.

        Raises LegalityError where no iteration has all that it takes.
        """
        walking, used = set(frame.stream_symbols(value)), self._used(frame, [value])
        makers = {one.loop for one in used if one.row is not None and one.loop.outer is None}
        if not any(loop.inner for loop in makers):
            return None
        chain: list[Loop] = []
        while makers:
            if len(makers) > 1:
                raise LegalityError(f"%{value.name} is made of rows of several loops, which no iteration has together")
            (loop,) = makers
            chain.append(loop)
            rows = [one.row for one in used if one.loop is loop and one.row is not None]
            used = [one for one in self._used(frame, rows) if one.loop.outer is loop]
            makers = {one.loop for one in used if one.row is not None and counted_by(frame, one.loop) in walking}
            for one in used:
                if any(one.loop.start > m.start or (one.loop is m and not one.is_own) for m in makers):
                    raise LegalityError(f"%{value.name} is of rows, and of what is made once all of them are")
        numbers = {symbol: row(frame, loop) for loop in chain if (symbol := counted_by(frame, loop)) is not None}
        return Rows(walked(frame, chain[0]), numbers, hands_on(frame, chain[-1]))

    def _used(self, frame: PhaseFrame, values: Sequence[Value]) -> list[_Used]:
        """What values are made of that loops make."""
        found: list[_Used] = []
        seen, todo = set[tuple[Value, bool]](), [(value, True) for value in values]
        while todo:
            value, plain = todo.pop()
            if (value, plain) in seen:
                continue
            seen.add((value, plain))
            loop, node = self._by_result.get(value), frame.producers.get(value)
            if loop is not None:
                number = loop.node.outputs.index(value)
                is_row = number >= loop.parts
                found.append(_Used(loop, loop.body.outputs[number] if is_row else None, plain and is_row))
            elif node is not None:
                plain = plain and role_of(node) is Role.ELEMENTWISE
                todo += [(v, plain) for v in (*node.inputs, *(v for side in node.regions for v in side.outputs))]
        return found

    @staticmethod
    def _level(frame: PhaseFrame, loop: Loop) -> int:
        return frame.levels[next(iter((*loop.body.inputs, *loop.node.outputs)))]  # without inputs, a stack's


def _all_hold(
    frame: PhaseFrame, stage: StageDraft, terms: Sequence[tuple[Value, bool]], at: tuple[Affine, ...]
) -> Demand[Scalar]:
    """Whether each value is at a place what stands beside it."""
    whole: Scalar | None = None
    for value, truth in terms:
        scalar = yield Wanted(stage, value, at, None)
        if not truth:
            scalar = frame.map(stage, dtypes.BOOL, "not", scalar)
        whole = scalar if whole is None else frame.map(stage, dtypes.BOOL, "and", whole, scalar)
    assert whole is not None
    return whole


def _symbols(at: Sequence[Affine]) -> frozenset[Symbol]:
    return frozenset(symbol for position in at for symbol in index.symbols_of(position))
