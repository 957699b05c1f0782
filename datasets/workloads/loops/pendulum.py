"""Pendulums swung up by a small policy network (the equations of Gym's Pendulum-v1), many at a time, by `af.scan`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

import autofuse as af


def pendulum(
    angle: NDArray[Any],
    spin: NDArray[Any],
    w1: NDArray[Any],
    b1: NDArray[Any],
    w2: NDArray[Any],
    b2: NDArray[Any],
    steps: int,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    gravity, mass, length, tau, strongest, fastest = 10.0, 1.0, 1.0, 0.05, 2.0, 8.0

    def step(carry: tuple[Any, Any, Any], _: Any) -> tuple[tuple[Any, Any, Any], None]:
        angle, spin, cost = carry
        seen = np.stack([np.cos(angle), np.sin(angle), spin], axis=1)
        torque = strongest * np.tanh(np.tanh(seen @ w1 + b1) @ w2 + b2)[:, 0]
        upright = np.mod(angle + math.pi, 2.0 * math.pi) - math.pi
        cost = cost + upright * upright + 0.1 * spin * spin + 0.001 * torque * torque
        spin = spin + tau * (1.5 * gravity / length * np.sin(angle) + 3.0 / (mass * length * length) * torque)
        spin = np.clip(spin, -fastest, fastest)
        return (angle + tau * spin, spin, cost), None

    (angle, spin, cost), _ = af.scan(step, (angle, spin, np.zeros_like(angle)), None, length=steps)
    return angle, spin, cost


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    count, hidden, steps = {"small": (13, 5, 7), "full": (4096, 16, 200)}[size]
    rng = np.random.default_rng(seed)
    angle = rng.uniform(-math.pi, math.pi, count).astype(np.float32)
    spin = rng.uniform(-1.0, 1.0, count).astype(np.float32)
    w1 = rng.standard_normal((3, hidden), dtype=np.float32)
    b1 = rng.normal(0.0, 0.1, hidden).astype(np.float32)
    w2 = rng.standard_normal((hidden, 1), dtype=np.float32) * np.float32(hidden**-0.5)
    return angle, spin, w1, b1, w2, rng.normal(0.0, 0.1, 1).astype(np.float32), steps
