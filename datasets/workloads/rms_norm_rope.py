"""RMS norm, query projection split into heads and rotary position embedding: how a LLaMA-style layer begins."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def rotate(x: NDArray[Any], cos: NDArray[Any], sin: NDArray[Any]) -> NDArray[Any]:
    """Rotary embedding (Su et al., arXiv 2104.09864) in its half-split form; cos and sin are [steps, width / 2]."""
    half = x.shape[-1] // 2
    x1, x2 = x[..., :half], x[..., half:]
    return np.concatenate([x1 * cos - x2 * sin, x2 * cos + x1 * sin], axis=-1)


def rms_norm_rope(
    x: NDArray[Any], gain: NDArray[Any], wq: NDArray[Any], cos: NDArray[Any], sin: NDArray[Any]
) -> NDArray[Any]:
    steps = x.shape[0]
    width = 2 * cos.shape[-1]
    h = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6) * gain
    q = (h @ wq).reshape(steps, -1, width).transpose(1, 0, 2)
    return rotate(q, cos, sin)


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    steps, heads, width = {"small": (13, 3, 10), "full": (1024, 16, 64)}[size]
    model = heads * width
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((steps, model), dtype=np.float32)
    gain = rng.uniform(0.5, 1.5, model).astype(np.float32)
    wq = rng.standard_normal((model, model), dtype=np.float32) * np.float32(model**-0.5)
    angle = np.arange(steps)[:, None] * 10000.0 ** (-np.arange(0, width, 2) / width)
    return x, gain, wq, np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
