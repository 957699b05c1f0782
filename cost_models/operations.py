"""What a scalar opcode costs, in operations of the classes whose throughput is calibrated."""

from __future__ import annotations

from collections.abc import Mapping

from autofuse.errors import BackendError
from autofuse.ir.dtypes import DType
from autofuse.targets.cpu.scalars import OPCODES

Mix = tuple[tuple[str, float], ...]
"""(class, operations of that class) pairs; classes are `autofuse.targets.cpu.device.describe.OP_CLASSES`."""

_FLOAT: Mapping[str, Mix] = {
    "add": (("add", 1),),
    "subtract": (("add", 1),),
    "negate": (("add", 1),),
    "abs": (("compare", 1),),
    "multiply": (("multiply", 1),),
    "fma": (("multiply", 1),),
    "divide": (("divide", 1),),
    "remainder": (("divide", 2), ("multiply", 4), ("compare", 4)),
    "sqrt": (("sqrt", 1),),
    "rsqrt": (("sqrt", 1), ("divide", 1)),
    "cbrt": (("power", 0.7),),
    "power": (("power", 1),),
    "atan2": (("sin", 1), ("divide", 1)),
    "exp": (("exp", 1),),
    "exp2": (("exp", 1),),
    "expm1": (("exp", 1.5),),
    "logistic": (("exp", 1), ("divide", 1)),
    "log": (("log", 1),),
    "log2": (("log", 1),),
    "log1p": (("log", 1.3),),
    "tanh": (("tanh", 1),),
    "erf": (("erf", 1),),
    "sin": (("sin", 1),),
    "cos": (("sin", 1),),
    "tan": (("sin", 1.2), ("divide", 1)),
    "maximum": (("compare", 4),),
    "minimum": (("compare", 4),),
    "clamp": (("compare", 8),),
    "sign": (("compare", 4),),
    "is_finite": (("compare", 2),),
    "floor": (("convert", 1),),
    "ceil": (("convert", 1),),
    "round_nearest_even": (("convert", 1),),
    "round_nearest_afz": (("convert", 2),),
}
_INTEGER: Mapping[str, Mix] = {
    "multiply": (("integer", 3),),
    "divide": (("divide", 2), ("integer", 6)),
    "remainder": (("divide", 2), ("integer", 8)),
    "power": (("integer", 60),),
    "clamp": (("integer", 2),),
    "popcnt": (("integer", 8),),
    "count_leading_zeros": (("integer", 4),),
}
_ANY: Mapping[str, Mix] = {
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge", "select"), (("compare", 1),)),
    "convert": (("convert", 1),),
    "bitcast_convert": (),
}
_NARROW: Mix = (("convert", 2),)
"""Floats of 16 bits are widened before and rounded after each operation."""


def mix_of(opcode: str, dtype: DType) -> Mix:
    """The operations behind `opcode` with a result of `dtype` (of an operand's dtype for comparisons).

    Raises BackendError for an opcode that no backend has.
    """
    found = _ANY.get(opcode)
    if found is None and dtype.is_float:
        found = _FLOAT.get(opcode)
    elif found is None and opcode in OPCODES:
        found = _INTEGER.get(opcode, (("integer", 1),))
    if found is None:
        raise BackendError(f"no cost is known for scalar opcode {opcode!r} on {dtype}; see docs/ops.md for the opcodes")
    return (*found, *_NARROW) if dtype.is_float and dtype.bits == 16 and opcode not in _ANY else found


FLOAT_TO_INTEGER: Mix = (("convert", 6),)
"""A conversion that truncates, saturates and maps NaN to 0."""


def price_class(dtype: DType) -> str:
    """The dtype of the calibration's tables under which operations on `dtype` are priced."""
    return "f64" if dtype.bits > 32 else "f32"
