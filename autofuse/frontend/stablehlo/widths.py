"""The same bits as elements of another width: `bitcast_convert` between any two."""

from __future__ import annotations

from autofuse.frontend.stablehlo.emitter import Emitter
from autofuse.frontend.stablehlo.refusals import UnsupportedOperation
from autofuse.ir import dtypes
from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Value
from autofuse.ir.types import TensorType


def bitcast(x: Value, type_: TensorType, emitter: Emitter) -> Value:
    """The bits of `x` as elements of another type; the least significant come first, along a last dimension."""
    source, target = x.type.dtype, type_.dtype
    if source == target:
        return x
    if "bool" in (source.kind, target.kind):
        raise UnsupportedOperation(f"reads {source} as {target}: bool has no bits of its own", "compare or convert")
    if source.bits == target.bits:
        return emitter.emit("bitcast_convert", x, dtype=target)
    narrow, wide = sorted((_unsigned(source), _unsigned(target)), key=lambda dtype: dtype.bits)
    bits = x if source.kind == "uint" else emitter.emit("bitcast_convert", x, dtype=_unsigned(source))
    joined = _joined(bits, narrow, wide, emitter) if target.bits > source.bits else _split(bits, narrow, wide, emitter)
    return joined if target.kind == "uint" else emitter.emit("bitcast_convert", joined, dtype=target)


def _unsigned(dtype: DType) -> DType:
    return dtypes.by_name(f"u{dtype.bits}")


def _split(bits: Value, narrow: DType, wide: DType, emitter: Emitter) -> Value:
    parts: list[Value] = []
    for shift in range(0, wide.bits, narrow.bits):
        low = emitter.emit("shift_right_logical", bits, emitter.full(shift, bits.type)) if shift else bits
        part = emitter.emit("convert", low, dtype=narrow)
        parts.append(emitter.emit("reshape", part, shape=(*bits.type.shape, 1)))
    return emitter.emit("concatenate", *parts, dimension=bits.type.rank)


def _joined(bits: Value, narrow: DType, wide: DType, emitter: Emitter) -> Value:
    """Of elements along the last dimension, which goes away."""
    shape = bits.type.shape[:-1]
    whole: Value | None = None
    for number in range(wide.bits // narrow.bits):
        starts, limits = (*(0 for _ in shape), number), (*shape, number + 1)
        steps = (1,) * (len(shape) + 1)
        column = emitter.emit("slice", bits, start_indices=starts, limit_indices=limits, strides=steps)
        part = emitter.emit("convert", emitter.emit("reshape", column, shape=shape), dtype=wide)
        if whole is None:
            whole = part
            continue
        shifted = emitter.emit("shift_left", part, emitter.full(number * narrow.bits, part.type))
        whole = emitter.emit("or", whole, shifted)
    assert whole is not None  # the widths differ, so there are two parts at least
    return whole
