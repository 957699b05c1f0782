"""A concatenate with two users, where XLA's instruction fusion stops (Snider and Liang, arXiv 2301.13062)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def concat_users(x: NDArray[Any], y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    joined = np.concatenate([np.sin(x), np.cos(y)], axis=1)
    scaled = 0.5 * joined + 1.0
    norm = np.sqrt((joined * joined).sum(axis=1))
    return scaled, norm


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    rows, left, right = {"small": (41, 13, 22), "full": (8192, 256, 512)}[size]
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3.0, 3.0, (rows, left)).astype(np.float32)
    return x, rng.uniform(-3.0, 3.0, (rows, right)).astype(np.float32)
