"""A dense branch and a tanh branch meet in a residual sum, which is scaled by its rows and summed by columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def residual_branches(x: NDArray[Any], w: NDArray[Any], b: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    h = x + np.maximum(x @ w + b, 0.0) * np.tanh(x)
    scale = np.abs(h).max(axis=-1, keepdims=True) + 1e-3
    return h / scale, h.sum(axis=0)


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    rows, width = {"small": (27, 35), "full": (1024, 256)}[size]
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, width), dtype=np.float32)
    w = rng.standard_normal((width, width), dtype=np.float32) * np.float32(width**-0.5)
    return x, w, rng.normal(0.0, 0.1, width).astype(np.float32)
