"""Durbin's recursion for a Toeplitz system (Durbin 1960; PolyBench durbin)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def durbin(r: NDArray[Any]) -> NDArray[Any]:
    y = np.zeros_like(r)
    y[0] = -r[0]
    alpha, beta = -r[0], 1.0
    for k in range(1, len(r)):
        beta = beta * (1.0 - alpha * alpha)
        alpha = -(r[k] + r[k - 1 :: -1][:k] @ y[:k]) / beta
        y[:k] = y[:k] + alpha * y[k - 1 :: -1][:k]
        y[k] = alpha
    return y


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    length = {"small": 10, "full": 1000}[size]
    rng = np.random.default_rng(seed)
    return (0.9 ** np.arange(1, length + 1) * rng.uniform(0.5, 0.6),)
