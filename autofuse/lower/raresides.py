"""Choices one side of which is costly: that side need only be computed where something takes it.

    %9 = select %mask %fresh %kept     where %fresh is 200 instructions that nobody else needs

A target may write such a side as a branch around what it alone needs. Choices by one condition share the branch. What
a side loads is loaded where the branch is, so memory must still hold it there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from autofuse.ir.index import Affine
from autofuse.ir.optable import scalar_op
from autofuse.lazydataclass import dataclass
from autofuse.lower.rewrite import operands
from autofuse.lower.statements import Constant, Effect, Load, Map, Position, Scalar, Statement, Store, Test

COSTLY = 40.0
"""Vector instructions from which on a side is worth a branch: a branch that is foretold wrong costs about 20 cycles."""


@dataclass(frozen=True, slots=True)
class RareSide:
    """A side of choices, and what it alone needs."""

    condition: Scalar
    where: bool
    """What the condition is where the side is taken."""
    inside: tuple[Statement, ...]
    """In order; their results are read here only."""
    selects: tuple[Map, ...]
    """The choices. Their other sides are computed before."""

    @property
    def work(self) -> float:
        """Vector instructions that it takes."""
        return sum(scalar_op(s.opcode).work.vectors for s in self.inside if isinstance(s, Map)) if self.selects else 0.0

    def others(self) -> tuple[Scalar, ...]:
        """The other side of each choice."""
        return tuple(select.operands[2 if self.where else 1] for select in self.selects)


Item = Statement | RareSide


def with_rare_sides(
    body: Sequence[Statement], varies: Callable[[Scalar], bool], wanted: Collection[Scalar] = ()
) -> Sequence[Item]:
    """A straight line in an order in which its costly sides are together; as it is, if it has none.

    `varies`: whether a scalar is computed for each element. What all share is left before the branch, where it is
    computed once. `wanted`: scalars that are read afterwards.
    """
    stored = {s.buffer for s in body if isinstance(s, Store)}
    fixed = frozenset(wanted) | {s.result for s in body if isinstance(s, Load) and s.buffer in stored}
    for left in (fixed, fixed | {s.result for s in body if isinstance(s, Load)}):
        sides = list(_found(body, varies, left))
        order = _ordered(body, sides) if sides else body
        if order is body or _meets_the_same(body, order):
            return order
    return body


def _found(
    body: Sequence[Statement], varies: Callable[[Scalar], bool], fixed: Collection[Scalar]
) -> Iterator[RareSide]:
    """The costly sides, the costliest first; none has what another one has. `fixed`: scalars that stay outside."""
    sides: dict[tuple[Scalar, bool], list[Map]] = {}
    for statement in body:
        if isinstance(statement, Map) and statement.opcode == "select" and varies(statement.operands[0]):
            for where in (True, False):
                sides.setdefault((statement.operands[0], where), []).append(statement)
    found = [_side(body, key, selects, varies, fixed) for key, selects in sides.items()]
    taken: set[Scalar] = set()
    for side in sorted(found, key=lambda side: -side.work):
        own = {s.result for s in (*side.inside, *side.selects) if not isinstance(s, Effect)}
        if side.work >= COSTLY and taken.isdisjoint(own) and side.condition not in taken:
            taken.update(own)
            yield side


def _side(
    body: Sequence[Statement],
    key: tuple[Scalar, bool],
    selects: Sequence[Map],
    varies: Callable[[Scalar], bool],
    fixed: Collection[Scalar],
) -> RareSide:
    condition, where = key
    number = 1 if where else 2
    readers = _readers(body)
    choices = {select.result: select for select in selects}
    inside: dict[Scalar, Statement] = {}
    for statement in reversed(body):
        if not isinstance(statement, Map | Load | Position | Test | Constant) or statement.result in fixed:
            continue
        result = statement.result
        if result in choices or not (varies(result) or isinstance(statement, Constant)):
            continue
        if readers.get(result) and all(
            _is_inside(reader, result, inside, choices, number) for reader in readers[result]
        ):
            inside[result] = statement
    kept = tuple(select for select in selects if select.operands[number] in inside)
    ordered = tuple(s for s in body if not isinstance(s, Effect) and inside.get(s.result) is s)
    return RareSide(condition, where, ordered, kept)


def _readers(body: Sequence[Statement]) -> dict[Scalar, list[Statement]]:
    readers: dict[Scalar, list[Statement]] = {}
    for statement in body:
        for operand in operands(statement):
            readers.setdefault(operand, []).append(statement)
    return readers


def _is_inside(
    reader: Statement, scalar: Scalar, inside: Collection[Scalar], choices: Collection[Scalar], number: int
) -> bool:
    """Whether what reads a scalar is only done where the side is taken."""
    if isinstance(reader, Effect):
        return False
    if reader.result in inside:
        return True
    if not (isinstance(reader, Map) and reader.result in choices):
        return False
    return all((operand == scalar) == (place == number) for place, operand in enumerate(reader.operands))


def _ordered(body: Sequence[Statement], sides: Sequence[RareSide]) -> Sequence[Item]:
    """The statements and sides, each behind what it needs; the body as it is if they wait for one another."""
    moved = {s.result: side for side in sides for s in (*side.inside, *side.selects) if not isinstance(s, Effect)}
    made = {s.result for s in body if not isinstance(s, Effect)}
    last = {side.selects[-1].result: side for side in sides}
    done: set[Scalar] = set()
    order: list[Item] = []
    waiting: list[Item] = []

    def place(item: Item) -> bool:
        if any(number in made and number not in done for number in _needs(item)):
            return False
        order.append(item)
        results = item.selects if isinstance(item, RareSide) else (item,)
        done.update(s.result for s in results if not isinstance(s, Effect))
        return True

    for statement in body:
        item: Item = statement
        if not isinstance(statement, Effect) and statement.result in moved:
            if statement.result not in last:
                continue
            item = last[statement.result]
        waiting.append(item)
        before = -1
        while len(waiting) != before:
            before = len(waiting)
            waiting = [item for item in waiting if not place(item)]
    return body if waiting else order


def _meets_the_same(body: Sequence[Statement], order: Sequence[Item]) -> bool:
    """Whether loads and stores are in the order of the body, where they may be of one element and one is a store.

    They may be if they are of one buffer, or at one offset: an output may share memory with the input that it is made
    of element by element.
    """
    place = {
        id(s): number
        for number, item in enumerate(order)
        for s in (item.inside if isinstance(item, RareSide) else (item,))
    }
    first, latest = dict[str, int](), dict[str | Affine, int]()
    for access in (s for s in body if isinstance(s, Load | Store)):
        here, keys = place[id(access)], (access.buffer, access.offset)
        if here < first.get(access.buffer, -1):
            return False
        if isinstance(access, Store):
            if any(here < latest.get(key, -1) for key in keys):
                return False
            first[access.buffer] = here
        latest.update((key, max(here, latest.get(key, -1))) for key in keys)
    return True


def _needs(item: Item) -> set[Scalar]:
    if not isinstance(item, RareSide):
        return set(operands(item))
    own = {s.result for s in item.inside if not isinstance(s, Effect)}
    return {item.condition, *item.others(), *(n for s in (*item.inside, *item.selects) for n in operands(s))} - own
