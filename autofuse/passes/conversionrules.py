"""Exact rules for conversions, rounding, absolute values and extrema."""

from __future__ import annotations

import math

from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Node, Value
from autofuse.passes.facts import Facts
from autofuse.passes.matching import is_float, limits, number_of, numbered_sides
from autofuse.passes.rewriting import Call, Expression, Rules, call

_MANTISSA = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}
_WIDENED = {"f16": ("f32", "f64"), "bf16": ("f32", "f64"), "f32": ("f64",), "f64": ()}
_INTEGRAL = ("floor", "ceil", "round_nearest_even", "round_nearest_afz")
_NOT_NEGATIVE = ("abs", "exp", "exp2", "logistic")


def convert_nothing(node: Node, facts: Facts) -> Value | None:
    """A conversion to the dtype that is there."""
    (x,) = node.inputs
    return x if x.type.dtype == node.attrs["dtype"] else None


def convert_converted(node: Node, facts: Facts) -> Call | None:
    """Two conversions are one where the dtype in between holds every number of the first, or both cut integers."""
    inner = facts.producer(node.inputs[0], "convert")
    if inner is None:
        return None
    source, between, target = inner.inputs[0].type.dtype, node.inputs[0].type.dtype, node.attrs["dtype"]
    return call("convert", *inner.inputs, dtype=target) if _is_one_step(source, between, target) else None


def _is_one_step(source: DType, between: DType, target: DType) -> bool:
    if all(dtype.is_integer for dtype in (source, between, target)) and target.bits <= between.bits:
        return True  # the low bits of the low bits
    if not holds(source, between):
        return False
    if target.is_integer and between.is_float and not source.is_float:
        return holds(source, target)  # floats saturate, integers wrap
    if target.is_float and target.bits == 16 and source.is_integer:
        return _value_bits(source) <= _MANTISSA["f32"]  # integers reach 16-bit floats through f32
    return True


def holds(source: DType, target: DType) -> bool:
    """Whether every number of `source` is a number of `target`."""
    if source.is_float:
        return source == target or target.name in _WIDENED[source.name]
    if target.is_float:
        return _value_bits(source) <= _MANTISSA[target.name]
    (least, greatest), (low, high) = limits(source), limits(target)
    return low <= least and greatest <= high


def _value_bits(dtype: DType) -> int:
    return 1 if dtype.kind == "bool" else dtype.bits - (dtype.kind == "int")


def convert_iota(node: Node, facts: Facts) -> Call | None:
    """A converted iota counts in the other dtype: no position is rounded or wrapped on the way."""
    counted = facts.producer(node.inputs[0], "iota")
    target = node.attrs["dtype"]
    if counted is None or target.kind == "bool" or not counted.attrs["dtype"].is_integer:
        return None
    last = counted.attrs["shape"][counted.attrs["iota_dimension"]] - 1
    if last > limits(counted.attrs["dtype"])[1] or (target.is_float and last >= 2 ** _MANTISSA["f32"]):
        return None
    return call("iota", **{**counted.attrs, "dtype": target})


def bitcast_nothing(node: Node, facts: Facts) -> Expression | None:
    """The same bits as the dtype they have; bits taken twice are taken once."""
    (x,) = node.inputs
    if x.type.dtype == node.attrs["dtype"]:
        return x
    inner = facts.producer(x, "bitcast_convert")
    return None if inner is None else call("bitcast_convert", *inner.inputs, dtype=node.attrs["dtype"])


def round_integral(node: Node, facts: Facts) -> Value | None:
    """Rounding what is rounded already, or was an integer."""
    (x,) = node.inputs
    inner = facts.producer(x, "convert", *_INTEGRAL)
    if inner is None or (inner.op == "convert" and inner.inputs[0].type.dtype.is_float):
        return None
    return x


def abs_of_magnitude(node: Node, facts: Facts) -> Expression | None:
    """|x| = x where x is never negative; |-x| = |x|."""
    (x,) = node.inputs
    if x.type.dtype.kind in ("uint", "bool"):
        return x
    inner = facts.producer(x, "negate", *_NOT_NEGATIVE)
    if inner is None:
        return None
    return call("abs", *inner.inputs) if inner.op == "negate" else x


def extremum_of_itself(node: Node, facts: Facts) -> Value | None:
    """max(x, x) = min(x, x) = x."""
    x, y = node.inputs
    return x if x is y else None


def extremum_with_limit(node: Node, facts: Facts) -> Value | None:
    """max(x, least) = x; for integers max(x, greatest) = greatest (for floats NaN would be lost)."""
    lost, kept = _ends(node.inputs[0].type.dtype)
    if node.op == "minimum":
        lost, kept = kept, lost
    for x, repeated, number in numbered_sides(node, facts):
        if number == lost:
            return x
        if number == kept and not is_float(node):
            return repeated
    return None


def _ends(dtype: DType) -> tuple[float, float]:
    return (-math.inf, math.inf) if dtype.is_float else limits(dtype)


def merge_bounds(node: Node, facts: Facts) -> Expression | None:
    """max(max(x, a), b) = max(x, max(a, b)) for numbers a, b that differ; the inner one if they are the same."""
    inner = facts.producer(node.inputs[0], node.op)
    if inner is None:
        return None
    outer_splat, inner_splat = facts.splat(node.inputs[1]), facts.splat(inner.inputs[1])
    if outer_splat is None or inner_splat is None or facts.splat(inner.inputs[0]) is not None:
        return None
    if outer_splat.tobytes() == inner_splat.tobytes():
        return node.inputs[0]
    a, b = number_of(facts, inner.inputs[1]), number_of(facts, node.inputs[1])
    if a is None or b is None or a == b or math.isnan(a) or math.isnan(b):
        return None
    keeps_inner = a > b if node.op == "maximum" else a < b
    return node.inputs[0] if keeps_inner else call(node.op, inner.inputs[0], node.inputs[1])


def clamp_one_side(node: Node, facts: Facts) -> Call | None:
    """A clamp whose bound is the end of the dtype's numbers has one bound."""
    low, x, high = node.inputs
    least, greatest = _ends(x.type.dtype)
    if number_of(facts, low) == least:
        return call("minimum", x, high)
    return call("maximum", x, low) if number_of(facts, high) == greatest else None


def clamp_clamped(node: Node, facts: Facts) -> Value | None:
    """Clamping twice between the same bounds."""
    inner = facts.producer(node.inputs[1], "clamp")
    same = inner is not None and inner.inputs[0] is node.inputs[0] and inner.inputs[2] is node.inputs[2]
    return node.inputs[1] if same else None


RULES: Rules = {
    "convert": (convert_nothing, convert_converted, convert_iota),
    "bitcast_convert": (bitcast_nothing,),
    **dict.fromkeys(_INTEGRAL, (round_integral,)),
    "abs": (abs_of_magnitude,),
    "maximum": (extremum_of_itself, extremum_with_limit, merge_bounds),
    "minimum": (extremum_of_itself, extremum_with_limit, merge_bounds),
    "clamp": (clamp_one_side, clamp_clamped),
}
