"""Dormand and Prince's embedded Runge-Kutta method (1980) for many Van der Pol oscillators, each with its own step."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_NODES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
_ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)


def slope(state: Any, stiffness: Any) -> Any:
    x, v = state
    return jnp.stack([v, stiffness * (1 - x * x) * v - x])


def ode_solver(state: Any, stiffness: Any, end: Any) -> Any:
    def step(carry: Any) -> Any:
        state, time, width, taken = carry
        arrives = width >= end - time
        width = jnp.where(arrives, end - time, width)
        slopes = [slope(state, stiffness)]
        for row in _NODES:
            moved = state + width * sum(a * k for a, k in zip(row, slopes, strict=True))
            slopes.append(slope(moved, stiffness))
        error = jnp.abs(width * sum(e * k for e, k in zip(_ERROR, slopes, strict=True))).max(axis=0)
        error = error / (1e-5 + 1e-5 * jnp.abs(state).max(axis=0))
        good = error <= 1
        wider = width * jnp.clip(0.9 * (error + 1e-12) ** -0.2, 0.2, 5.0)
        kept = jnp.where(good, moved, state), jnp.where(good, jnp.where(arrives, end, time + width), time)
        return (*kept, jnp.where(time < end, wider, width), taken + (time < end))

    def going(carry: Any) -> Any:
        return (carry[1] < end).any() & (carry[3].max() < 2000)

    start = (state, jnp.zeros_like(end), jnp.full_like(end, 0.01), jnp.zeros(end.shape, jnp.int32))
    found = jax.lax.while_loop(going, step, start)
    return found[0]


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    count, end = {"small": (7, 0.5), "full": (4096, 10.0)}[size]
    rng = np.random.default_rng(seed)
    stiffness = rng.uniform(0.5, 3.0, count).astype(np.float32)
    return rng.standard_normal((2, count), np.float32), stiffness, np.full(count, end, np.float32)
