"""Camera-style image pipeline: gamma decode, 3x3 box blur, unsharp mask, gamma encode; bytes in, bytes out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def image_pipeline(image: NDArray[Any]) -> NDArray[Any]:
    linear = np.power(image.astype(np.float32) / 255.0, 2.2)
    rows = linear[:-2, :, :] + linear[1:-1, :, :] + linear[2:, :, :]
    blur = (rows[:, :-2, :] + rows[:, 1:-1, :] + rows[:, 2:, :]) / 9.0
    sharp = 1.5 * linear[1:-1, 1:-1, :] - 0.5 * blur
    encoded = np.power(np.clip(sharp, 0.0, 1.0), 1.0 / 2.2)
    return np.clip(encoded * 255.0 + 0.5, 0.0, 255.0).astype(np.uint8)


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    rows, columns = {"small": (19, 23), "full": (720, 1280)}[size]
    rng = np.random.default_rng(seed)
    return (rng.integers(0, 256, (rows, columns, 3), dtype=np.uint8),)
