"""Multi-head scaled dot-product attention with a causal mask (Vaswani et al. 2017, as a decoder uses it)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def attention(q: NDArray[Any], k: NDArray[Any], v: NDArray[Any]) -> NDArray[Any]:
    steps, width = q.shape[-2:]
    scores = (q @ np.swapaxes(k, -1, -2)) * width**-0.5
    position = np.arange(steps)
    scores = np.where(position[:, None] >= position[None, :], scores, -1e9)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (e / e.sum(axis=-1, keepdims=True)) @ v


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    shape = {"small": (2, 3, 21, 9), "full": (2, 12, 384, 64)}[size]  # batch, heads, steps, head width
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal(shape, dtype=np.float32) for _ in range(3))
