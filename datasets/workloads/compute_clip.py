"""Clip, scale and add on integer arrays: the `compute` example of the Cython manual, also in NPBench."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def compute_clip(first: NDArray[Any], second: NDArray[Any], scale: int = 4, weight: int = 3, offset: int = 9) -> Any:
    return np.clip(first, 2, 10) * scale + second * weight + offset


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    shape = {"small": (61, 37), "full": (2000, 2000)}[size]
    rng = np.random.default_rng(seed)
    return rng.integers(0, 1000, shape, dtype=np.int64), rng.integers(0, 1000, shape, dtype=np.int64)
