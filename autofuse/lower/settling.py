"""Loops whose points come to rest: when no later iteration changes what is read behind the loop.

    %3 = carry                         z
    %4 = .. abs %3 < 2                 whether it still moves
    next %3 = select %4 %9 %3          once it does not, it never does again

What is assumed (a *literal*: a bool scalar and what it is) proves that every carry that counts gets what it had; and it
goes on to hold, because it is computed from such carries alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from autofuse.errors import LegalityError
from autofuse.ir import dtypes, index
from autofuse.lazydataclass import dataclass, field
from autofuse.lower.phasedrafts import StageDraft
from autofuse.lower.rewrite import affines, operands
from autofuse.lower.schedule import EARLY_END, Schedule
from autofuse.lower.statements import (
    ArgReduce,
    Carry,
    Constant,
    Effect,
    Leave,
    Map,
    Next,
    Reduce,
    Repeat,
    Scalar,
    Scan,
    Statement,
    Store,
)

Literal = tuple[Scalar, bool]
_DEEPEST = 4
"""Choices, sums and conditions on the way from what a carry gets to what may decide that it stays."""
_MOST_LOOKED_AT = 200_000
"""Statements that are looked at for an early end. Where state is a matrix, each of many carries has many candidates."""


def end_early(stages: Sequence[StageDraft], fresh: Callable[[], Scalar], schedule: Schedule) -> None:
    """Let stages that carry end once nothing changes any more; those that have to end so are checked.

    `fresh`: numbers of new bool scalars. Raises LegalityError for a loop that goes on in settled points as long as
    others need it, and changes them.
    """
    for stage in stages:
        if not any(isinstance(s, Next) for s in stage.body):
            continue
        for loop in stage.resting:
            if not _Body(stage, loop.results, loop.following).rests(((loop.moving, False),)):
                raise LegalityError(
                    "a while loop changes elements for which its condition does not hold while it does for others: "
                    "how often it runs for one depends on all"
                )
        if not any(isinstance(s, Leave) for s in stage.body) and schedule[EARLY_END] and not stage.sections:
            _add_end(stage, _read_behind(stages, stage), fresh)
        if stage.sections or any(isinstance(s, Leave) for s in stage.body):
            stage.body.sort(key=lambda s: 2 if isinstance(s, Next) else isinstance(s, Leave | Repeat))


def _add_end(stage: StageDraft, wanted: Collection[Scalar], fresh: Callable[[], Scalar]) -> None:
    """Let a stage be left once nothing changes any more that is `wanted`, if that shows."""
    if any(isinstance(s, Store | Reduce | ArgReduce | Scan) for s in stage.body):
        return
    literals = _Body(stage, wanted, {s.carry: s.value for s in stage.body if isinstance(s, Next)}).found()
    if literals:
        stage.body += [*_conjunction(literals, fresh)]


def _read_behind(stages: Sequence[StageDraft], stage: StageDraft) -> frozenset[Scalar]:
    others = [other for other in stages if other is not stage]
    bodies = [body for o in others for body in (o.body, o.before.body if o.before is not None else ())]
    return frozenset(number for body in bodies for s in body for number in operands(s))


def _conjunction(literals: Sequence[Literal], fresh: Callable[[], Scalar]) -> Iterator[Statement]:
    """That all literals hold, and the leave where they do."""
    whole: Scalar | None = None
    for scalar, truth in literals:
        held = scalar
        if not truth:
            held = fresh()
            yield Map(held, dtypes.BOOL, "not", (scalar,))
        if whole is not None:
            both = fresh()
            yield Map(both, dtypes.BOOL, "and", (whole, held))
            held = both
        whole = held
    assert whole is not None
    yield Leave(whole)


class _Body:
    """What an iteration of a stage hands on."""

    def __init__(self, stage: StageDraft, wanted: Collection[Scalar], following: Mapping[Scalar, Scalar]) -> None:
        """`wanted`: scalars that are read behind the loop. `following`: by carry, what the next iteration gets."""
        self._body = stage.body
        self._made = {s.result: s for s in stage.body if not isinstance(s, Effect)}
        self._next = following
        self._wanted = [carry for carry in self._next if carry in wanted]
        self._looked_at = 0
        """Statements, in all trials together."""
        before = stage.before.body if stage.before is not None else ()
        starts = {s.result: s for s in before if isinstance(s, Constant)}
        self._sums = frozenset(
            s.result for s in stage.body if isinstance(s, Carry) and self._is_sum(s, starts.get(s.initial))
        )
        self._timely = self._depending_on_time(frozenset(stage.symbols))

    def _is_sum(self, carry: Carry, start: Constant | None) -> bool:
        """Whether terms are added to what starts as another number than -0.0: then it never is that."""
        following = self._made.get(self._next.get(carry.result, -1))
        if start is None or (start.value == 0 and math.copysign(1.0, start.value) < 0):
            return False
        return isinstance(following, Map) and following.opcode == "add" and carry.result in following.operands

    def _depending_on_time(self, symbols: frozenset[index.Symbol]) -> frozenset[Scalar]:
        """Scalars that differ from iteration to iteration though no carry does."""
        found: set[Scalar] = set()
        for s in self._body:
            if isinstance(s, Effect | Carry):
                continue
            moved = any(not symbols.isdisjoint(index.symbols_of(value)) for value in affines(s))
            if moved or any(number in found for number in operands(s)):
                found.add(s.result)
        return frozenset(found)

    def found(self) -> tuple[Literal, ...] | None:
        """What together shows that nothing changes any more; None if nothing was found to."""
        literals: tuple[Literal, ...] = ()
        todo = list(self._wanted)
        while todo:
            carry = todo.pop(0)
            if self._keeps(literals, (carry,)):
                continue
            held = {scalar for scalar, _ in literals}  # whose opposite cannot hold too
            others = (one for one in self._candidates(carry) if one[0] not in held)
            chosen = next((one for one in others if self._keeps((*literals, one), (carry,))), None)
            if chosen is None or self._looked_at > _MOST_LOOKED_AT:
                return None
            literals = (*literals, chosen)
            todo += [one for one in self._sources(chosen[0]) if one in self._next]
        for one in literals:
            fewer = tuple(other for other in literals if other != one)
            if fewer and self.rests(fewer):
                literals = fewer
        return literals if literals and self.rests(literals) else None

    def rests(self, literals: Sequence[Literal]) -> bool:
        """Whether what counts stays as it is for ever where all literals hold, which do not depend on time."""
        counts = {*self._wanted, *(c for scalar, _ in literals for c in self._sources(scalar) if c in self._next)}
        return self._keeps(literals, counts)

    def _keeps(self, literals: Sequence[Literal], carries: Collection[Scalar]) -> bool:
        """Whether carries get what they had, where all literals hold."""
        self._looked_at += len(self._body)
        known = _Assumed(_implied(self._body, literals), self._sums)
        for statement in self._body:
            known.add(statement)
        return all(known.equal(carry, self._next[carry]) for carry in carries)

    def _sources(self, scalar: Scalar) -> Iterator[Scalar]:
        """The carries that a scalar is computed from."""
        seen: set[Scalar] = set()
        todo = [scalar]
        while todo:
            number = todo.pop()
            statement = self._made.get(number)
            if number in seen or statement is None:
                continue
            seen.add(number)
            if isinstance(statement, Carry):
                yield number
            else:
                todo += operands(statement)

    def _candidates(self, carry: Scalar) -> Iterator[Literal]:
        """What may decide that a carry gets what it had."""
        todo = [(self._next[carry], 0)]
        seen: set[Scalar] = set()
        while todo:
            number, depth = todo.pop(0)
            statement = self._made.get(number)
            if number in seen or depth > _DEEPEST or statement is None:
                continue
            seen.add(number)
            if self._looked_at > _MOST_LOOKED_AT:
                return
            if _is_bool(statement) and number not in self._timely and number != self._next[carry]:
                yield from ((number, True), (number, False))
            if isinstance(statement, Map):
                todo += [(operand, depth + 1) for operand in statement.operands]


def _is_bool(statement: Statement) -> bool:
    return isinstance(statement, Map | Carry) and statement.dtype == dtypes.BOOL


def _implied(body: Sequence[Statement], literals: Sequence[Literal]) -> dict[Scalar, bool]:
    """What literals say of the conditions that they are computed from, with themselves."""
    truths = dict(literals)
    for s in reversed(body):
        if isinstance(s, Map) and s.result in truths:
            truth = truths[s.result]
            if s.opcode == "not":
                truths.setdefault(s.operands[0], not truth)
            elif s.opcode == ("and" if truth else "or"):
                for number in s.operands:
                    truths.setdefault(number, truth)
    return truths


@dataclass(slots=True)
class _Assumed:
    """What follows for the scalars of a straight line from what some conditions are."""

    truths: dict[Scalar, bool]
    sums: Collection[Scalar]
    """Carries that are never -0.0."""
    same: dict[Scalar, Scalar] = field(default_factory=dict[Scalar, Scalar])
    """Scalars that are what an earlier one is."""
    constants: dict[Scalar, float] = field(default_factory=dict[Scalar, float])
    known: dict[object, Scalar] = field(default_factory=dict[object, Scalar])
    """The first scalar that is computed so."""

    def equal(self, one: Scalar, other: Scalar) -> bool:
        """Whether two scalars are the same."""
        first, second = self._of(one), self._of(other)
        truth = self.truths.get(first)
        return first == second or (truth is not None and truth == self.truths.get(second))

    def add(self, statement: Statement) -> None:
        """Go on with the next statement."""
        match statement:
            case Constant(result, dtype, value):
                if dtype == dtypes.BOOL:
                    self.truths.setdefault(result, bool(value))
                else:
                    self.constants[result] = value
            case Map():
                self._map(statement)
            case _:
                pass

    def _of(self, scalar: Scalar) -> Scalar:
        return self.same.get(scalar, scalar)

    def _map(self, statement: Map) -> None:
        numbers = tuple(map(self._of, statement.operands))
        key = statement.opcode, statement.dtype.name, statement.fast, numbers
        first = self.known.setdefault(key, statement.result)
        assumed = self.truths.get(statement.result)
        if assumed is not None and first != statement.result:
            self.truths.setdefault(first, assumed)
        kept = self._kept(statement, numbers)
        truth = self._truth(statement.opcode, numbers) if statement.dtype == dtypes.BOOL else None
        if kept is None and first != statement.result:
            kept = first
        if kept is not None:
            self.same[statement.result] = self._of(kept)
        elif truth is not None:
            self.truths.setdefault(statement.result, truth)
        elif statement.opcode == "convert" and self.truths.get(numbers[0]) is not None:
            self.constants[statement.result] = float(self.truths[numbers[0]])

    def _kept(self, statement: Map, numbers: Sequence[Scalar]) -> Scalar | None:
        """The operand that an operation gives as it is."""
        match statement.opcode, numbers:
            case "select", (condition, yes, no):
                truth = self.truths.get(condition)
                if truth is not None:
                    return yes if truth else no
                return yes if self.equal(yes, no) else None
            case ("or" | "and") as opcode, (a, b):
                idle = opcode == "and"
                return b if self.truths.get(a) is idle else a if self.truths.get(b) is idle else None
            case "add", (a, b):
                return a if self._adds_nothing(statement, b, a) else b if self._adds_nothing(statement, a, b) else None
            case "subtract", (a, b):
                return a if _is_zero(self.constants.get(b), positive=True) else None
            case "multiply", (a, b):
                return a if self.constants.get(b) == 1 else b if self.constants.get(a) == 1 else None
            case _:
                return None

    def _adds_nothing(self, statement: Map, term: Scalar, other: Scalar) -> bool:
        """Whether `other + term` is `other`: -0.0 + 0.0 is another number."""
        constant = self.constants.get(term)
        if not _is_zero(constant):
            return False
        return not statement.dtype.is_float or other in self.sums or not _is_zero(constant, positive=True)

    def _truth(self, opcode: str, numbers: Sequence[Scalar]) -> bool | None:
        truths = [self.truths.get(number) for number in numbers]
        match opcode:
            case "not":
                return None if truths[0] is None else not truths[0]
            case "or" | "and":
                return (opcode == "or") if (opcode == "or") in truths else None
            case _:
                return None


def _is_zero(value: float | None, *, positive: bool = False) -> bool:
    return value is not None and value == 0 and (not positive or math.copysign(1.0, value) > 0)
