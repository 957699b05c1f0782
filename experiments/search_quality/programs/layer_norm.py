"""Layer normalisation over the last axis: the centred rows are squared, summed and scaled."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def layer_norm(x: NDArray[Any], gamma: NDArray[Any], beta: NDArray[Any]) -> NDArray[Any]:
    centred = x - x.mean(axis=-1, keepdims=True)
    var = (centred * centred).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(var + 1e-5) * gamma + beta


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    rows, width = {"small": (31, 65), "full": (1024, 1024)}[size]
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, width), dtype=np.float32)
    gamma = rng.uniform(0.5, 1.5, width).astype(np.float32)
    return x, gamma, rng.normal(0.0, 0.1, width).astype(np.float32)
