"""What a loop hands on from one iteration to the next: a vector on the stack, or a scalar that all lanes share.

LLVM promotes it to a register.
"""

from __future__ import annotations

from collections.abc import Mapping

from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.statements import Carry
from autofuse.lower.tile import Stage
from autofuse.lower.varying import varying_scalars
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
        if not self.varying:
            return self
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
    known = {number for number, value in group.values.items() if value.varying}
    varying = varying_scalars(stage, known, group.lanes.symbol) if group.lanes.count > 1 else frozenset[int]()
    found: dict[int, Carried] = {}
    for statement in stage.body:
        if isinstance(statement, Carry):
            varies = statement.result in varying
            lanes = group.lanes.count if varies else 1
            cell = fn.alloca(Vec(statement.dtype, lanes).llvm, count)
            found[statement.result] = Carried(statement, lanes, varies, cell)
    return found
