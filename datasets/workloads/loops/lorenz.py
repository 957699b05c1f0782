"""Trajectories of the Lorenz system (Lorenz 1963) by the classical Runge-Kutta method, many at a time, by `af.scan`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import autofuse as af

State = tuple[Any, Any, Any]


def slope(state: State) -> State:
    x, y, z = state
    return 10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z


def moved(state: State, along: State, by: float) -> State:
    return state[0] + by * along[0], state[1] + by * along[1], state[2] + by * along[2]


def lorenz(x: NDArray[Any], y: NDArray[Any], z: NDArray[Any], steps: int) -> State:
    tau = 0.01

    def step(state: State, _: Any) -> tuple[State, None]:
        k1 = slope(state)
        k2 = slope(moved(state, k1, 0.5 * tau))
        k3 = slope(moved(state, k2, 0.5 * tau))
        k4 = slope(moved(state, k3, tau))
        for k, weight in ((k1, tau / 6.0), (k2, tau / 3.0), (k3, tau / 3.0), (k4, tau / 6.0)):
            state = moved(state, k, weight)
        return state, None

    state, _ = af.scan(step, (x, y, z), None, length=steps)
    return state


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    count, steps = {"small": (17, 11), "full": (8192, 1000)}[size]
    rng = np.random.default_rng(seed)
    x, y = (rng.uniform(-15.0, 15.0, count) for _ in range(2))
    return x, y, rng.uniform(10.0, 40.0, count), steps
