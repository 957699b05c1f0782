"""A weighted histogram, one bin after the other (NPBench azimhist goes so)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def histogram_bins(values: NDArray[Any], weights: NDArray[Any], bins: int) -> tuple[NDArray[Any], NDArray[Any]]:
    low, width = -3.0, 6.0 / bins
    counts, sums = np.empty(bins, np.int64), np.empty(bins)
    for k in range(bins):
        inside = (values >= low + k * width) & (values < low + (k + 1) * width)
        counts[k] = inside.sum()
        sums[k] = np.where(inside, weights, 0.0).sum()
    return counts, sums


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    count, bins = {"small": (101, 17), "full": (200000, 64)}[size]
    rng = np.random.default_rng(seed)
    return rng.standard_normal(count), rng.random(count), bins
