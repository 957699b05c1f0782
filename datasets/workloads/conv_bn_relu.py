"""A 3x3 convolution (NHWC) with bias, batch norm at inference and relu: the block every residual network repeats."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def conv2d(x: NDArray[Any], w: NDArray[Any]) -> NDArray[Any]:
    """Same-size convolution: one product over the channels for each offset of the kernel."""
    kernel_rows, kernel_columns = w.shape[:2]
    rows, columns = x.shape[1:3]
    top, left = kernel_rows // 2, kernel_columns // 2
    padded = np.pad(x, ((0, 0), (top, top), (left, left), (0, 0)))
    out = padded[:, :rows, :columns, :] @ w[0, 0]
    for i in range(kernel_rows):
        for j in range(kernel_columns):
            if (i, j) != (0, 0):
                out = out + padded[:, i : i + rows, j : j + columns, :] @ w[i, j]
    return out


def conv_bn_relu(
    x: NDArray[Any],
    w: NDArray[Any],
    bias: NDArray[Any],
    mean: NDArray[Any],
    var: NDArray[Any],
    gamma: NDArray[Any],
    beta: NDArray[Any],
) -> NDArray[Any]:
    y = conv2d(x, w) + bias
    y = (y - mean) / np.sqrt(var + 1e-3) * gamma + beta
    return np.maximum(y, 0.0)


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    batch, rows, columns, channels, features = {"small": (1, 11, 9, 5, 7), "full": (4, 56, 56, 64, 64)}[size]
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((batch, rows, columns, channels), dtype=np.float32)
    w = rng.standard_normal((3, 3, channels, features), dtype=np.float32) * np.float32((9 * channels) ** -0.5)
    bias = rng.normal(0.0, 0.1, features).astype(np.float32)
    mean = rng.normal(0.0, 0.5, features).astype(np.float32)
    var = rng.uniform(0.5, 2.0, features).astype(np.float32)
    gamma = rng.uniform(0.5, 1.5, features).astype(np.float32)
    beta = rng.normal(0.0, 0.1, features).astype(np.float32)
    return x, w, bias, mean, var, gamma, beta
