"""What an op adds to the error of its result, and how errors of operands add up.

A bound is an array of the shape of its value: by how much the value may differ from the interpreter's and still be
right; for a bool 1 where it may flip, for anything infinity where it may be anything. None stands for no error at all.

Both sides compute the same IEEE operations, in strict numerics; sums run in another order, functions are within some
ulps. The error of a sum in order is about 0.28 u sqrt(n) sum |x|: n roundings, each of up to half an ulp of a partial
sum, as if independent (Higham and Mary, A new approach to probabilistic rounding error analysis, 2019), u being half of
epsilon. A bound is 16 such deviations, and never more than the worst case of both sides, 2 (n - 1) u sum |x|.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from autofuse.ir import dtypes
from autofuse.ir.dtypes import DType
from autofuse.ir.ops import numerics

Array = NDArray[Any]
Bound = NDArray[Any] | None

BLOCK = 1 << 15
"""Elements that are worked on at a time, so that what comes up on the way stays in a cache."""
DEVIATIONS = 16.0
"""Standard deviations of a sum's error that are allowed: of hundreds of millions of elements all are within six."""
_SPREAD = 0.28
"""Standard deviation of the error of a sum of n terms of one sign, in u sqrt(n) sum |x|."""

EPSILONS = {dtypes.F64: 2.0**-52, dtypes.F32: 2.0**-23, dtypes.F16: 2.0**-10, dtypes.BF16: 2.0**-7}
_NORMALS = {dtypes.F64: 2.0**-1022, dtypes.F32: 2.0**-126, dtypes.F16: 2.0**-14, dtypes.BF16: 2.0**-126}
"""The smallest normal numbers: below, units in the last place are no smaller."""


def precision(dtype: DType) -> Any:
    """The dtype that bounds of a value are held in."""
    return np.float64 if dtype.bits > 32 else np.float32


def op_rounding(ulps: float, dtype: DType, result: Array) -> Bound:
    """The bound of what evaluating an op rounds off that is within `ulps` on either side; None if it rounds nothing."""
    if not dtype.is_float or not ulps:
        return None
    return relative(result, dtype, 1.0 if dtype.bits == 16 else 2 * ulps)


def relative(result: Array, dtype: DType, ulps: float) -> Array:
    """So many units in the last place of each element; none where it is infinite or NaN."""
    size = np.maximum(magnitude(result, dtype), precision(dtype)(_NORMALS[dtype]))
    return finite(size * precision(dtype)(ulps * EPSILONS[dtype]))


def underflow(dtype: DType, terms: int) -> float:
    """What rounding so many products to subnormal numbers may take from their sum."""
    held = _added_in(dtype)
    return terms * _NORMALS[held] * EPSILONS[held]


def _added_in(dtype: DType) -> DType:
    return dtypes.F64 if dtype == dtypes.F64 else dtypes.F32


def magnitude(values: Array, dtype: DType) -> Array:
    """Absolute values in the precision of bounds."""
    return np.abs(values.astype(precision(dtype), copy=False))


def finite(bound: Array) -> Array:
    """The bound with 0 in place of infinity and NaN: what is not finite rounds nothing off."""
    return bound if np.isfinite(bound).all() else np.where(np.isfinite(bound), bound, 0)


def sum_rounding(dtype: DType, terms: int, chain: float, sizes: Array, result: Array) -> Array:
    """The bound of a sum of `terms` terms whose absolute values sum up to `sizes`.

    `chain`: the most additions in a row. 16-bit floats are summed in f32 and rounded once.
    """
    unit = EPSILONS[_added_in(dtype)] / 2
    likely = DEVIATIONS * _SPREAD * math.sqrt(max(chain, 0.0))
    rounding = finite(sizes * precision(dtype)(min(likely, 2.0 * max(terms - 1, 0)) * unit))
    return rounding if dtype.bits > 16 else rounding + relative(result, dtype, 1.0)


def unless_too_large(rounding: Array, sizes: Array, reduced: Callable[[], Array]) -> Array:
    """The bound of a sum; anything where its terms together are so large that an order of adding them may overflow.

    `reduced`: the sizes where all terms are smaller, to tell that from terms that are infinite.
    """
    if np.isfinite(sizes).all():
        return rounding
    return np.where(~np.isfinite(sizes) & np.isfinite(reduced()), np.inf, rounding).astype(rounding.dtype)


def made_smaller(values: Array, dtype: DType) -> Array:
    """Values so much smaller that sums of any number of products of two of them are finite; infinities and NaN stay."""
    return values.astype(precision(dtype), copy=False) * precision(dtype)(2.0**-600 if dtype.bits > 32 else 2.0**-96)


def summed(*bounds: Bound) -> Bound:
    """Errors that add up."""
    known = [bound for bound in bounds if bound is not None]
    if not known:
        return None
    total = known[0]
    for bound in known[1:]:
        total = total + bound
    return total


def independent(*bounds: Bound) -> Bound:
    """Errors of separate origin: at least the root of the sum of their squares, and at most a ninth more.

    Squares of f32 bounds would underflow, and a careful hypotenuse takes ten times as long.
    """
    known = [bound for bound in bounds if bound is not None]
    if not known:
        return None
    total = known[0]
    for bound in known[1:]:
        total = np.maximum(total, bound) + np.minimum(total, bound) * total.dtype.type(0.5)
    return total


def distance(one: Array, other: Array, dtype: DType) -> Array:
    """How far two results are apart; infinity where only one is a number, or they are different infinities."""
    kind = precision(dtype)
    if one.dtype == np.bool_:
        return (one != other).astype(kind)
    if one.dtype.kind in "iu":  # in floats, 64-bit neighbours would be the same
        ends = (numerics.unsigned_view(end(one, other)) for end in (np.maximum, np.minimum))
        return np.asarray(np.subtract(*ends)).astype(kind)
    apart = np.abs(one.astype(kind) - other.astype(kind))
    if np.isfinite(apart).all():
        return apart
    same = (one == other) | ((one != one) & (other != other))
    return np.where(same, kind(0), np.where(np.isnan(apart), kind(np.inf), apart))


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


def anything(bound: Array) -> Array:
    """Infinity in place of NaN."""
    return np.where(np.isnan(bound), np.inf, bound).astype(bound.dtype) if np.isnan(bound).any() else bound


def filled(bound: Bound, shape: Sequence[int], dtype: DType) -> Array:
    """The bound as an array, in the precision of its dtype."""
    kind = precision(dtype)
    return np.zeros(shape, kind) if bound is None else bound.astype(kind, copy=False)
