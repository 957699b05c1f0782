"""A long short-term memory layer over a sequence (Hochreiter and Schmidhuber 1997), by `scan`, and its last loss."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def lstm_loss(weights: Any, sequence: Any, target: Any) -> Any:
    def step(state: Any, x: Any) -> Any:
        hidden, cell = state
        gates = x @ weights["input"] + hidden @ weights["hidden"] + weights["bias"]
        i, f, g, o = jnp.split(gates, 4, axis=1)
        cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
        hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
        return (hidden, cell), hidden

    zeros = jnp.zeros((sequence.shape[1], weights["hidden"].shape[0]), sequence.dtype)
    (last, _), history = jax.lax.scan(step, (zeros, zeros), sequence)
    return ((last @ weights["out"] - target) ** 2).mean(), history


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    steps, batch, width, units, out = {"small": (4, 3, 5, 6, 2), "full": (64, 32, 64, 128, 10)}[size]
    rng = np.random.default_rng(seed)
    shapes = {"input": (width, 4 * units), "hidden": (units, 4 * units), "bias": (4 * units,), "out": (units, out)}
    weights = {name: 0.1 * rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    return weights, rng.standard_normal((steps, batch, width), np.float32), rng.random((batch, out), np.float32)
