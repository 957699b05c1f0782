"""Programs that were slow to compile: Python loops that tracing unrolls. Each gives a function and its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

_RNG = np.random.default_rng(0)
Program = tuple[Callable[..., Any], tuple[Any, ...]]


def chain(steps: int) -> Program:
    """One elementwise chain."""

    def relaxation(x: Any, w: Any) -> Any:
        for _ in range(steps):
            x = np.tanh(x * w + 0.1)
        return x

    return relaxation, (_RNG.standard_normal((64, 64)), _RNG.standard_normal((64, 64)))


def pendulum(steps: int) -> Program:
    """Two states, each of which reads the other."""

    def verlet(x: Any, v: Any) -> Any:
        for _ in range(steps):
            v = v - 0.01 * np.sin(x)
            x = x + 0.01 * v
        return x, v

    return verlet, (_RNG.standard_normal(1000), _RNG.standard_normal(1000))


def diffusion(steps: int) -> Program:
    """Neighbours by `np.roll`."""

    def diffuse(u: Any) -> Any:
        for _ in range(steps):
            u = u + 0.1 * (np.roll(u, 1) + np.roll(u, -1) - 2 * u)
        return u

    return diffuse, (_RNG.standard_normal(1000),)


def kalman(steps: int) -> Program:
    """A Kalman filter of one state, scalar by scalar, that fills an array."""

    def kalman_filter(z: Any) -> Any:
        m, p = 0.0, 1.0
        out = np.empty_like(z)
        for t in range(steps):
            p = p + 0.01
            k = p / (p + 0.1)
            m = m + k * (z[t] - m)
            p = (1 - k) * p
            out[t] = m
        return out

    return kalman_filter, (_RNG.standard_normal(steps),)


def recurrent(steps: int) -> Program:
    """A recurrent layer."""

    def layer(x: Any, h: Any, w: Any, u: Any) -> Any:
        out: list[Any] = []
        for t in range(steps):
            h = np.tanh(x[t] @ w + h @ u)
            out.append(h)
        return np.stack(out)

    square = _RNG.standard_normal((16, 16))
    return layer, (_RNG.standard_normal((steps, 16)), np.zeros(16), square, square.copy())


def heat(steps: int) -> Program:
    """The heat equation on a plate, in place."""

    def heat_steps(u: Any) -> Any:
        for _ in range(steps):
            inner = u[1:-1, 1:-1]
            u[1:-1, 1:-1] = inner + 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * inner)
        return u

    return heat_steps, (_RNG.standard_normal((256, 256)),)


PROGRAMS: dict[str, tuple[Callable[[int], Program], tuple[int, ...]]] = {
    "chain": (chain, (200, 400)),
    "pendulum": (pendulum, (200,)),
    "diffusion": (diffusion, (200,)),
    "kalman": (kalman, (80,)),
    "recurrent": (recurrent, (200,)),
    "heat": (heat, (10, 20, 50)),
}
