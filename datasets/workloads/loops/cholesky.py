"""Cholesky factorisation, column after column from the columns before (left-looking; PolyBench cholesky)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def cholesky(a: NDArray[Any]) -> NDArray[Any]:
    factor = np.zeros_like(a)
    for j in range(len(a)):
        column = a[j:, j] - factor[j:, :j] @ factor[j, :j]
        factor[j:, j] = column / np.sqrt(column[0])
    return factor


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    side = {"small": 12, "full": 400}[size]
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((side, side))
    return (a @ a.T + side * np.eye(side),)
