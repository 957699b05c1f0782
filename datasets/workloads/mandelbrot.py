"""Escape-time Mandelbrot set with a fixed iteration count: long elementwise chains over one small state."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def mandelbrot(cx: NDArray[Any], cy: NDArray[Any], iterations: int = 20) -> NDArray[Any]:
    x = np.zeros_like(cx)
    y = np.zeros_like(cy)
    count = np.zeros_like(cx)
    for _ in range(iterations):
        xx, yy = x * x, y * y
        alive = xx + yy < 4.0
        x, y = np.where(alive, xx - yy + cx, x), np.where(alive, 2.0 * x * y + cy, y)
        count = count + alive
    return count


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    rows, columns = {"small": (19, 27), "full": (480, 640)}[size]
    rng = np.random.default_rng(seed)
    left, bottom = rng.uniform(-2.1, -1.9), rng.uniform(-1.25, -1.15)
    cx, cy = np.meshgrid(np.linspace(left, left + 2.6, columns), np.linspace(bottom, bottom + 2.4, rows))
    return cx.astype(np.float32), cy.astype(np.float32)
