"""One step of many CartPole environments (Barto, Sutton and Anderson 1983), state stacked as Gym code does."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

GRAVITY, CART_MASS, POLE_MASS, HALF_LENGTH, FORCE, TAU = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
POSITION_LIMIT, ANGLE_LIMIT = 2.4, 12 * 2 * math.pi / 360


def cartpole_step(
    state: NDArray[Any], action: NDArray[Any], fresh: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    x, velocity, angle, spin = state[:, 0], state[:, 1], state[:, 2], state[:, 3]
    force = np.where(action == 1, FORCE, -FORCE).astype(state.dtype)
    cos, sin = np.cos(angle), np.sin(angle)
    total_mass = CART_MASS + POLE_MASS
    moment = POLE_MASS * HALF_LENGTH
    push = (force + moment * spin * spin * sin) / total_mass
    spin_rate = (GRAVITY * sin - cos * push) / (HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * cos * cos / total_mass))
    acceleration = push - moment * spin_rate * cos / total_mass
    moved = np.stack(
        [x + TAU * velocity, velocity + TAU * acceleration, angle + TAU * spin, spin + TAU * spin_rate], axis=1
    )
    done = (np.abs(moved[:, 0]) > POSITION_LIMIT) | (np.abs(moved[:, 2]) > ANGLE_LIMIT)
    reward = np.where(done, 0.0, 1.0).astype(state.dtype)
    return np.where(done[:, None], fresh, moved), reward, done


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    environments = {"small": 131, "full": 500_000}[size]
    rng = np.random.default_rng(seed)
    spread = np.array([2.38, 1.5, 0.205, 1.5], dtype=np.float32)
    state = rng.uniform(-1.0, 1.0, (environments, 4)).astype(np.float32) * spread
    action = rng.integers(0, 2, environments, dtype=np.int32)
    fresh = rng.uniform(-0.05, 0.05, (environments, 4)).astype(np.float32)
    return state, action, fresh
