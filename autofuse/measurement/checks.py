"""Is a kernel's answer right: within its bounds, NaN and infinity in their places, and no memory left unwritten."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from autofuse.errors import MeasureError
from autofuse.ir import dtypes
from autofuse.ir.dtypes import DType
from autofuse.measurement.errorbounds import Bound

POISON_BYTE = 0xCB
"""Fills buffers before a kernel runs. As a float of any width it is a finite, huge, odd number; as an integer, too."""


CHECK_VERSION = "bounds/6"
"""How answers are judged. Part of the keys of records, which hold verdicts; raised when a verdict may change."""


class WrongAnswerError(MeasureError):
    """A kernel ran and gave another answer than the interpreter."""


_BLOCK = 1 << 15
"""Elements that are compared at a time: what comes up on the way then stays in a cache."""


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


def check(name: str, actual: NDArray[Any], expected: NDArray[Any], bound: Bound = None) -> None:
    """Raise WrongAnswerError that reports the first differing element, unless `actual` is right.

    `bound`: by how much each element may differ (`errorbounds.bounds_of`); by default not at all. NaN must stand where
    NaN is expected, and infinities with their sign, unless the bound reaches that far.
    """
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        raise WrongAnswerError(
            f"{name}: is {actual.dtype}{list(actual.shape)}, expected {expected.dtype}{list(expected.shape)}"
        )
    allowed = np.broadcast_to(np.float32(0) if bound is None else bound, expected.shape)
    parts = list(zip(_blocks(actual), _blocks(expected), _blocks(allowed), strict=True))
    if all(_is_right(*part) for part in parts):
        return
    lost = unwritten(actual, expected) & ~_differs_within(actual, expected, allowed)
    if lost.any():
        _report(name, "was not written", lost, actual, expected)
    wrong = np.concatenate([_wrong(*part) for part in parts]).reshape(expected.shape)
    _report(name, f"is off ({_deviation(actual, expected, allowed, wrong)})", wrong, actual, expected)


def same_bits(actual: NDArray[Any], expected: NDArray[Any]) -> bool:
    """Whether two arrays are equal to the bit, in type and shape too."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return False
    return all(np.array_equal(_bits(a), _bits(e)) for a, e in zip(_blocks(actual), _blocks(expected), strict=True))


def is_within(actual: NDArray[Any], expected: NDArray[Any], allowed: float) -> bool:
    """Whether arrays of one type and shape differ by at most so much, as `check` sees it, in all elements."""
    most = np.asarray(allowed)
    return not any(_wrong(a, e, most).any() for a, e in zip(_blocks(actual), _blocks(expected), strict=True))


def _blocks(array: NDArray[Any]) -> list[NDArray[Any]]:
    flat = np.ascontiguousarray(array).reshape(-1)
    return [flat[begin : begin + _BLOCK] for begin in range(0, flat.size, _BLOCK)]


def _is_right(actual: NDArray[Any], expected: NDArray[Any], allowed: NDArray[Any]) -> bool:
    """What `check` decides of a block. Poison needs no look of its own: it is far from every other answer."""
    return bool(np.array_equal(_bits(actual), _bits(expected))) or not _wrong(actual, expected, allowed).any()


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    return array.view(np.dtype(f"u{array.dtype.itemsize}"))


def _differs_within(actual: NDArray[Any], expected: NDArray[Any], allowed: NDArray[Any]) -> NDArray[np.bool_]:
    return ~_wrong(actual.reshape(-1), expected.reshape(-1), allowed.reshape(-1)).reshape(expected.shape)


def _wrong(actual: NDArray[Any], expected: NDArray[Any], allowed: NDArray[Any]) -> NDArray[np.bool_]:
    """Which elements are further off than allowed."""
    if expected.dtype == np.bool_:  # a byte other than 0 and 1 is no bool, though NumPy takes it for True
        return (actual.view(np.uint8) > 1) | ((actual != expected) & ~(allowed > 0))
    if not dtypes.from_numpy(expected.dtype).is_float:
        differs = np.asarray(actual != expected)
        return differs & ~(_apart(actual, expected) <= allowed) if differs.any() else differs
    a, e = (x if x.dtype == np.float64 else x.astype(np.float32) for x in (actual, expected))
    with np.errstate(all="ignore"):
        right = np.abs(a - e) <= allowed
        if right.all():
            return ~right
        same = (a == e) | (np.isnan(a) & np.isnan(e))
        most = np.finfo(e.dtype).max if expected.dtype.itemsize > 2 else _largest(expected.dtype)
        overflows = np.isinf(a) & np.isfinite(e) & (np.abs(e) + allowed >= most) & (np.signbit(a) == np.signbit(e))
    return ~(right | same | overflows | np.isinf(allowed))


def _largest(dtype: np.dtype[Any]) -> float:
    return float(ml_dtypes.finfo(dtype).max)


def _apart(actual: NDArray[Any], expected: NDArray[Any]) -> NDArray[np.float64]:
    """How far integers are apart, which may be more than their type holds: differences of their bits are exact."""
    a, e = _bits(actual), _bits(expected)
    return np.where(actual > expected, a - e, e - a).astype(np.float64)


def _deviation(actual: NDArray[Any], expected: NDArray[Any], allowed: NDArray[Any], wrong: NDArray[np.bool_]) -> str:
    """The worst of the wrong elements in words."""
    if not dtypes.from_numpy(expected.dtype).is_float:
        return "exact where no float decides it"
    a, e, most = (array[wrong].astype(np.float64) for array in (actual, expected, allowed))
    with np.errstate(all="ignore"):
        times = np.abs(a - e) / most
    misplaced = int(np.count_nonzero(~(np.isfinite(a) & np.isfinite(e))))
    words = [f"{misplaced} misplaced NaN or infinities"] if misplaced else []
    bounded = times[np.isfinite(times)]
    if bounded.size:
        words.insert(0, f"up to {float(bounded.max()):.3g} times its bound")
    return ", ".join(words) or "no rounding on the way"


def _report(name: str, what: str, where: NDArray[np.bool_], actual: NDArray[Any], expected: NDArray[Any]) -> None:
    count = int(np.count_nonzero(where))
    first = tuple(int(i) for i in np.unravel_index(int(np.argmax(where.reshape(-1))), where.shape))
    raise WrongAnswerError(
        f"{name}{list(first)} {what}: got {actual[first]!s}, expected {expected[first]!s}; "
        f"{count} of {where.size} elements differ"
    )
