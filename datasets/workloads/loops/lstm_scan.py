"""A long short-term memory layer over a long sequence (Hochreiter and Schmidhuber 1997), by `af.scan`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import autofuse as af


def sigmoid(x: NDArray[Any]) -> NDArray[Any]:
    return 0.5 * (np.tanh(0.5 * x) + 1.0)


def lstm_scan(x: NDArray[Any], w: NDArray[Any], u: NDArray[Any], b: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    n = u.shape[0]

    def cell(carry: tuple[Any, Any], row: Any) -> tuple[tuple[Any, Any], Any]:
        h, c = carry
        gates = row @ w + h @ u + b
        keep = sigmoid(gates[:, :n])
        write = sigmoid(gates[:, n : 2 * n])
        read = sigmoid(gates[:, 2 * n : 3 * n])
        c = keep * c + write * np.tanh(gates[:, 3 * n :])
        h = read * np.tanh(c)
        return (h, c), h

    zero = np.zeros((x.shape[1], n), x.dtype)
    (_, c), history = af.scan(cell, (zero, zero), x)
    return history, c


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    steps, batch, features, state = {"small": (6, 5, 3, 4), "full": (256, 64, 32, 64)}[size]
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((steps, batch, features), dtype=np.float32)
    w = rng.standard_normal((features, 4 * state), dtype=np.float32) * np.float32(features**-0.5)
    u = rng.standard_normal((state, 4 * state), dtype=np.float32) * np.float32(state**-0.5)
    return x, w, u, rng.normal(0.0, 0.1, 4 * state).astype(np.float32)
