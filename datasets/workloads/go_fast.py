"""Add the sum of tanh over the diagonal to a matrix: the first example of the Numba manual, also in NPBench."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def go_fast(a: NDArray[Any]) -> NDArray[Any]:
    trace = np.sum(np.tanh(np.diagonal(a)))
    return a + trace


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    side = {"small": 43, "full": 3000}[size]
    rng = np.random.default_rng(seed)
    return (rng.random((side, side)),)
