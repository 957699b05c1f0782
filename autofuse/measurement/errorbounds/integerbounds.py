"""Bounds through what wraps and what takes bits apart: a small change may turn many bits over, or come back to itself.

An integer that is moved by its bound either way has an interval. Below the highest bit in which the interval's ends
differ, any bit may differ; above it, none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from autofuse.ir.dtypes import DType
from autofuse.ir.ops import numerics
from autofuse.measurement.errorbounds.roundings import Array, Bound, distance, precision, shifted, summed

Rule = Callable[[Sequence[Array], Sequence[Bound], DType], Bound]
"""Operands, their bounds and the result's dtype -> the bound that the operands bring."""


def rule(op: str, read: DType, made: DType) -> Rule | None:
    """The rule of an op from one dtype to another, unless it only rises or only falls between two values."""
    if op == "convert" and made.kind == "bool":
        return _truth
    return _RULES.get(op) if read.is_integer and made.is_integer else None


def _truth(operands: Sequence[Array], bounds: Sequence[Bound], _: DType) -> Bound:
    """Whether a number is 0."""
    (x,), (bound,) = operands, bounds
    if bound is None:
        return None
    return (~(np.abs(x.astype(np.float64)) > bound) & (bound > 0)).astype(np.float32)


def _turned(values: Array, bound: Array) -> Array:
    """The bits that may differ."""
    low, high = (numerics.unsigned_view(shifted(values, bound, sign)) for sign in (-1, 1))
    bits = low ^ high
    for step in (1, 2, 4, 8, 16, 32):
        if step < 8 * values.itemsize:
            bits = bits | bits >> bits.dtype.type(step)
    return np.asarray(bits)


def _bitwise(alters: Callable[[Array], Array], lets_through: Callable[[Array], Array]) -> Rule:
    """The rule of an op by what the other operand does to the bits of one that is moved.

    `alters`: the bits in which the result may differ from the moved one. `lets_through`: those that it depends on.
    """

    def bitwise(operands: Sequence[Array], bounds: Sequence[Bound], dtype: DType) -> Bound:
        pairs = zip(operands, bounds, reversed(operands), strict=True)
        moved = [
            (_turned(x, bound), bound, numerics.unsigned_view(other)) for x, bound, other in pairs if bound is not None
        ]
        if not moved:
            return None
        if len(moved) == 2:
            return (moved[0][0] | moved[1][0]).astype(precision(dtype))
        ((turned, bound, other),) = moved
        return np.where((turned & alters(other)) == 0, bound, (turned & lets_through(other)).astype(precision(dtype)))

    return bitwise


def _counted(operands: Sequence[Array], bounds: Sequence[Bound], dtype: DType) -> Bound:
    """The number of one bits changes by no more than bits may differ."""
    bound = bounds[0]
    return None if bound is None else np.bitwise_count(_turned(operands[0], bound)).astype(precision(dtype))


def _wrapped(operands: Sequence[Array], bounds: Sequence[Bound], dtype: DType) -> Bound:
    """To another width: as far as before, unless the interval wraps."""
    (x,), (bound,) = operands, bounds
    if bound is None:
        return None
    ends = [shifted(x, bound, sign) for sign in (-1, 1)]
    before = distance(ends[0], ends[1], dtype)
    low, high = (numerics.convert(end, dtype) for end in ends)
    kept = (low <= high) & (distance(low, high, dtype) == before)
    return np.where(kept, bound, np.inf).astype(precision(dtype))


def _times(operands: Sequence[Array], bounds: Sequence[Bound], dtype: DType) -> Bound:
    left, right = (np.abs(operand.astype(np.float64)) for operand in operands)
    by_left = None if bounds[0] is None else bounds[0] * right
    by_right = None if bounds[1] is None else bounds[1] * left
    both = None if bounds[0] is None or bounds[1] is None else bounds[0].astype(np.float64) * bounds[1]
    return _unless_it_wraps(summed(by_left, by_right, both), left * right, dtype)


def _doubled(operands: Sequence[Array], bounds: Sequence[Bound], dtype: DType) -> Bound:
    """A shift to the left is a product with a power of two."""
    x, amount = (operand.astype(np.float64) for operand in operands)
    if bounds[1] is not None:
        return np.where(bounds[1] > 0, np.inf, np.where(bounds[0] > 0, np.inf, 0) if bounds[0] is not None else 0)
    factor = np.exp2(amount)
    return _unless_it_wraps(None if bounds[0] is None else bounds[0] * factor, np.abs(x) * factor, dtype)


def _unless_it_wraps(bound: Bound, size: Array, dtype: DType) -> Bound:
    """The bound; anything where a result of that size may be beyond what the dtype holds."""
    if bound is None:
        return None
    wraps = size + bound > np.iinfo(dtype.numpy).max
    return np.where(wraps & (bound > 0), np.inf, bound).astype(precision(dtype))


def _scrambled(_: Sequence[Array], bounds: Sequence[Bound], dtype: DType) -> Bound:
    """One bit of a cipher's operands turns over half of its result."""
    moved = summed(*bounds)
    return None if moved is None else np.where(moved > 0, np.inf, 0).astype(precision(dtype))


def _all(mask: Array) -> Array:
    return ~np.zeros_like(mask)


_RULES: Mapping[str, Rule] = {
    "and": _bitwise(np.invert, lambda mask: mask),
    "or": _bitwise(lambda mask: mask, np.invert),
    "xor": _bitwise(lambda mask: mask, _all),
    "shift_left": _doubled,
    "popcnt": _counted,
    "multiply": _times,
    "convert": _wrapped,
    "threefry2x32": _scrambled,
    "philox4x64": _scrambled,
}
