"""The straight line of a stage's statements, for one vector of iterations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autofuse.ir.dtypes import BOOL, I32, I64
from autofuse.lazydataclass import dataclass
from autofuse.lower.raresides import Item, RareSide, with_rare_sides
from autofuse.lower.statements import (
    ArgReduce,
    Carry,
    Constant,
    Effect,
    Leave,
    Load,
    Map,
    Next,
    Position,
    Reduce,
    Repeat,
    Scan,
    Statement,
    Store,
    Test,
)
from autofuse.lower.tile import Stage
from autofuse.lower.varying import varying_scalars
from autofuse.targets.cpu.codegen import accesses
from autofuse.targets.cpu.codegen.accesses import Places
from autofuse.targets.cpu.codegen.accumulators import Accumulator
from autofuse.targets.cpu.codegen.argreduce import Best
from autofuse.targets.cpu.codegen.carried import Carried
from autofuse.targets.cpu.codegen.conditions import known_truths, live_scalars, most_alive, test
from autofuse.targets.cpu.codegen.offsets import index_bits, scalar_index, split_lanes, vector_index
from autofuse.targets.cpu.codegen.values import Group, Value
from autofuse.targets.cpu.llvmtext import FunctionText, Vec
from autofuse.targets.cpu.scalars import emit_constant, emit_map

Accumulators = Mapping[int, Accumulator | Best | Carried]
"""Of one vector in flight, by the number of the result."""


@dataclass(frozen=True, slots=True)
class Body:
    """Writes statements of one phase."""

    fn: FunctionText
    places: Places
    registers: int
    """Vector registers of the target."""
    sides: str = "always"
    """When costly sides of choices are computed: `SIDES` of the schedule."""

    def write(
        self,
        statements: Sequence[Statement],
        groups: Sequence[Group],
        flights: Sequence[Accumulators],
        wanted: frozenset[int] = frozenset(),
    ) -> None:
        """Append the code of one iteration of each group; results land in its `values`.

        `groups` differ only in where they are. `wanted`: scalars that the caller reads afterwards.
        """
        needed = self.needed(statements, groups, wanted)
        self.interleave(needed, self.items(needed, groups[0], flights[0], wanted), groups, flights)

    def needed(
        self, statements: Sequence[Statement], groups: Sequence[Group], wanted: frozenset[int] = frozenset()
    ) -> list[Statement]:
        """The statements that are needed where the groups are; what is known there is in their `values`."""
        known = known_truths(statements, groups[0].ranges, groups[0].assumed)
        live = live_scalars(statements, known, wanted) - groups[0].fetched
        for group in groups:
            group.values.update({n: Value("true" if truth else "false", BOOL, False) for n, truth in known.items()})
        return [s for s in statements if _is_effect(s) or _number(s) in live - known.keys()]

    def interleave(
        self,
        needed: Sequence[Statement],
        items: Sequence[Item],
        groups: Sequence[Group],
        flights: Sequence[Accumulators],
    ) -> None:
        """Append the code of statements, in the order of `items`, one group beside the other."""
        # interleaving hides latency; with more than 5/4 of the registers alive (measured) spills cost more than that
        together = max(1, self.registers * 5 // 4 // max(most_alive(needed), 1))
        pairs = list(zip(groups, flights, strict=True))
        for first in range(0, len(pairs), together):
            for item in items:
                for group, flight in pairs[first : first + together]:
                    if isinstance(item, RareSide):
                        self._rare_side(item, group, flight)
                    elif group is groups[0] or not _shares(item, groups[0], group, flight):
                        self.statement(item, group, flight)

    def items(
        self,
        statements: Sequence[Statement],
        group: Group,
        flight: Accumulators,
        wanted: frozenset[int] = frozenset(),
    ) -> Sequence[Item]:
        """The statements, costly sides of choices together, if those are to be computed where a lane takes them."""
        carries = any(isinstance(s, Carry) for s in statements)
        if self.sides == "always" or (self.sides == "auto" and not carries):
            return statements
        return with_rare_sides(statements, varying_in(statements, group, flight), wanted)

    def _rare_side(self, side: RareSide, group: Group, accumulators: Accumulators) -> None:
        """A branch around what a side needs, taken where any lane takes the side."""
        fn, lanes = self.fn, group.lanes.count
        mask = group.operand(fn, side.condition, lanes)
        flags = "i1" if lanes == 1 else f"<{lanes} x i1>"
        if not side.where:
            mask = fn.emit(f"xor {flags} {mask}, {'true' if lanes == 1 else 'splat (i1 true)'}")
        if lanes > 1:
            if group.active is not None:
                mask = fn.emit(f"and {flags} {mask}, {group.active}")
            mask = fn.emit(f"icmp ne i{lanes} {fn.emit(f'bitcast {flags} {mask} to i{lanes}')}, 0")
        others = [group.operand(fn, number, lanes) for number in side.others()]
        taken, behind, before = fn.label("taken"), fn.label("behind"), fn.current
        fn.branch_if(mask, taken, behind)
        fn.block(taken)
        inner = group.nested({})
        inner.scalars = dict(group.scalars)
        for statement in (*side.inside, *side.selects):
            self.statement(statement, inner, accumulators)
        chosen = [inner.operand(fn, select.result, lanes) for select in side.selects]
        end = fn.current
        fn.branch(behind)
        fn.block(behind)
        for select, name, other in zip(side.selects, chosen, others, strict=True):
            phi = fn.phi(Vec(select.dtype, lanes).llvm, [(name, end), (other, before)])
            group.values[select.result] = Value(phi, select.dtype, lanes > 1)

    def statement(self, statement: Statement, group: Group, accumulators: Accumulators) -> None:
        """Append the code of one statement; its result lands in the group's values."""
        match statement:
            case Store():
                accesses.store(self.fn, self.places[statement.buffer], statement, group)
            case Reduce() | Scan() | ArgReduce():
                accumulator = accumulators[statement.result]
                assert not isinstance(accumulator, Carried)
                accumulator.step(self.fn, group)
            case Leave() | Repeat():
                raise AssertionError("the loops of a stage write where they end")
            case Carry():
                group.values[statement.result] = accumulators[statement.result].lane_values(self.fn)
            case Next():
                carried = accumulators[statement.carry]
                assert isinstance(carried, Carried)
                carried.follow(self.fn, group, statement.value)
            case _:
                group.values[statement.result] = self._scalar(statement, group)

    def _scalar(self, statement: Constant | Position | Test | Load | Map, group: Group) -> Value:
        match statement:
            case Constant(_, dtype, value):
                return Value(emit_constant(dtype, value), dtype, varying=False)
            case Position():
                return self._position(statement, group)
            case Test():
                return test(self.fn, statement, group)
            case Load():
                return accesses.load(self.fn, self.places[statement.buffer], statement, group)
            case Map():
                return self._map(statement, group)

    def _position(self, statement: Position, group: Group) -> Value:
        varying = not split_lanes(statement.value, group).is_uniform
        if varying:
            bits = index_bits(statement.value, group)
            name = vector_index(self.fn, statement.value, group, bits)
        else:
            bits, name = 64, scalar_index(self.fn, statement.value, group)
        lanes = group.lanes.count if varying else 1
        name = emit_map(self.fn, "convert", (name,), (I32 if bits == 32 else I64,), statement.dtype, lanes)
        return Value(name, statement.dtype, varying)

    def _map(self, statement: Map, group: Group) -> Value:
        if statement.opcode == "select":
            condition, yes, no = statement.operands
            truth = group.values[condition].static
            if truth is not None:
                return group.values[yes if truth else no]
        operands = [group.values[number] for number in statement.operands]
        varying = any(operand.varying for operand in operands)
        lanes = group.lanes.count if varying else 1
        names = [group.operand(self.fn, number, lanes) for number in statement.operands]
        dtypes = [operand.dtype for operand in operands]
        name = emit_map(self.fn, statement.opcode, names, dtypes, statement.dtype, lanes)
        return Value(name, statement.dtype, varying)


def varying_in(statements: Sequence[Statement], group: Group, flight: Accumulators) -> Callable[[int], bool]:
    """Whether lanes of a group differ in a scalar of these statements; a single lane has all for itself."""
    if group.lanes.count == 1:
        return lambda _: True
    known = {number for number, value in group.values.items() if value.varying}
    known |= {n for n, carried in flight.items() if not isinstance(carried, Carried) or carried.varying}
    return varying_scalars(Stage((), tuple(statements), None), known, group.lanes.symbol).__contains__


def _shares(statement: Statement, first: Group, group: Group, accumulators: Accumulators) -> bool:
    """Whether a group has what a statement does from the first one, which all lanes of both share; it is taken then."""
    match statement:
        case Map():
            same = all(group.values.get(n) == first.values.get(n) for n in statement.operands)
        case Carry() | Next():
            carried = accumulators[statement.result if isinstance(statement, Carry) else statement.carry]
            same = isinstance(carried, Carried) and not carried.varying
        case _:
            return False
    if same and not isinstance(statement, Next):
        group.values[statement.result] = first.values[statement.result]
    return same


def _is_effect(statement: Statement) -> bool:
    return isinstance(statement, Effect | Reduce | Scan | ArgReduce | Carry)


def _number(statement: Statement) -> int | None:
    return None if isinstance(statement, Effect) else statement.result
