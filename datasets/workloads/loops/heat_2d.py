"""Explicit heat equation on a square plate whose edge is kept at zero, a stencil over many steps, by `af.fori_loop`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import autofuse as af


def heat_2d(plate: NDArray[Any], steps: int) -> NDArray[Any]:
    def step(_: Any, u: Any) -> Any:
        centre = u[1:-1, 1:-1]
        around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
        return np.pad(centre + 0.2 * (around - 4.0 * centre), 1)

    return af.fori_loop(0, steps, step, plate)


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    side, steps = {"small": (13, 6), "full": (1024, 100)}[size]
    rng = np.random.default_rng(seed)
    return np.pad(rng.uniform(0.0, 100.0, (side - 2, side - 2)), 1), steps
