"""Jacobi relaxation of a rod, two arrays by turns over many steps (PolyBench jacobi-1d)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def jacobi_1d(a: NDArray[Any], b: NDArray[Any], steps: int) -> tuple[NDArray[Any], NDArray[Any]]:
    a, b = a.copy(), b.copy()
    for _ in range(steps):
        b[1:-1] = (a[:-2] + a[1:-1] + a[2:]) / 3.0
        a[1:-1] = (b[:-2] + b[1:-1] + b[2:]) / 3.0
    return a, b


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    length, steps = {"small": (29, 18), "full": (32000, 400)}[size]
    rng = np.random.default_rng(seed)
    return rng.random(length), rng.random(length), steps
