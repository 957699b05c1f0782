"""Deriche's recursive smoothing filter (Deriche 1990) along the rows: a forward and a backward recurrence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def deriche(image: NDArray[Any]) -> NDArray[Any]:
    alpha = 0.25
    decay = math.exp(-alpha)
    gain = (1.0 - decay) ** 2 / (1.0 + 2.0 * alpha * decay - decay * decay)
    a0, a1, a2, a3 = gain, gain * decay * (alpha - 1.0), gain * decay * (alpha + 1.0), -gain * decay * decay
    b1, b2 = 2.0 * decay, -decay * decay
    ahead, behind = np.zeros_like(image), np.zeros_like(image)
    ahead[:, 0] = a0 * image[:, 0]
    ahead[:, 1] = a0 * image[:, 1] + a1 * image[:, 0] + b1 * ahead[:, 0]
    for j in range(2, image.shape[1]):
        ahead[:, j] = a0 * image[:, j] + a1 * image[:, j - 1] + b1 * ahead[:, j - 1] + b2 * ahead[:, j - 2]
    behind[:, -2] = a2 * image[:, -1]
    for j in range(image.shape[1] - 3, -1, -1):
        behind[:, j] = a2 * image[:, j + 1] + a3 * image[:, j + 2] + b1 * behind[:, j + 1] + b2 * behind[:, j + 2]
    return ahead + behind


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    rows, columns = {"small": (7, 23), "full": (512, 720)}[size]
    rng = np.random.default_rng(seed)
    return (rng.random((rows, columns), np.float32),)
