"""Bounds through elementwise ops: an operand is moved by its bound either way, and what the result does is its bound.

That holds for steps and poles as well as for slopes: a floor beside an integer may jump, a logarithm beside zero may be
anything. The commonest operations have their slopes written out, as they need no second evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Node
from autofuse.ir.ops import numerics
from autofuse.ir.optable import lookup
from autofuse.measurement.errorbounds.roundings import (
    BLOCK,
    Array,
    Bound,
    anything,
    distance,
    independent,
    magnitude,
    op_rounding,
    precision,
    summed,
)

Rule = Callable[[Sequence[Array], Sequence[Bound], DType], Bound]


def elementwise(node: Node, operands: Sequence[Array], bounds: Sequence[Bound], result: Array) -> Bound:
    """The bound of an elementwise op's result."""
    if result.size <= 2 * BLOCK or result.shape[0] == 1:
        return _part(node, operands, bounds, result)
    rows = max(1, BLOCK * result.shape[0] // result.size)
    total: Bound = None
    for begin in range(0, result.shape[0], rows):
        here = slice(begin, begin + rows)
        few = [None if bound is None else bound[here] for bound in bounds]
        part = _part(node, [operand[here] for operand in operands], few, result[here])
        if part is None:
            return None
        if total is None:
            total = np.empty(result.shape, part.dtype)
        total[here] = part
    return total


def _part(node: Node, operands: Sequence[Array], bounds: Sequence[Bound], result: Array) -> Bound:
    """The same of some rows. Whether there is a bound at all does not depend on which."""
    dtype = node.output.type.dtype
    carried: Bound = None
    if any(bound is not None for bound in bounds):
        written = _WRITTEN.get(node.op)
        is_plain = dtype.is_float and all(value.type.dtype.is_float for value in node.inputs)
        if written is not None and (is_plain or node.op in _FOR_ALL):
            carried = written(operands, bounds, dtype)
        else:
            carried = _moved(node, operands, bounds, result, dtype)
    return summed(carried, op_rounding(node.op, dtype, result) if _rounds(node) else None)


def _rounds(node: Node) -> bool:
    if node.op != "convert":
        return True
    source, target = node.inputs[0].type.dtype, node.output.type.dtype
    return not (source.is_float and source.bits < target.bits) and source != target


def _moved(node: Node, operands: Sequence[Array], bounds: Sequence[Bound], result: Array, dtype: DType) -> Bound:
    evaluate = lookup(node.op).evaluate
    parts: list[Bound] = []
    for number, bound in enumerate(bounds):
        if bound is None:
            continue
        apart: Array | None = None
        for sign in (1, -1):
            given = list(operands)
            given[number] = shifted(operands[number], bound, sign)
            (found,) = evaluate(given, node.attrs, node.regions)
            here = distance(found, result, dtype)
            apart = here if apart is None else np.maximum(apart, here)
        parts.append(apart)
    return independent(*parts)


def shifted(values: Array, bound: Array, sign: int) -> Array:
    """Values moved by their bounds: floats up or down, integers too but not past their ends, bools flipped."""
    if values.dtype == np.bool_:
        return values ^ (bound > 0)
    if values.dtype.kind in "iu":
        limits = np.iinfo(cast("Any", values.dtype))
        wide = np.minimum(bound, float(limits.max) / 2).astype(values.dtype)
        if sign > 0:
            return np.where(values > limits.max - wide, limits.max, values + wide)
        return np.where(values < limits.min + wide, limits.min, values - wide)
    return (numerics.widen(values) + sign * bound).astype(values.dtype)


def _kept(_: Sequence[Array], bounds: Sequence[Bound], dtype: DType) -> Bound:
    bound = bounds[0]
    return None if bound is None else bound.astype(precision(dtype), copy=False)


def _plus(_: Sequence[Array], bounds: Sequence[Bound], __: DType) -> Bound:
    return independent(*bounds)


def _times(operands: Sequence[Array], bounds: Sequence[Bound], dtype: DType) -> Bound:
    left, right = (magnitude(operand, dtype) for operand in operands)
    by_left = None if bounds[0] is None else bounds[0] * right
    by_right = None if bounds[1] is None else bounds[1] * left
    both = None if bounds[0] is None or bounds[1] is None else bounds[0] * bounds[1]
    total = summed(independent(by_left, by_right), both)
    return None if total is None else anything(total)


def _divided(operands: Sequence[Array], bounds: Sequence[Bound], dtype: DType) -> Bound:
    """Anything where the divisor may be 0."""
    over, under = (magnitude(operand, dtype) for operand in operands)
    reach = under if bounds[1] is None else under - bounds[1]
    moved = summed(bounds[0], None if bounds[1] is None else over / under * bounds[1])
    if moved is None:
        return None
    return anything(np.where((moved > 0) & ~(reach > 0), np.inf, moved / reach).astype(moved.dtype, copy=False))


def _compared(operands: Sequence[Array], bounds: Sequence[Bound], _: DType) -> Bound:
    """A comparison may flip where both sides are within reach of each other."""
    reach = summed(*bounds)
    if reach is None:
        return None
    wide = np.float64 if operands[0].dtype.itemsize > 4 else np.float32
    apart = np.abs(operands[0].astype(wide) - operands[1].astype(wide))
    return (~(apart > reach) & (reach > 0)).astype(np.float32)


def _selected(operands: Sequence[Array], bounds: Sequence[Bound], dtype: DType) -> Bound:
    pred, on_true, on_false = operands
    flips, if_true, if_false = bounds
    kind = precision(dtype)
    bound: Bound = None
    if if_true is not None or if_false is not None:
        bound = np.where(pred, kind(0) if if_true is None else if_true, kind(0) if if_false is None else if_false)
    if flips is None:
        return bound
    apart: Array = distance(on_true, on_false, dtype)
    for part in (if_true, if_false):
        apart = apart if part is None else apart + part
    return np.where(flips > 0, apart, kind(0) if bound is None else bound)


_WRITTEN: Mapping[str, Rule] = {
    "add": _plus,
    "subtract": _plus,
    "multiply": _times,
    "divide": _divided,
    "negate": _kept,
    "abs": _kept,
    "convert": _kept,
    "compare": _compared,
    "select": _selected,
}
_FOR_ALL = frozenset(("compare", "select"))
