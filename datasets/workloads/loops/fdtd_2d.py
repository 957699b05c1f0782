"""Maxwell's equations in two dimensions by finite differences in time (Yee 1966; PolyBench fdtd-2d)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def fdtd_2d(
    ex: NDArray[Any], ey: NDArray[Any], hz: NDArray[Any], source: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    ex, ey, hz = ex.copy(), ey.copy(), hz.copy()
    for t in range(len(source)):
        ey[0, :] = source[t]
        ey[1:, :] -= 0.5 * (hz[1:, :] - hz[:-1, :])
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])
    return ex, ey, hz


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    rows, columns, steps = {"small": (11, 13, 17), "full": (400, 480, 100)}[size]
    rng = np.random.default_rng(seed)
    ex, ey, hz = (rng.random((rows, columns)) for _ in range(3))
    return ex, ey, hz, np.sin(0.3 * np.arange(steps))
