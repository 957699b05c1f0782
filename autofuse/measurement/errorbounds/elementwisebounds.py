"""Bounds through elementwise ops: an operand is moved by its bound either way, and what the result does is its bound.

That holds for steps and poles as well as for slopes: a floor beside an integer may jump, a logarithm beside zero may be
anything. It does not hold for what goes up and down between the two ends, as a sine and the last bits of an integer do:
those have rules of their own. The commonest operations have their slopes written out, which saves evaluating again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Node
from autofuse.ir.oprecord import is_fast
from autofuse.ir.optable import elementwise_op, lookup
from autofuse.measurement.errorbounds import approximations, integerbounds
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
    shifted,
    summed,
)

Rule = integerbounds.Rule


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
        written = _rule(node)
        if written is not None:
            carried = written(operands, bounds, dtype)
        else:
            carried = _moved(node, operands, bounds, result, dtype)
    rounding = op_rounding(elementwise_op(node).work.ulps, dtype, result) if _rounds(node) else None
    return summed(carried, rounding, approximations.allowed(node.op, operands, result) if is_fast(node.attrs) else None)


def _rule(node: Node) -> Rule | None:
    """The rule that is written for an op on such operands."""
    if node.op in _FOR_ALL:
        return _FOR_ALL[node.op]
    read, made = (value.type.dtype for value in (node.inputs[0], node.output))
    if read.is_float and made.is_float:
        return _OF_FLOATS.get(node.op)
    return integerbounds.rule(node.op, read, made)


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
            (found,) = evaluate(given, node.attrs, ())
            here = distance(found, result, dtype)
            apart = here if apart is None else np.maximum(apart, here)
        if operands[number].dtype.kind in "iu":  # whose ends are not all that it may be where that is anything
            apart = np.where(np.isinf(bound), np.inf, apart).astype(precision(dtype))
        parts.append(apart)
    return independent(*parts) if dtype.is_float else summed(*parts)


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


def _waved(_: Sequence[Array], bounds: Sequence[Bound], __: DType) -> Bound:
    """A sine moves by no more than its operand, and by 2 at most."""
    bound = bounds[0]
    return None if bound is None else np.minimum(bound, bound.dtype.type(2))


def _tangent(operands: Sequence[Array], bounds: Sequence[Bound], dtype: DType) -> Bound:
    """The slope is 1 / cos(x)**2, and there is a pole where the cosine may be 0."""
    (x,), (bound,) = operands, bounds
    if bound is None:
        return None
    least = np.abs(np.cos(x.astype(precision(dtype)))) - bound
    return anything(np.where((bound > 0) & ~(least > 0), np.inf, bound / np.square(least)).astype(bound.dtype))


def _remainder(operands: Sequence[Array], bounds: Sequence[Bound], dtype: DType) -> Bound:
    """Of x - trunc(x / y) * y: up to twice y further where the quotient may be another one."""
    if bounds[0] is None and bounds[1] is None:
        return None
    over, under = (np.abs(operand.astype(np.float64)) for operand in operands)
    by_over, by_under = (0.0 if bound is None else bound.astype(np.float64) for bound in bounds)
    quotient = over / under
    reach = by_over / under + quotient * by_under / np.maximum(under - by_under, 0) + quotient * _DOUBLE
    part = quotient - np.floor(quotient)
    smooth = by_over + np.floor(quotient) * by_under
    moved = np.where((part > reach) & (part < 1 - reach), smooth, smooth + 2 * (under + by_under))
    return np.where(by_over + by_under > 0, anything(moved), 0.0).astype(precision(dtype))


_DOUBLE = 2.0**-50
"""Relative error of a quotient in f64, roughly."""
_FOR_ALL: Mapping[str, Rule] = {"compare": _compared, "select": _selected, "remainder": _remainder}
_OF_FLOATS: Mapping[str, Rule] = {
    "add": _plus,
    "subtract": _plus,
    "multiply": _times,
    "divide": _divided,
    "negate": _kept,
    "abs": _kept,
    "convert": _kept,
    "sin": _waved,
    "cos": _waved,
    "tan": _tangent,
}
