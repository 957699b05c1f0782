"""Is a kernel's answer right: tolerances per dtype, positions of NaN and infinity, and memory it forgot to write."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import MeasureError
from autofuse.ir import dtypes
from autofuse.ir.dtypes import DType

POISON_BYTE = 0xCB
"""Fills buffers before a kernel runs. As a float of any width it is a finite, huge, odd number; as an integer, too."""


class WrongAnswerError(MeasureError):
    """A kernel ran and gave another answer than the interpreter."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """`|actual - expected| <= relative * (|expected| + scale)`, where scale is the root mean square of the expected."""

    relative: float
    flips: float = 0.0
    """Share of integers and bools that may differ at all. Where a float decides one (a rounding, a comparison, an
    argmax) the last bits of that float decide it now and then; otherwise integers are exact."""


EXACT = Tolerance(0.0)
DECIDED_BY_FLOATS = Tolerance(0.0, flips=1e-4)
"""For integers and bools that are computed from floats."""

_BASE_ULPS: dict[DType, float] = {
    dtypes.F64: 64.0,
    dtypes.F32: 64.0,
    dtypes.F16: 8.0,
    dtypes.BF16: 4.0,
}
"""Units of machine epsilon allowed for an elementwise answer.

The two sides evaluate the same IEEE operations in the same order; they differ in transcendental functions, which are
within 4 ulp on either side, amplified by what follows them: 64 leaves room for a condition number of about 8. The
16-bit types round after every operation that stores, and both sides round the same values: a few ulp are enough, and
64 would let 6 % errors of f16 pass.
"""


_BLOCK = 1 << 15
"""Elements that are compared at a time: what comes up on the way then stays in a cache."""


@dataclass(frozen=True, slots=True)
class _Size:
    """How large the elements of an array are."""

    peak: float
    """The largest absolute value."""
    scale: float
    """The root mean square."""


def tolerance(dtype: DType, terms: int = 1) -> Tolerance:
    """What an answer of `dtype` may differ by when each element folds `terms` terms.

    Rounding errors of a sum in any order grow like sqrt(terms) epsilon relative to the size of its terms (Higham,
    Accuracy and Stability, 4.2 and 2.6: the worst case, terms * epsilon, needs all errors of one sign). 16-bit sums
    are accumulated in f32, so the count of terms matters there only as in f32. Integers and bools are exact.
    """
    if not dtype.is_float:
        return EXACT
    epsilon = _epsilon(dtype)
    relative = _BASE_ULPS[dtype] * epsilon
    grown = _BASE_ULPS[dtypes.F32] * _epsilon(dtypes.F32) if dtype.bits == 16 else relative
    return Tolerance(relative + grown * (math.sqrt(max(terms, 1)) - 1))


def _epsilon(dtype: DType) -> float:
    return 2.0 ** -{dtypes.F64: 52, dtypes.F32: 23, dtypes.F16: 10, dtypes.BF16: 7}[dtype]


def poison(array: NDArray[Any]) -> None:
    """Fill a contiguous output buffer with the pattern that must vanish."""
    array.reshape(-1).view(np.uint8)[...] = POISON_BYTE


def poisoned(shape: tuple[int, ...], dtype: DType) -> NDArray[Any]:
    """A fresh poisoned array."""
    array: NDArray[Any] = np.empty(shape, dtype.numpy)
    if array.size:
        poison(array)
    return array


def unwritten(actual: NDArray[Any], expected: NDArray[Any]) -> NDArray[np.bool_]:
    """Where the poison is still there although the right answer is something else."""
    left = _is_poison(actual)
    return left & ~_is_poison(expected) if left.any() else left


def _is_poison(array: NDArray[Any]) -> NDArray[np.bool_]:
    flat = np.ascontiguousarray(array).reshape(-1)
    if not flat.size:
        return np.zeros(array.shape, np.bool_)
    pattern = int.from_bytes(bytes([POISON_BYTE]) * flat.itemsize, "little")
    return np.asarray(flat.view(f"u{flat.itemsize}") == pattern).reshape(array.shape)


def check(name: str, actual: NDArray[Any], expected: NDArray[Any], allowed: Tolerance | None = None) -> None:
    """Raise WrongAnswerError that reports the first differing element, unless `actual` is right.

    `allowed` defaults to `tolerance(dtype)`. NaN must stand where NaN is expected, infinities must have their sign.
    """
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        raise WrongAnswerError(
            f"{name}: is {actual.dtype}{list(actual.shape)}, expected {expected.dtype}{list(expected.shape)}"
        )
    allowed = allowed or tolerance(dtypes.from_numpy(expected.dtype))
    size = _size_of(expected)
    if _is_right(actual, expected, allowed, size):
        return
    lost = unwritten(actual, expected)
    if np.count_nonzero(lost) > _chance(allowed, expected):
        _report(name, "was not written", lost, actual, expected)
    wrong, deviation = _differences(actual, expected, allowed, size)
    if np.count_nonzero(wrong) > allowed.flips * wrong.size:
        _report(name, f"is off ({deviation}; allowed: {allowed.relative:.3g} relative)", wrong, actual, expected)


def _is_right(actual: NDArray[Any], expected: NDArray[Any], allowed: Tolerance, size: _Size) -> bool:
    """What `check` decides, without words and block by block."""
    wrong = lost = 0
    for a, e in zip(_blocks(actual), _blocks(expected), strict=True):
        lost += int(np.count_nonzero(unwritten(a, e)))
        if lost > _chance(allowed, expected):
            return False
        if not _is_close(a, e, allowed, size):
            wrong += int(np.count_nonzero(_differences(a, e, allowed, size)[0]))
    return bool(wrong <= allowed.flips * actual.size)


def _chance(allowed: Tolerance, expected: NDArray[Any]) -> float:
    """How many elements may look unwritten: a byte that may differ at all may come out as the poison."""
    return allowed.flips * expected.size if expected.dtype.kind in "iu" and expected.itemsize == 1 else 0.0


def _is_close(actual: NDArray[Any], expected: NDArray[Any], allowed: Tolerance, size: _Size) -> bool:
    """Whether all elements are finite floats within the tolerance; False if that takes a closer look."""
    if not dtypes.from_numpy(expected.dtype).is_float:
        return False
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        # strictly: the distance to an infinity is not less than anything, nor is one that is no number
        return bool((np.abs(a - e) < allowed.relative * (np.abs(e) + size.scale)).all())


def _blocks(array: NDArray[Any]) -> list[NDArray[Any]]:
    flat = np.ascontiguousarray(array).reshape(-1)
    return [flat[begin : begin + _BLOCK] for begin in range(0, flat.size, _BLOCK)]


def _size_of(expected: NDArray[Any]) -> _Size:
    """Of the finite elements of floats."""
    if not dtypes.from_numpy(expected.dtype).is_float:
        return _Size(0.0, 0.0)
    peak = max((float(np.max(np.abs(_finite(block)))) for block in _blocks(expected)), default=0.0)
    if not peak:
        return _Size(0.0, 0.0)
    squares = math.fsum(float(np.sum(np.square(_finite(block) / peak))) for block in _blocks(expected))
    return _Size(peak, peak * math.sqrt(squares / expected.size))


def _finite(values: NDArray[Any]) -> NDArray[np.float64]:
    wide = values.astype(np.float64)
    return np.where(np.isfinite(wide), wide, 0.0)


def _differences(
    actual: NDArray[Any], expected: NDArray[Any], allowed: Tolerance, size: _Size
) -> tuple[NDArray[np.bool_], str]:
    """Which elements are wrong, and the largest deviation in words."""
    if not dtypes.from_numpy(expected.dtype).is_float:
        if expected.dtype == np.bool_:  # a byte other than 0 and 1 is no bool, though NumPy takes it for True
            actual, expected = actual.view(np.uint8), expected.view(np.uint8)
        return np.asarray(actual != expected), "integers and bools are exact"
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    both = np.isfinite(a) & np.isfinite(e)
    special = (np.isnan(a) & np.isnan(e)) | (a == e)
    kept = np.where(np.isfinite(e), e, 0.0)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.where(both, np.abs(a - e), 0.0)
        relative = error / (np.abs(kept) + size.scale) if size.peak else error
    wrong = np.where(both, relative > allowed.relative, ~special)
    misplaced = int(np.count_nonzero(~both & ~special))
    words = f"largest relative deviation {float(np.max(relative, initial=0.0)):.3g}"
    return wrong, f"{words}, {misplaced} misplaced NaN or infinities" if misplaced else words


def _report(name: str, what: str, where: NDArray[np.bool_], actual: NDArray[Any], expected: NDArray[Any]) -> None:
    count = int(np.count_nonzero(where))
    first = tuple(int(i) for i in np.unravel_index(int(np.argmax(where.reshape(-1))), where.shape))
    raise WrongAnswerError(
        f"{name}{list(first)} {what}: got {actual[first]!s}, expected {expected[first]!s}; "
        f"{count} of {where.size} elements differ"
    )
