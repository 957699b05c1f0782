"""Gauss-Seidel sweeps of a five-point stencil, row after row with the new row above (after PolyBench seidel-2d)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def seidel_2d(grid: NDArray[Any], sweeps: int) -> NDArray[Any]:
    u = grid.copy()
    for _ in range(sweeps):
        for i in range(1, u.shape[0] - 1):  # the rows above are new, the row itself and the ones below are old
            u[i, 1:-1] = 0.2 * (u[i - 1, 1:-1] + u[i + 1, 1:-1] + u[i, :-2] + u[i, 1:-1] + u[i, 2:])
    return u


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    side, sweeps = {"small": (19, 2), "full": (400, 20)}[size]
    rng = np.random.default_rng(seed)
    return rng.random((side, side)), sweeps
