"""What operations that may be approximated (`numerics = "fast"`) may be off by, beside what strict ones are.

Functions of f32 and of 16-bit floats, which are computed in f32: so many units in the last place of the result, an
absolute error, and what becomes of subnormal numbers and of the ends of the range. Products of f32: operands may be
rounded to TF32, which has 10 bits behind the first.

Sources of the errors: PTX ISA, "Floating Point Instructions" and "mma"; CUDA C++ Programming Guide, "Intrinsic
Functions". A target that approximates otherwise must keep to the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from autofuse.measurement.errorbounds.manyroundings import Multiplied, beside, deviations, root_of_squares
from autofuse.measurement.errorbounds.roundings import Array, Bound, anything, finite, summed

_UNIT = 2.0**-23
"""A unit in the last place of f32, relative to a number."""
_LEAST = 2.0**-126
"""The smallest normal f32: operands below count as zeros, and results become zeros."""
_MOST = 2.0**126
"""Divisors beyond have reciprocals below."""
_SLACK = 1.001
"""Operands may be off a little themselves when they come to such an end."""
_MOST_TURNED = 2.0**22
"""Angles beyond have no digits left when whole turns are taken off."""

Allowed = Callable[[Sequence[Array], Array], Array]
"""Operands and result, in f32 -> the bound."""


def allowed(op: str, operands: Sequence[Array], result: Array) -> Array:
    """The bound that approximating an elementwise op adds to its strict one."""
    wide = [operand.astype(np.float32, copy=False) for operand in (*operands, result)]
    short = result.dtype.itemsize < wide[-1].dtype.itemsize
    rule = _short_tanh if short and op == "tanh" else _RULES[op]
    with np.errstate(all="ignore"):
        bound = anything(np.asarray(rule(wide[:-1], wide[-1]))) + np.float32(_LEAST)
    return bound.astype(np.float32)


def _units(result: Array, count: Array | float) -> Array:
    """So many units in the last place of each element, none of what is not finite."""
    return np.where(np.isfinite(result), np.abs(result) * (count * np.float32(_UNIT)), 0)


def _is_least(x: Array) -> Array:
    """Where a number may count as zero, and is none."""
    return (x != 0) & (np.abs(x) < _LEAST * _SLACK)


def _divide(operands: Sequence[Array], result: Array) -> Array:
    x, y = operands
    ends = (np.abs(y) > _MOST / _SLACK) & np.isfinite(y)
    lost = np.where(_is_least(x), np.abs(result), 0)
    return np.where(ends | _is_least(y), np.inf, lost + _units(result, 2.5))


def _sqrt(operands: Sequence[Array], result: Array) -> Array:
    (x,) = operands
    return np.where(_is_least(x), np.where(x > 0, np.abs(result), np.inf), _units(result, 1.5))


def _rsqrt(operands: Sequence[Array], result: Array) -> Array:
    return np.where(_is_least(operands[0]), np.inf, _units(result, 1.5))


def _exp2(operands: Sequence[Array], result: Array) -> Array:
    return _unless_at_the_end(operands[0], 2.0, result, 2.0)


def _exp(operands: Sequence[Array], result: Array) -> Array:
    (x,) = operands
    return _unless_at_the_end(x, np.e, result, 2.0 + 1.173 * np.abs(x))


def _unless_at_the_end(x: Array, base: float, result: Array, count: Array | float) -> Array:
    """Units of a power of a base; where it has just become too large for f32, it may still be finite."""
    near = np.isinf(result) & (x < 128.01 / np.log2(base))
    return np.where(near, np.inf, _units(result, np.where(np.isfinite(x), count, 0)))


def _logarithm(near_one: float, elsewhere: float) -> Allowed:
    """Within `near_one` from 0.5 to 2, within units in the last place elsewhere."""

    def rule(operands: Sequence[Array], result: Array) -> Array:
        (x,) = operands
        near = (x > 0.5 / _SLACK) & (x < 2.0 * _SLACK)
        return np.where(_is_least(x), np.inf, np.where(near, near_one, 0) + _units(result, elsewhere))

    return rule


def _logistic(operands: Sequence[Array], result: Array) -> Array:
    (x,) = operands
    return _units(result, 4.0 + 1.2 * np.where(np.isfinite(x), np.maximum(-x, 0), 0))


def _tanh(_: Sequence[Array], result: Array) -> Array:
    return np.full(result.shape, 2.0**-20.5, np.float32)


def _short_tanh(_: Sequence[Array], result: Array) -> Array:
    return _units(result, 2.0**12)


def _wave(operands: Sequence[Array], _: Array) -> Array:
    return np.where(
        np.abs(operands[0]) < _MOST_TURNED / _SLACK, 2.0**-20, np.where(np.isfinite(operands[0]), np.inf, 0)
    )


_RULES: Mapping[str, Allowed] = {
    "divide": _divide,
    "sqrt": _sqrt,
    "rsqrt": _rsqrt,
    "exp": _exp,
    "exp2": _exp2,
    "log": _logarithm(2.0**-21.41, 3.0),
    "log2": _logarithm(2.0**-22, 2.0),
    "logistic": _logistic,
    "tanh": _tanh,
    "sin": _wave,
    "cos": _wave,
}

_ROUNDED, _KEPT, _EXPONENT = np.uint32(0x1000), np.uint32(0xFFFFE000), np.uint32(0x7F800000)
_TF32_UNIT = np.float32(2.0**-10)
"""A unit in the last place of TF32, relative to a power of two."""
_TF32_MOST = np.float32((2.0 - 2.0**-10) * 2.0**127)
"""The largest TF32: what is beyond may be rounded to infinity."""
_SHALLOW = 64
"""Terms of a product up to which its roundings, all to one side, may be less than what chance is allowed."""


def to_tf32(x: Array) -> Array:
    """f32 rounded to TF32, halves away from zero."""
    bits = x.astype(np.float32, copy=False).view(np.uint32)
    return np.where(np.isfinite(x), ((bits + _ROUNDED) & _KEPT).view(np.float32), x)


def _cut_to_tf32(x: Array) -> Array:
    """f32 without the digits that TF32 lacks: for no number nearer than rounding to the nearest."""
    return np.where(np.isfinite(x), (x.view(np.uint32) & _KEPT).view(np.float32), x)


def _units_of_tf32(x: Array) -> Array:
    """How far apart the TF32 below and above are; 0 for numbers that are TF32, and for what is not finite."""
    bits = x.view(np.uint32)
    size = (bits & _EXPONENT).view(np.float32) * _TF32_UNIT
    return np.where(np.isfinite(x) & ((bits & ~_KEPT) != 0), size, np.float32(0))


def by_tf32(operands: Sequence[Array], multiplied: Multiplied, result: Array, depth: int) -> Array:
    """What rounding both factors to TF32, one way or another, does to products of f32. `depth`: terms of each.

    Libraries round to the nearest, halves to one side or the other, or cut digits off, and not both factors alike. What
    that does in the mean is known, as the factors are: no more than cutting off does, in each. What is chance is as of
    any roundings to such units. Subnormal numbers may count as zeros.
    """
    x, y = (operand.astype(np.float32, copy=False) for operand in operands)
    cut = multiplied(_cut_to_tf32(x), y)
    bound = np.abs(cut - result) + np.abs(multiplied(_cut_to_tf32(x), _cut_to_tf32(y)) - cut)
    bound = np.where(np.isinf(result) & np.isnan(bound), 0, bound) + _by_chance([x, y], multiplied, result.size, depth)
    for number, factor in enumerate((x, y)):
        size = [np.abs(x), np.abs(y)]
        least, most = _is_least(factor), np.isfinite(factor) & (np.abs(factor) > _TF32_MOST)
        if least.any():
            bound = bound + beside(np.where(least, size[number], 0), size[1 - number], number, multiplied)
        if most.any():
            found = beside(most.astype(np.float32), np.ones_like(size[1 - number]), number, multiplied)
            bound = np.where(found > 0, np.inf, bound)
    return anything(bound.astype(np.float32)) + np.float32(_LEAST)


def _by_chance(factors: Sequence[Array], multiplied: Multiplied, count: int, depth: int) -> Array | float:
    units: list[Bound] = [_units_of_tf32(factor) for factor in factors]
    sizes = [finite(np.abs(factor)) for factor in factors]
    likely = root_of_squares(sizes, units, multiplied)
    if likely is None:
        return 0.0
    likely = likely * np.float32(deviations(count))
    if depth > _SHALLOW:
        return likely
    most = summed(*(beside(unit, sizes[1 - n], n, multiplied) for n, unit in enumerate(units) if unit is not None))
    return likely if most is None else np.minimum(likely, most)
