"""Conway's Game of Life (Gardner 1970) on a torus, as one writes it with `np.roll`, by `af.fori_loop`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import autofuse as af


def life(world: NDArray[Any], generations: int) -> NDArray[Any]:
    def generation(_: Any, world: Any) -> Any:
        rows = np.roll(world, 1, axis=0) + world + np.roll(world, -1, axis=0)
        around = np.roll(rows, 1, axis=1) + rows + np.roll(rows, -1, axis=1) - world
        return np.where((around == 3) | ((around == 2) & (world == 1)), np.uint8(1), np.uint8(0))

    return af.fori_loop(0, generations, generation, world)


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    rows, columns, generations = {"small": (19, 23, 5), "full": (512, 512, 100)}[size]
    rng = np.random.default_rng(seed)
    return (rng.random((rows, columns)) < 0.3).astype(np.uint8), generations
