"""One step of Sinkhorn normalisation: exponentials over their row sums, then over their column sums."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def column_sinkhorn(x: NDArray[Any]) -> NDArray[Any]:
    y = np.exp(x)
    share = y / y.sum(axis=1, keepdims=True)
    return share / share.sum(axis=0)


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    shape = {"small": (33, 45), "full": (1024, 1024)}[size]
    rng = np.random.default_rng(seed)
    return (rng.normal(0.0, 1.0, shape).astype(np.float32),)
