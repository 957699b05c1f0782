"""What a scalar opcode costs, in operations of the classes whose throughput is calibrated."""

from __future__ import annotations

from autofuse.errors import BackendError
from autofuse.ir.dtypes import DType
from autofuse.ir.oprecord import Mix
from autofuse.ir.optable import scalar_op

_NARROW: Mix = (("convert", 2),)
"""Floats of 16 bits are widened before and rounded after each operation."""
FLOAT_TO_INTEGER: Mix = (("convert", 6),)
"""A conversion that truncates, saturates and maps NaN to 0."""


def mix_of(opcode: str, dtype: DType) -> Mix:
    """The operations behind `opcode` with a result of `dtype` (of an operand's dtype for comparisons).

    Classes are those of `autofuse.ir.oprecord.OpClass`. Raises BackendError for an opcode that the dtype lacks.
    """
    work = scalar_op(opcode).work
    mix = work.floats if dtype.is_float else work.integers
    if mix is None:
        raise BackendError(f"scalar opcode {opcode!r} is not defined on {dtype}; see docs/ops.md for the opcodes")
    return (*mix, *_NARROW) if work.widens and dtype.is_float and dtype.bits == 16 else mix


def price_class(dtype: DType) -> str:
    """The dtype of the calibration's tables under which operations on `dtype` are priced."""
    return "f64" if dtype.bits > 32 else "f32"
