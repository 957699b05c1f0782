"""Escape times of the Mandelbrot set with many iterations, after which most points are finished, by `af.fori_loop`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import autofuse as af


def escape_time(cx: NDArray[Any], cy: NDArray[Any], iterations: int) -> NDArray[Any]:
    def iterate(_: Any, state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        x, y, count = state
        xx, yy = x * x, y * y
        alive = xx + yy < 4.0
        x, y = np.where(alive, xx - yy + cx, x), np.where(alive, 2.0 * x * y + cy, y)
        return x, y, np.where(alive, count + 1, count)

    start = np.zeros_like(cx), np.zeros_like(cy), np.zeros(cx.shape, np.int32)
    return af.fori_loop(0, iterations, iterate, start)[2]


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    rows, columns, iterations = {"small": (9, 14, 23), "full": (480, 640, 500)}[size]
    rng = np.random.default_rng(seed)
    left, bottom = rng.uniform(-2.1, -1.9), rng.uniform(-1.25, -1.15)
    cx, cy = np.meshgrid(np.linspace(left, left + 2.6, columns), np.linspace(bottom, bottom + 2.4, rows))
    return cx.astype(np.float32), cy.astype(np.float32), iterations
