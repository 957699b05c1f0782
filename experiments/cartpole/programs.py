"""CartPole, written once for NumPy's functions (autofuse, NumPy) and once more for JAX's, which have the same names.

The equations are those of Barto, Sutton and Anderson (1983), in the form that Gym's CartPole-v1 gives them: a pole of
0.1 kg, 1 m long, on a cart of 1 kg; a force of 10 N to either side, steps of 0.02 s by Euler's method. An environment
that is done (2.4 m or 12 degrees off) begins anew at a random place. The policy is a coin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

F = np.float32
FORCE, GRAVITY, POLE, HALF, TOTAL, TAU = F(10.0), F(9.8), F(0.1), F(0.5), F(1.1), F(0.02)
FAR, TILTED = F(2.4), F(12 * 2 * np.pi / 360)
START = F(0.05)
"""Environments begin with numbers between minus this and this."""


class Library(NamedTuple):
    """Where a program takes its functions from."""

    xp: Any
    """NumPy's functions."""
    random: Any
    scan: Callable[..., Any]


def physics(xp: Any, parts: tuple[Any, Any, Any, Any], force: Any) -> tuple[Any, Any, Any, Any]:
    """One step of the equations."""
    x, v, angle, spin = parts
    sine, cosine = xp.sin(angle), xp.cos(angle)
    thrust = (force + POLE * HALF * spin * spin * sine) / TOTAL
    turn = (GRAVITY * sine - cosine * thrust) / (HALF * (F(4 / 3) - POLE * cosine * cosine / TOTAL))
    push = thrust - POLE * HALF * turn * cosine / TOTAL
    return x + TAU * v, v + TAU * push, angle + TAU * spin, spin + TAU * turn


def naive(lib: Library, key: Any, state: Any, steps: int) -> Any:
    """As one writes it: the state stacked, numbers drawn where they are used, rewards summed in the carry."""
    xp, count = lib.xp, state.shape[0]

    def step(carry: Any, _: Any) -> Any:
        key, state, reward = carry
        key, k_act, k_new = lib.random.split(key, 3)
        force = xp.where(lib.random.bernoulli(k_act, 0.5, (count,)), FORCE, -FORCE)
        new = xp.stack(physics(xp, (state[:, 0], state[:, 1], state[:, 2], state[:, 3]), force), axis=1)
        done = (xp.abs(new[:, 0]) > FAR) | (xp.abs(new[:, 2]) > TILTED)
        fresh = lib.random.uniform(k_new, (count, 4), F, -START, START)
        reward = reward + xp.where(done, F(0), F(1))
        return (key, xp.where(done[:, None], fresh, new), reward), None

    (_, state, reward), _ = lib.scan(step, (key, state, xp.zeros(count, F)), None, length=steps)
    return state, reward


def unstacked(lib: Library, key: Any, state: Any, steps: int) -> Any:
    """The rewriting of Snider and Liang that does the same work: no array is taken apart and stacked in a step."""
    xp, count = lib.xp, state.shape[0]

    def step(carry: Any, _: Any) -> Any:
        key, parts, reward = carry
        key, k_act, k_new = lib.random.split(key, 3)
        force = xp.where(lib.random.bernoulli(k_act, 0.5, (count,)), FORCE, -FORCE)
        new = physics(xp, parts, force)
        done = (xp.abs(new[0]) > FAR) | (xp.abs(new[2]) > TILTED)
        fresh = lib.random.uniform(k_new, (count, 4), F, -START, START)
        kept = tuple(xp.where(done, fresh[:, i], new[i]) for i in range(4))
        return (key, kept, reward + xp.where(done, F(0), F(1))), None

    parts = tuple(state[:, i] for i in range(4))
    (_, parts, reward), _ = lib.scan(step, (key, parts, xp.zeros(count, F)), None, length=steps)
    return xp.stack(parts, axis=1), reward


def start(count: int, seed: int = 0) -> tuple[Any, Any]:
    """A key, and the state of `count` environments."""
    rng = np.random.default_rng(seed)
    return np.array([0, 7], np.uint32), rng.uniform(-START, START, (count, 4)).astype(F)
