"""CartPole for NumPy's functions (autofuse, NumPy) and for JAX's, which have the same names.

The equations are those of Barto, Sutton and Anderson (1983), in the form that Gym's CartPole-v1 gives them: a pole of
0.1 kg, 1 m long, on a cart of 1 kg; a force of 10 N to either side, steps of 0.02 s by Euler's method. An environment
that is done (2.4 m or 12 degrees off) begins anew at a random place. The policy is a coin.

Each program stands here twice: it draws its numbers in each step, or they are drawn before and passed in, which is less
work. Each of these is written as one writes it first, and without stacks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

F = np.float32
FORCE, GRAVITY, POLE, HALF, TOTAL, TAU = 10.0, 9.8, 0.1, 0.5, 1.1, 0.02
FAR, TILTED = 2.4, 12 * 2 * math.pi / 360
START = 0.05
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
    turn = (GRAVITY * sine - cosine * thrust) / (HALF * (4 / 3 - POLE * cosine * cosine / TOTAL))
    push = thrust - POLE * HALF * turn * cosine / TOTAL
    return x + TAU * v, v + TAU * push, angle + TAU * spin, spin + TAU * turn


def stacked_step(xp: Any, state: Any, reward: Any, right: Any, fresh: Any) -> tuple[Any, Any]:
    """State `f32[N, 4]` and rewards `f32[N]` after a step; `right: bool[N]`, `fresh: f32[N, 4]`."""
    force = xp.where(right, F(FORCE), F(-FORCE))
    new = xp.stack(physics(xp, (state[:, 0], state[:, 1], state[:, 2], state[:, 3]), force), axis=1)
    done = (xp.abs(new[:, 0]) > FAR) | (xp.abs(new[:, 2]) > TILTED)
    return xp.where(done[:, None], fresh, new), reward + xp.where(done, F(0), F(1))


def split_step(xp: Any, parts: Any, reward: Any, right: Any, fresh: Any) -> tuple[Any, Any]:
    """The same on a state of four arrays: none is taken apart and stacked."""
    new = physics(xp, parts, xp.where(right, F(FORCE), F(-FORCE)))
    done = (xp.abs(new[0]) > FAR) | (xp.abs(new[2]) > TILTED)
    kept = tuple(xp.where(done, fresh[:, i], new[i]) for i in range(4))
    return kept, reward + xp.where(done, F(0), F(1))


def naive(lib: Library, key: Any, state: Any, steps: int) -> Any:
    """As one writes it: the state stacked, numbers drawn where they are used, rewards summed in the carry."""
    return _drawn(lib, stacked_step, key, state, state.shape[0], steps)


def unstacked(lib: Library, key: Any, state: Any, steps: int) -> Any:
    """The rewriting of Snider and Liang that does the same work."""
    parts = tuple(state[:, i] for i in range(4))
    parts, reward = _drawn(lib, split_step, key, parts, state.shape[0], steps)
    return lib.xp.stack(parts, axis=1), reward


def naive_given(lib: Library, right: Any, fresh: Any, state: Any) -> Any:
    """Less work: the numbers of all steps are given, `right: bool[T, N]` and `fresh: f32[T, N, 4]`."""
    return _given(lib, stacked_step, right, fresh, state)


def unstacked_given(lib: Library, right: Any, fresh: Any, state: Any) -> Any:
    """Less work, and no stacks."""
    parts, reward = _given(lib, split_step, right, fresh, tuple(state[:, i] for i in range(4)))
    return lib.xp.stack(parts, axis=1), reward


def _drawn(lib: Library, step: Callable[..., Any], key: Any, state: Any, count: int, steps: int) -> Any:
    def drawing(carry: Any, _: Any) -> Any:
        key, state, reward = carry
        key, k_act, k_new = lib.random.split(key, 3)
        right = lib.random.bernoulli(k_act, 0.5, (count,))
        fresh = lib.random.uniform(k_new, (count, 4), F, -START, START)
        return (key, *step(lib.xp, state, reward, right, fresh)), None

    (_, state, reward), _ = lib.scan(drawing, (key, state, lib.xp.zeros(count, F)), None, length=steps)
    return state, reward


def _given(lib: Library, step: Callable[..., Any], right: Any, fresh: Any, state: Any) -> Any:
    def reading(carry: Any, row: Any) -> Any:
        return step(lib.xp, *carry, *row), None

    (state, reward), _ = lib.scan(reading, (state, lib.xp.zeros(right.shape[1], F)), (right, fresh))
    return state, reward


def start(count: int, seed: int = 0) -> tuple[Any, Any]:
    """A key, and the state of `count` environments."""
    rng = np.random.default_rng(seed)
    return np.array([0, 7], np.uint32), rng.uniform(-START, START, (count, 4)).astype(F)


def drawn(count: int, steps: int, seed: int = 0) -> tuple[Any, Any]:
    """The numbers of all steps for the programs to which they are given."""
    rng = np.random.default_rng(seed + 1)
    right = rng.integers(0, 2, (steps, count), np.uint8).view(np.bool_)
    fresh = rng.random((steps, count, 4), F)
    fresh *= F(2 * START)
    fresh -= F(START)
    return right, fresh
