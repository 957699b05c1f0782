"""Gravitational acceleration by direct summation with softening: pair arrays that only fusion keeps out of memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def nbody_acceleration(position: NDArray[Any], mass: NDArray[Any]) -> NDArray[Any]:
    x, y, z = position[:, 0], position[:, 1], position[:, 2]
    dx = x[None, :] - x[:, None]
    dy = y[None, :] - y[:, None]
    dz = z[None, :] - z[:, None]
    squared = dx * dx + dy * dy + dz * dz + 0.01
    pull = mass[None, :] / (squared * np.sqrt(squared))
    return np.stack([(dx * pull).sum(axis=1), (dy * pull).sum(axis=1), (dz * pull).sum(axis=1)], axis=1)


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    bodies = {"small": 57, "full": 1500}[size]
    rng = np.random.default_rng(seed)
    return rng.standard_normal((bodies, 3)), rng.uniform(0.5, 1.5, bodies) / bodies
