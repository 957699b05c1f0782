"""Value iteration for a Markov decision process (Bellman 1957) until the values settle, by `af.while_loop`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import autofuse as af


def value_iteration(chances: NDArray[Any], reward: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], Any]:
    discount, settled = 0.9, 1e-6
    actions, states, _ = chances.shape
    moves = chances.reshape(actions * states, states)

    def worth(value: Any) -> Any:
        return reward + discount * (moves @ value).reshape(actions, states)

    def unsettled(carry: tuple[Any, Any, Any]) -> Any:
        return carry[1] > settled

    def sweep(carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        value, _, sweeps = carry
        better = worth(value).max(axis=0)
        return better, np.abs(better - value).max(), sweeps + 1

    start = np.zeros_like(reward[0]), np.float64(np.inf), np.int64(0)
    value, _, sweeps = af.while_loop(unsettled, sweep, start)
    return value, worth(value).argmax(axis=0), sweeps


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    actions, states = {"small": (3, 11), "full": (4, 512)}[size]
    rng = np.random.default_rng(seed)
    chances = rng.exponential(1.0, (actions, states, states)) ** 4  # a few likely successors, as mazes and stocks have
    return chances / chances.sum(-1, keepdims=True), rng.uniform(0.0, 1.0, (actions, states))
