"""Transformer feed-forward block with the tanh form of GELU (Hendrycks and Gimpel, arXiv 1606.08415)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def gelu(x: NDArray[Any]) -> NDArray[Any]:
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))


def gelu_mlp(x: NDArray[Any], w1: NDArray[Any], b1: NDArray[Any], w2: NDArray[Any], b2: NDArray[Any]) -> NDArray[Any]:
    return gelu(x @ w1 + b1) @ w2 + b2


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    rows, width, hidden = {"small": (19, 33, 71), "full": (512, 768, 3072)}[size]
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, width), dtype=np.float32)
    w1 = rng.standard_normal((width, hidden), dtype=np.float32) * np.float32(width**-0.5)
    b1 = rng.normal(0.0, 0.1, hidden).astype(np.float32)
    w2 = rng.standard_normal((hidden, width), dtype=np.float32) * np.float32(hidden**-0.5)
    b2 = rng.normal(0.0, 0.1, width).astype(np.float32)
    return x, w1, b1, w2, b2
