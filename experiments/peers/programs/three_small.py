"""Three 8x8 arrays in one expression: what a call costs beside its work."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def three_small(x: NDArray[Any], y: NDArray[Any], z: NDArray[Any]) -> NDArray[Any]:
    return x * y + z


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    del size
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal((8, 8), dtype=np.float32) for _ in range(3))
