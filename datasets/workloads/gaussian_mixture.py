"""Responsibilities and log likelihood of a diagonal Gaussian mixture: the expectation step of EM (Dempster 1977)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def gaussian_mixture(
    x: NDArray[Any], mean: NDArray[Any], var: NDArray[Any], weight: NDArray[Any]
) -> tuple[NDArray[Any], Any]:
    offset = x[:, None, :] - mean[None, :, :]
    distance = (offset * offset / var[None, :, :]).sum(axis=-1)
    log_density = np.log(weight) - 0.5 * (distance + np.log(2.0 * math.pi * var).sum(axis=-1))
    top = log_density.max(axis=1, keepdims=True)
    e = np.exp(log_density - top)
    total = e.sum(axis=1, keepdims=True)
    return e / total, np.mean(np.log(total) + top)


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    count, components, features = {"small": (61, 5, 3), "full": (40_000, 16, 8)}[size]
    rng = np.random.default_rng(seed)
    mean = rng.normal(0.0, 3.0, (components, features))
    var = rng.uniform(0.5, 2.0, (components, features))
    weight = rng.uniform(0.5, 1.5, components)
    x = mean[rng.integers(0, components, count)] + rng.standard_normal((count, features))
    return x, mean, var, weight / weight.sum()
