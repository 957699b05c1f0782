"""Covariances of all columns, one row of the matrix after the other (PolyBench covariance)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def covariance(data: NDArray[Any]) -> NDArray[Any]:
    points, width = data.shape
    centred = data - data.mean(axis=0)
    cov = np.zeros((width, width), data.dtype)
    for i in range(width):
        cov[i, i:] = centred[:, i] @ centred[:, i:] / (points - 1.0)
        cov[i:, i] = cov[i, i:]
    return cov


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    points, width = {"small": (15, 19), "full": (600, 400)}[size]
    rng = np.random.default_rng(seed)
    return (rng.random((points, width)),)
