"""Programs as Numba users write them: loop nests over the rows, in parallel, that fill given results.

A Python number is f64 in Numba, so the constants of f32 programs are f32 here. `fastmath` stays off: sums keep their
order, as the other variants' exp and log keep their accuracy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit, prange

loops = njit(parallel=True, cache=True, error_model="numpy")
inner = njit(cache=True, error_model="numpy", inline="always")

ZERO, ONE, HALF, TWO, FOUR = (np.float32(value) for value in (0.0, 1.0, 0.5, 2.0, 4.0))


@dataclass(frozen=True, slots=True)
class Kernel:
    """One program."""

    run: Callable[..., Any]
    """Fills the results, which come first, from the arguments; what it returns are results that are scalars."""
    allocate: Callable[..., tuple[Any, ...]]
    """The arrays to fill, uninitialised, from the arguments."""
    scalar: type[Any] | None = None
    """NumPy's type of what `run` returns; None where it returns nothing."""


def like_first(first: Any, *rest: Any) -> tuple[Any, ...]:
    """One result of the first argument's shape and dtype."""
    del rest
    return (np.empty_like(first),)


def nothing(*args: Any) -> tuple[Any, ...]:
    """For programs that return scalars or write into arguments."""
    del args
    return ()


@loops
def go_fast(out, a):
    trace = 0.0
    for i in range(a.shape[0]):
        trace += math.tanh(a[i, i])
    for i in prange(a.shape[0]):
        for j in range(a.shape[1]):
            out[i, j] = a[i, j] + trace


@loops
def mandelbrot(out, cx, cy):
    for i in prange(cx.shape[0]):
        for j in range(cx.shape[1]):
            x, y, count = ZERO, ZERO, ZERO
            for _ in range(20):
                xx, yy = x * x, y * y
                if xx + yy >= FOUR:
                    break
                x, y = xx - yy + cx[i, j], TWO * x * y + cy[i, j]
                count += ONE
            out[i, j] = count


@loops
def smooth(out, u):
    for i in prange(1, u.shape[0] - 1):
        for j in range(1, u.shape[1] - 1):
            out[i, j] = 0.2 * (u[i, j] + u[i, j - 1] + u[i, j + 1] + u[i + 1, j] + u[i - 1, j])


def jacobi_2d(a, b):
    for _ in range(5):
        smooth(b, a)
        smooth(a, b)


@loops
def heat_step(out, u):
    rows, columns, levels = u.shape
    for i in prange(rows):
        for j in range(columns):
            if i == 0 or i == rows - 1 or j == 0 or j == columns - 1:
                for k in range(levels):
                    out[i, j, k] = u[i, j, k]
            else:
                out[i, j, 0] = u[i, j, 0]
                for k in range(1, levels - 1):
                    centre = u[i, j, k]
                    out[i, j, k] = (
                        centre
                        + 0.125 * (u[i + 1, j, k] - 2.0 * centre + u[i - 1, j, k])
                        + 0.125 * (u[i, j + 1, k] - 2.0 * centre + u[i, j - 1, k])
                        + 0.125 * (u[i, j, k + 1] - 2.0 * centre + u[i, j, k - 1])
                    )
                out[i, j, levels - 1] = u[i, j, levels - 1]


def heat_3d(out, field):
    other = np.empty_like(field)
    heat_step(other, field)
    heat_step(out, other)
    heat_step(other, out)
    heat_step(out, other)


@loops
def hdiff(field, out, coeff):
    rows, columns, levels = out.shape
    for i in prange(rows):
        lap = np.empty((3, 3, levels))
        for j in range(columns):
            for di in range(3):
                for dj in range(3):
                    if (di - 1) * (dj - 1) == 0:  # the four corners are not read
                        r, c = i + di + 1, j + dj + 1
                        for k in range(levels):
                            lap[di, dj, k] = 4.0 * field[r, c, k] - (
                                field[r + 1, c, k] + field[r - 1, c, k] + field[r, c + 1, k] + field[r, c - 1, k]
                            )
            for k in range(levels):
                here = field[i + 2, j + 2, k]
                below = lap[2, 1, k] - lap[1, 1, k]
                below = 0.0 if below * (field[i + 3, j + 2, k] - here) > 0.0 else below
                above = lap[1, 1, k] - lap[0, 1, k]
                above = 0.0 if above * (here - field[i + 1, j + 2, k]) > 0.0 else above
                right = lap[1, 2, k] - lap[1, 1, k]
                right = 0.0 if right * (field[i + 2, j + 3, k] - here) > 0.0 else right
                left = lap[1, 1, k] - lap[1, 0, k]
                left = 0.0 if left * (here - field[i + 2, j + 1, k]) > 0.0 else left
                out[i, j, k] = here - coeff[i, j, k] * (below - above + right - left)


@loops
def compute_clip(out, first, second):
    for i in prange(first.shape[0]):
        for j in range(first.shape[1]):
            out[i, j] = min(max(first[i, j], 2), 10) * 4 + second[i, j] * 3 + 9


@loops
def nbody_acceleration(out, position, mass):
    for i in prange(position.shape[0]):
        x, y, z = position[i, 0], position[i, 1], position[i, 2]
        ax, ay, az = 0.0, 0.0, 0.0
        for j in range(position.shape[0]):
            dx, dy, dz = position[j, 0] - x, position[j, 1] - y, position[j, 2] - z
            squared = dx * dx + dy * dy + dz * dz + 0.01
            pull = mass[j] / (squared * math.sqrt(squared))
            ax += dx * pull
            ay += dy * pull
            az += dz * pull
        out[i, 0], out[i, 1], out[i, 2] = ax, ay, az


RATE, VOLATILITY, DRIFT = np.float32(0.02), np.float32(0.30), np.float32(0.02 + 0.5 * 0.30 * 0.30)
SLOPE, DENSITY = np.float32(0.2316419), np.float32(1.0 / math.sqrt(2.0 * math.pi))
P1, P2, P3, P4, P5 = (
    np.float32(value) for value in (0.319381530, -0.356563782, 1.781477937, -1.821255978, 1.330274429)
)


@inner
def normal_cdf(x):
    t = ONE / (ONE + SLOPE * abs(x))
    tail = np.exp(-HALF * x * x) * DENSITY * (t * (P1 + t * (P2 + t * (P3 + t * (P4 + t * P5)))))
    return ONE - tail if x >= ZERO else tail


@loops
def black_scholes(call, put, spot, strike, years):
    for i in prange(spot.shape[0]):
        spread = VOLATILITY * np.sqrt(years[i])
        d1 = (np.log(spot[i] / strike[i]) + DRIFT * years[i]) / spread
        d2 = d1 - spread
        discounted = strike[i] * np.exp(-RATE * years[i])
        call[i] = spot[i] * normal_cdf(d1) - discounted * normal_cdf(d2)
        put[i] = discounted * normal_cdf(-d2) - spot[i] * normal_cdf(-d1)


@loops
def fused_add_sum(x, y, z):
    total = ZERO
    for i in prange(x.shape[0]):
        row = ZERO
        for j in range(x.shape[1]):
            row += x[i, j] + y[i, j] * z[i, j]
        total += row
    return total


@loops
def graph_laplacian(out, x, neighbours, weights):
    for i in prange(x.shape[0]):
        degree = ZERO
        for n in range(neighbours.shape[1]):
            degree += weights[i, n]
        for f in range(x.shape[1]):
            out[i, f] = degree * x[i, f]
        for n in range(neighbours.shape[1]):
            other, weight = neighbours[i, n], weights[i, n]
            for f in range(x.shape[1]):
                out[i, f] -= weight * x[other, f]


@loops
def cumulative(out, series):
    window = 20
    for i in prange(series.shape[0]):
        total = np.cumsum(series[i])
        squares = np.cumsum(series[i] * series[i])
        for j in range(series.shape[1] - window):
            mean = (total[j + window] - total[j]) / window
            var = max((squares[j + window] - squares[j]) / window - mean * mean, 1e-12)
            out[i, j] = (series[i, j + window] - mean) / math.sqrt(var)


@loops
def softmax(out, x):
    for i in prange(x.shape[0]):
        top = x[i, 0]
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
        total = ZERO
        for j in range(x.shape[1]):
            out[i, j] = np.exp(x[i, j] - top)
            total += out[i, j]
        for j in range(x.shape[1]):
            out[i, j] /= total


EPSILON = np.float32(1e-5)


@loops
def layer_norm_residual(out, x, residual, gamma, beta):
    rows, width = x.shape
    for i in prange(rows):
        total = ZERO
        for j in range(width):
            out[i, j] = x[i, j] + residual[i, j]
            total += out[i, j]
        mean = total / np.float32(width)
        squares = ZERO
        for j in range(width):
            centred = out[i, j] - mean
            squares += centred * centred
        deviation = np.sqrt(squares / np.float32(width) + EPSILON)
        for j in range(width):
            out[i, j] = (out[i, j] - mean) / deviation * gamma[j] + beta[j]


@loops
def cross_entropy(logits, labels):
    loss = ZERO
    for i in prange(logits.shape[0]):
        top = logits[i, 0]
        for j in range(logits.shape[1]):
            top = max(top, logits[i, j])
        total = ZERO
        for j in range(logits.shape[1]):
            total += np.exp(logits[i, j] - top)
        loss += np.log(total) - (logits[i, labels[i]] - top)
    return loss / np.float32(logits.shape[0])


@loops
def concat_users(scaled, norm, x, y):
    left, right = x.shape[1], y.shape[1]
    for i in prange(x.shape[0]):
        squares = ZERO
        for j in range(left):
            value = np.sin(x[i, j])
            scaled[i, j] = HALF * value + ONE
            squares += value * value
        for j in range(right):
            value = np.cos(y[i, j])
            scaled[i, left + j] = HALF * value + ONE
            squares += value * value
        norm[i] = np.sqrt(squares)


GAMMA_IN, GAMMA_OUT, BYTE, NINTH = np.float32(2.2), np.float32(1.0 / 2.2), np.float32(255.0), np.float32(9.0)
SHARPEN = np.float32(1.5)


@loops
def image_pipeline(out, image):
    rows, columns, channels = image.shape
    linear = np.empty(image.shape, np.float32)
    for i in prange(rows):
        for j in range(columns):
            for c in range(channels):
                linear[i, j, c] = (np.float32(image[i, j, c]) / BYTE) ** GAMMA_IN
    for i in prange(rows - 2):
        for j in range(columns - 2):
            for c in range(channels):
                blur = ZERO
                for b in range(3):
                    blur += linear[i, j + b, c] + linear[i + 1, j + b, c] + linear[i + 2, j + b, c]
                sharp = SHARPEN * linear[i + 1, j + 1, c] - HALF * (blur / NINTH)
                encoded = min(max(sharp, ZERO), ONE) ** GAMMA_OUT
                out[i, j, c] = np.uint8(min(max(encoded * BYTE + HALF, ZERO), BYTE))


@loops
def cartpole_step(after, reward, done, state, action, fresh):
    gravity, half_length, tau = np.float32(9.8), np.float32(0.5), np.float32(0.02)
    pole_mass, total_mass, moment = np.float32(0.1), np.float32(1.1), np.float32(0.1 * 0.5)
    force_size, four_thirds = np.float32(10.0), np.float32(4.0 / 3.0)
    position_limit, angle_limit = np.float32(2.4), np.float32(12 * 2 * math.pi / 360)
    for i in prange(state.shape[0]):
        x, velocity, angle, spin = state[i, 0], state[i, 1], state[i, 2], state[i, 3]
        force = force_size if action[i] == 1 else -force_size
        cos, sin = np.cos(angle), np.sin(angle)
        push = (force + moment * spin * spin * sin) / total_mass
        spin_rate = (gravity * sin - cos * push) / (half_length * (four_thirds - pole_mass * cos * cos / total_mass))
        acceleration = push - moment * spin_rate * cos / total_mass
        x += tau * velocity
        velocity += tau * acceleration
        angle += tau * spin
        spin += tau * spin_rate
        done[i] = abs(x) > position_limit or abs(angle) > angle_limit
        reward[i] = ZERO if done[i] else ONE
        if done[i]:
            for k in range(4):
                after[i, k] = fresh[i, k]
        else:
            after[i, 0], after[i, 1], after[i, 2], after[i, 3] = x, velocity, angle, spin


@loops
def gaussian_mixture(responsibility, x, mean, var, weight):
    count, features = x.shape
    components = mean.shape[0]
    offset = np.empty(components)
    for k in range(components):
        total = 0.0
        for f in range(features):
            total += math.log(2.0 * math.pi * var[k, f])
        offset[k] = math.log(weight[k]) - 0.5 * total
    likelihood = 0.0
    for i in prange(count):
        top = -math.inf
        for k in range(components):
            distance = 0.0
            for f in range(features):
                d = x[i, f] - mean[k, f]
                distance += d * d / var[k, f]
            responsibility[i, k] = offset[k] - 0.5 * distance
            top = max(top, responsibility[i, k])
        total = 0.0
        for k in range(components):
            responsibility[i, k] = math.exp(responsibility[i, k] - top)
            total += responsibility[i, k]
        for k in range(components):
            responsibility[i, k] /= total
        likelihood += math.log(total) + top
    return likelihood / count


def priced(spot, strike, years):
    del strike, years
    return np.empty_like(spot), np.empty_like(spot)


def stepped(state, action, fresh):
    del action, fresh
    return np.empty_like(state), np.empty(len(state), state.dtype), np.empty(len(state), np.bool_)


def mixture_results(x, mean, var, weight):
    del var, weight
    return (np.empty((x.shape[0], mean.shape[0]), x.dtype),)


KERNELS: dict[str, Kernel] = {
    "black_scholes": Kernel(black_scholes, priced),
    "cartpole_step": Kernel(
        cartpole_step,
        stepped,
    ),
    "compute_clip": Kernel(compute_clip, like_first),
    "concat_users": Kernel(
        concat_users,
        lambda x, y: (np.empty((x.shape[0], x.shape[1] + y.shape[1]), x.dtype), np.empty(x.shape[0], x.dtype)),
    ),
    "cross_entropy": Kernel(cross_entropy, nothing, np.float32),
    "cumulative": Kernel(cumulative, lambda series: (np.empty((series.shape[0], series.shape[1] - 20)),)),
    "fused_add_sum": Kernel(fused_add_sum, nothing, np.float32),
    "gaussian_mixture": Kernel(gaussian_mixture, mixture_results, np.float64),
    "go_fast": Kernel(go_fast, like_first),
    "graph_laplacian": Kernel(graph_laplacian, like_first),
    "hdiff": Kernel(hdiff, nothing),
    "heat_3d": Kernel(heat_3d, like_first),
    "image_pipeline": Kernel(image_pipeline, lambda image: (np.empty_like(image[2:, 2:]),)),
    "jacobi_2d": Kernel(jacobi_2d, nothing),
    "layer_norm_residual": Kernel(layer_norm_residual, like_first),
    "mandelbrot": Kernel(mandelbrot, like_first),
    "nbody_acceleration": Kernel(nbody_acceleration, like_first),
    "softmax": Kernel(softmax, like_first),
}
"""By program; programs whose time goes into matrix products are not here."""
