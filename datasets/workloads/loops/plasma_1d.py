"""Electrons in a periodic box by particles in cells (Birdsall and Langdon 1985): a weighted histogram in every step."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def plasma_1d(
    positions: NDArray[Any], velocities: NDArray[Any], cells: int, steps: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    x, v = positions, velocities
    share = cells / x.size
    for _ in range(steps):
        cell = np.minimum(x.astype(np.int64), cells - 1)
        right = x - cell
        density = np.zeros(cells)
        np.add.at(density, cell, 1.0 - right)
        np.add.at(density, (cell + 1) % cells, right)
        field = np.cumsum(1.0 - share * density)
        field = field - field.mean()
        v = v - 0.05 * ((1.0 - right) * field[cell] + right * field[(cell + 1) % cells])
        x = (x + 0.05 * v) % cells
    return x, v


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    count, cells, steps = {"small": (211, 13, 17), "full": (100_000, 256, 50)}[size]
    rng = np.random.default_rng(seed)
    return rng.uniform(0.0, cells, count), rng.standard_normal(count), cells, steps
