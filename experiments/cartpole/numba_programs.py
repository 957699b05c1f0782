"""CartPole in Numba: environments in parallel, with the random bits of jax.random where numbers are drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import programs
from numba import njit, prange
from numba_threefry import chain, threefry, u32, unit

loops = njit(parallel=True, error_model="numpy")
inner = njit(error_model="numpy", inline="always")
FORCE, GRAVITY, MOMENT, POLE, HALF, TOTAL, TAU, FAR, TILTED, START = (
    np.float32(value)
    for value in (
        programs.FORCE,
        programs.GRAVITY,
        programs.POLE * programs.HALF,
        programs.POLE,
        programs.HALF,
        programs.TOTAL,
        programs.TAU,
        programs.FAR,
        programs.TILTED,
        programs.START,
    )
)
THIRDS, ONE, ZERO = np.float32(4 / 3), np.float32(1), np.float32(0)
BLOCK = 256
"""Environments that go through all steps together where numbers are read: their rows are read in order."""


@inner
def moved(x, v, angle, spin, force):
    sine, cosine = np.sin(angle), np.cos(angle)
    thrust = (force + MOMENT * spin * spin * sine) / TOTAL
    turn = (GRAVITY * sine - cosine * thrust) / (HALF * (THIRDS - POLE * cosine * cosine / TOTAL))
    push = thrust - MOMENT * turn * cosine / TOTAL
    return x + TAU * v, v + TAU * push, angle + TAU * spin, spin + TAU * turn


@loops
def drawn(ends, rewards, state, keys):
    for n in prange(state.shape[0]):
        word = np.empty(1, np.uint32)
        x, v, angle, spin = state[n, 0], state[n, 1], state[n, 2], state[n, 3]
        total = ZERO
        for t in range(keys.shape[0]):
            a, b = threefry(keys[t, 0], keys[t, 1], u32(0), u32(n))
            x, v, angle, spin = moved(x, v, angle, spin, FORCE if unit(a ^ b, word) < HALF else -FORCE)
            if abs(x) > FAR or abs(angle) > TILTED:
                for i in range(4):
                    a, b = threefry(keys[t, 2], keys[t, 3], u32(0), u32(4 * n + i))
                    ends[n, i] = max(-START, unit(a ^ b, word) * (START - -START) + -START)
                x, v, angle, spin = ends[n, 0], ends[n, 1], ends[n, 2], ends[n, 3]
            else:
                total += ONE
        ends[n, 0], ends[n, 1], ends[n, 2], ends[n, 3] = x, v, angle, spin
        rewards[n] = total


@loops
def given(ends, rewards, state, right, fresh):
    count = state.shape[0]
    for block in prange((count + BLOCK - 1) // BLOCK):
        first, last = block * BLOCK, min(count, (block + 1) * BLOCK)
        for n in range(first, last):
            ends[n] = state[n]
            rewards[n] = ZERO
        for t in range(right.shape[0]):
            for n in range(first, last):
                x, v, angle, spin = moved(
                    ends[n, 0], ends[n, 1], ends[n, 2], ends[n, 3], FORCE if right[t, n] else -FORCE
                )
                if abs(x) > FAR or abs(angle) > TILTED:
                    for i in range(4):
                        ends[n, i] = fresh[t, n, i]
                else:
                    ends[n, 0], ends[n, 1], ends[n, 2], ends[n, 3] = x, v, angle, spin
                    rewards[n] += ONE


def drawn_call(key: Any, state: Any, steps: int) -> tuple[Any, Any]:
    ends, rewards = np.empty_like(state), np.empty(len(state), np.float32)
    drawn(ends, rewards, state, chain(key, steps))
    return ends, rewards


def given_call(right: Any, fresh: Any, state: Any) -> tuple[Any, Any]:
    ends, rewards = np.empty_like(state), np.empty(len(state), np.float32)
    given(ends, rewards, state, right, fresh)
    return ends, rewards
