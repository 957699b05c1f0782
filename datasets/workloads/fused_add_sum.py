"""Sum of x + y * z over all elements: the textbook case where fusion removes every temporary."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def fused_add_sum(x: NDArray[Any], y: NDArray[Any], z: NDArray[Any]) -> Any:
    return np.sum(x + y * z)


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    shape = {"small": (67, 45), "full": (4096, 4096)}[size]
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal(shape, dtype=np.float32) for _ in range(3))
