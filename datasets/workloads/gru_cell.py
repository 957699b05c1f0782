"""One gated recurrent unit step (Cho et al. 2014) for a batch: two products, then gates on slices of their sums."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def sigmoid(x: NDArray[Any]) -> NDArray[Any]:
    return 1.0 / (1.0 + np.exp(-x))


def gru_cell(
    x: NDArray[Any], h: NDArray[Any], w: NDArray[Any], u: NDArray[Any], b: NDArray[Any], c: NDArray[Any]
) -> NDArray[Any]:
    n = h.shape[-1]
    from_input = x @ w + b
    from_state = h @ u + c
    reset = sigmoid(from_input[:, :n] + from_state[:, :n])
    update = sigmoid(from_input[:, n : 2 * n] + from_state[:, n : 2 * n])
    candidate = np.tanh(from_input[:, 2 * n :] + reset * from_state[:, 2 * n :])
    return update * h + (1.0 - update) * candidate


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    batch, features, state = {"small": (9, 13, 11), "full": (2048, 128, 256)}[size]
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((batch, features), dtype=np.float32)
    h = np.tanh(rng.standard_normal((batch, state), dtype=np.float32))
    w = rng.standard_normal((features, 3 * state), dtype=np.float32) * np.float32(features**-0.5)
    u = rng.standard_normal((state, 3 * state), dtype=np.float32) * np.float32(state**-0.5)
    b = rng.normal(0.0, 0.1, 3 * state).astype(np.float32)
    c = rng.normal(0.0, 0.1, 3 * state).astype(np.float32)
    return x, h, w, u, b, c
