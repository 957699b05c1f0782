"""Bounds through products: what sums round off, and what errors of many factors come to.

Errors of factors count as independent. What is itself a bound of many errors, of an earlier sum, is some deviations of
them already: the root of a sum of squares is as many of theirs. A single rounding is not: its bound is the most that it
does, and of many of them together `manyroundings` says what they do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from autofuse.ir.graph import Node
from autofuse.ir.oprecord import Role, is_fast
from autofuse.ir.optable import lookup, role_of
from autofuse.lower.summing import sum_block
from autofuse.measurement.errorbounds.approximations import by_tf32
from autofuse.measurement.errorbounds.manyroundings import Multiplied, beside, deviations, root_of_squares
from autofuse.measurement.errorbounds.roundings import (
    Array,
    Bound,
    finite,
    made_smaller,
    magnitude,
    precision,
    sum_rounding,
    summed,
    underflow,
    unless_too_large,
)


def product(
    node: Node, operands: Sequence[Array], bounds: Sequence[Bound], singles: Sequence[Bound], result: Array
) -> Bound:
    """`dot_general` and `convolution`. `singles`: what of the bounds is of single roundings."""
    dtype, evaluate = node.output.type.dtype, lookup(node.op).evaluate

    def multiplied(left: Array, right: Array) -> Array:
        return evaluate([left, right], node.attrs, ())[0]

    unsure = _unsure(bounds, operands, multiplied, lambda bound: np.isinf(bound) if dtype.is_float else bound > 0)
    if not dtype.is_float:
        return unsure
    sizes = [magnitude(operand, dtype) for operand in operands]
    depth = _depth(node, operands)
    chain = min(depth, 2 * sum_block(depth)) + depth / sum_block(depth)
    summed_sizes = multiplied(*sizes)
    terms = depth if all(bound is None for bound in bounds) else max(depth, 2)  # products of other factors round anew
    rounding = sum_rounding(dtype, terms, chain, summed_sizes, result) + precision(dtype)(underflow(dtype, depth))
    rounding = unless_too_large(
        rounding, summed_sizes, lambda: multiplied(*(made_smaller(size, dtype) for size in sizes))
    )
    if is_fast(node.attrs):
        rounding = rounding + by_tf32(operands, multiplied, result, depth)
    return summed(rounding, _carried_by_factors(sizes, bounds, singles, multiplied, result.size), unsure)


def _unsure(
    bounds: Sequence[Bound],
    operands: Sequence[Array],
    multiplied: Multiplied,
    chosen: Callable[[Array], Array],
) -> Bound:
    """Anything where an element that is chosen by its bound is a factor; None where there is none."""
    marks = [None if bound is None else chosen(bound).astype(np.float32) for bound in bounds]
    if not any(mark is not None and mark.any() for mark in marks):
        return None
    filled = [np.zeros(x.shape, np.float32) if mark is None else mark for mark, x in zip(marks, operands, strict=True)]
    left, right = (np.ones(x.shape, np.float32) for x in operands)
    found = multiplied(filled[0], right) + multiplied(left, filled[1])
    return np.where(found > 0, np.float32(np.inf), np.float32(0))


def _carried_by_factors(
    sizes: Sequence[Array], bounds: Sequence[Bound], singles: Sequence[Bound], multiplied: Multiplied, count: int
) -> Bound:
    """What the errors of factors do to so many elements; single roundings no more than all of them together."""
    known = [None if bound is None else finite(bound) for bound in bounds]
    pairs = list(zip(known, singles, strict=True))
    alone = [None if b is None or single is None else np.minimum(finite(single), b) for b, single in pairs]
    others = [b if b is None or one is None else b - one for b, one in zip(known, alone, strict=True)]
    reached = [finite(size) if b is None else finite(size) + b for size, b in zip(sizes, known, strict=True)]
    carried = root_of_squares(reached, others, multiplied)
    likely = root_of_squares(reached, alone, multiplied)
    if likely is None:
        return carried
    parts = [(number, one) for number, one in enumerate(alone) if one is not None]
    most = summed(*(beside(one, reached[1 - number], number, multiplied) for number, one in parts))
    assert most is not None
    likely = likely * likely.dtype.type(deviations(count))
    return np.minimum(most, likely) if carried is None else np.minimum(carried + most, np.hypot(carried, likely))


def _depth(node: Node, operands: Sequence[Array]) -> int:
    left, right = (operand.shape for operand in operands)
    if role_of(node) is Role.DOT:
        return math.prod(left[axis] for axis in node.attrs["lhs_contracting_dimensions"])
    return math.prod(right) // max(right[node.attrs["kernel_output_feature_dimension"]], 1)
