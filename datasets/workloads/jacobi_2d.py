"""Jacobi relaxation on a square grid (PolyBench jacobi-2d): two arrays updated in place by turns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def jacobi_2d(a: NDArray[Any], b: NDArray[Any], steps: int = 5) -> None:
    for _ in range(steps):
        b[1:-1, 1:-1] = 0.2 * (a[1:-1, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1])
        a[1:-1, 1:-1] = 0.2 * (b[1:-1, 1:-1] + b[1:-1, :-2] + b[1:-1, 2:] + b[2:, 1:-1] + b[:-2, 1:-1])


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    side = {"small": 23, "full": 1000}[size]
    rng = np.random.default_rng(seed)
    a = rng.random((side, side))
    return a, a.copy()
