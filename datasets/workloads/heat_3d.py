"""Explicit heat equation on a cube (PolyBench heat-3d), returning the new field and leaving its argument alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def heat_3d(field: NDArray[Any], steps: int = 4) -> NDArray[Any]:
    u = field.copy()
    for _ in range(steps):
        centre = u[1:-1, 1:-1, 1:-1]
        u[1:-1, 1:-1, 1:-1] = (
            centre
            + 0.125 * (u[2:, 1:-1, 1:-1] - 2.0 * centre + u[:-2, 1:-1, 1:-1])
            + 0.125 * (u[1:-1, 2:, 1:-1] - 2.0 * centre + u[1:-1, :-2, 1:-1])
            + 0.125 * (u[1:-1, 1:-1, 2:] - 2.0 * centre + u[1:-1, 1:-1, :-2])
        )
    return u


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    side = {"small": 11, "full": 120}[size]
    rng = np.random.default_rng(seed)
    return (rng.uniform(280.0, 320.0, (side, side, side)),)
