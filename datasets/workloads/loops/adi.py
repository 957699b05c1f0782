"""Alternating directions for the heat equation, tridiagonal systems by recurrences (Peaceman and Rachford 1955)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def solve_rows(below: float, diagonal: float, right: NDArray[Any]) -> NDArray[Any]:
    """Tridiagonal systems, one for each column of `right`, with equal bands (Thomas's algorithm)."""
    n = len(right)
    upper, found = np.zeros(n), np.empty_like(right)
    upper[0] = below / diagonal
    found[0] = right[0] / diagonal
    for i in range(1, n):
        pivot = diagonal - below * upper[i - 1]
        upper[i] = below / pivot
        found[i] = (right[i] - below * found[i - 1]) / pivot
    for i in range(n - 2, -1, -1):
        found[i] = found[i] - upper[i] * found[i + 1]
    return found


def adi(u: NDArray[Any], steps: int) -> NDArray[Any]:
    speed = 0.4
    for _ in range(steps):
        for _ in range(2):  # once for each direction
            wide = np.pad(u, ((0, 0), (1, 1)))
            explicit = u + speed * (wide[:, 2:] - 2.0 * u + wide[:, :-2])
            u = solve_rows(-speed, 1.0 + 2.0 * speed, explicit).T
    return u


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    side, steps = {"small": (18, 2), "full": (256, 10)}[size]
    rng = np.random.default_rng(seed)
    return rng.random((side, side)), steps
