"""How a loop inside a kernel is lowered: a stage that walks its iterations, and hands its state on in registers.

What is stored of a result is asked for element by element: that asks the body, which asks for elements of the state
at the start of the iteration, and each of those for what the next iteration gets. Elements that nobody asks for vanish,
and with them stacks of columns and slices of those.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from autofuse.errors import LegalityError
from autofuse.fusion.conditions import ending
from autofuse.fusion.loops import MAX_HELD
from autofuse.fusion.nodeaxes import body_of, dot_axes, is_loop, loop_inside, loop_nodes, parts_of_state, reduced_axes
from autofuse.ir import dtypes, index
from autofuse.ir.combiners import combiner_identity
from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.index import Affine, Symbol
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.ir.pieces import Condition
from autofuse.lazydataclass import dataclass, field
from autofuse.lower.phasedrafts import Demand, Instance, StageDraft, Wanted
from autofuse.lower.phaseframe import PhaseFrame
from autofuse.lower.reducing import BOOL_COMBINERS
from autofuse.lower.tile import Carry, Leave, Next, Scalar

GUESSED_TRIPS = 32
"""Iterations of a loop whose number only data know."""


@dataclass(eq=False)
class _Loop:
    """A loop that is being lowered."""

    node: Node
    time: Symbol | None = None
    carries: dict[Instance, Scalar] = field(default_factory=dict[Instance, Scalar])
    """Elements of the state that the body reads."""
    outer: _Loop | None = None
    """The loop in whose body it stands."""
    inner: _Loop | None = None
    """The loop in its body."""
    starts: dict[Instance, Scalar] = field(default_factory=dict[Instance, Scalar])
    """Of a loop in a body: what an iteration gets, which in the first one is what the body makes of it."""
    waiting: list[Instance] = field(default_factory=list[Instance])
    """Those whose value in the next iteration is not lowered yet."""
    constant: dict[Instance, Scalar] = field(default_factory=dict[Instance, Scalar])
    """Values of the enclosing graph, computed once before the loop."""
    is_draining: bool = False
    has_end: bool = False
    """Whether its condition is lowered."""

    @property
    def body(self) -> Graph:
        return body_of(self.node)

    @property
    def parts(self) -> int:
        """Of the state."""
        return parts_of_state(self.node)


class LoopBuilder:
    """Lowers loops. It asks for elements by yielding requests; the phase comes with each call."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        loops = [_Loop(node) for node in nodes if is_loop(node)]
        for loop in tuple(loops):
            nested = loop_inside(loop.node)
            if nested is not None:
                loop.inner = _Loop(nested, outer=loop)
                loops.append(loop.inner)
        self._loops = {loop.node.outputs[0]: loop for loop in loops}
        self._by_result = {v: loop for loop in loops for v in loop.node.outputs}
        self._given = {
            v: (loop, number)
            for loop in self._loops.values()
            for region in loop.node.regions
            for number, v in enumerate(region.inputs)
        }
        inside = [node for loop in self._loops.values() for node in loop_nodes(loop.node)]
        self._inside = {value for node in inside for value in node.outputs}

    def __bool__(self) -> bool:
        return bool(self._loops)

    def times(self, frame: PhaseFrame) -> frozenset[Symbol]:
        """The symbols that walk iterations."""
        return frozenset(self._time(frame, loop) for loop in self._loops.values())

    def is_inside(self, value: Value) -> bool:
        """Whether a body makes a value."""
        return value in self._inside

    def held(
        self, frame: PhaseFrame, stage: StageDraft, value: Value, at: tuple[Affine, ...], guard: Scalar | None
    ) -> Demand[Scalar | None]:
        """What has to do with a loop: its results, what an iteration gets, what a body unrolls. None for all else."""
        if value in self._given:
            return (yield from self._given_at(frame, stage, value, at, guard))
        if value in self._by_result:
            return (yield from self._result(frame, Wanted(stage, value, at, guard)))
        if value not in self._inside:  # what is read under a condition may not exist without it
            return (yield from self._captured(frame, stage, (value, at))) if guard is None else None
        node = frame.producers[value]
        match role_of(node):
            case Role.REDUCE | Role.DOT:
                return (yield from _unrolled(frame, stage, node, at, guard))
            case Role.BRANCH:
                return (yield from _chosen(frame, stage, node, (value, at), guard))
            case _:
                return None

    # ---- results ------------------------------------------------------------------------------------------------

    def _result(self, frame: PhaseFrame, wanted: Wanted) -> Demand[Scalar]:
        """What a loop makes: the state after the last iteration, or a row of this one."""
        stage, value, at, guard = wanted
        loop = self._by_result[value]
        number = loop.node.outputs.index(value)
        body, home = loop.body, self._home(frame, loop)
        if number < loop.parts and loop.outer is not None:
            scalar = yield Wanted(home, body.outputs[number], at, guard)
        elif number < loop.parts:
            if frame.row_group(home.level) != frame.row_group(stage.level):
                raise LegalityError(f"%{value.name} is made by a loop in another group of rows")
            scalar = yield from self._carried(frame, loop, (body.inputs[number], at))
        elif stage is not home:
            raise LegalityError(f"%{value.name} is read in another loop than the one that makes it")
        else:
            if at[0] != index.of(self._time(frame, loop)):
                raise LegalityError(f"%{value.name} is read in another iteration than the one that makes it")
            scalar = yield Wanted(home, body.outputs[number], at[1:], guard)
        if not loop.is_draining:
            yield from self._drain(frame, loop)
        return scalar

    def _drain(self, frame: PhaseFrame, loop: _Loop) -> Demand[None]:
        """Lower what the next iteration gets of the elements asked for, until it asks for no new one."""
        loop.is_draining = True
        home, body = self._home(frame, loop), loop.body
        if role_of(loop.node) is Role.LOOP and not loop.has_end:
            loop.has_end = True
            settled = yield from self._settled(frame, loop)
            home.body.append(Leave(settled, required=True))
        following: list[Next] = []
        while loop.waiting:
            given, at = loop.waiting.pop(0)
            value = body.outputs[body.inputs.index(given)]
            scalar = yield Wanted(home, value, at, None)
            carry = loop.carries[given, at]
            if loop.inner is not None:
                last = self._at_end(frame, loop.inner, first=False)
                scalar = frame.map(home, given.type.dtype, "select", last, scalar, carry)
            following.append(Next(carry, scalar))
        home.body += following
        loop.is_draining = False

    def _settled(self, frame: PhaseFrame, loop: _Loop) -> Demand[Scalar]:
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
        home.moving = holds = moving
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
        where = (index.of(self._time(frame, loop)), *at)
        return (yield Wanted(stage, loop.node.inputs[number], where, guard))

    def _carried(self, frame: PhaseFrame, loop: _Loop, instance: Instance) -> Demand[Scalar]:
        known = loop.carries if loop.outer is None else loop.starts
        if instance in known:
            return known[instance]
        value, at = instance
        self._check_place(frame, loop, value, at)
        initial = loop.node.inputs[loop.body.inputs.index(value)]
        if loop.outer is not None:
            return (yield from self._started(frame, loop, instance, initial))
        start = yield from self._before(frame, loop, initial, at)
        loop.carries[instance] = self._new(frame, loop, value, start)
        loop.waiting.append(instance)
        return loop.carries[instance]

    def _started(self, frame: PhaseFrame, loop: _Loop, instance: Instance, initial: Value) -> Demand[Scalar]:
        """What an iteration of a loop in a body gets: the first one, what the body makes of it each time."""
        value, at = instance
        home, dtype = self._home(frame, loop), value.type.dtype
        begun = yield Wanted(home, initial, at, None)
        none_yet = frame.constant(self._first_stage(home), dtype, False if dtype.kind == "bool" else 0)
        carry = loop.carries[instance] = self._new(frame, loop, value, none_yet)
        first = self._at_end(frame, loop, first=True)
        loop.starts[instance] = frame.map(home, dtype, "select", first, begun, carry)
        loop.waiting.append(instance)
        return loop.starts[instance]

    def _at_end(self, frame: PhaseFrame, loop: _Loop, *, first: bool) -> Scalar:
        """Whether it is the first or the last iteration of a loop in a body."""
        time = self._time(frame, loop)
        place = 0 if first != loop.node.attrs["reverse"] else time.extent - 1
        found = frame.test(self._home(frame, loop), (Condition(index.of(time), place, place + 1),))
        assert found is not None
        return found

    def _new(self, frame: PhaseFrame, loop: _Loop, value: Value, start: Scalar) -> Scalar:
        dtype, home, reverse = value.type.dtype, self._home(frame, loop), loop.node.attrs.get("reverse", False)
        if any(isinstance(s, Carry) and s.reverse != reverse for s in home.body):
            raise LegalityError(f"{loop.node.op} %{loop.node.name} runs the other way than a loop over the same rows")
        result = frame.draft.scalar(dtype)
        home.body.append(Carry(result, dtype, start, reverse))
        return result

    def _check_place(self, frame: PhaseFrame, loop: _Loop, value: Value, at: tuple[Affine, ...]) -> None:
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

    def _before(self, frame: PhaseFrame, loop: _Loop, value: Value, at: tuple[Affine, ...]) -> Demand[Scalar]:
        """A value that is computed once, before the first iteration."""
        return (yield Wanted(self._first_stage(self._home(frame, loop)), value, at, None))

    @staticmethod
    def _first_stage(home: StageDraft) -> StageDraft:
        """What is done before a loop's first iteration."""
        if home.before is None:
            home.before = StageDraft(home.level - 1, False, ())
        return home.before

    # ---- the loop's stage ----------------------------------------------------------------------------------------

    def _home(self, frame: PhaseFrame, loop: _Loop) -> StageDraft:
        """The stage of a loop, and of the one in its body, whose iterations it walks too."""
        whole = loop.outer or loop
        walked = (whole,) if whole.inner is None else (whole, whole.inner)
        return frame.draft.stage(self._level(frame, whole), tuple(self._time(frame, one) for one in walked))

    def row_stage(
        self, frame: PhaseFrame, level: int, symbols: tuple[Symbol, ...]
    ) -> tuple[tuple[Symbol, ...], Scalar | None]:
        """The symbols of the stage that stores what `symbols` walk, and the condition to store it under.

        An iteration of a loop with a loop in its body gives its row once that is done.
        """
        for loop in self._loops.values():
            if loop.inner is not None and symbols == (self._time(frame, loop),) and level == self._level(frame, loop):
                return self._home(frame, loop).symbols, self._at_end(frame, loop.inner, first=False)
        return symbols, None

    @staticmethod
    def _level(frame: PhaseFrame, loop: _Loop) -> int:
        return frame.levels[next(iter((*loop.body.inputs, *loop.node.outputs)))]  # without inputs, a stack's

    def _time(self, frame: PhaseFrame, loop: _Loop) -> Symbol:
        if loop.time is None:
            node, count = loop.node, loop.parts
            uses = [frame.dims.use(node, number) for number in range(count, len(node.inputs))]
            axes = [frame.dims.axes(use)[0] for use in (*uses, *node.outputs[count:])]
            if axes and len(axes[0]) > 1:
                raise LegalityError(f"{node.op} %{node.name}: its iterations are read as more than one axis")
            trips = node.attrs.get("length", GUESSED_TRIPS)
            loop.time = frame.symbol(axes[0][0]) if axes and axes[0] else frame.fresh_stream(trips)
        return loop.time


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


def _chosen(
    frame: PhaseFrame, stage: StageDraft, node: Node, instance: Instance, guard: Scalar | None
) -> Demand[Scalar]:
    """A result of a branch: of both sides the one that the condition chooses."""
    value, at = instance
    number = node.outputs.index(value)
    condition = yield Wanted(stage, node.inputs[0], (), guard)
    sides: list[Scalar] = []
    for side in node.regions:
        sides.append((yield Wanted(stage, side.outputs[number], at, guard)))
    return frame.map(stage, value.type.dtype, "select", condition, *sides)


def _unrolled(
    frame: PhaseFrame, stage: StageDraft, node: Node, at: tuple[Affine, ...], guard: Scalar | None
) -> Demand[Scalar]:
    """A reduction or a product in a body, one element after the other."""
    terms = _reduced(node, at) if role_of(node) is Role.REDUCE else _multiplied(node, at)
    dtype = node.output.type.dtype
    wide = dtypes.F32 if dtype.is_float and dtype.bits == 16 else dtype
    combiner = node.attrs.get("combiner", "add")
    if dtype.kind == "bool":
        combiner = BOOL_COMBINERS[combiner]
    total: Scalar | None = None
    for places in terms:
        scalars: list[Scalar] = []
        for operand, where in zip(node.inputs, places, strict=True):
            scalar = yield Wanted(stage, operand, where, guard)
            converts = frame.draft.dtypes[scalar] != wide
            scalars.append(frame.map(stage, wide, "convert", scalar) if converts else scalar)
        term = scalars[0] if len(scalars) == 1 else frame.map(stage, wide, _product(wide), *scalars)
        total = term if total is None else frame.map(stage, wide, combiner, total, term)
    if total is None:
        total = frame.constant(stage, wide, combiner_identity(combiner, wide))
    return total if wide == dtype else frame.map(stage, dtype, "convert", total)


def _product(dtype: DType) -> str:
    return "and" if dtype.kind == "bool" else "multiply"


def _reduced(node: Node, at: tuple[Affine, ...]) -> list[tuple[tuple[Affine, ...]]]:
    """The places of a reduction's operand that one of its elements is made of."""
    gone, shape = reduced_axes(node), node.inputs[0].type.shape
    _check_few(node, [shape[axis] for axis in gone])
    found: list[tuple[tuple[Affine, ...]]] = []
    for offsets in itertools.product(*(range(shape[axis]) for axis in sorted(gone))):
        inner, kept = dict(zip(sorted(gone), offsets, strict=True)), iter(at)
        found.append((tuple(Affine(inner[axis]) if axis in inner else next(kept) for axis in range(len(shape))),))
    return found


def _multiplied(node: Node, at: tuple[Affine, ...]) -> list[tuple[tuple[Affine, ...], tuple[Affine, ...]]]:
    """The places of a product's operands that one of its elements is made of."""
    axes = dot_axes(node)
    batch, free = at[: len(axes.lhs_batch)], at[len(axes.lhs_batch) :]
    own = dict(zip((*axes.lhs_batch, *axes.lhs_free), (*batch, *free), strict=False))
    other = dict(zip((*axes.rhs_batch, *axes.rhs_free), (*batch, *free[len(axes.lhs_free) :]), strict=True))
    extents = [node.inputs[0].type.shape[axis] for axis in axes.lhs_contracting]
    _check_few(node, extents)
    found: list[tuple[tuple[Affine, ...], tuple[Affine, ...]]] = []
    for offsets in itertools.product(*map(range, extents)):
        left = {**own, **{axis: Affine(k) for axis, k in zip(axes.lhs_contracting, offsets, strict=True)}}
        right = {**other, **{axis: Affine(k) for axis, k in zip(axes.rhs_contracting, offsets, strict=True)}}
        found.append(tuple(tuple(side[axis] for axis in range(len(side))) for side in (left, right)))  # type: ignore[arg-type]
    return found


def _check_few(node: Node, extents: Sequence[int]) -> None:
    if math.prod(extents) > MAX_HELD:
        raise LegalityError(
            f"{node.op} %{node.name} is in a loop, and adds {math.prod(extents)} terms: more than {MAX_HELD} are not "
            "unrolled"
        )
