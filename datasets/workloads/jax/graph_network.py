"""Two rounds of message passing on a graph (Gilmer et al. 2017) with sums over edges, and the gradients of a loss."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def graph_network(weights: Any, nodes: Any, senders: Any, receivers: Any, target: Any) -> Any:
    def loss(weights: Any) -> Any:
        state = nodes
        for layer in weights["layers"]:
            message = jax.nn.relu(state[senders] @ layer["sent"] + state[receivers] @ layer["got"])
            gathered = jnp.zeros_like(state).at[receivers].add(message)
            state = jnp.tanh(state @ layer["own"] + gathered)
        return ((state @ weights["out"] - target) ** 2).mean()

    return jax.value_and_grad(loss)(weights)


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    count, edges, width = {"small": (9, 21, 5), "full": (4096, 16384, 32)}[size]
    rng = np.random.default_rng(seed)

    def matrix(columns: int) -> Any:
        return rng.standard_normal((width, columns), np.float32) / np.float32(width**0.5)

    weights = {
        "layers": [{name: matrix(width) for name in ("sent", "got", "own")} for _ in range(2)],
        "out": matrix(1),
    }
    ends = (rng.integers(0, count, edges).astype(np.int32) for _ in range(2))
    return weights, rng.standard_normal((count, width), np.float32), *ends, rng.random((count, 1), np.float32)
