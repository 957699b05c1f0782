"""A long short-term memory layer over a short sequence (Hochreiter and Schmidhuber 1997): a Python loop over time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def sigmoid(x: NDArray[Any]) -> NDArray[Any]:
    return 0.5 * (np.tanh(0.5 * x) + 1.0)


def lstm_sequence(
    x: NDArray[Any], w: NDArray[Any], u: NDArray[Any], b: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    steps, batch, _ = x.shape
    n = u.shape[0]
    h = np.zeros((batch, n), dtype=x.dtype)
    c = np.zeros((batch, n), dtype=x.dtype)
    history: list[NDArray[Any]] = []
    for t in range(steps):
        gates = x[t] @ w + h @ u + b
        keep = sigmoid(gates[:, :n])
        write = sigmoid(gates[:, n : 2 * n])
        read = sigmoid(gates[:, 2 * n : 3 * n])
        c = keep * c + write * np.tanh(gates[:, 3 * n :])
        h = read * np.tanh(c)
        history.append(h)
    return np.stack(history), c


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    steps, batch, features, state = {"small": (3, 5, 7, 9), "full": (16, 128, 64, 256)}[size]
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((steps, batch, features), dtype=np.float32)
    w = rng.standard_normal((features, 4 * state), dtype=np.float32) * np.float32(features**-0.5)
    u = rng.standard_normal((state, 4 * state), dtype=np.float32) * np.float32(state**-0.5)
    return x, w, u, rng.normal(0.0, 0.1, 4 * state).astype(np.float32)
