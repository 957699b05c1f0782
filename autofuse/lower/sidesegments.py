"""A straight line cut where its costly sides are computed, for code that walks a block of elements between two cuts.

    %3 = load x[i];  %4 = greater %3 %2           segment: what the side's condition and the side itself need
    ---- side: %5 = ...; %8 = sine %5              for those elements of the block that take it, packed side by side
    %9 = select %4 %8 %3;  store y[i] %9          segment: all else

What one segment makes and a later one reads is kept for the block, unless it is cheaper to compute again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from autofuse.ir.index import Symbol
from autofuse.lazydataclass import dataclass, field
from autofuse.lower.raresides import Item, RareSide, with_rare_sides
from autofuse.lower.rewrite import operands
from autofuse.lower.statements import (
    ArgReduce,
    Carry,
    Effect,
    Load,
    Next,
    Position,
    Reduce,
    Repeat,
    Scalar,
    Scan,
    Statement,
    Test,
)
from autofuse.lower.tile import Phase, RowGroup, Stage
from autofuse.lower.varying import varying_scalars


@dataclass(frozen=True, slots=True)
class PackedSide:
    """A side, and what is needed to compute it for elements of a block that are chosen one by one."""

    side: RareSide
    again: tuple[Statement, ...]
    """Computed again for these elements, before what is inside."""
    gathered: tuple[Scalar, ...]
    """Read from what the block keeps."""
    results: tuple[Scalar, ...]
    """What the choices take of it: kept for the block, at the elements that take the side."""


@dataclass(frozen=True, slots=True)
class Segment:
    """What is done for each vector of a block before the next side."""

    statements: tuple[Statement, ...]
    """In order; choices by a side are ordinary ones here."""
    reads: tuple[Scalar, ...]
    """Kept by earlier segments and sides, and read here."""
    conditions: tuple[tuple[Scalar, int], ...]
    """Conditions read here, each with the number of an earlier side for which the block knows where it holds."""
    keeps: tuple[Scalar, ...]
    """Made here and kept; or of the surroundings, and kept for a side."""
    packed: PackedSide | None
    """What follows; None behind the last segment."""


@dataclass(frozen=True, slots=True)
class Line:
    """A straight line for a block."""

    shared: tuple[Statement, ...]
    """What all elements of the block share: done once, before the first segment."""
    segments: tuple[Segment, ...]


def cut_at_sides(
    items: Sequence[Item],
    varies: Callable[[Scalar], bool],
    is_cheap: Callable[[Load], bool] = lambda _: True,
    wanted: Collection[Scalar] = (),
) -> Line:
    """Cut a line that `with_rare_sides` ordered.

    `varies`: whether elements differ in a scalar. `is_cheap`: whether to load again costs no more than to keep what was
    loaded. `wanted`: scalars that are read behind the last segment. All that is stored, reduced or handed on is so in
    the last segment: before, everything was read.
    """
    return _Cutter(items, varies, is_cheap).line(wanted)


@dataclass(slots=True)
class _Draft:
    statements: dict[int, Statement] = field(default_factory=dict[int, Statement])
    """By their place in the line."""
    reads: set[Scalar] = field(default_factory=set[Scalar])
    conditions: dict[Scalar, int] = field(default_factory=dict[Scalar, int])
    keeps: set[Scalar] = field(default_factory=set[Scalar])

    def add(self, statement: Statement, place: int) -> bool:
        """Whether the statement is new here."""
        is_new = place not in self.statements
        self.statements[place] = statement
        return is_new


class _Cutter:
    def __init__(
        self, items: Sequence[Item], varies: Callable[[Scalar], bool], is_cheap: Callable[[Load], bool]
    ) -> None:
        self._varies, self._is_cheap = varies, is_cheap
        self._sides = [item for item in items if isinstance(item, RareSide)]
        self._inside = [{s.result for s in side.inside if not isinstance(s, Effect)} for side in self._sides]
        self._results = [_results(side, inside) for side, inside in zip(self._sides, self._inside, strict=True)]
        self._side_of = {number: at for at, found in enumerate(self._results) for number in found}
        flat = list(_flattened(items))
        self._shared = tuple(s for s in flat if not self._is_own(s))
        self._own = [s for s in flat if self._is_own(s)]
        self._place: dict[Scalar, int] = {}
        self._maker: dict[Scalar, Statement] = {}
        for place, statement in enumerate(self._own):
            if not isinstance(statement, Effect):
                self._place[statement.result], self._maker[statement.result] = place, statement
        self._segment: dict[Scalar, int] = {}
        """In which segment a scalar is made."""
        self._drafts = [_Draft() for _ in range(len(self._sides) + 1)]

    def line(self, wanted: Collection[Scalar]) -> Line:
        for at, side in enumerate(self._sides):
            self._put(at, (side.condition, *self._needs_of_side(at)))
        last = len(self._sides)
        for place, statement in enumerate(self._own):
            if isinstance(statement, Effect) or statement.result not in self._segment:
                self._drafts[last].add(statement, place)
                if not isinstance(statement, Effect):
                    self._segment[statement.result] = last
        for at in range(last + 1):
            self._link(at, (self._sides[at].condition,) if at < last else wanted)
        packed = [self._packed(at) for at in range(last)]
        return Line(self._shared, tuple(map(self._finished, range(last + 1), [*packed, None])))

    def _is_own(self, statement: Statement) -> bool:
        """Whether it is done for each element."""
        match statement:
            case Next(carry=carry):
                return self._varies(carry)
            case Reduce() | Scan() | ArgReduce():
                return True
            case _:
                return isinstance(statement, Effect) or self._varies(statement.result)

    def _put(self, at: int, wanted: Iterable[Scalar]) -> None:
        """Make these scalars, and all that they need, in segment `at`, unless an earlier one does."""
        waiting = list(wanted)
        while waiting:
            number = waiting.pop()
            statement = self._maker.get(number)
            if statement is None or number in self._segment:
                continue
            self._segment[number] = at
            self._drafts[at].add(statement, self._place[number])
            waiting.extend(operands(statement))

    def _needs_of_side(self, at: int) -> list[Scalar]:
        inside = self._inside[at]
        needed = (number for s in self._sides[at].inside for number in operands(s) if number not in inside)
        return [number for number in dict.fromkeys(needed) if number != self._sides[at].condition]

    def _link(self, at: int, wanted: Iterable[Scalar]) -> None:
        """Find what a segment reads of earlier ones, and what of that it computes again. `wanted`: read behind it."""
        draft, before = self._drafts[at], self._sides[:at]
        waiting = [*wanted, *(number for s in draft.statements.values() for number in operands(s))]
        while waiting:
            number = waiting.pop()
            if number in self._side_of:
                draft.reads.add(number)
            if number not in self._maker or self._segment[number] == at or number in draft.reads:
                continue
            told = next((place for place, side in enumerate(before) if side.condition == number), None)
            if told is not None:
                draft.conditions[number] = told
            elif not self._again(number):
                self._keep(number, draft.reads)
            elif draft.add(self._maker[number], self._place[number]):
                waiting.extend(operands(self._maker[number]))

    def _keep(self, number: Scalar, reads: set[Scalar]) -> None:
        reads.add(number)
        self._drafts[self._segment[number]].keeps.add(number)

    def _again(self, number: Scalar) -> bool:
        """Whether a scalar is computed again rather than kept."""
        statement = self._maker.get(number)
        if statement is None:
            return not self._varies(number)
        cheap = isinstance(statement, Carry | Position | Test) or (
            isinstance(statement, Load) and self._is_cheap(statement)
        )
        return cheap and all(self._again(operand) for operand in _read_at_once(statement))

    def _packed(self, at: int) -> PackedSide:
        side, again, gathered = self._sides[at], dict[int, Statement](), set[Scalar]()
        waiting = self._needs_of_side(at)
        while waiting:
            number = waiting.pop()
            statement = self._maker.get(number)
            if statement is None:
                if self._varies(number) and number not in gathered:
                    gathered.add(number)
                    if number not in self._side_of:
                        self._drafts[0].keeps.add(number)
            elif isinstance(statement, Carry) or not self._again(number):
                gathered.add(number)
                self._drafts[self._segment[number]].keeps.add(number)
            else:
                again[self._place[number]] = statement
                waiting.extend(operands(statement))
        return PackedSide(
            side, tuple(again[place] for place in sorted(again)), tuple(sorted(gathered)), self._results[at]
        )

    def _finished(self, at: int, packed: PackedSide | None) -> Segment:
        draft = self._drafts[at]
        statements = tuple(draft.statements[place] for place in sorted(draft.statements))
        reads, conditions = tuple(sorted(draft.reads)), tuple(sorted(draft.conditions.items()))
        return Segment(statements, reads, conditions, tuple(sorted(draft.keeps)), packed)


def _flattened(items: Iterable[Item]) -> Iterator[Statement]:
    """The statements outside of sides, choices by them included."""
    for item in items:
        if isinstance(item, RareSide):
            yield from item.selects
        else:
            yield item


def _results(side: RareSide, inside: Mapping[Scalar, object] | set[Scalar]) -> tuple[Scalar, ...]:
    number = 1 if side.where else 2
    return tuple(dict.fromkeys(s.operands[number] for s in side.selects if s.operands[number] in inside))


def _read_at_once(statement: Statement) -> Iterator[Scalar]:
    """What a statement reads in each iteration: what a carry starts from was read before."""
    return iter(()) if isinstance(statement, Carry) else operands(statement)


def packed_sides(stage: Stage, lane: Symbol, *, in_grid: bool) -> list[RareSide]:
    """The costly sides of a stage that could be packed over lanes that are positions of `lane`.

    `in_grid`: lanes are grid points, which may differ in all that earlier stages made; else iterations of the stage,
    which must hand nothing on.
    """
    known = set[Scalar]()
    if in_grid:
        made = {s.result for s in stage.body if not isinstance(s, Effect)}
        known = {number for s in stage.body for number in operands(s)} - made
    items = with_rare_sides(stage.body, varying_scalars(stage, known, lane).__contains__)
    return [item for item in items if isinstance(item, RareSide)]


def walks_in_blocks(stage: Stage) -> bool:
    """Whether an iteration of it can be done for a whole block of grid points before the next one."""
    must_leave = stage.leave is not None and stage.leave.required
    return not (stage.in_order or must_leave or any(isinstance(s, Repeat) for s in stage.body))


def packed_sides_of(phase: Phase, stage: Stage) -> list[RareSide]:
    """The costly sides of a stage of a phase that could be packed over its lanes."""
    if phase.vectorised is not None:
        in_blocks = all(map(walks_in_blocks, _stages(phase)))
        return packed_sides(stage, phase.vectorised, in_grid=True) if in_blocks else []
    if stage.vectorised is None or stage.is_ordered:
        return []
    return packed_sides(stage, stage.vectorised, in_grid=False)


def packs(phase: Phase) -> bool:
    """Whether a stage of a phase has such sides."""
    return any(packed_sides_of(phase, stage) for stage in _stages(phase))


def _stages(phase: Phase) -> Iterator[Stage]:
    return (stage for step in phase.steps if isinstance(step, RowGroup) for stage in step.stages)
