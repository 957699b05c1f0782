"""Loops whose ends the run decides: a mask `position < k`, k being read from memory, cuts the loop where it changes.

`x[:k].sum()` is a sum over all of x with zeros from k on, and `x[:k] = y` stores under a mask. Where the mask is known
to be false nothing is left to do, so the loop ends at k. Which sides are worth a cut is decided while code is written:
those where fewer stages are needed, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from autofuse.ir.combiners import combiner_identity
from autofuse.ir.dtypes import BOOL, I64, DType
from autofuse.ir.index import Affine, Symbol, bounds, of, symbols_of
from autofuse.lazydataclass import dataclass, field
from autofuse.lower.rewrite import operands
from autofuse.lower.statements import Constant, Effect, Load, Map, Position, Reduce, Scalar, Statement, Store, Test
from autofuse.lower.tile import Phase, RowGroup, Space, Stage, TileProgram
from autofuse.targets.cpu.codegen.conditions import known_truths, live_scalars
from autofuse.targets.cpu.codegen.offsets import scalar_index
from autofuse.targets.cpu.codegen.values import Group, Index, Lanes, Ranges, Value
from autofuse.targets.cpu.llvmtext import FunctionText
from autofuse.targets.cpu.scalars import emit_map

Assumed = Mapping[Scalar, bool]
"""Conditions that are known where code is written, by the scalars that hold them."""

_SWAPPED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
_FAR = 1 << 60
"""Beyond all positions, and small enough to compute with."""
_MOST_TWICE = 2
"""Bounds that may have code on either side, of one loop: each doubles it."""
_MADE_OF = frozenset(("add", "subtract", "negate", "convert", "minimum", "maximum"))


@dataclass(frozen=True, slots=True)
class Bound:
    """A condition `position < limit`, or one like it, that changes once along each loop of its position."""

    result: Scalar
    position: Affine
    order: str
    """lt, le, gt or ge."""
    limit: Scalar
    """The same in the whole phase."""

    def cuts(self, symbol: Symbol, at: Mapping[Symbol, Index]) -> bool:
        """Whether it decides where the loop over `symbol` is cut, at a place in the loops around it."""
        others = symbols_of(self.position) - {symbol}
        return abs(self.position.coefficient(symbol)) == 1 and all(other in at for other in others)

    @property
    def first(self) -> bool:
        """Whether it holds before the cut, along a loop that its position grows with."""
        return self.order in ("lt", "le")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a loop."""

    start: str
    stop: str
    """i64 operands. There may be nothing between them."""
    assumed: Assumed

    def is_all(self, lo: int, hi: int) -> bool:
        """Whether it is all that lies between two numbers."""
        return self.start == str(lo) and self.stop == str(hi)


@dataclass(frozen=True, slots=True)
class RuntimeBounds:
    """The bounds of one phase, and the registers that hold their limits."""

    bounds: tuple[Bound, ...] = ()
    limits: Mapping[Scalar, str] = field(default_factory=dict[Scalar, str])

    def parts(
        self,
        fn: FunctionText,
        symbol: Symbol,
        ends: tuple[str, str],
        group: Group,
        is_left: Callable[[Assumed], object],
    ) -> Iterator[Part]:
        """The parts of a loop in which anything is to be done, in order; code of each is written before the next.

        `is_left`: of what is known, something that differs where less is to be done; false if nothing is.
        """
        if self.bounds:
            yield from self._parts(fn, symbol, ends, group, is_left, self._of(symbol, group))
        else:
            yield Part(*ends, group.assumed)

    def _of(self, symbol: Symbol, group: Group) -> list[Bound]:
        at = {place: index for place, index in group.at.items() if place != group.lanes.symbol}
        return [b for b in self.bounds if b.result not in group.assumed and b.cuts(symbol, at)]

    def _parts(
        self,
        fn: FunctionText,
        symbol: Symbol,
        ends: tuple[str, str],
        group: Group,
        is_left: Callable[[Assumed], object],
        bounds: Sequence[Bound],
        twice: int = _MOST_TWICE,
    ) -> Iterator[Part]:
        """`twice`: how many more bounds may have something to be done on either side."""
        whole = is_left(group.assumed)
        for number, bound in enumerate(bounds):
            sides = [is_left({**group.assumed, bound.result: truth}) for truth in (True, False)]
            if all(side == whole for side in sides) or (all(sides) and not twice):
                continue
            rising = bound.position.coefficient(symbol) > 0
            place = _clamped(fn, self._place(fn, bound, symbol, group), ends)
            order = (bound.first, not bound.first) if rising else (not bound.first, bound.first)
            for truth, part in zip(order, ((ends[0], place), (place, ends[1])), strict=True):
                if sides[0 if truth else 1]:
                    inner = group.nested({}, assumed={bound.result: truth})
                    yield from self._parts(fn, symbol, part, inner, is_left, bounds[number + 1 :], twice - all(sides))
            return
        if whole:
            yield Part(*ends, group.assumed)

    def _place(self, fn: FunctionText, bound: Bound, symbol: Symbol, group: Group) -> str:
        """The first place at which the condition, or what is not the condition, holds to the end of the loop."""
        coefficient = bound.position.coefficient(symbol)
        rest = scalar_index(fn, bound.position - of(symbol) * coefficient, group)
        limit = self.limits[bound.limit]
        # s + rest < limit up to limit - rest; rest - s < limit from rest - limit + 1 on
        place = fn.emit(f"sub i64 {limit}, {rest}" if coefficient > 0 else f"sub i64 {rest}, {limit}")
        beyond = bound.order in (("le", "gt") if coefficient > 0 else ("lt", "ge"))
        return fn.emit(f"add i64 {place}, 1") if beyond else place

    def branches(
        self,
        fn: FunctionText,
        group: Group,
        is_left: Callable[[Assumed], object],
        inside: Callable[[Group], None],
        twice: int = _MOST_TWICE,
    ) -> None:
        """`inside`, in the branches of conditions that are the same for all of a group and leave less to do."""
        if not self.bounds:
            inside(group)
            return
        whole = is_left(group.assumed)
        for bound in self.bounds:
            if bound.result in group.assumed or not all(symbol in group.at for symbol in symbols_of(bound.position)):
                continue
            sides = [is_left({**group.assumed, bound.result: truth}) for truth in (True, False)]
            if all(side == whole for side in sides) or (all(sides) and not twice):
                continue
            position = scalar_index(fn, bound.position, group)
            holds = fn.emit(f"icmp s{bound.order} i64 {position}, {self.limits[bound.limit]}")
            here, otherwise, done = fn.label("inside"), fn.label("outside"), fn.label("bounded")
            fn.branch_if(holds, here, otherwise)
            for truth, label, side in zip((True, False), (here, otherwise), sides, strict=True):
                fn.block(label)
                if side:
                    inner = group.nested({}, assumed={bound.result: truth})
                    self.branches(fn, inner, is_left, inside, twice - all(sides))
                fn.branch(done)
            fn.block(done)
            return
        if whole:
            inside(group)


def _clamped(fn: FunctionText, place: str, ends: tuple[str, str]) -> str:
    high = fn.intrinsic("llvm.smin.i64", "i64", [("i64", place), ("i64", ends[1])])
    return fn.intrinsic("llvm.smax.i64", "i64", [("i64", high), ("i64", ends[0])])


# ---- what there is left to do --------------------------------------------------------------------------------------


def left_to_do(stages: Sequence[Stage], ranges: Ranges, assumed: Assumed) -> tuple[tuple[int, bool], ...]:
    """The numbers of the stages that stores at a point need, and whether their iterations change anything."""
    needed: list[tuple[int, bool]] = []
    wanted: set[Scalar] = set()
    for number, stage in reversed([*enumerate(stages)]):
        known = known_truths(stage.body, ranges, assumed)
        results = {s.result for s in stage.body if not isinstance(s, Effect)}
        stores = any(isinstance(s, Store) and not _is_off(s, known) for s in stage.body)
        if stores or not wanted.isdisjoint(results):
            needed.append((number, not does_nothing(stage, ranges, assumed)))
            wanted |= live_scalars(stage.body, known) | {n for s in stage.before for n in operands(s)}
    return tuple(reversed(needed))


def changes_anything(stage: Stage, group: Group) -> bool:
    """Whether iterations of a stage are to be walked at all."""
    return not group.assumed or not does_nothing(stage, group.ranges, group.assumed)


def does_nothing(stage: Stage, ranges: Ranges, assumed: Assumed) -> bool:
    """Whether an iteration of a stage changes nothing, where something is known."""
    known = known_truths(stage.body, ranges, assumed)
    made = {s.result: s for s in stage.body if not isinstance(s, Effect)}
    for s in stage.body:
        match s:
            case Store():
                nothing = _is_off(s, known)
            case Reduce():
                number = _number(s.operand, made, known)
                nothing = number is not None and number == combiner_identity(s.combiner, s.dtype)
            case _:
                nothing = isinstance(s, Constant | Position | Test | Load | Map)
        if not nothing:
            return False
    return True


def _is_off(store: Store, known: Mapping[Scalar, bool]) -> bool:
    return store.mask is not None and known.get(store.mask) is False


def _number(scalar: Scalar, made: Mapping[Scalar, Statement], known: Mapping[Scalar, bool]) -> float | None:
    """The number that a scalar is, where something is known; None if that does not say."""
    if scalar in known:
        return known[scalar]
    match made.get(scalar):
        case Constant(_, _, value):
            return value
        case Map(_, _, "select", (condition, yes, no)) if condition in known:
            return _number(yes if known[condition] else no, made, known)
        case Map(_, _, "convert", (inner,)):
            return _number(inner, made, known)
        case Map(_, _, "multiply", (a, b)):
            sides = _number(a, made, known), _number(b, made, known)
            return 0 if sides == (0, 0) else None
        case _:
            return None


# ---- finding bounds ------------------------------------------------------------------------------------------------


def bounds_of(
    fn: FunctionText, program: TileProgram, phase: Phase, emit: Callable[[Sequence[Statement], Group], None]
) -> RuntimeBounds:
    """The bounds of a phase; the code of their limits is appended. `emit` appends statements for a group."""
    found: list[Bound] = []
    limits: dict[Scalar, str] = {}
    read = {buffer.name for buffer in program.buffers if buffer.space is not Space.SCRATCH}
    for stage in (s for step in phase.steps if isinstance(step, RowGroup) for s in step.stages):
        if stage.is_ordered:
            continue
        own = _bounds(stage, read)
        if not own:
            continue
        group = Group(Lanes(), {}, {}, {})
        made = {s.result: s for s in stage.body if not isinstance(s, Effect)}
        emit(_cone(stage, [bound.limit for bound in own]), group)
        for bound in own:
            dtype = made[bound.limit].dtype  # type: ignore[union-attr]  # what bounds a position is a number
            limits[bound.limit] = _widened(fn, group.values[bound.limit], dtype)
        found += own
    return RuntimeBounds(tuple(found), limits)


def _bounds(stage: Stage, read: set[str]) -> list[Bound]:
    """Of one stage. `read`: buffers that the phase does not write."""
    places: dict[Scalar, Affine] = {}
    fixed: dict[Scalar, bool] = {}
    """Scalars that are the same in the whole phase: whether they are read from memory."""
    found: list[Bound] = []
    for s in stage.body:
        match s:
            case Constant(result, dtype, value) if dtype.is_integer:
                places[result], fixed[result] = Affine(int(value)), False
            case Position(result, _, value) if not value.is_constant and symbols_of(value):
                places[result] = value
            case Load(result, dtype, buffer, offset, None) if (
                dtype.kind == "int" and offset.is_constant and buffer in read
            ):
                fixed[result] = True
            case Map(result, dtype, opcode, numbers):
                bound = _bound(s, places, fixed)
                if bound is not None:
                    found.append(bound)
                elif dtype.kind == "int" and opcode in _MADE_OF and all(n in fixed for n in numbers):
                    fixed[result] = any(fixed[n] for n in numbers)
                elif opcode == "convert" and numbers[0] in places and _fits(places[numbers[0]], dtype):
                    places[result] = places[numbers[0]]
            case _:
                pass
    return found


def _fits(value: Affine, dtype: DType) -> bool:
    low, high = bounds(value)
    return dtype.kind == "int" and -(1 << dtype.bits - 1) <= low and high < 1 << dtype.bits - 1


def _bound(s: Map, places: Mapping[Scalar, Affine], fixed: Mapping[Scalar, bool]) -> Bound | None:
    if s.dtype != BOOL or s.opcode not in _SWAPPED:
        return None
    a, b = s.operands
    if a in places and fixed.get(b):
        return Bound(s.result, places[a], s.opcode, b)
    return Bound(s.result, places[b], _SWAPPED[s.opcode], a) if b in places and fixed.get(a) else None


def _cone(stage: Stage, numbers: Sequence[Scalar]) -> list[Statement]:
    """The statements that compute scalars."""
    wanted, kept = set(numbers), list[Statement]()
    for statement in reversed(stage.body):
        if not isinstance(statement, Effect) and statement.result in wanted:
            kept.append(statement)
            wanted.update(operands(statement))
    return kept[::-1]


def _widened(fn: FunctionText, value: Value, dtype: DType) -> str:
    """A limit as an i64 that is beyond all positions rather than too great to compute with."""
    wide = emit_map(fn, "convert", (value.name,), (dtype,), I64, 1) if dtype != I64 else value.name
    high = fn.intrinsic("llvm.smin.i64", "i64", [("i64", wide), ("i64", str(_FAR))])
    return fn.intrinsic("llvm.smax.i64", "i64", [("i64", high), ("i64", str(-_FAR))])
