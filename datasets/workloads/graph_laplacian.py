"""Weighted graph Laplacian y = D x - A x on a padded neighbour list: message passing and spectral filters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def graph_laplacian(x: NDArray[Any], neighbours: NDArray[Any], weights: NDArray[Any]) -> NDArray[Any]:
    degree = weights.sum(axis=1)
    gathered = x[neighbours]
    return degree[:, None] * x - (weights[:, :, None] * gathered).sum(axis=1)


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    vertices, neighbours_each, features = {"small": (101, 5, 7), "full": (50_000, 8, 32)}[size]
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((vertices, features), dtype=np.float32)
    neighbours = rng.integers(0, vertices, (vertices, neighbours_each), dtype=np.int32)
    weights = rng.uniform(0.0, 1.0, (vertices, neighbours_each)).astype(np.float32)
    return x, neighbours, weights
