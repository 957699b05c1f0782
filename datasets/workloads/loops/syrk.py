"""A symmetric rank-k update, of which the lower triangle is kept, row by row (BLAS syrk; PolyBench syrk)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def syrk(c: NDArray[Any], a: NDArray[Any]) -> NDArray[Any]:
    alpha, beta = 1.5, 1.2
    c = c.copy()
    for i in range(len(a)):
        c[i, : i + 1] = beta * c[i, : i + 1] + alpha * (a[: i + 1] @ a[i])
    return c


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    rows, inner = {"small": (18, 7), "full": (400, 300)}[size]
    rng = np.random.default_rng(seed)
    return rng.random((rows, rows)), rng.random((rows, inner))
