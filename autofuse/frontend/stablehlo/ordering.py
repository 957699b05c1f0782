"""Floats as integers of the same order: total order, and the orders that comparators ask for."""

from __future__ import annotations

from typing import Literal

from autofuse.frontend.stablehlo.emitter import Emitter
from autofuse.ir import dtypes
from autofuse.ir.graph import Value
from autofuse.lazydataclass import dataclass


@dataclass(frozen=True, slots=True)
class Order:
    """An order of numbers. Only floats have NaN, and zeros that differ."""

    descending: bool
    """Whether it is the reverse of the ascending order that the rest describes."""
    nan: Literal["greatest", "least", "total"]
    """Where NaN stands in the ascending order; total: by its sign, before or behind all numbers."""
    zeros_apart: bool
    """Whether -0. comes before 0., in place of being equal to it."""


def total_order(x: Value, emitter: Emitter) -> Value:
    """Signed integers in the order of IEEE's totalOrder: -NaN, -inf, ..., -0., 0., ..., inf, NaN."""
    signed = dtypes.by_name(f"i{x.type.dtype.bits}")
    bits = emitter.emit("bitcast_convert", x, dtype=signed)
    width = emitter.full(signed.bits - 1, bits.type)
    magnitude = emitter.full((1 << (signed.bits - 1)) - 1, bits.type)
    flips = emitter.emit("and", emitter.emit("shift_right_arithmetic", bits, width), magnitude)
    return emitter.emit("xor", bits, flips)


def ascending_key(x: Value, order: Order, emitter: Emitter) -> Value:
    """Integers that ascend in an order of `x`: of floats, integers or bool."""
    key = emitter.converted(x, dtypes.I8) if x.type.dtype.kind == "bool" else x
    if x.type.dtype.is_float:
        key = _float_key(x, order, emitter)
    return emitter.emit("not", key) if order.descending else key


def _float_key(x: Value, order: Order, emitter: Emitter) -> Value:
    number = x
    if not order.zeros_apart:
        zero = emitter.full(0, x.type)
        number = emitter.emit("select", emitter.emit("compare", x, zero, direction="EQ"), zero, x)
    key = total_order(number, emitter)
    if order.nan == "total":
        return key
    limit = 1 << (key.type.dtype.bits - 1)
    extreme = emitter.full(limit - 1 if order.nan == "greatest" else -limit, key.type)
    return emitter.emit("select", emitter.emit("compare", x, x, direction="NE"), extreme, key)
