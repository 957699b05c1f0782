"""Metropolis sampling (Metropolis et al. 1953) of a curved density by many chains, with `af.random` in `af.scan`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import autofuse as af


def energy(x: Any, y: Any) -> Any:
    bend = y - 0.25 * x * x
    return 0.5 * x * x + 4.0 * bend * bend


def metropolis(
    key: NDArray[Any], x: NDArray[Any], y: NDArray[Any], steps: int
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    reach = 0.8

    def step(carry: tuple[Any, ...], _: Any) -> tuple[tuple[Any, ...], None]:
        key, x, y, total, taken = carry
        key, k_move, k_take = af.random.split(key, 3)
        move = af.random.uniform(k_move, (2, *x.shape), np.float32, -reach, reach)
        new_x, new_y = x + move[0], y + move[1]
        take = af.random.uniform(k_take, x.shape, np.float32) < np.exp(energy(x, y) - energy(new_x, new_y))
        x, y = np.where(take, new_x, x), np.where(take, new_y, y)
        return (key, x, y, total + y, taken + take), None

    start = key, x, y, np.zeros_like(x), np.zeros(x.shape, np.int32)
    (_, x, _, total, taken), _ = af.scan(step, start, None, length=steps)
    return x, total / steps, taken


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    chains, steps = {"small": (21, 9), "full": (4096, 1000)}[size]
    rng = np.random.default_rng(seed)
    key = rng.integers(0, 2**32, 2, np.uint32)
    x, y = (rng.standard_normal(chains, dtype=np.float32) for _ in range(2))
    return key, x, y, steps
