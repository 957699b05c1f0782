"""What a call of a program leaves behind, and whether two such outcomes are the same within rounding.

Integers and bools are compared bit by bit, and so are the floats of programs whose lines NumPy and autofuse must round
alike. Other floats may differ by some ulps, or by as much as the program itself differs when NumPy rounds otherwise
(`tests.programs.rounding`): an ill-conditioned program is no false alarm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ULPS = {2: 8.0, 4: 32.0, 8: 32.0}
"""By bytes of a float: elementwise functions are within 4 ulp on both sides, and a few follow one another."""
_EPSILON = {2: 2.0**-10, 4: 2.0**-23, 8: 2.0**-52}
_SPREADS = 16.0
"""How many times the differences that rounding makes in NumPy itself: few of them are tried."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call returned and what it left in its arguments, as arrays with a place each."""

    structure: Any
    """The nest of what was returned, its arrays left out."""
    leaves: tuple[tuple[str, NDArray[Any]], ...]


def outcome_of(returned: Any, arguments: Sequence[Any]) -> Outcome:
    """The outcome of a call; arrays are copied."""
    leaves: list[tuple[str, NDArray[Any]]] = []
    structure = _flattened("result", returned, leaves)
    for number, argument in enumerate(arguments):
        _flattened(f"argument {number} afterwards", argument, leaves)
    return Outcome(structure, tuple(leaves))


def _flattened(place: str, value: Any, leaves: list[tuple[str, NDArray[Any]]]) -> Any:
    if isinstance(value, np.ndarray | np.generic | bool | int | float):
        leaves.append((place, np.array(value)))
        return "array" if isinstance(value, np.ndarray) and value.ndim == 0 else "value"
    if isinstance(value, tuple | list):
        inside = [_flattened(f"{place}[{number}]", item, leaves) for number, item in enumerate(value)]
        return type(value).__name__, tuple(inside)
    if isinstance(value, dict):
        return "dict", tuple((key, _flattened(f"{place}[{key!r}]", item, leaves)) for key, item in value.items())
    return repr(value)


def difference(actual: Outcome, expected: Outcome, exact: bool, spread: Callable[[], Sequence[Outcome]]) -> str | None:
    """What is wrong with an outcome, in words; None if nothing is.

    `exact`: floats too must have the very bits. `spread`: outcomes of NumPy that rounds otherwise, made when needed.
    """
    if actual.structure != expected.structure:
        return f"returns {actual.structure}, expected {expected.structure}"
    for number, ((place, a), (_, e)) in enumerate(zip(actual.leaves, expected.leaves, strict=True)):
        if a.dtype != e.dtype or a.shape != e.shape:
            return f"{place} is {a.dtype}{list(a.shape)}, expected {e.dtype}{list(e.shape)}"
        wrong = _wrong(a, e, exact)
        if wrong.any() and not exact:
            wrong &= ~_explained(a, e, [other.leaves[number][1] for other in spread()])
        if wrong.any():
            return _words(place, a, e, wrong)
    return None


def _words(place: str, actual: NDArray[Any], expected: NDArray[Any], wrong: NDArray[np.bool_]) -> str:
    first = tuple(map(int, np.argwhere(wrong)[0]))
    got, right = actual[first], expected[first]
    return f"{place}{list(first)}: got {got!r}, expected {right!r}; {int(wrong.sum())} of {wrong.size} elements differ"


def _wrong(actual: NDArray[Any], expected: NDArray[Any], exact: bool) -> NDArray[np.bool_]:
    """Where elements differ by more than a few ulps, or at all."""
    if expected.dtype.kind != "f":
        bits = f"u{expected.itemsize}"
        return np.asarray(actual.view(bits) != expected.view(bits)) if expected.ndim else np.asarray(actual != expected)
    both_nan = np.isnan(actual) & np.isnan(expected)
    if exact:
        return np.asarray(~both_nan & ((actual != expected) | (np.signbit(actual) != np.signbit(expected))))
    allowed = _ULPS[expected.itemsize] * _EPSILON[expected.itemsize]
    return np.asarray(~both_nan & ~_close(actual, expected, allowed * _size(expected) + _least(expected)))


def _size(values: NDArray[Any]) -> NDArray[np.float64]:
    return np.where(np.isfinite(values), np.abs(values.astype(np.float64)), 0.0)


def _least(values: NDArray[Any]) -> float:
    """What libraries' functions may lose below the normal numbers: `scipy.special.expit` gives 0 for all of them."""
    numbers = np.finfo(values.dtype)
    return float(numbers.smallest_subnormal) * 4 if values.dtype.itemsize == 2 else float(numbers.smallest_normal)


def _close(a: NDArray[Any], b: NDArray[Any], allowed: Any) -> NDArray[np.bool_]:
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(a.astype(np.float64) - b.astype(np.float64)) <= allowed
    return np.asarray((a == b) | (near & np.isfinite(a) & np.isfinite(b)))


def _explained(actual: NDArray[Any], expected: NDArray[Any], others: Sequence[NDArray[Any]]) -> NDArray[np.bool_]:
    """Where NumPy itself gives other values when it rounds otherwise, by about as much."""
    same = [other for other in others if other.shape == expected.shape]
    if len(same) < len(others):  # even shapes depend on rounding
        return np.ones(expected.shape, np.bool_)
    if expected.dtype.kind != "f":
        return np.asarray(np.logical_or.reduce([other != expected for other in same]))
    moved = np.zeros(expected.shape)
    # reductions of 16-bit floats are computed in f32 here (docs/ops.md), and may stay finite where NumPy's overflow
    unsure = np.asarray((expected.dtype == np.float16) & np.isfinite(actual) & ~np.isfinite(expected))
    for other in same:
        with np.errstate(invalid="ignore", over="ignore"):
            step = np.abs(other.astype(np.float64) - expected.astype(np.float64))
        finite = np.isfinite(other) & np.isfinite(expected)
        unsure |= ~finite & ~((other == expected) | (np.isnan(other) & np.isnan(expected)))
        moved = np.maximum(moved, np.where(finite, step, 0.0))
    return np.asarray(unsure | _close(actual, expected, _SPREADS * moved))
