"""Gradients of layer normalisation for input, gain and offset: row reductions and column reductions over one read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def layer_norm_backward(
    grad: NDArray[Any], x: NDArray[Any], gamma: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    mean = x.mean(axis=-1, keepdims=True)
    inverse = 1.0 / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)
    normal = (x - mean) * inverse
    scaled = grad * gamma
    row_mean = scaled.mean(axis=-1, keepdims=True)
    row_dot = (scaled * normal).mean(axis=-1, keepdims=True)
    grad_x = (scaled - row_mean - normal * row_dot) * inverse
    return grad_x, (grad * normal).sum(axis=0), grad.sum(axis=0)


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    rows, width = {"small": (29, 47), "full": (4096, 768)}[size]
    rng = np.random.default_rng(seed)
    grad = rng.standard_normal((rows, width), dtype=np.float32)
    x = rng.normal(0.5, 2.0, (rows, width)).astype(np.float32)
    return grad, x, rng.uniform(0.5, 1.5, width).astype(np.float32)
