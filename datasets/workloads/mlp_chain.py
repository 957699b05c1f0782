"""Six narrow dense layers on many rows: a physics surrogate or a NeRF-style field, whose activations fit in cache."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray


def mlp_chain(x: NDArray[Any], weights: list[NDArray[Any]], biases: list[NDArray[Any]]) -> NDArray[Any]:
    for w, b in zip(weights[:-1], biases[:-1], strict=True):
        x = np.maximum(x @ w + b, 0.0)
    return x @ weights[-1] + biases[-1]


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    rows, width = {"small": (41, 13), "full": (65_536, 64)}[size]
    rng = np.random.default_rng(seed)
    widths = [3, width, width, width, width, width, 4]
    weights = [
        rng.standard_normal((m, n), dtype=np.float32) * np.float32((2.0 / m) ** 0.5)
        for m, n in itertools.pairwise(widths)
    ]
    biases = [rng.normal(0.0, 0.1, n).astype(np.float32) for n in widths[1:]]
    return rng.uniform(-1.0, 1.0, (rows, 3)).astype(np.float32), weights, biases
