"""What a loop hands on from one iteration to the next: a vector on the stack, or a scalar that all lanes share.

LLVM promotes it to a register.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from autofuse.ir.index import Affine, Element, Quotient, Remainder, Symbol
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.rewrite import affines, operands
from autofuse.lower.tile import Carry, Next, Stage, Statement, Store
from autofuse.targets.cpu.codegen.values import Group, Value
from autofuse.targets.cpu.llvmtext import FunctionText, Vec


@dataclass(frozen=True, slots=True)
class Carried:
    """A Carry of one vector in flight."""

    statement: Carry
    lanes: int
    """1 where all lanes share it."""
    varying: bool
    cell: str
    """Stack address."""

    @property
    def _type(self) -> str:
        return Vec(self.statement.dtype, self.lanes).llvm

    def element(self, fn: FunctionText, number: str) -> Carried:
        """That of vector `number`, an i64 operand, where there are several; shared by all if lanes share it."""
        return replace(self, cell=fn.emit(f"getelementptr inbounds {self._type}, ptr {self.cell}, i64 {number}"))

    def start(self, fn: FunctionText, group: Group) -> None:
        """Set it to what it is before the first iteration."""
        self.follow(fn, group, self.statement.initial)

    def follow(self, fn: FunctionText, group: Group, value: int) -> None:
        """The next iteration gets the scalar number `value`."""
        fn.line(f"store {self._type} {group.operand(fn, value, self.lanes)}, ptr {self.cell}")

    def lane_values(self, fn: FunctionText) -> Value:
        """What it is now."""
        return Value(fn.emit(f"load {self._type}, ptr {self.cell}"), self.statement.dtype, self.varying)


def make_carried(fn: FunctionText, stage: Stage, group: Group, count: int) -> Mapping[int, Carried]:
    """Stack space for what a stage carries, by number, for `count` vectors like `group`."""
    varying = _varying(stage, group) if group.lanes.count > 1 else frozenset[int]()
    found: dict[int, Carried] = {}
    for statement in stage.body:
        if isinstance(statement, Carry):
            varies = statement.result in varying
            lanes = group.lanes.count if varies else 1
            cell = fn.alloca(Vec(statement.dtype, lanes).llvm, count)
            found[statement.result] = Carried(statement, lanes, varies, cell)
    return found


def _varying(stage: Stage, group: Group) -> Set[int]:
    """The scalars in which lanes may differ: a carry does unless no iteration can make it so."""
    found = {number for number, value in group.values.items() if value.varying}
    known = -1
    while len(found) != known:
        known = len(found)
        for statement in (*stage.before, *stage.body):
            if any(number in found for number in operands(statement)) or any(
                _differs(value, group.lanes.symbol, found) for value in affines(statement)
            ):
                found.update(_made_by(statement))
    return found


def _made_by(statement: Statement) -> tuple[int, ...]:
    match statement:
        case Next():
            return (statement.carry,)
        case Store():
            return ()
        case _:
            return (statement.result,)


def _differs(value: Affine, lane: Symbol | None, varying: Set[int]) -> bool:
    """Whether an index differs between lanes."""
    for variable, _ in value.terms:
        match variable:
            case Symbol():
                if variable == lane:
                    return True
            case Quotient(inner, _) | Remainder(inner, _):
                if _differs(inner, lane, varying):
                    return True
            case Element(source):
                if int(source) in varying:
                    return True
    return False
