"""Loop programs as Numba users write them: the elements in parallel, each through all steps where it can be."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, prange
from numba_threefry import chain, threefry, u32, unit

loops = njit(parallel=True, error_model="numpy")
inner = njit(error_model="numpy", inline="always")

ZERO, ONE, TWO, HALF, FOUR = (np.float32(value) for value in (0.0, 1.0, 2.0, 0.5, 4.0))
PI, TURN = np.float32(math.pi), np.float32(2 * math.pi)
TAU, FASTEST = np.float32(0.05), np.float32(8.0)
SPIN_COST, TORQUE_COST = np.float32(0.1), np.float32(0.001)
PULL, PUSH = np.float32(15.0), np.float32(3.0)


@loops
def _pendulum(ends, spins, costs, angles, starts, w1, b1, w2, b2, steps):
    for n in prange(angles.shape[0]):
        angle, spin, cost = angles[n], starts[n], ZERO
        for _ in range(steps):
            cos, sin = np.cos(angle), np.sin(angle)
            total = b2[0]
            for k in range(w1.shape[1]):
                total += w2[k, 0] * np.tanh(cos * w1[0, k] + sin * w1[1, k] + spin * w1[2, k] + b1[k])
            torque = TWO * np.tanh(total)
            upright = (angle + PI) % TURN - PI
            cost += upright * upright + SPIN_COST * spin * spin + TORQUE_COST * torque * torque
            spin = min(max(spin + TAU * (PULL * sin + PUSH * torque), -FASTEST), FASTEST)
            angle += TAU * spin
        ends[n], spins[n], costs[n] = angle, spin, cost


def pendulum(angle: Any, spin: Any, w1: Any, b1: Any, w2: Any, b2: Any, steps: int) -> Any:
    out = tuple(np.empty_like(angle) for _ in range(3))
    _pendulum(*out, angle, spin, w1, b1, w2, b2, steps)
    return out


@inner
def slope(x, y, z):
    return 10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z


@loops
def _lorenz(ends, x0, y0, z0, steps):
    tau = 0.01
    for n in prange(x0.shape[0]):
        x, y, z = x0[n], y0[n], z0[n]
        for _ in range(steps):
            a1, b1, c1 = slope(x, y, z)
            a2, b2, c2 = slope(x + 0.5 * tau * a1, y + 0.5 * tau * b1, z + 0.5 * tau * c1)
            a3, b3, c3 = slope(x + 0.5 * tau * a2, y + 0.5 * tau * b2, z + 0.5 * tau * c2)
            a4, b4, c4 = slope(x + tau * a3, y + tau * b3, z + tau * c3)
            x += tau / 6.0 * (a1 + 2.0 * (a2 + a3) + a4)
            y += tau / 6.0 * (b1 + 2.0 * (b2 + b3) + b4)
            z += tau / 6.0 * (c1 + 2.0 * (c2 + c3) + c4)
        ends[0, n], ends[1, n], ends[2, n] = x, y, z


def lorenz(x: Any, y: Any, z: Any, steps: int) -> Any:
    ends = np.empty((3, len(x)))
    _lorenz(ends, x, y, z, steps)
    return tuple(ends)


@inner
def cell(world, i, j, up, down, left, right):
    around = world[up, left] + world[up, j] + world[up, right] + world[i, left] + world[i, right]
    around += world[down, left] + world[down, j] + world[down, right]
    return np.uint8(around == 3 or (around == 2 and world[i, j] == 1))


@loops
def generation(out, world):
    rows, columns = world.shape
    for i in prange(rows):
        up, down = (i - 1) % rows, (i + 1) % rows
        out[i, 0] = cell(world, i, 0, up, down, columns - 1, 1 % columns)
        for j in range(1, columns - 1):
            out[i, j] = cell(world, i, j, up, down, j - 1, j + 1)
        out[i, columns - 1] = cell(world, i, columns - 1, up, down, columns - 2, 0)


def life(world: Any, generations: int) -> Any:
    return _by_turns(generation, world, generations)


def _by_turns(step: Callable[..., Any], start: Any, steps: int) -> Any:
    """`step(out, state)` so many times, in two arrays by turns."""
    state, other = start.copy(), np.empty_like(start)
    for _ in range(steps):
        step(other, state)
        state, other = other, state
    return state


@loops
def _escape_time(out, cx, cy, iterations):
    for i in prange(cx.shape[0]):
        for j in range(cx.shape[1]):
            x, y, count = ZERO, ZERO, 0
            for _ in range(iterations):
                xx, yy = x * x, y * y
                if xx + yy >= FOUR:
                    break
                x, y = xx - yy + cx[i, j], TWO * x * y + cy[i, j]
                count += 1
            out[i, j] = count


def escape_time(cx: Any, cy: Any, iterations: int) -> Any:
    out = np.empty(cx.shape, np.int32)
    _escape_time(out, cx, cy, iterations)
    return out


@inner
def sigmoid(x):
    return HALF * (np.tanh(HALF * x) + ONE)


@loops
def _lstm(history, c, from_input, u):
    steps, batch, n = history.shape
    h = np.zeros((batch, n), np.float32)
    for t in range(steps):
        gates = h @ u
        for i in prange(batch):
            for j in range(n):
                keep = sigmoid(gates[i, j] + from_input[t, i, j])
                write = sigmoid(gates[i, n + j] + from_input[t, i, n + j])
                read = sigmoid(gates[i, 2 * n + j] + from_input[t, i, 2 * n + j])
                c[i, j] = keep * c[i, j] + write * np.tanh(gates[i, 3 * n + j] + from_input[t, i, 3 * n + j])
                h[i, j] = read * np.tanh(c[i, j])
                history[t, i, j] = h[i, j]


def lstm_scan(x: Any, w: Any, u: Any, b: Any) -> Any:
    """The input's product taken out of the loop, by NumPy."""
    steps, batch, features = x.shape
    n = u.shape[0]
    from_input = (x.reshape(steps * batch, features) @ w + b).reshape(steps, batch, 4 * n)
    history, c = np.empty((steps, batch, n), np.float32), np.zeros((batch, n), np.float32)
    _lstm(history, c, from_input, u)
    return history, c


@loops
def heat_step(out, u):
    rows, columns = u.shape
    for i in prange(rows):
        if i == 0 or i == rows - 1:
            out[i] = 0.0
        else:
            out[i, 0] = 0.0
            for j in range(1, columns - 1):
                around = u[i + 1, j] + u[i - 1, j] + u[i, j + 1] + u[i, j - 1]
                out[i, j] = u[i, j] + 0.2 * (around - 4.0 * u[i, j])
            out[i, columns - 1] = 0.0


def heat_2d(plate: Any, steps: int) -> Any:
    return _by_turns(heat_step, plate, steps)


@loops
def best(better, policy, chances, reward, value):
    """One sweep: the greatest worth of each state, the action that has it, and the largest change."""
    actions, states, _ = chances.shape
    change = 0.0
    for s in prange(states):
        top, chosen = -math.inf, 0
        for a in range(actions):
            total = 0.0
            for other in range(states):
                total += chances[a, s, other] * value[other]
            worth = reward[a, s] + 0.9 * total
            if worth > top:
                top, chosen = worth, a
        better[s], policy[s] = top, chosen
        change = max(change, abs(top - value[s]))
    return change


def value_iteration(chances: Any, reward: Any) -> Any:
    states = reward.shape[1]
    value, better, policy = np.zeros(states), np.empty(states), np.empty(states, np.int64)
    change, sweeps = math.inf, 0
    while change > 1e-6:
        change, sweeps = best(better, policy, chances, reward, value), sweeps + 1
        value, better = better, value
    best(better, policy, chances, reward, value)
    return value, policy, np.int64(sweeps)


REACH, QUARTER = np.float32(0.8), np.float32(0.25)


@inner
def energy(x, y):
    bend = y - QUARTER * x * x
    return HALF * x * x + FOUR * bend * bend


@inner
def moved(keys, t, number, word):
    a, b = threefry(keys[t, 0], keys[t, 1], u32(0), u32(number))
    return max(-REACH, unit(a ^ b, word) * (REACH - -REACH) + -REACH)


@loops
def _metropolis(ends, means, taken, x0, y0, keys):
    count, steps = x0.shape[0], keys.shape[0]
    for n in prange(count):
        word = np.empty(1, np.uint32)
        x, y, total, number = x0[n], y0[n], ZERO, 0
        for t in range(steps):
            new_x, new_y = x + moved(keys, t, n, word), y + moved(keys, t, count + n, word)
            a, b = threefry(keys[t, 2], keys[t, 3], u32(0), u32(n))
            if unit(a ^ b, word) < np.exp(energy(x, y) - energy(new_x, new_y)):
                x, y = new_x, new_y
                number += 1
            total += y
        ends[n], means[n], taken[n] = x, total / np.float32(steps), number


def metropolis(key: Any, x: Any, y: Any, steps: int) -> Any:
    out = np.empty_like(x), np.empty_like(x), np.empty(len(x), np.int32)
    _metropolis(*out, x, y, chain(key, steps))
    return out


PROGRAMS: dict[str, Callable[..., Any]] = {
    "escape_time": escape_time,
    "heat_2d": heat_2d,
    "life": life,
    "lorenz": lorenz,
    "lstm_scan": lstm_scan,
    "metropolis": metropolis,
    "pendulum": pendulum,
    "value_iteration": value_iteration,
}
"""By name of the program."""
