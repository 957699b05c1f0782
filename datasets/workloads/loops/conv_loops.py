"""A convolution layer by loops over the rows and columns of its result (NPBench conv2d goes so)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def conv_loops(image: NDArray[Any], weights: NDArray[Any], bias: NDArray[Any]) -> NDArray[Any]:
    kernel = weights.shape[0]
    rows, columns = image.shape[1] - kernel + 1, image.shape[2] - kernel + 1
    out = np.empty((image.shape[0], rows, columns, weights.shape[3]), image.dtype)
    for i in range(rows):
        for j in range(columns):
            window = image[:, i : i + kernel, j : j + kernel, :, None]
            out[:, i, j, :] = np.sum(window * weights[None], axis=(1, 2, 3)) + bias
    return np.maximum(out, 0)


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    batch, side, kernel, channels, filters = {"small": (2, 18, 3, 2, 3), "full": (4, 34, 3, 8, 16)}[size]
    rng = np.random.default_rng(seed)
    image = rng.random((batch, side, side, channels), np.float32)
    weights = rng.random((kernel, kernel, channels, filters), np.float32)
    return image, weights, rng.random(filters, np.float32)
