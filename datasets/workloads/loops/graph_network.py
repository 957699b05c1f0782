"""Rounds of message passing on a graph given by its edges (Gilmer et al. 2017): gather, message, add at the targets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def graph_network(
    nodes: NDArray[Any],
    source: NDArray[Any],
    target: NDArray[Any],
    weight: NDArray[Any],
    bias: NDArray[Any],
    rounds: int,
) -> NDArray[Any]:
    state = nodes
    for _ in range(rounds):
        messages = np.maximum(state[source] * weight[:, None] + bias, 0.0)
        sums = np.zeros_like(state)
        np.add.at(sums, target, messages)
        state = 0.5 * (nodes + sums)
    return state


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    vertices, edges, features, rounds = {"small": (23, 61, 7, 18), "full": (10_000, 80_000, 32, 20)}[size]
    rng = np.random.default_rng(seed)
    nodes = rng.standard_normal((vertices, features), dtype=np.float32)
    source, target = (rng.integers(0, vertices, edges) for _ in range(2))
    degree = np.maximum(np.bincount(target, minlength=vertices), 1)
    weight = (rng.uniform(0.0, 1.0, edges) / degree[target]).astype(np.float32)
    return nodes, source, target, weight, np.linspace(-0.1, 0.1, features, dtype=np.float32), rounds
