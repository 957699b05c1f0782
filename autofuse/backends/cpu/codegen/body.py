"""The straight line of a stage's statements, for one vector of iterations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autofuse.backends.cpu.codegen import memory
from autofuse.backends.cpu.codegen.argreduce import Best
from autofuse.backends.cpu.codegen.conditions import known_truths, live_scalars, test
from autofuse.backends.cpu.codegen.indexing import index_bits, scalar_index, split_lanes, vector_index
from autofuse.backends.cpu.codegen.memory import Places
from autofuse.backends.cpu.codegen.reductions import Fold
from autofuse.backends.cpu.codegen.values import Group, Value
from autofuse.backends.cpu.scalars import emit_constant, emit_map
from autofuse.backends.cpu.text import FunctionText
from autofuse.ir.dtypes import BOOL, I32, I64
from autofuse.lower.tile import ArgReduce, Constant, Load, Map, Position, Reduce, Scan, Statement, Store, Test

Accumulators = Mapping[int, Fold | Best]
"""Of one vector in flight, by the number of the result."""


@dataclass(frozen=True, slots=True)
class Body:
    """Writes statements of one phase."""

    fn: FunctionText
    places: Places

    def write(
        self,
        statements: Sequence[Statement],
        group: Group,
        accumulators: Accumulators,
        wanted: frozenset[int] = frozenset(),
    ) -> None:
        """Append the code of one iteration of `group`; results land in `group.values`.

        `wanted`: scalars that the caller reads there.
        """
        known = known_truths(statements, group.ranges)
        live = live_scalars(statements, known, wanted) - group.fetched
        for number, truth in known.items():
            group.values[number] = Value("true" if truth else "false", BOOL, varying=False)
        for statement in statements:
            match statement:
                case Store():
                    memory.store(self.fn, self.places[statement.buffer], statement, group)
                case Reduce() | Scan() | ArgReduce():
                    accumulators[statement.result].step(self.fn, group)
                case _:
                    if statement.result in live and statement.result not in known:
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
                return memory.load(self.fn, self.places[statement.buffer], statement, group)
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
