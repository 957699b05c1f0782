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

from autofuse.measurement.errorbounds.roundings import Array, Bound, anything

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

_ROUNDED, _KEPT = np.uint32(0x1000), np.uint32(0xFFFFE000)
_FLIPPED = 2.0**-8
"""Of a factor that may be rounded another way: four steps of TF32, as many such factors seldom all err to one side."""


_DEVIATIONS = 6.0
"""Times what rounding does: errors that come together later are taken as independent, and are there in full."""


def to_tf32(x: Array) -> Array:
    """f32 rounded to TF32, halves away from zero."""
    bits = x.astype(np.float32, copy=False).view(np.uint32)
    return np.where(np.isfinite(x), ((bits + _ROUNDED) & _KEPT).view(np.float32), x)


def by_tf32(operands: Sequence[Array], multiplied: Callable[[Array, Array], Array], result: Array) -> Array:
    """What rounding both factors to TF32 does to products of f32, some times over.

    It is known exactly, as the factors are, and so whatever they have in common. Subnormal ones may count as zeros.
    """
    bound = np.float32(_DEVIATIONS) * np.abs(multiplied(*map(to_tf32, operands)) - result)
    for number, factor in enumerate(operands):
        least = _is_least(factor)
        if least.any():
            pair = [np.abs(operand) for operand in operands]
            pair[number] = np.where(least, pair[number], 0)
            bound = bound + multiplied(*pair)
    both_infinite = np.isinf(result) & np.isnan(bound)
    return anything(np.where(both_infinite, 0, bound)) + np.float32(_LEAST)


def flipped(factor: Array, bound: Bound) -> Bound:
    """The bound of a factor that is rounded to TF32 and was off before: it may have been rounded the other way."""
    if bound is None:
        return None
    low, high = (to_tf32((factor + sign * bound).astype(np.float32)) for sign in (-1, 1))
    return bound + np.where(low != high, np.abs(factor) * np.float32(_FLIPPED), 0)
