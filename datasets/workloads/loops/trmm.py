"""A product with a unit lower triangular matrix in place, row by row (BLAS trmm; PolyBench trmm)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def trmm(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    b = b.copy()
    for i in range(len(a)):
        b[i] = b[i] + a[i + 1 :, i] @ b[i + 1 :]
    return 1.5 * b


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    rows, columns = {"small": (17, 9), "full": (300, 350)}[size]
    rng = np.random.default_rng(seed)
    return rng.random((rows, rows)), rng.random((rows, columns))
