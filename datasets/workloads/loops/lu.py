"""LU factorisation without pivots by rank-one updates of what is left (PolyBench lu)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def lu(a: NDArray[Any]) -> NDArray[Any]:
    a = a.copy()
    for k in range(len(a) - 1):
        a[k + 1 :, k] = a[k + 1 :, k] / a[k, k]
        a[k + 1 :, k + 1 :] -= a[k + 1 :, k, None] * a[k, None, k + 1 :]
    return a


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    side = {"small": 18, "full": 300}[size]
    rng = np.random.default_rng(seed)
    return (rng.random((side, side)) + side * np.eye(side),)
