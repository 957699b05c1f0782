"""Arithmetic on NumPy arrays whose edges are all defined: the meaning of the scalar opcodes.

16-bit floats compute in f32 and round after every op. Integers wrap; dividing by zero, INT_MIN / -1 and shifts by any
amount have values. Nothing here warns when run under `np.errstate(all="ignore")`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from autofuse.ir import dtypes
from autofuse.ir.dtypes import DType

Array = NDArray[Any]


def widen(x: Array) -> Array:
    """f16 and bf16 as f32 (exact); everything else as it is."""
    if x.dtype.itemsize == 2 and x.dtype.kind in "fV":
        return x.astype(np.float32)
    return x


def rounded(function: Callable[..., Any]) -> Callable[..., Array]:
    """`function` computed in f32 for 16-bit floats, its result rounded to the operands' dtype.

    Of complex numbers it is NumPy's own, also where the result is real.
    """

    @wraps(function)
    def compute(*operands: Array) -> Array:
        if operands[0].dtype.kind == "c":
            return np.asarray(function(*operands))
        return np.asarray(function(*map(widen, operands))).astype(operands[0].dtype, copy=False)

    return compute


def is_integer(x: Array) -> bool:
    """Signed or unsigned, not bool."""
    return x.dtype.kind in "iu"


def bits_of(x: Array) -> int:
    """The width of an element."""
    return x.dtype.itemsize * 8


def unsigned_view(x: Array) -> Array:
    """The same bits as an unsigned integer."""
    return x.view(np.dtype(f"u{x.dtype.itemsize}"))


def divide(x: Array, y: Array) -> Array:
    """Float: IEEE. Integer: truncated; x/0 is -1 (all ones), INT_MIN/-1 is INT_MIN."""
    if not is_integer(x):
        return np.divide(x, y)
    safe, zero = _safe_divisor(x, y)
    quotient = np.where(zero, ~x.dtype.type(0), _truncated(x, safe))
    return quotient if x.dtype.kind == "u" else np.where(y == -1, np.negative(x), quotient)


def remainder(x: Array, y: Array) -> Array:
    """Float: fmod. Integer: the sign of x; x%0 is x, INT_MIN%-1 is 0."""
    if not is_integer(x):
        return np.fmod(x, y)
    safe, zero = _safe_divisor(x, y)
    return np.where(zero, x, x - _truncated(x, safe) * safe)


def _safe_divisor(x: Array, y: Array) -> tuple[Array, Array]:
    """`y` with 1 in place of 0 and of -1 (whose quotient could overflow; its remainder is 0 like that of 1)."""
    zero = y == 0
    bad = zero if x.dtype.kind == "u" else zero | (y == -1)
    return np.where(bad, y.dtype.type(1), y), zero


def _truncated(x: Array, y: Array) -> Array:
    quotient = np.floor_divide(x, y)
    if x.dtype.kind == "u":
        return quotient
    inexact = quotient * y != x
    return quotient + (inexact & ((x < 0) != (y < 0))).astype(x.dtype)


def power(x: Array, y: Array) -> Array:
    """Float: pow. Integer: wraps; a negative exponent gives the truncated reciprocal (0 unless x is 1 or -1)."""
    if x.dtype.kind == "c":
        return np.power(x, y)
    if not is_integer(x):
        root = y == 0.5  # of an exponent that NumPy sees repeated it may take the square root: other zeros, other NaN
        result = np.power(x, y)
        return np.where(root & ((x == 0) | np.isinf(x)), np.abs(x), result)
    left = np.where(y < 0, 0, y).astype(y.dtype) if y.dtype.kind == "i" else y
    result = np.ones_like(x)
    square = x
    while left.any():
        result = np.where(left & 1 != 0, result * square, result)
        square = square * square
        left = left >> 1
    if y.dtype.kind == "u":
        return result
    odd = y & 1 != 0
    reciprocal = np.where(x == 1, x, np.where(x == -1, np.where(odd, x, np.ones_like(x)), np.zeros_like(x)))
    return np.where(y < 0, reciprocal, result)


def shift_left(x: Array, amount: Array) -> Array:
    """0 for amounts that are negative or at least the width."""
    return np.where(_fits(x, amount), np.left_shift(x, _masked(x, amount)), np.zeros_like(x))


def shift_right_logical(x: Array, amount: Array) -> Array:
    """Zero fill; 0 for amounts that are negative or at least the width."""
    bits = unsigned_view(x)
    shifted = np.right_shift(bits, unsigned_view(_masked(x, amount)))
    return np.where(_fits(x, amount), shifted, np.zeros_like(bits)).view(x.dtype)


def shift_right_arithmetic(x: Array, amount: Array) -> Array:
    """Sign fill, also for amounts that are negative or at least the width; of unsigned types too."""
    signed = x.view(np.dtype(f"i{x.dtype.itemsize}"))
    inside = np.where(_fits(x, amount), amount, amount.dtype.type(bits_of(x) - 1))
    return np.right_shift(signed, inside.view(signed.dtype)).view(x.dtype)


def _fits(x: Array, amount: Array) -> Array:
    return unsigned_view(amount) < bits_of(x)


def _masked(x: Array, amount: Array) -> Array:
    return amount & amount.dtype.type(bits_of(x) - 1)


def sign(x: Array) -> Array:
    """-1, 0, 1 of x's dtype; NaN stays NaN and -0. stays -0."""
    if x.dtype.kind == "f":
        return np.where((x == 0) | np.isnan(x), x, np.copysign(x.dtype.type(1), x))
    return x if x.dtype.kind == "b" else np.sign(x)


def round_nearest_afz(x: Array) -> Array:
    """The nearest integer, halves away from zero."""
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(x.dtype.type(1), x), whole).astype(x.dtype)


def popcnt(x: Array) -> Array:
    """The number of one bits."""
    return np.bitwise_count(unsigned_view(x)).astype(x.dtype)


def count_leading_zeros(x: Array) -> Array:
    """Zero bits before the first one bit; the width for 0."""
    filled = unsigned_view(x)
    for step in (1, 2, 4, 8, 16, 32):
        if step < bits_of(x):
            filled = filled | (filled >> filled.dtype.type(step))
    return (bits_of(x) - np.bitwise_count(filled).astype(np.int64)).astype(x.dtype)


def convert(x: Array, target: DType) -> Array:
    """Float to integer truncates, saturates, NaN gives 0; integers wrap; to bool is `!= 0`; floats round to even.

    Of complex numbers that become real ones the imaginary part is dropped.
    """
    if x.dtype == target.numpy:
        return x
    if x.dtype.kind == "c" and not target.is_complex:
        x = np.real(x)
    x = widen(x)
    if target.kind == "bool":
        return x != 0
    if x.dtype.kind == "f" and target.is_integer:
        return _saturated(x, target)
    return x.astype(target.numpy)


def _saturated(x: Array, target: DType) -> Array:
    limits = np.iinfo(cast("Any", target.numpy))
    low, beyond = float(limits.min), float(int(limits.max) + 1)  # powers of two: exact in every float dtype
    inside = (x >= low) & (x < beyond)
    ends = np.where(x >= beyond, target.numpy.type(limits.max), target.numpy.type(limits.min))
    ends = np.where(np.isnan(x), target.numpy.type(0), ends)
    return np.where(inside, np.where(inside, x, 0).astype(target.numpy), ends)


def accumulator(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which a sum of `dtype` runs: f32 for 16-bit floats, else its own."""
    return dtypes.F32.numpy if dtype in (dtypes.F16.numpy, dtypes.BF16.numpy) else dtype
