"""Rules of products: `dot_general`, `dot` and `convolution`, of mixed types too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autofuse.frontend.stablehlo.emitter import Emitter
from autofuse.frontend.stablehlo.operation import Operation
from autofuse.frontend.stablehlo.refusals import UnsupportedOperation
from autofuse.frontend.stablehlo.rules import Rule
from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Value

_DIMENSIONS = (
    "lhs_batching_dimensions",
    "rhs_batching_dimensions",
    "lhs_contracting_dimensions",
    "rhs_contracting_dimensions",
)
_SINGLE = (
    *("input_batch_dimension", "input_feature_dimension"),
    *("kernel_input_feature_dimension", "kernel_output_feature_dimension"),
    *("output_batch_dimension", "output_feature_dimension"),
)
_SEVERAL = ("input_spatial_dimensions", "kernel_spatial_dimensions", "output_spatial_dimensions")


def computed_in(operands: Sequence[DType], result: DType) -> DType:
    """The dtype that a product is computed in: the widest, of floats if there is one.

    The factors are exact in it, and so is a product of two 16-bit floats in f32.
    """
    floats = [dtype for dtype in (*operands, result) if dtype.is_float]
    widest = max(dtype.bits for dtype in (floats or (*operands, result)))
    among = floats or [result, *operands]
    found = next(dtype for dtype in among if dtype.bits == widest)
    if {dtype.name for dtype in floats if dtype.bits == widest} == {"f16", "bf16"}:
        raise UnsupportedOperation("mixes f16 and bf16", "convert one operand to the other's dtype, or both to f32")
    return found


def _product(op: str, operation: Operation, emitter: Emitter, attrs: Mapping[str, Any]) -> Sequence[Value]:
    lhs, rhs = operation.operands
    wanted = operation.type.dtype
    dtype = computed_in((lhs.type.dtype, rhs.type.dtype), wanted)
    product = emitter.emit(op, emitter.converted(lhs, dtype), emitter.converted(rhs, dtype), **attrs)
    return (emitter.converted(product, wanted),)


def _dot_general(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    numbers = operation.dimensions("dot_dimension_numbers", "DotDimensionNumbers")
    return _product("dot_general", operation, emitter, {name: tuple(getattr(numbers, name)) for name in _DIMENSIONS})


def _dot(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    """The last dimension of the one with the first of the other; vectors and matrices."""
    contracted = (operation.operands[0].type.rank - 1,), (0,)
    return _product("dot_general", operation, emitter, dict(zip(_DIMENSIONS, ((), (), *contracted), strict=True)))


def _convolution(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    numbers = operation.dimensions("dimension_numbers", "ConvDimensionNumbers")
    attrs: dict[str, Any] = {name: int(getattr(numbers, name)) for name in _SINGLE}
    attrs |= {name: tuple(getattr(numbers, name)) for name in _SEVERAL}
    spatial = attrs["kernel_spatial_dimensions"]
    ones = (1,) * len(spatial)
    attrs |= {name: operation.integers(name, ones) for name in ("window_strides", "lhs_dilation", "rhs_dilation")}
    attrs |= {name: operation.integer(name) for name in ("feature_group_count", "batch_group_count")}
    attrs["padding"] = operation.pairs("padding", len(spatial))
    flips = operation.flags("window_reversal", (False,) * len(spatial))
    turned = tuple(dimension for dimension, flip in zip(spatial, flips, strict=True) if flip)
    if turned:
        lhs, rhs = operation.operands
        operation.operands = (lhs, emitter.emit("reverse", rhs, dimensions=turned))
    return _product("convolution", operation, emitter, attrs)


RULES: Mapping[str, Rule] = {
    "stablehlo.convolution": _convolution,
    "stablehlo.dot": _dot,
    "stablehlo.dot_general": _dot_general,
}
