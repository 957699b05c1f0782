"""Dense layer relu(x @ w + b): a matrix product with a two-op epilogue, the pattern Grappler's remapper looks for."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def matmul_bias_relu(x: NDArray[Any], w: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    return np.maximum(x @ w + b, 0.0)


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    rows, inner, columns = {"small": (37, 29, 43), "full": (4096, 256, 1024)}[size]
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, inner), dtype=np.float32)
    w = rng.standard_normal((inner, columns), dtype=np.float32) * np.float32(inner**-0.5)
    b = rng.standard_normal(columns, dtype=np.float32)
    return x, w, b
