"""`reduce_precision`: floats rounded to fewer bits of exponent and mantissa, and kept in their own type.

The formula is the specification's: round the mantissa to even, in the integers that the bits are; then what is beyond
the exponents' range becomes infinite, and what is below it a zero of its sign. NaN stays NaN; with no bits of mantissa,
which cannot say so, it becomes infinite.
"""

from __future__ import annotations

import math

from autofuse.frontend.stablehlo.emitter import Emitter
from autofuse.ir import dtypes
from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Value

_MANTISSA = {dtypes.F16: 10, dtypes.BF16: 7, dtypes.F32: 23, dtypes.F64: 52}


def reduce_precision(x: Value, exponent_bits: int, mantissa_bits: int, emitter: Emitter) -> Value:
    """`x`, as if it were stored with so many bits of exponent and of mantissa."""
    dtype = x.type.dtype
    mantissa = _MANTISSA[dtype]
    exponent = dtype.bits - 1 - mantissa
    unsigned = dtypes.by_name(f"u{dtype.bits}")
    bits = emitter.emit("bitcast_convert", x, dtype=unsigned)

    def word(number: int) -> Value:
        return emitter.full(number, bits.type)

    rounded = bits
    if mantissa_bits < mantissa:
        dropped = mantissa - mantissa_bits
        last = emitter.emit("and", emitter.emit("shift_right_logical", bits, word(dropped)), word(1))
        bias = emitter.emit("add", last, word((1 << (dropped - 1)) - 1))
        rounded = emitter.emit("and", emitter.emit("add", bits, bias), word(~((1 << dropped) - 1) & _ones(dtype.bits)))
    if exponent_bits < exponent:
        rounded = _clamped(rounded, dtype, mantissa, exponent, exponent_bits, emitter)
    held = emitter.emit("bitcast_convert", rounded, dtype=dtype)
    kept = x if mantissa_bits else emitter.full(math.inf, x.type)
    return emitter.emit("select", emitter.emit("compare", x, x, direction="NE"), kept, held)


def _clamped(bits: Value, dtype: DType, mantissa: int, exponent: int, exponent_bits: int, emitter: Emitter) -> Value:
    """Bits whose exponent is out of range as infinity or zero, of the same sign."""
    bias, reduced_bias = (1 << (exponent - 1)) - 1, (1 << (exponent_bits - 1)) - 1
    field = ((1 << exponent) - 1) << mantissa
    sign = emitter.emit("and", bits, emitter.full(1 << (dtype.bits - 1), bits.type))
    found = emitter.emit("and", bits, emitter.full(field, bits.type))
    greatest = emitter.full((bias + reduced_bias) << mantissa, bits.type)
    least = emitter.full((bias - reduced_bias) << mantissa, bits.type)
    infinite = emitter.emit("or", sign, emitter.full(field, bits.type))
    over = emitter.emit("compare", found, greatest, direction="GT")
    under = emitter.emit("compare", found, least, direction="LE")
    return emitter.emit("select", over, infinite, emitter.emit("select", under, sign, bits))


def _ones(bits: int) -> int:
    return (1 << bits) - 1
