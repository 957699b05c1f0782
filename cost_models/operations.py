"""What a scalar opcode costs, in operations of the classes whose throughput is calibrated."""

from __future__ import annotations

from functools import cache

from autofuse.errors import BackendError
from autofuse.ir.dtypes import DType
from autofuse.ir.oprecord import OpClass
from autofuse.ir.optable import scalar_op

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
