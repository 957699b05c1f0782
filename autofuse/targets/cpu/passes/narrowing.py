"""Wide types that a value passes through only on its way become narrow ones: the widest type decides how many lanes.

convert f32 (select c, 10. f64, -10. f64)   ->   select c, 10. f32, -10. f32
eq (convert i64 a), (convert i64 b)         ->   eq a, b         both i32
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from autofuse.ir.dtypes import DType
from autofuse.lazydataclass import dataclass, field, replace
from autofuse.lower.statements import (
    ArgReduce,
    Carry,
    Constant,
    Effect,
    Load,
    Map,
    Position,
    Reduce,
    Scalar,
    Scan,
    Statement,
)
from autofuse.lower.tile import Phase, RowGroup, Stage, TileProgram
from autofuse.targets.cpu.codegen.conditions import live_scalars

_COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))


def narrow_values(program: TileProgram) -> TileProgram:
    """The same program with such values narrowed, and without what nothing needs any more."""
    launches = tuple(tuple(_phase(phase) for phase in launch) for launch in program.launches)
    return replace(program, launches=launches)


def _phase(phase: Phase) -> Phase:
    groups = [step for step in phase.steps if isinstance(step, RowGroup)]
    numbers = [s.result for g in groups for stage in g.stages for s in stage.body if not isinstance(s, Effect)]
    counter = iter(range(max(numbers, default=0) + 1, 1 << 60))
    steps = tuple(
        RowGroup(tuple(_stage(stage, lambda: next(counter)) for stage in step.stages))
        if isinstance(step, RowGroup)
        else step
        for step in phase.steps
    )
    return replace(phase, steps=steps)


def _stage(stage: Stage, fresh: Callable[[], Scalar]) -> Stage:
    narrowing = _Narrowing(fresh)
    for statement in stage.body:
        narrowing.add(statement)
    if not narrowing.changed:
        return stage
    live = live_scalars(narrowing.body, {})
    return replace(stage, body=tuple(s for s in narrowing.body if _is_effect(s) or _number(s) in live))


def _is_effect(statement: Statement) -> bool:
    return isinstance(statement, Effect | Reduce | ArgReduce | Scan | Carry)


def _number(statement: Statement) -> Scalar | None:
    return None if isinstance(statement, Effect) else statement.result


@dataclass(slots=True)
class _Narrowing:
    fresh: Callable[[], Scalar]
    body: list[Statement] = field(default_factory=list[Statement])
    made: dict[Scalar, Constant | Map] = field(default_factory=dict[Scalar, Constant | Map])
    """The constants and maps of the stage, by number."""
    dtypes: dict[Scalar, DType] = field(default_factory=dict[Scalar, DType])
    changed: bool = False

    def add(self, statement: Statement) -> None:
        """Append a statement, narrowed where it can be."""
        narrow = self._narrowed(statement) if isinstance(statement, Map) else None
        self.changed |= narrow is not None
        statement = narrow or statement
        if isinstance(statement, Constant | Map):
            self.made[statement.result] = statement
        if isinstance(statement, Constant | Map | Load | Position):
            self.dtypes[statement.result] = statement.dtype
        self.body.append(statement)

    def _narrowed(self, statement: Map) -> Map | None:
        if statement.opcode == "convert":
            return self._converted_choice(statement)
        return self._comparison(statement) if statement.opcode in _COMPARISONS else None

    def _converted_choice(self, statement: Map) -> Map | None:
        choice = self.made.get(statement.operands[0])
        if not isinstance(choice, Map) or choice.opcode != "select" or choice.dtype.bits <= statement.dtype.bits:
            return None
        condition, *ways = choice.operands
        constants = [self.made.get(way) for way in ways]
        if not statement.dtype.is_float or choice.dtype.kind == "bool":
            return None
        numbers: list[Scalar] = []
        for constant in constants:
            if not isinstance(constant, Constant):
                return None
            with np.errstate(all="ignore"):
                value = np.asarray(constant.value, constant.dtype.numpy).astype(statement.dtype.numpy)
            numbers.append(self._constant(statement.dtype, float(value)))
        return Map(statement.result, statement.dtype, "select", (condition, *numbers))

    def _constant(self, dtype: DType, value: float) -> Scalar:
        constant = Constant(self.fresh(), dtype, value)
        self.add(constant)
        return constant.result

    def _comparison(self, statement: Map) -> Map | None:
        sources = [_widened(self.made, self.dtypes, number) for number in statement.operands]
        if None in sources or len({self.dtypes[n] for n in sources if n is not None}) != 1:
            return None
        return replace(statement, operands=tuple(n for n in sources if n is not None))


def _widened(made: Mapping[Scalar, Constant | Map], dtypes: Mapping[Scalar, DType], number: Scalar) -> Scalar | None:
    """The narrower integer that a scalar was made from, all values of which it can hold."""
    wide = made.get(number)
    if not isinstance(wide, Map) or wide.opcode != "convert" or wide.operands[0] not in dtypes:
        return None
    source = dtypes[wide.operands[0]]
    keeps = source.is_integer and wide.dtype.is_integer and wide.dtype.bits > source.bits
    signed = source.kind == "int" and wide.dtype.kind != "int"
    return wide.operands[0] if keeps and not signed else None
