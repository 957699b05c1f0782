"""Two products of one input meet in a SiLU gate (Shazeer, arXiv 2002.05202), whose result is RMS-normalised."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def gated_unit(x: NDArray[Any], w: NDArray[Any], v: NDArray[Any], gamma: NDArray[Any]) -> NDArray[Any]:
    gate = x @ w
    h = gate / (1.0 + np.exp(-gate)) * (x @ v)
    norm = np.sqrt((h * h).mean(axis=-1, keepdims=True) + 1e-6)
    return h / norm * gamma


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    rows, width, hidden = {"small": (19, 33, 47), "full": (512, 256, 512)}[size]
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, width), dtype=np.float32)
    w, v = (rng.standard_normal((width, hidden), dtype=np.float32) * np.float32(width**-0.5) for _ in range(2))
    return x, w, v, rng.uniform(0.5, 1.5, hidden).astype(np.float32)
