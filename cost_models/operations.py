"""What scalar opcodes, statements and products cost, in operations of the classes whose throughput is calibrated."""

from __future__ import annotations

from functools import cache

from autofuse.cost_models.features import DotFeatures
from autofuse.errors import BackendError
from autofuse.ir.dtypes import BOOL, DType
from autofuse.ir.oprecord import OpClass
from autofuse.ir.optable import scalar_op
from autofuse.lower.statements import ArgReduce, Carry, Constant, Load, Map, Position, Reduce, Scan, Statement, Test
from autofuse.lower.tile import Dot, Phase

Counts = tuple[tuple[OpClass, float], ...]
"""(class, operations of that class) pairs; a class may come twice."""
_NARROW: Counts = (("convert", 2),)
"""Floats of 16 bits are widened before and rounded after each operation."""
FLOAT_TO_INTEGER: Counts = (("convert", 6),)
"""A conversion that truncates, saturates and maps NaN to 0."""


@cache
def mix_of(opcode: str, dtype: DType) -> Counts:
    """The operations behind `opcode` with a result of `dtype` (of an operand's dtype for comparisons).

    Raises BackendError for an opcode that the dtype does not have.
    """
    work = scalar_op(opcode).work
    mix = work.floats if dtype.is_float else work.integers
    if mix is None:
        raise BackendError(f"scalar opcode {opcode!r} is not defined on {dtype}; see docs/ops.md for the opcodes")
    return (*mix.items(), *_NARROW) if work.widens and dtype.is_float and dtype.bits == 16 else tuple(mix.items())


def price_class(dtype: DType) -> str:
    """The dtype of the calibration's tables under which operations on `dtype` are priced."""
    return "f64" if dtype.bits > 32 else "f32"


class StatementCosts:
    """What the statements of one program cost, asked in their order: what a scalar holds decides what reads it cost."""

    def __init__(self) -> None:
        self._types: dict[int, DType] = {}
        """Of scalars."""

    def of(self, statement: Statement) -> tuple[tuple[OpClass, DType, float], ...]:
        """(class, dtype, operations) of one run of a statement. Raises BackendError for an unknown opcode."""
        match statement:
            case Map(result, dtype, opcode, operands):
                self._types[result] = dtype
                asked = self._types.get(operands[0], dtype) if dtype == BOOL else dtype
                return tuple((name, asked, count) for name, count in mix_of(opcode, asked))
            case Reduce(result, dtype) | ArgReduce(result, dtype) | Scan(result, dtype):
                self._types[result] = dtype
                return (("add", dtype, 1.0),)
            case Test(result):
                self._types[result] = BOOL
            case Load(result, dtype) | Constant(result, dtype) | Position(result, dtype) | Carry(result, dtype):
                self._types[result] = dtype
            case _:
                pass
        return ()


def product_of(dot: Dot, phase: Phase, points: int, times: int = 1) -> DotFeatures:
    """A product that generated code does. `points`: of the phase's grid. `times`: how often each point does it."""
    calls, rows = points, dot.rows * points
    if phase.row_block is not None:
        height = phase.row_block.symbol.extent
        calls, rows = points // max(height, 1) * -(-height // phase.row_block.size), points
    calls, rows = times * calls, times * rows
    return DotFeatures(dot.rows, dot.columns, dot.depth, calls, rows, dot.dtype.name, library=False, cycles=0.0)
