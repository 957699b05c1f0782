"""Rules of elementwise operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from autofuse.frontend.stablehlo.emitter import Emitter
from autofuse.frontend.stablehlo.operation import Operation
from autofuse.frontend.stablehlo.ordering import total_order
from autofuse.frontend.stablehlo.reducedprecision import reduce_precision
from autofuse.frontend.stablehlo.rules import Rule
from autofuse.frontend.stablehlo.widths import bitcast
from autofuse.ir.graph import Value

_SAME: Mapping[str, str] = {
    **dict.fromkeys(("chlo.erf", "mhlo.erf"), "erf"),
    **dict.fromkeys(("chlo.erf_inv", "mhlo.erf_inv"), "erf_inv"),
    **dict.fromkeys(("chlo.tan", "stablehlo.tan", "mhlo.tan"), "tan"),
    "stablehlo.cosine": "cos",
    "stablehlo.exponential": "exp",
    "stablehlo.exponential_minus_one": "expm1",
    "stablehlo.log_plus_one": "log1p",
    "stablehlo.sine": "sin",
    **{
        f"stablehlo.{name}": name
        for name in (
            *("abs", "add", "and", "atan2", "cbrt", "ceil", "count_leading_zeros", "divide", "floor", "is_finite"),
            *("log", "logistic", "maximum", "minimum", "multiply", "negate", "not", "or", "popcnt", "power"),
            *("complex", "imag", "real"),
            *("remainder", "round_nearest_afz", "round_nearest_even", "rsqrt", "shift_left"),
            *("shift_right_arithmetic", "shift_right_logical", "sign", "sqrt", "subtract", "tanh", "xor"),
        )
    },
}
"""Operations that the op table has under this name, with the same meaning."""


def same(op: str, operation: Operation, emitter: Emitter) -> Sequence[Value]:
    """The op of this name, of the operation's operands."""
    return (emitter.emit(op, *operation.operands),)


def _compare(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    x, y = operation.operands
    if x.type.dtype.is_float and operation.word("compare_type", "FLOAT") == "TOTALORDER":
        x, y = total_order(x, emitter), total_order(y, emitter)
    return (emitter.emit("compare", x, y, direction=operation.word("comparison_direction")),)


def _select(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    pred, on_true, on_false = operation.operands
    return (emitter.emit("select", emitter.spread(pred, on_true.type.shape), on_true, on_false),)


def _clamp(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    low, x, high = operation.operands
    shape = x.type.shape
    return (emitter.emit("clamp", emitter.spread(low, shape), x, emitter.spread(high, shape)),)


def _convert(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    return (emitter.converted(operation.operands[0], operation.type.dtype),)


def _bitcast(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    return (bitcast(operation.operands[0], operation.type, emitter),)


def _reduce_precision(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    (x,) = operation.operands
    return (reduce_precision(x, operation.integer("exponent_bits"), operation.integer("mantissa_bits"), emitter),)


def _square(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    (x,) = operation.operands
    return (emitter.emit("multiply", x, x),)


RULES: Mapping[str, Rule] = {
    **{name: partial(same, op) for name, op in _SAME.items()},
    "chlo.square": _square,
    "stablehlo.bitcast_convert": _bitcast,
    "stablehlo.clamp": _clamp,
    "stablehlo.compare": _compare,
    "stablehlo.convert": _convert,
    "stablehlo.reduce_precision": _reduce_precision,
    "stablehlo.select": _select,
}
